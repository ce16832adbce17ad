"""Specifications by digest, with a small memory: the actions of one fan-out share theirs."""

from __future__ import annotations

from collections import OrderedDict

from wingbeat.database import RecordNotFound, Records
from wingbeat.resources import ActionRecord

CAPACITY_BYTES = 32 * 1024 * 1024


class Specs:
    def __init__(self, records: Records, capacity: int = CAPACITY_BYTES) -> None:
        self._records = records
        self._capacity = capacity
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    async def of(self, record: ActionRecord) -> bytes:
        """The serialized TaskSpec, TraceSpec or ConditionAction; empty when the record has none."""
        digest = record.spec_digest
        if not digest:
            return b""
        if digest in self._kept:
            self._kept.move_to_end(digest)
            return self._kept[digest]
        try:
            data = await self._records.blob(digest)
        except RecordNotFound:
            return b""
        self._kept[digest] = data
        self._size += len(data)
        while self._size > self._capacity and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped)
        return data
