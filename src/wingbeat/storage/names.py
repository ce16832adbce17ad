"""What may be part of a storage URI: plain path elements, nothing that climbs."""

from __future__ import annotations

from wingbeat.storage.protocol import OutsideStorage


def checked_elements(parts: tuple[str, ...] | list[str], *, of: str) -> list[str]:
    """The path elements of `parts`, each of which may hold several. Refuses empty ones, `.`, `..` and NUL; `of` names
    the whole in the error."""
    elements: list[str] = []
    for part in parts:
        for element in part.split("/"):
            if element in ("", ".", "..") or "\0" in element:
                raise OutsideStorage(
                    f"{of!r} has the path element {element!r}, which no name in the storage may have; "
                    "rename it and do the same again: flyte run ..."
                )
            elements.append(element)
    return elements
