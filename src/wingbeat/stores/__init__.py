"""Where TaskActions live: the protocol, and one folder for each kind of store."""

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

__all__ = [
    "AlreadyExists",
    "Conflict",
    "Expired",
    "ListPage",
    "MetadataPatch",
    "NotFound",
    "Selector",
    "Store",
    "StoreError",
    "Unavailable",
    "WatchEvent",
    "WatchType",
]
