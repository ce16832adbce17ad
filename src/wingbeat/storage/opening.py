"""From a URI in the configuration to the storage that it names."""

from __future__ import annotations

from wingbeat.storage.folder import FolderStorage
from wingbeat.storage.protocol import Storage, StorageUnavailable

_OBJECT_SCHEMES = ("s3", "gs", "abfs", "abfss")
"""Those that the SDK reads and writes, too: tasks and clients get the same URIs."""


def open_storage(uri: str, config: dict[str, str] | None = None) -> Storage:
    """A folder for an absolute path (also `local://` and `file://`), an object store for `s3://` and its like.
    Raises StorageUnavailable, also for URIs that are none of these."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme in _OBJECT_SCHEMES:
        # Imported late: the laptop's start pays for no cloud client.
        from wingbeat.storage.objects import ObjectStorage

        return ObjectStorage.open(uri, config)
    path = rest if separator and scheme in ("local", "file") else uri
    if not path.startswith("/"):
        raise StorageUnavailable(
            f"storage {uri!r} is neither an absolute path nor one of {', '.join(s + '://' for s in _OBJECT_SCHEMES)}"
        )
    return FolderStorage(path)
