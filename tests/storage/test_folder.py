"""The folder storage and the object storage keep the same promises; the folder has some of its own."""

import os
from pathlib import Path

import pytest
from obstore.store import LocalStore, MemoryStore

from wingbeat.storage import (
    FolderStorage,
    ObjectMissing,
    OutsideStorage,
    Storage,
    StorageFull,
    StorageUnavailable,
    open_storage,
)
from wingbeat.storage.folder import INCOMING
from wingbeat.storage.objects import ObjectStorage
from wingbeat.storage.transfer import open_file


@pytest.fixture(params=["folder", "objects in memory", "objects in files"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return FolderStorage(tmp_path / "blobs")
    store = MemoryStore() if request.param == "objects in memory" else LocalStore(tmp_path)
    return ObjectStorage("s3://bucket/base", store)


async def test_what_is_put_is_got_back_and_replaced_by_the_next_put(storage: Storage) -> None:
    uri = storage.join("runs", "r1/a0", "inputs.pb")
    await storage.put(uri, b"first")
    await storage.put(uri, b"second")
    assert await storage.get(uri) == b"second"
    assert (await storage.head(uri)).size == 6


async def test_an_empty_object_is_an_object(storage: Storage) -> None:
    uri = storage.join("outputs.pb")
    await storage.put(uri, b"")
    assert await storage.get(uri) == b""
    assert (await storage.head(uri)).size == 0


async def test_what_is_not_there_is_missing_for_every_operation(storage: Storage) -> None:
    uri = storage.join("no", "such")
    for attempt in (storage.get(uri), storage.head(uri), storage.copy(uri, storage.join("x"))):
        with pytest.raises(ObjectMissing, match="no/such"):
            await attempt
    assert await storage.list(uri) == []
    assert await storage.delete_prefix(uri) == 0


async def test_a_named_pipe_is_no_object_and_nobody_waits_for_its_writer(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "blobs")
    uri = storage.join("error.pb")
    os.mkfifo(uri)
    for attempt in (storage.get(uri), storage.head(uri), storage.copy(uri, storage.join("x"))):
        with pytest.raises(ObjectMissing, match="no object"):
            await attempt
    with pytest.raises(ObjectMissing, match="no object"), open_file(storage, uri):
        pass


async def test_links_in_a_circle_are_no_object(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "blobs")
    uri = storage.join("error.pb")
    Path(uri).symlink_to(uri)
    for attempt in (storage.get(uri), storage.head(uri)):
        with pytest.raises(ObjectMissing):
            await attempt


async def test_a_folder_of_objects_is_not_an_object(storage: Storage) -> None:
    await storage.put(storage.join("a", "b"), b"x")
    with pytest.raises(ObjectMissing):
        await storage.get(storage.join("a"))
    with pytest.raises(ObjectMissing):
        await storage.head(storage.join("a"))


async def test_reading_past_the_limit_is_refused_and_up_to_it_is_not(storage: Storage) -> None:
    uri = storage.join("big")
    await storage.put(uri, b"12345")
    assert await storage.get(uri, limit=5) == b"12345"
    with pytest.raises(ValueError, match="5 bytes, more than the 4"):
        await storage.get(uri, limit=4)


async def test_list_and_delete_go_by_whole_path_elements(storage: Storage) -> None:
    for name in ("run/1/a", "run/1/b/c", "run/10/a", "run/1x"):
        await storage.put(storage.join(name), b"x")
    assert await storage.list(storage.join("run/1")) == [storage.join("run/1/a"), storage.join("run/1/b/c")]
    assert await storage.delete_prefix(storage.join("run/1")) == 2
    assert await storage.list(storage.base_uri) == [storage.join("run/10/a"), storage.join("run/1x")]
    assert await storage.delete_prefix(storage.join("run/1x")) == 1
    assert await storage.list(storage.base_uri) == [storage.join("run/10/a")]


async def test_copy_leaves_the_source_and_replaces_the_target(storage: Storage) -> None:
    source, target = storage.join("s"), storage.join("deep", "t")
    await storage.put(source, b"new")
    await storage.put(target, b"old")
    await storage.copy(source, target)
    assert (await storage.get(source), await storage.get(target)) == (b"new", b"new")


@pytest.mark.parametrize("part", ["..", "a/../b", "", "/a", "a//b", "a/", ".", "a\0b"])
def test_names_that_climb_or_are_empty_are_no_names(storage: Storage, part: str) -> None:
    with pytest.raises(OutsideStorage):
        storage.join("x", part)


async def test_the_base_itself_is_never_deleted_or_written(storage: Storage) -> None:
    await storage.put(storage.join("kept"), b"x")
    with pytest.raises(OutsideStorage):
        await storage.delete_prefix(storage.base_uri)
    with pytest.raises(OutsideStorage):
        await storage.put(storage.base_uri, b"x")
    assert await storage.get(storage.join("kept")) == b"x"


OUTSIDE = [
    "/etc/passwd",
    "{base}/../secret",
    "{base}x/secret",
    "relative",
    "http://host{base}/a",
    "s3://other/base/a",
    "",
]


@pytest.mark.parametrize("uri", OUTSIDE)
async def test_uris_outside_the_base_are_refused_by_every_operation(storage: Storage, uri: str) -> None:
    uri, inside = uri.format(base=storage.base_uri), storage.join("a")
    await storage.put(inside, b"x")
    for attempt in (
        storage.get(uri),
        storage.put(uri, b"x"),
        storage.head(uri),
        storage.copy(uri, inside),
        storage.copy(inside, uri),
        storage.list(uri),
        storage.delete_prefix(uri),
    ):
        with pytest.raises(OutsideStorage):
            await attempt


@pytest.mark.parametrize("form", ["{path}", "local://{path}", "file://{path}"])
async def test_a_folder_knows_its_objects_by_three_spellings(tmp_path: Path, form: str) -> None:
    storage = FolderStorage(tmp_path / "blobs")
    await storage.put(form.format(path=storage.join("a")), b"x")
    assert (tmp_path / "blobs" / "a").read_bytes() == b"x"
    assert await storage.list(form.format(path=storage.base_uri)) == [storage.join("a")]


async def test_links_that_lead_out_are_outside_and_deleting_does_not_follow_them(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "blobs")
    secret = tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("s")
    await storage.put(storage.join("run", "a"), b"x")
    (tmp_path / "blobs" / "run" / "way-out").symlink_to(secret.parent)
    (tmp_path / "blobs" / "run" / "file-out").symlink_to(secret)
    for name in ("run/way-out/secret", "run/file-out"):
        with pytest.raises(OutsideStorage):
            await storage.get(storage.join(name))
    assert await storage.delete_prefix(storage.join("run")) == 3
    assert secret.read_text() == "s"
    assert not (tmp_path / "blobs" / "run").exists()


async def test_a_base_that_is_reached_through_a_link_is_served(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    storage = FolderStorage(tmp_path / "link")
    await storage.put(storage.join("a"), b"x")
    assert storage.join("a").startswith(str(tmp_path / "link"))
    assert await storage.get(str(tmp_path / "real" / "a")) == b"x"


async def test_a_write_that_fails_leaves_the_old_object_and_nothing_beside_it(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "blobs")
    await storage.put(storage.join("a"), b"old")
    with pytest.raises(RuntimeError), storage.writing(storage.path(storage.join("a"))) as file:
        os.write(file, b"half")
        raise RuntimeError
    assert await storage.get(storage.join("a")) == b"old"
    assert list((tmp_path / "blobs" / INCOMING).iterdir()) == []


async def test_files_that_are_still_being_written_are_not_listed(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "blobs")
    with storage.writing(storage.path(storage.join("a"))):
        assert await storage.list(storage.base_uri) == []
    assert await storage.list(storage.base_uri) == [storage.join("a")]


@pytest.mark.faults
async def test_a_full_disk_is_said_and_what_was_there_stays(small_disk: Path) -> None:
    storage = FolderStorage(small_disk / "blobs")
    await storage.put(storage.join("a"), b"old")
    with pytest.raises(StorageFull, match=r"full .*blobs.*free some space"):
        await storage.put(storage.join("a"), bytes(8 << 20))
    assert await storage.get(storage.join("a")) == b"old"
    await storage.put(storage.join("b"), b"fits")
    assert await storage.list(storage.base_uri) == [storage.join("a"), storage.join("b")]


@pytest.mark.parametrize("uri", ["relative/path", "ftp://host/x", "local://relative", ""])
def test_uris_that_name_no_storage_are_refused_with_what_would_be_one(uri: str) -> None:
    with pytest.raises(StorageUnavailable, match="absolute path"):
        open_storage(uri)


def test_a_uri_opens_the_storage_of_its_kind(tmp_path: Path) -> None:
    assert isinstance(open_storage(str(tmp_path)), FolderStorage)
    assert open_storage(f"local://{tmp_path}/x").base_uri == str(tmp_path / "x")
    cloud = open_storage("s3://bucket/some/prefix", {"region": "eu-central-1", "skip_signature": "true"})
    assert isinstance(cloud, ObjectStorage)
    assert cloud.raw_data_prefix == "s3://bucket/some/prefix/raw"


async def test_a_store_that_cannot_be_reached_is_said_with_the_uri() -> None:
    nowhere = {"region": "x", "skip_signature": "true", "endpoint": "http://127.0.0.1:9"}
    storage = open_storage("s3://bucket/p", nowhere)
    storage.store = type(storage.store).from_url(  # type: ignore[attr-defined]
        "s3://bucket/p", config=nowhere, client_options={"allow_http": True}, retry_config={"max_retries": 0}
    )
    with pytest.raises(StorageUnavailable, match="s3://bucket/p/a cannot be reached"):
        await storage.get(storage.join("a"))
