"""What can be wrong with a database, told apart by who must act."""

from __future__ import annotations

from wingbeat.database.protocol import DatabaseUnavailable


class NewerDatabase(DatabaseUnavailable):
    """The database was written by a newer Wingbeat; this one must not touch it."""


class CorruptDatabase(DatabaseUnavailable):
    """The file is damaged, or is no database at all."""


class RecordNotFound(Exception):
    """There is no record of this action."""
