"""What is shown is text, whatever it says."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wingbeat.server.pages.markup import join, path, query, tag, visible


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("text became a comment")


def read(html: object) -> Reader:
    reader = Reader()
    reader.feed(str(html))
    reader.close()
    return reader


@given(st.text(), st.text())
def test_text_and_attributes_come_back_as_they_were_and_make_no_tags(text: str, attribute: str) -> None:
    seen = read(tag("p", text, title=attribute))
    assert [name for name, _ in seen.tags] == ["p"]
    assert seen.tags[0][1] == {"title": visible(attribute)}
    assert seen.text == visible(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_name_is_one_segment_of_a_path(name: str) -> None:
    made = path("runs", name)
    if name not in (".", ".."):
        assert made.count("/") == 2
        assert unquote(made.split("/")[2]) == name
    assert not set(made) & set("?#\"'<> \\")


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "//evil.example/x", "/\\evil.example", "data:text/html,x", "https://evil.example", ""],
)
def test_only_paths_of_this_server_are_addresses(address: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        tag("a", "x", href=address)


@pytest.mark.parametrize("name", ["onclick", "style", "srcdoc", "onmouseover"])
def test_attributes_that_run_code_or_style_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no attribute"):
        tag("a", "x", **{name: "x"})


def test_characters_that_deceive_are_shown() -> None:
    assert visible("a\0b\x1b[1mc") == "a␀b␛[1mc"
    assert visible("safe\u202egnp.exe") == "safe⟨U+202E⟩gnp.exe"
    assert visible("\ud800") == "\ufffd"
    assert visible("tab\tand\nline stay, as do ñ, 漢字 and שלום") == "tab\tand\nline stay, as do ñ, 漢字 and שלום"


def test_nothing_is_left_of_empty_children() -> None:
    assert str(join(None, "", [None, ["a"]], 3)) == "a3"
    assert query(a=None, b="", c="x y&z") == "?c=x+y%26z"
