"""Phases, times and numbers as people read them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from wingbeat.resources import ActionPhase, ActionRecord, ActionType, AttemptRecord, CacheStatus, ErrorInfo
from wingbeat.server.pages.markup import Html, join, tag

P = ActionPhase
_PHASES: dict[ActionPhase, tuple[str, str, str]] = {
    P.UNSPECIFIED: ("unknown", "?", "unknown"),
    P.QUEUED: ("queued", "○", "queued"),
    P.WAITING_FOR_RESOURCES: ("waiting", "◌", "waiting"),
    P.INITIALIZING: ("starting", "◔", "starting"),
    P.RUNNING: ("running", "●", "running"),
    P.SUCCEEDED: ("succeeded", "✓", "succeeded"),
    P.FAILED: ("failed", "✗", "failed"),
    P.ABORTED: ("aborted", "⊘", "aborted"),
    P.TIMED_OUT: ("timed-out", "✗", "timed out"),
    P.PAUSED: ("paused", "‖", "paused"),
    P.RECOVERED: ("recovered", "↺", "recovered"),
}
"""Class in the stylesheet (also the word in addresses), sign, word. Signs differ in shape, not in colour alone."""

PHASE_BY_WORD = {word: phase for phase, (word, _, _) in _PHASES.items()}
_CACHE = {
    CacheStatus.MISS: "not in the cache",
    CacheStatus.HIT: "from the cache",
    CacheStatus.POPULATED: "put in the cache",
    CacheStatus.LOOKUP_FAILURE: "cache could not be read",
    CacheStatus.PUT_FAILURE: "cache could not be written",
    CacheStatus.SKIPPED: "cache skipped",
    CacheStatus.EVICTED: "dropped from the cache",
}
_SOURCES = {1: "the web", 2: "the command line", 3: "a schedule", 4: "a tracked run", 5: "an artifact"}
_TYPES = {ActionType.TRACE: "trace", ActionType.CONDITION: "condition"}
_COUNT_ORDER = (
    P.FAILED, P.TIMED_OUT, P.ABORTED, P.RUNNING, P.INITIALIZING, P.PAUSED, P.WAITING_FOR_RESOURCES, P.QUEUED,
    P.SUCCEEDED, P.RECOVERED, P.UNSPECIFIED,
)  # fmt: skip


def phase_class(phase: ActionPhase) -> str:
    return _PHASES[phase][0]


def phase_word(phase: ActionPhase) -> str:
    return _PHASES[phase][2]


def phase_sign(phase: ActionPhase) -> str:
    return _PHASES[phase][1]


def phase_badge(phase: ActionPhase) -> Html:
    """Sign and word, in the phase's colour."""
    name, sign, word = _PHASES[phase]
    return tag("span", tag("span", sign, class_="sign", aria_hidden="true"), " ", word, class_=f"phase {name}")


def cache_words(status: CacheStatus) -> str:
    """Empty where caching is off."""
    return _CACHE.get(status, "")


def source_words(source: int) -> str:
    return _SOURCES.get(source, "")


def type_words(record: ActionRecord) -> str:
    """`trace` or `condition`; empty for a task."""
    return _TYPES.get(record.action_type, "")


def counts(numbers: Mapping[ActionPhase, int]) -> Html:
    """`3 failed, 12 running, 185 succeeded`: what needs looking at comes first."""
    parts = [
        tag("span", f"{_PHASES[phase][1]} {number:,} {phase_word(phase)}", class_=f"count {phase_class(phase)}")
        for phase, number in in_order(numbers)
    ]
    return join([[" ", part] if index else part for index, part in enumerate(parts)])


def in_order(numbers: Mapping[ActionPhase, int]) -> list[tuple[ActionPhase, int]]:
    """What needs looking at comes first; phases that nothing is in are left out."""
    return [(phase, numbers[phase]) for phase in _COUNT_ORDER if numbers.get(phase)]


def error_line(error: ErrorInfo, limit: int = 240) -> tuple[str, str]:
    """Code and last line of an error, which in a traceback is what happened; the code is not said twice."""
    # Only the end is looked at: a message may be megabytes, and a list may show a hundred of them.
    last = error.message[-4000:].rstrip().rpartition("\n")[2].strip()
    if error.code and last.startswith(error.code):
        last = last.removeprefix(error.code).lstrip(": ")
    return error.code, short(last, limit)


def plural(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def span_words(seconds: float) -> str:
    """A duration in at most two units: `250 ms`, `3.2 s`, `2 min 5 s`, `1 h 12 min`, `3 d 4 h`."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{round(seconds * 1000)} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, part, part_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part_size} {part}"
    return f"{whole} s"


def duration(start: dt.datetime | None, end: dt.datetime | None, now: dt.datetime, *, running: bool = True) -> Html:
    """How long it took; for what has not ended, a number that the page counts up."""
    if start is None:
        return Html("")
    if end is None and not running:
        return Html("")
    text = span_words(((end or now) - start).total_seconds())
    return tag("span", text, class_="duration", data_since=None if end else _iso(start))


def record_duration(record: ActionRecord, now: dt.datetime) -> Html:
    started = record.started_at or (record.created_at if record.ended_at else None)
    return duration(started, record.ended_at, now, running=not record.phase.terminal)


def attempt_duration(attempt: AttemptRecord, now: dt.datetime) -> Html:
    return duration(attempt.started_at, attempt.ended_at, now, running=not attempt.phase.terminal)


def moment(at: dt.datetime | None, now: dt.datetime, *, whole: bool = False) -> Html:
    """A time, in UTC until the page's script writes it in the reader's zone. Short: only the time for today's."""
    if at is None:
        return Html("")
    at = at.astimezone(dt.UTC)
    near = at.date() == now.astimezone(dt.UTC).date()
    text = at.strftime("%H:%M:%S" if near and not whole else "%Y-%m-%d %H:%M:%S")
    return tag("time", f"{text} UTC" if whole else text, datetime=_iso(at), data_whole=whole)


def _iso(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size_words(number: int) -> str:
    """Bytes: `12 bytes`, `3.4 kB`, `5.0 MB`."""
    if number < 1000:
        return plural(number, "byte")
    value = float(number)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95 or unit == "GB":
            return f"{value:.1f} {unit}"
    raise AssertionError


def short(text: str, limit: int) -> str:
    """The start of `text`, with an ellipsis where something was left out."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
