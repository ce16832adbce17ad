"""The SQL store: TaskActions, with the semantics of Kubernetes, in SQLite or PostgreSQL."""

from wingbeat.stores.sql.objects import TOPIC, Change, Objects
from wingbeat.stores.sql.store import SqlStore

__all__ = ["TOPIC", "Change", "Objects", "SqlStore"]
