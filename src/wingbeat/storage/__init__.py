"""Blobs: the storage, signed URLs to it, and the process that serves them."""

from pathlib import Path

from wingbeat.storage.access import access_variables, task_variables
from wingbeat.storage.folder import FolderStorage
from wingbeat.storage.frames import frames_for_clients, frames_for_tasks
from wingbeat.storage.opening import open_storage
from wingbeat.storage.process import DataServer
from wingbeat.storage.protocol import (
    ObjectInfo,
    ObjectMissing,
    OutsideStorage,
    Storage,
    StorageFull,
    StorageUnavailable,
    StorageUnusable,
)
from wingbeat.storage.signing import Signer

COPYING_SCRIPT = Path(__file__).with_name("copying.py")
"""Runs inside task processes, by path: see its own text."""

__all__ = [
    "COPYING_SCRIPT",
    "DataServer",
    "FolderStorage",
    "ObjectInfo",
    "ObjectMissing",
    "OutsideStorage",
    "Signer",
    "Storage",
    "StorageFull",
    "StorageUnavailable",
    "StorageUnusable",
    "access_variables",
    "frames_for_clients",
    "frames_for_tasks",
    "open_storage",
    "task_variables",
]
