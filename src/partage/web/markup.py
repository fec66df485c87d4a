"""HTML and SVG, in which every text from elsewhere is escaped.

Group ids, client ids and hosts are what strangers have sent. A `Markup` comes from `element` only;
any other text that is put into one is escaped, and characters that nobody sees, or that turn the
writing direction of what follows, are shown as what they are.
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
"""A `Markup`, a text to be escaped, a number, nothing, or several of them."""

Attribute: TypeAlias = "str | int | float | bool | None"


def escape_invisible(text: str) -> str:
    """The text with what cannot be seen as backslash escapes, such as ``\\x1b`` and ``\\u202e``."""
    return _UNSEEN.sub(_spelled, text)


def element(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element. An attribute that is None or False is left out, one that is True has no value.

    Underscores in names stand for hyphens, and one at the end for nothing: ``class_``.
    """
    opened = f"<{tag}{''.join(_attribute(*each) for each in attributes.items())}>"
    if tag in _VOID:
        return Markup(opened)
    return Markup(f"{opened}{_text(children)}</{tag}>")


def concatenate(*children: Child) -> Markup:
    """Several, one after the other."""
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
