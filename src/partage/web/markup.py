"""HTML and SVG with escaped text.

Group ids, client ids and hosts come from untrusted clients. Only `element` creates a `Markup`; all
other text in it is escaped. Invisible characters, and characters that change the writing direction,
are shown as escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_ESCAPED: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
)
_VOID: Final = frozenset({"link", "meta", "input", "br"})


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
"""A `Markup`, a text to escape, a number, None, or an iterable of these."""

Attribute: TypeAlias = "str | int | float | bool | None"


def escape_invisible(text: str) -> str:
    r"""Return the text with invisible characters as escapes, such as ``\x1b`` and ``\u202e``."""
    return _UNSEEN.sub(_spelled, text)


def element(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element. Attributes that are None or False are omitted; True has no value.

    Underscores in attribute names become hyphens; one at the end is removed: ``class_``.
    """
    opened = f"<{tag}{''.join(_attribute(*each) for each in attributes.items())}>"
    if tag in _VOID:
        return Markup(opened)
    return Markup(f"{opened}{_text(children)}</{tag}>")


def concatenate(*children: Child) -> Markup:
    """Return the concatenation of several children."""
    return Markup(_text(children))


def _text(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape_invisible(child).translate(_ESCAPED)
    if child is None:
        return ""
    if isinstance(child, int):
        return str(child)
    return "".join(map(_text, child))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    named = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {named}"
    if isinstance(value, float):
        value = f"{value:.1f}".removesuffix(".0")
    return f' {named}="{escape_invisible(str(value)).translate(_ESCAPED)}"'


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
