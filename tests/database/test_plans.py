"""Questions that are asked all the time are answered by an index, however large the tables are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wingbeat.database import Connection, Filter, FilterFunction, Order, RecordQuery, open_database, queries
from wingbeat.resources import TaskId

PLACE: dict[str, Any] = {"org": "o", "project": "p", "domain": "d"}


def asked(query: RecordQuery) -> tuple[str, list[Any]]:
    condition, params = queries.where(query)
    return f"SELECT * FROM actions WHERE {condition} ORDER BY {queries.order(query)} LIMIT 50", params


RECORD_QUERIES = {
    "runs, newest first": RecordQuery(parent="", **PLACE),
    "runs of all projects, newest first": RecordQuery(parent=""),
    "runs by phase": RecordQuery(parent="", order_by=(Order("phase", False), Order("created_at")), **PLACE),
    "runs of a task": RecordQuery(parent="", task=TaskId("", "", "", "t", ""), **PLACE),
    "runs in a phase": RecordQuery(
        parent="", filters=(Filter("phase", FilterFunction.EQUAL, ("4",)),), order_by=(Order("created_at"),), **PLACE
    ),
    "actions of a run, oldest first": RecordQuery(run="r", order_by=(Order("created_at", False),), **PLACE),
    "children": RecordQuery(run="r", parent="a", order_by=(Order("created_at", False),), **PLACE),
}

STORE_QUERIES = {
    "what an object owns": ("SELECT * FROM taskactions WHERE owner_uid = ? AND deleting = 0", ["u"]),
    "an owner": ("SELECT deleting FROM taskactions WHERE uid = ?", ["u"]),
    "changes": ("SELECT * FROM taskactions WHERE resource_version > ?", [1]),
    "finished long ago": ("SELECT * FROM taskactions WHERE termination_status = ? AND completed_time < ?", ["t", "1"]),
}


@pytest.mark.parametrize(
    ("sql", "params"),
    [*map(asked, RECORD_QUERIES.values()), *STORE_QUERIES.values()],
    ids=[*RECORD_QUERIES, *STORE_QUERIES],
)
async def test_no_table_is_scanned_for(tmp_path: Path, sql: str, params: list[Any]) -> None:
    db = await open_database(tmp_path / "db")

    def plan(c: Connection) -> str:
        return " / ".join(row[3] for row in c.query(f"EXPLAIN QUERY PLAN {sql}", params))

    text = await db.read(plan)
    await db.close()
    assert "USING INDEX" in text or "USING COVERING INDEX" in text
    steps = text.split(" / ")
    assert not [s for s in steps if s.startswith("SCAN") and "INDEX" not in s]
