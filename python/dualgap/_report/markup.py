"""HTML and SVG elements that escape their content."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

__all__ = ["Markup", "element", "table"]

# Characters that XML cannot contain, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Markup(str):
    """Text that is already HTML or SVG."""


def element(name: str, *children: str, **attributes: object) -> Markup:
    """Return an element; children that are not `Markup` are escaped, and so are all attributes.

    A trailing underscore in an attribute's name is dropped (``class_``); other underscores become
    hyphens (``stroke_width``).
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for key, value in attributes.items()
    )
    content = "".join(child if isinstance(child, Markup) else _escaped(child) for child in children)
    return Markup(f"<{name}{given}>{content}</{name}>")


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> Markup:
    """Return a table in which each row begins with a header cell."""
    lines = [element("tr", *(element("th", cell, scope="col") for cell in head))] if head else []
    for first, *rest in rows:
        cells = (element("td", cell) for cell in rest)
        lines.append(element("tr", element("th", first, scope="row"), *cells))
    return element("table", *lines)


def _escaped(text: str) -> str:
    """Escape a text; replace characters that HTML cannot contain by their codes."""
    visible = _FORBIDDEN.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return html.escape(visible)
