"""Times, numbers and log lines in words."""

from __future__ import annotations

import pytest

from wingbeat.resources import ActionPhase, CacheStatus, ErrorInfo
from wingbeat.server.pages import words
from wingbeat.server.pages.logs import MAX_LINE, clean


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 ms"), (0.25, "250 ms"), (3.21, "3.2 s"), (9.96, "10 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s"),
     (4320, "1 h 12 min"), (273_600, "3 d 4 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert words.span_words(seconds) == text


@pytest.mark.parametrize("phase", list(ActionPhase))
def test_every_phase_has_a_sign_and_a_word(phase: ActionPhase) -> None:
    badge = str(words.phase_badge(phase))
    assert words.phase_word(phase) in badge
    assert words.PHASE_BY_WORD[words.phase_class(phase)] is phase


@pytest.mark.parametrize("status", [each for each in CacheStatus if each is not CacheStatus.DISABLED])
def test_every_cache_status_has_words(status: CacheStatus) -> None:
    assert words.cache_words(status)


def test_the_last_line_of_a_traceback_does_not_say_the_code_twice() -> None:
    error = ErrorInfo(message="Traceback ...\nValueError: depth is -3\n", code="ValueError")
    assert words.error_line(error) == ("ValueError", "depth is -3")
    assert words.error_line(ErrorInfo(message="", code="OOM")) == ("OOM", "")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%", "100%"),
        ("done\r", "done"),
        ("\x1b(Bplain\x9b31m", "plain"),
    ],
)
def test_a_log_line_is_what_a_terminal_would_leave(raw: str, text: str) -> None:
    assert clean(raw) == text


def test_a_very_long_line_is_cut() -> None:
    assert clean("x" * (MAX_LINE + 10)).endswith("(10 more characters)")
