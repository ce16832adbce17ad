"""Secrets: made by the command, read by tasks, told to nobody else."""

import hashlib
import pathlib

import pytest

VALUE = "plumage-Tz4q-under-the-third-stone"


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def found_in(folder: pathlib.Path, text: str) -> list[str]:
    needle = text.encode()
    return [str(p) for p in folder.rglob("*") if p.is_file() and not p.is_symlink() and needle in p.read_bytes()]


def test_a_secret_reaches_the_task_that_names_it_and_nothing_else(server):
    server.flyte("create", "secret", "nest-code", "--value", VALUE)
    seen = server.go("secretive", "main")
    assert seen["outputs"] == [digest(VALUE)]
    for command in (("get", "secret"), ("get", "secret", "nest-code")):
        shown = server.flyte(*command)
        assert "nest-code" in shown.flat
        assert VALUE not in shown.flat
    assert not found_in(server.data, VALUE), "the value lies in the data folder in plain text"
    assert VALUE not in server.logs(seen["run"])

    server.flyte("delete", "secret", "nest-code")
    gone = server.go("secretive", "main")
    assert (gone["phase"], gone["root"]["error"]["code"]) == ("FAILED", "SecretNotFound")


@pytest.mark.submits("secretive", "missing")
def test_a_task_whose_secret_does_not_exist_fails_and_says_how_to_make_it(outcome):
    error = outcome.error
    assert (outcome.phase, outcome.root["attempts"], error["code"]) == ("FAILED", 1, "SecretNotFound")
    assert "no-such-secret" in error["message"] and "flyte create secret no-such-secret" in error["message"]


def test_a_secret_of_a_project_and_domain_goes_before_the_global_one(server):
    configured = dict(
        line.split(":", 1)
        for line in (server.data / "flyte.yaml").read_text().replace(" ", "").splitlines()
        if ":" in line
    )
    scope = ("--project", configured["project"], "--domain", configured["domain"])
    server.flyte("create", "secret", "scoped-code", "--value", "everywhere")
    assert server.go("secretive", "from_project")["outputs"] == [digest("everywhere")]
    server.flyte("create", "secret", *scope, "scoped-code", "--value", "only here")
    assert server.go("secretive", "from_project")["outputs"] == [digest("only here")]
