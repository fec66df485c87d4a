"""Text from untrusted clients stays text on a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.web.markup import Markup, concatenate, element, escape_invisible

#: Text that tries to be markup, among other text.
HOSTILE = st.text() | st.lists(
    st.sampled_from(
        ["<script>", "</td>", '"', "'", "&", "&lt;", ">", "-->", "<!--", "\x00", "a", "\u202e"]
    )
).map("".join)


class Read(HTMLParser):
    """Tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@given(HOSTILE)
def test_text_is_escaped(text: str) -> None:
    read = Read(element("td", text))
    assert read.tags == [("td", {})]
    assert "".join(read.texts) == escape_invisible(text)


@given(HOSTILE)
def test_attribute_is_escaped(text: str) -> None:
    read = Read(element("a", title=text, href="/"))
    assert read.tags == [("a", {"title": escape_invisible(text), "href": "/"})]
    assert not read.texts


@given(HOSTILE, HOSTILE)
def test_concatenated_texts_are_escaped(first: str, second: str) -> None:
    read = Read(element("p", concatenate(first, [second])))
    assert read.tags == [("p", {})]


@given(st.text())
def test_escaped_text_is_visible_and_encodable(text: str) -> None:
    shown = escape_invisible(text)
    shown.encode()
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢字 🛫", "plain ü 漢字 🛫"),
        ("\x1b[31mred\n", "\\x1b[31mred\\x0a"),
        ("a\u202eb", "a\\u202eb"),
        ("\udc80", "\\udc80"),
    ],
)
def test_invisible_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_invisible(text) == shown


def test_element_attributes() -> None:
    made = element("td", 1, None, Markup("<b>"), class_="n", aria_label=None, hidden=True, x=1.25)
    assert made == '<td class="n" hidden x="1.2">1<b></td>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
