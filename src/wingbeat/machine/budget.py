"""The budget of this computer: who may start now, and in words what the others wait for. Pure; knows no clock.

Charged are the CPUs, memory and GPUs that a process asked for, while it runs. A process that *waits* for its children
holds its memory and GPUs, but no CPU. Two things could stop everything for good, and neither may:
children that wait for what their waiting parents hold, and a big request at the head of the queue that nothing ahead
of it will ever make room for. Hence the rules of `admit`.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from wingbeat.machine.protocol import LaunchError

_SLACK = 1e-9  # sums of fractions of a CPU


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the computer the tasks may have."""

    cpus: float
    memory: int
    """Bytes."""
    gpus: int = 0
    startups: int = 0
    """How many may be starting at once; 0 means as many as CPUs, at least 1. A start-up that gets too little CPU
    fails the SDK's own check of 5 s."""

    @classmethod
    def of_this_computer(cls) -> BudgetSettings:
        """All of what this process may use: its CPUs and the memory of the computer or its control group."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            try:
                memory = min(memory, int(Path(name).read_text()))
            except (OSError, ValueError):
                continue
        gpus = len([path for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()])
        return cls(cpus=float(len(os.sched_getaffinity(0))), memory=memory, gpus=gpus)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one process asks for."""

    token: str
    name: str
    """For people: the run and action it belongs to."""
    run: str
    """The run, with its project and domain: a deeper process of the same run may be what a waiting one waits for."""
    cpus: float
    memory: int
    gpus: int = 0
    depth: int = 0


class _Held(msgspec.Struct, kw_only=True):
    claim: Claim
    waiting: bool = False
    starting: bool = True
    over: bool = False


class Amount(msgspec.Struct, kw_only=True):
    cpus: float = 0.0
    memory: int = 0
    gpus: int = 0

    def add(self, claim: Claim, *, cpus: bool = True) -> None:
        self.cpus += claim.cpus if cpus else 0.0
        self.memory += claim.memory
        self.gpus += claim.gpus


class Admission(msgspec.Struct, frozen=True):
    claim: Claim
    over_budget: bool = False


_Kind = tuple[float, int, int, int]


def _kind(claim: Claim) -> _Kind:
    """All of a claim that decides whether it may start."""
    return (claim.cpus, claim.memory, claim.gpus, claim.depth)


