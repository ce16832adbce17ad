"""The database: one writer with group commit behind a small protocol, migrations, and the records of actions."""

from wingbeat.database.errors import CorruptDatabase, NewerDatabase, RecordNotFound
from wingbeat.database.factory import open_database
from wingbeat.database.group import RESYNC
from wingbeat.database.protocol import Connection, Database, DatabaseUnavailable
from wingbeat.database.queries import COLUMNS, BadQuery, Filter, FilterFunction, Order, RecordQuery
from wingbeat.database.records import (
    TOPIC,
    Records,
    apply_events,
    get_blob,
    get_record,
    insert_record,
    list_attempts,
    list_records,
    put_blob,
    set_abort,
    set_wait_reason,
)

RECORDS_TOPIC = TOPIC

__all__ = [
    "COLUMNS",
    "RECORDS_TOPIC",
    "RESYNC",
    "BadQuery",
    "Connection",
    "CorruptDatabase",
    "Database",
    "DatabaseUnavailable",
    "Filter",
    "FilterFunction",
    "NewerDatabase",
    "Order",
    "RecordNotFound",
    "RecordQuery",
    "Records",
    "apply_events",
    "get_blob",
    "get_record",
    "insert_record",
    "list_attempts",
    "list_records",
    "open_database",
    "put_blob",
    "set_abort",
    "set_wait_reason",
]
