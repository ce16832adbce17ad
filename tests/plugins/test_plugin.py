"""What a process leaves in the storage, as the plugin finds it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from wingbeat.machine import ProcessState, ProcessStatus
from wingbeat.plugins.process.plugin import ProcessPlugin
from wingbeat.storage import FolderStorage


@pytest.fixture
def storage(tmp_path):
    return FolderStorage(tmp_path / "blobs")


def plugin(storage) -> ProcessPlugin:
    async def no_log(path, count):
        return []

    settings = SimpleNamespace(log_path=lambda id, attempt: "", log_tail=no_log)
    return ProcessPlugin(None, storage, None, settings)


def context(storage) -> SimpleNamespace:
    resources = SimpleNamespace(requests=(), limits=())
    paths = {name: storage.join(f"{name}.pb") for name in ("error", "outputs")}
    return SimpleNamespace(
        id="a0",
        attempt=1,
        paths=SimpleNamespace(**paths),
        template=SimpleNamespace(container=SimpleNamespace(resources=resources)),
    )


@pytest.mark.parametrize("name", ["error", "outputs"])
async def test_a_link_out_of_the_storage_is_neither_an_error_nor_an_output(storage, tmp_path, name):
    (tmp_path / "elsewhere").write_bytes(b"")
    Path(storage.join(f"{name}.pb")).symlink_to(tmp_path / "elsewhere")
    status = ProcessStatus(state=ProcessState.EXITED, exit_code=0)
    outcome = await plugin(storage)._outcome(context(storage), status)
    assert (outcome.error.code, outcome.error.kind) == ("OutputsMissing", "USER")


async def test_with_outputs_in_the_storage_it_succeeded(storage):
    await storage.put(storage.join("outputs.pb"), b"")
    status = ProcessStatus(state=ProcessState.EXITED, exit_code=0)
    assert (await plugin(storage)._outcome(context(storage), status)).error is None
