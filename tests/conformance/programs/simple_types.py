"""Every simple type as an input from the command line, as a default, through a child and back."""

from datetime import UTC, datetime, timedelta

import flyte

env = flyte.TaskEnvironment(name="simple_types")


@env.task
def child(
    i: int, f: float, s: str, b: bool, when: datetime, span: timedelta, raw: bytes
) -> tuple[int, float, str, bool, datetime, timedelta, bytes]:
    return i, f, s, b, when, span, raw


@env.task
def nothing() -> None:
    return None


@env.task
def given(
    i: int, f: float, s: str, b: bool, when: datetime, span: timedelta
) -> tuple[int, float, str, bool, str, float, str, str]:
    assert nothing() is None
    i2, f2, s2, b2, when2, span2, raw = child(i, f, s, b, when, span, b"\x00\xffbytes")
    return i2 + 1, f2 * 2, s2 + "!", not b2, when2.isoformat(), span2.total_seconds(), raw.hex(), type(raw).__name__


@env.task
def defaults(
    i: int = 7,
    f: float = 2.5,
    s: str = "grüße \"'\n✓",
    b: bool = True,
    when: datetime = datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    span: timedelta = timedelta(days=1, seconds=2),
    none: str | None = None,
) -> tuple[int, float, str, bool, datetime, timedelta, str | None]:
    return i, f, s, b, when, span, none


@env.task
def extremes(big: int, small: float, empty: str = "") -> tuple[int, float, str, float]:
    return big, small, empty, float("inf")


@env.task
def no_value(n: int = 1) -> None:
    nothing()