class Budget:
    def __init__(self, settings: BudgetSettings) -> None:
        self.settings = settings
        self.startups = settings.startups or max(1, int(settings.cpus))
        self._queue: dict[str, Claim] = {}
        self._alike: dict[_Kind, dict[str, Claim]] = {}
        """The queue again, by what is asked for: of those alike only the first needs a look."""
        self._arrivals: dict[str, int] = {}
        self._arrived = 0
        self._held: dict[str, _Held] = {}

    # - what happens -

    def fit(self, claim: Claim) -> tuple[Claim, str]:
        """The claim as it will be charged, and a note when that is less than was asked for.

        More CPUs than there are is no reason not to run, only slower; more memory or GPUs than there are can never
        work: LaunchError."""
        if claim.memory > self.settings.memory:
            raise LaunchError(
                "ResourcesExceedMachine",
                f"It asks for {size(claim.memory)} of memory, and this machine gives its tasks "
                f"{size(self.settings.memory)}. Ask for less in the task's resources, or run it on a bigger machine.",
            )
        if claim.gpus > self.settings.gpus:
            raise LaunchError(
                "ResourcesExceedMachine",
                f"It asks for {_gpus(claim.gpus)}, and this machine has {self.settings.gpus or 'none'}. "
                "Ask for fewer in the task's resources, or run it where there are more.",
            )
        if claim.cpus > self.settings.cpus:
            note = f"asks for {_cpus(claim.cpus)} and gets the {_cpus(self.settings.cpus)} that this machine has"
            return msgspec.structs.replace(claim, cpus=self.settings.cpus), note
        return claim, ""

    def add(self, claim: Claim) -> None:
        """Queue a claim that `fit` has returned."""
        if claim.token not in self._held and claim.token not in self._queue:
            self._queue[claim.token] = claim
            self._arrivals[claim.token] = self._arrived = self._arrived + 1
            self._alike.setdefault(_kind(claim), {})[claim.token] = claim

    def _leave(self, token: str) -> None:
        """Take it out of the queue, if it is there."""
        claim = self._queue.pop(token, None)
        if claim is not None:
            del self._arrivals[token]
            alike = self._alike[_kind(claim)]
            del alike[token]
            if not alike:
                del self._alike[_kind(claim)]

    def adopt(self, claim: Claim) -> None:
        """Charge a process that runs already, whatever that makes of the sums."""
        self._leave(claim.token)
        cpus = min(claim.cpus, self.settings.cpus)
        self._held[claim.token] = _Held(claim=msgspec.structs.replace(claim, cpus=cpus), starting=False)

    def remove(self, token: str) -> None:
        """It has ended, or no longer wants to start."""
        self._leave(token)
        self._held.pop(token, None)

    def ready(self, token: str) -> None:
        """Its start-up is over."""
        if token in self._held:
            self._held[token].starting = False

    def set_waiting(self, token: str, waiting: bool) -> None:
        if token in self._held:
            self._held[token].waiting = waiting

    # - who may start -

    def admit(self) -> list[Admission]:
        """Take from the queue what may start now, in the order of arrival.

        - What does not fit is passed over by later ones that need nothing of what it lacks, so that it is not
          starved by a stream of small ones. That holds only while something is active, since otherwise what it
          waits for may itself be waiting for one of these.
        - If no end of what is active could let any candidate start, the deepest is admitted over budget: it is
          what the others wait for. One at a time.
        """
        admitted: list[Admission] = []
        while len([held for held in self._held.values() if held.starting]) < self.startups:
            admission = self._next()
            if admission is None:
                break
            self._leave(admission.claim.token)
            self._held[admission.claim.token] = _Held(claim=admission.claim, over=admission.over_budget)
            admitted.append(admission)
        return admitted

    def _next(self) -> Admission | None:
        if not self._queue:
            return None
        used = self.used()
        active = [held for held in self._held.values() if not held.waiting]
        blocked: set[str] = set()
        firsts = self._firsts()
        for claim in firsts:
            lacks = self._lacks(claim, used)
            if not lacks and not (active and blocked & _needs(claim)):
                return Admission(claim)
            blocked |= lacks
        if any(held.over for held in active):
            return None
        stuck = self._cannot_be_freed(active)
        if any(not self._lacks(claim, stuck) for claim in firsts):
            return None
        return Admission(max(firsts, key=lambda claim: claim.depth), over_budget=True)

    def _firsts(self) -> list[Claim]:
        """Of each kind of claim the one that came first, in the order in which they came. Any other one of the kind
        lacks what this one lacks, and is held up by what holds this one up."""
        firsts = [next(iter(alike.values())) for alike in self._alike.values()]
        if len(firsts) > 1:
            firsts.sort(key=lambda claim: self._arrivals[claim.token])
        return firsts

    def _cannot_be_freed(self, active: list[_Held]) -> Amount:
        """What stays charged even if all that is active ends, and with it those waiting ones that may wait for it:
        shallower ones of the same run."""
        deepest: dict[str, int] = {}
        for held in active:
            deepest[held.claim.run] = max(deepest.get(held.claim.run, 0), held.claim.depth)
        amount = Amount()
        for held in self._held.values():
            if held.waiting and held.claim.depth >= deepest.get(held.claim.run, 0):
                amount.add(held.claim, cpus=False)
        return amount

    def _lacks(self, claim: Claim, used: Amount) -> set[str]:
        lacks = set()
        if claim.cpus and used.cpus + claim.cpus > self.settings.cpus + _SLACK:
            lacks.add("cpus")
        if claim.memory and used.memory + claim.memory > self.settings.memory:
            lacks.add("memory")
        if claim.gpus and used.gpus + claim.gpus > self.settings.gpus:
            lacks.add("gpus")
        return lacks

    def used(self) -> Amount:
        amount = Amount()
        for held in self._held.values():
            amount.add(held.claim, cpus=not held.waiting)
        return amount

    # - in words -

    def reason(self, token: str) -> str:
        """Why a queued process does not start yet; why a running one was let in over budget; else empty."""
        if token in self._held:
            if self._held[token].over:
                return "started over budget: what others wait for would have waited for them"
            return ""
        claim = self._queue.get(token)
        if claim is None:
            return ""
        used = self.used()
        lacks = self._lacks(claim, used)
        parts = []
        if "cpus" in lacks:
            parts.append(f"{_cpus(claim.cpus)}: {used.cpus:g} of {self.settings.cpus:g} in use{self._by('cpus')}")
        if "memory" in lacks:
            total = size(self.settings.memory)
            parts.append(f"{size(claim.memory)} of memory: {size(used.memory)} of {total} in use{self._by('memory')}")
        if "gpus" in lacks:
            parts.append(f"{_gpus(claim.gpus)}: {used.gpus} of {self.settings.gpus} in use{self._by('gpus')}")
        if parts:
            return "waits for " + "; ".join(parts)
        starting = len([held for held in self._held.values() if held.starting])
        if starting >= self.startups:
            return f"waits for its turn to start: {starting} of {self.startups} are starting"
        first = next(iter(self._queue.values()))
        return f"waits behind {first.name}, which was here first" if first.token != token else "about to start"

    def _by(self, what: str) -> str:
        names = [
            held.claim.name
            for held in self._held.values()
            if getattr(held.claim, what) and not (what == "cpus" and held.waiting)
        ]
        if not names:
            return ""
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return " by " + ", ".join(names[:3]) + more


def _needs(claim: Claim) -> set[str]:
    return {what for what in ("cpus", "memory", "gpus") if getattr(claim, what)}


def _cpus(value: float) -> str:
    return f"{value:g} CPU" + ("" if value == 1 else "s")


def _gpus(value: int) -> str:
    return f"{value} GPU" + ("" if value == 1 else "s")


def size(value: int) -> str:
    """Bytes for people."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value} bytes"
