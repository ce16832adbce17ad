"""A watch cache: the selected objects of a store in memory, kept current by list and watch.

The newest object by resource version wins, whether it came from the watch or from the caller's own write
(`observe`), so a controller reads its own writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from wingbeat.resources import ActionId, TaskAction
from wingbeat.stores.protocol import Expired, Selector, Store, Unavailable, WatchEvent, WatchType
from wingbeat.stores.selection import EVERYTHING, matches

log = logging.getLogger(__name__)

Handler = Callable[[TaskAction | None, TaskAction | None], None]
"""Called with the object before and after: (None, new) when it appeared, (old, None) when it went."""

PAGE = 1000


def _version(action: TaskAction) -> int:
    return int(action.metadata.resource_version or 0)


class Informer:
    """`run` it in a task; `synced` is set once the first listing is in. Objects are shared: copy before changing.

    Handlers run on the event loop, at once; during the first listing `synced` is not yet set, by which a controller
    tells what was there before from what is new.
    """

    def __init__(
        self,
        store: Store,
        selector: Selector = EVERYTHING,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        longest_wait_seconds: float = 5.0,
    ) -> None:
        self._store = store
        self._selector = selector
        self._sleep = sleep
        self._longest_wait = longest_wait_seconds
        self._objects: dict[ActionId, TaskAction] = {}
        self._children: dict[ActionId, dict[ActionId, None]] = {}
        self._handlers: list[Handler] = []
        self._revision = 0
        self._last_error: Exception | None = None
        self.synced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def revision(self) -> int:
        """Every change up to this resource version is in."""
        return self._revision

    @property
    def last_error(self) -> Exception | None:
        """Why the cache cannot follow the store at the moment; None when it does."""
        return self._last_error

    def get(self, id: ActionId) -> TaskAction | None:
        return self._objects.get(id)

    def children(self, parent: ActionId) -> list[TaskAction]:
        """Direct children that are in the cache, in the order in which they came."""
        return [self._objects[id] for id in self._children.get(parent, ())]

    def items(self) -> Iterator[TaskAction]:
        """All objects, as they are now."""
        return iter(list(self._objects.values()))

    def add_handler(self, handler: Handler) -> Callable[[], None]:
        """Have `handler` called on each change from now on; returns what ends it."""
        self._handlers = [*self._handlers, handler]

        def end() -> None:
            self._handlers = [h for h in self._handlers if h is not handler]

        return end

    def observe(self, action: TaskAction) -> None:
        """Take in the result of the caller's own write, ahead of the watch."""
        id = action.id
        version = _version(action)
        known = self._objects.get(id)
        if known is None:
            # Not in the cache although the watch is past that version: it has gone since.
            if version <= self._revision:
                return
        elif version <= _version(known):
            return
        gone = action.deleting and not action.metadata.finalizers
        if gone or not matches(self._selector, action):
            self._remove(id)
        else:
            self._put(id, action)

    async def run(self) -> None:
        """Follow the store until cancelled."""
        failures = 0
        while True:
            try:
                if not self.synced.is_set():
                    await self._relist()
                    self.synced.set()
                self._last_error = None
                async with contextlib.aclosing(
                    self._store.watch(str(self._revision), self._selector)  # type: ignore[type-var]
                ) as events:
                    async for event in events:
                        failures = 0
                        self._last_error = None
                        self._take(event)
            except Expired:
                log.info("the watch of the store cannot be resumed; listing again")
                await self._relist_until_done()
            except Unavailable as error:
                self._last_error = error
                log.warning("the store cannot be watched now, trying again: %s", error)
                await self._sleep(min(0.1 * 2.0 ** min(failures, 10), self._longest_wait))
                failures += 1

    async def _relist_until_done(self) -> None:
        failures = 0
        while True:
            try:
                await self._relist()
                return
            except (Expired, Unavailable) as error:
                self._last_error = error
                await self._sleep(min(0.1 * 2.0 ** min(failures, 10), self._longest_wait))
                failures += 1

    async def _relist(self) -> None:
        found: set[ActionId] = set()
        token = ""
        version = ""
        while True:
            page = await self._store.list(self._selector, limit=PAGE, continue_token=token)
            version = version or page.resource_version
            for action in page.items:
                id = action.id
                found.add(id)
                known = self._objects.get(id)
                if known is None or _version(action) > _version(known):
                    self._put(id, action)
            token = page.continue_token
            if not token:
                break
        listed = int(version or 0)
        for id, action in list(self._objects.items()):
            if id not in found and _version(action) <= listed:
                self._remove(id)
        self._revision = max(self._revision, listed)

    def _take(self, event: WatchEvent) -> None:
        version = int(event.resource_version or 0)
        id = event.id
        if id is not None:
            known = self._objects.get(id)
            if event.type is WatchType.DELETED:
                if known is not None and _version(known) <= version:
                    self._remove(id)
            elif event.object is not None and (known is None or _version(known) < _version(event.object)):
                self._put(id, event.object)
        self._revision = max(self._revision, version)

    def _put(self, id: ActionId, action: TaskAction) -> None:
        old = self._objects.get(id)
        self._objects[id] = action
        if old is None:
            parent = action.parent_id
            if parent is not None:
                self._children.setdefault(parent, {})[id] = None
        self._tell(old, action)

    def _remove(self, id: ActionId) -> None:
        old = self._objects.pop(id, None)
        if old is None:
            return
        parent = old.parent_id
        if parent is not None:
            siblings = self._children.get(parent)
            if siblings is not None:
                siblings.pop(id, None)
                if not siblings:
                    del self._children[parent]
        self._tell(old, None)

    def _tell(self, old: TaskAction | None, new: TaskAction | None) -> None:
        for handler in self._handlers:
            try:
                handler(old, new)
            except Exception:
                log.exception("a handler of the watch cache failed")
