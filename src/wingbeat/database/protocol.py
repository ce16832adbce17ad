"""One place for SQL: a database takes jobs, runs the writing ones in groups, and gives back their results.

SQL is written once, with `?` for parameters, in the dialect that SQLite and PostgreSQL share (`ON CONFLICT`,
`RETURNING`; BLOB and BIGINT in migrations are translated). Times are BIGINT microseconds since 1970, UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Connection(Protocol):
    """What a job gets. `query` returns all rows as tuples; `execute` returns the number of rows changed."""

    def query(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def execute(self, sql: str, params: Sequence[Any] = ()) -> int: ...

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None: ...

    def next_revision(self) -> int:
        """The next number of the store-wide sequence; in commit order. Writing jobs only."""

    def notify(self, topic: str, key: Any) -> None:
        """Tell subscribers of `topic` about `key` once this job's transaction has committed."""


class Database(Protocol):
    @property
    def revision(self) -> int:
        """The last revision that this process knows to be committed; its notifications have been dispatched, or are
        being."""

    async def write(self, job: Callable[[Connection], T]) -> T:
        """Run `job` in a transaction and return its result once that is durable. Jobs of one group share a commit,
        each in a savepoint of its own: a job that raises undoes only itself. Runs in another thread: a job must
        touch nothing but its arguments and the connection. Raises what the job raised, or DatabaseUnavailable."""

    async def read(self, job: Callable[[Connection], T]) -> T:
        """Run `job` on a consistent snapshot that includes every write that has returned. It must not write."""

    def subscribe(self, topic: str, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Call `callback(key)` on the event loop for each notification of `topic`; returns what ends it."""

    async def close(self) -> None: ...


class DatabaseUnavailable(Exception):
    """The database cannot be used now; the message says why (disk full, corrupt, away) and what to do."""
