"""Where TaskActions live: the protocol, and one folder for each kind of store."""

from wingbeat.stores.cache import Informer
from wingbeat.stores.protocol import (
    AlreadyExists,
    Conflict,
    Expired,
    ListPage,
    MetadataPatch,
    NotFound,
    Selector,
    Store,
    StoreError,
    Unavailable,
    WatchEvent,
    WatchType,
)
from wingbeat.stores.sql import SqlStore
from wingbeat.stores.workqueue import Clock, Priority, QueueClosed, WorkQueue

__all__ = [
    "AlreadyExists",
    "Clock",
    "Conflict",
    "Expired",
    "Informer",
    "ListPage",
    "MetadataPatch",
    "NotFound",
    "Priority",
    "QueueClosed",
    "Selector",
    "SqlStore",
    "Store",
    "StoreError",
    "Unavailable",
    "WatchEvent",
    "WatchType",
    "WorkQueue",
]
