"""`wingbeat`: start, look at, stop and mend the server of this computer. Importing this costs nothing."""


def main() -> None:
    """The entry point of the command."""
    import sys

    from wingbeat.cli.errors import CliError
    from wingbeat.cli.root import cli

    try:
        cli(prog_name="wingbeat")
    except CliError as error:
        error.show()
        sys.exit(error.exit_code)


__all__ = ["main"]
