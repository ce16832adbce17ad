"""HTML that is escaped unless it was made here.

Everything that a page shows may come from a stranger: names, errors, logs, values. So text becomes HTML in one place,
addresses are only ever our own paths, and characters that deceive the eye are made visible.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable
from typing import TypeAlias
from urllib.parse import quote, urlencode

VOID_ELEMENTS = frozenset({"br", "hr", "link", "meta"})
_ADDRESSES = frozenset({"href", "src"})
_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")

_DECEIVING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Controls (but not tab and line feed), bidirectional controls, invisible characters, halves of surrogate pairs."""


class Html:
    """Finished HTML. Only this module makes it from text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return bool(self.text)


Child: TypeAlias = "Html | str | int | Iterable[Child] | None"
Attribute = str | int | bool | None


def visible(text: str) -> str:
    """`text` with characters that are invisible, or that reorder others, shown as signs or code points."""
    if text.isascii() and text.isprintable():
        return text

    def sign(match: re.Match[str]) -> str:
        code = ord(match.group())
        if code < 0x20:
            return chr(0x2400 + code)
        if 0xD800 <= code <= 0xDFFF:
            return "\ufffd"
        return f"\u27e8U+{code:04X}\u27e9"

    return _DECEIVING.sub(sign, text)


def escape(text: str) -> str:
    """`text` for use between tags and in quoted attributes."""
    if text.isalnum() and text.isascii():
        return text
    return html.escape(visible(text), quote=True)


def join(*children: Child) -> Html:
    """The children one after the other; None and "" leave nothing."""
    return Html("".join(_flatten(children)))


def _flatten(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            yield child.text
        elif isinstance(child, str):
            yield escape(child)
        elif isinstance(child, int):
            yield str(child)
        else:
            yield from _flatten(child)


@functools.lru_cache(maxsize=256)
def _attribute_name(key: str) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _NAME.match(name) or name.startswith("on") or name in ("style", "srcdoc"):
        raise ValueError(f"{name!r} is no attribute that pages may have")
    return name


def tag(element: str, *children: Child, **attributes: Attribute) -> Html:
    """One element. `class_` is `class`, `data_x` is `data-x`; None and False leave an attribute out, True has no value.

    Raises ValueError for an address that is not a path, query or fragment of this server: no scheme ever gets in.
    """
    parts = [f"<{element}"]
    for key, value in attributes.items():
        name = _attribute_name(key)
        if value is None or value is False:
            continue
        if value is True:
            parts.append(f" {name}")
            continue
        text = str(value)
        if name in _ADDRESSES and not (text[:1] in ("/", "?", "#") and text[:2] not in ("//", "/\\")):
            raise ValueError(f"{text!r} is not an address on this server")
        parts.append(f' {name}="{escape(text)}"')
    parts.append(">")
    if element not in VOID_ELEMENTS:
        parts.extend(_flatten(children))
        parts.append(f"</{element}>")
    return Html("".join(parts))


def path(*segments: str) -> str:
    """An absolute path; each segment is percent-encoded, so that a name is never more than one segment."""
    return "/" + "/".join(_segment(segment) for segment in segments)


@functools.lru_cache(maxsize=4096)
def _segment(segment: str) -> str:
    # Browsers resolve dots before they send them, encoded ones too; such names cannot be linked to.
    return "%2E" if segment in (".", "..") else quote(_encodable(segment), safe="")


def query(**parameters: str | int | None) -> str:
    """`?a=b&c=d`, without those that are None or empty; "" if nothing is left."""
    kept = {k: _encodable(str(v)) for k, v in parameters.items() if v is not None and v != ""}
    return "?" + urlencode(kept) if kept else ""


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
