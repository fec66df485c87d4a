"""Parser that fails on HTML that is not well-formed, except for void elements."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

_VOID = {"link", "meta", "input", "br"}
#: Elements that our pages use; any other element is injected.
_KNOWN = _VOID | {
    *("html", "head", "title", "noscript", "script", "body", "header", "main", "nav", "div", "p"),
    *("h1", "h2", "a", "span", "time", "bdi", "dl", "dt", "dd", "button", "form", "label"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("svg", "path", "line", "rect", "text", "circle", "g"),
}


class Page(HTMLParser):
    """A parsed page. Parsing fails if the page is not well-formed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.sources: list[str] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    @property
    def text(self) -> str:
        """Visible text of the page."""
        return " ".join(" ".join(self.texts).split())

    def row(self, beginning: str) -> list[str]:
        """Return the cells of the table row with this first cell."""
        (found,) = [row for row in self.rows if row[0] == beginning]
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _KNOWN, tag
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), attrs
        assert not [name for name in names if name.startswith("on") or name == "style"], attrs
        given = dict(attrs)
        if (identity := given.get("id")) is not None:
            assert identity not in self.ids
            self.ids.add(identity)
        if tag == "a":
            self.links.append(given["href"] or "")
        self.sources += [
            given[name] or "" for name in ("src", "href") if name in given and tag != "a"
        ]
        if tag in ("th", "td"):
            assert tag == "td" or given["scope"] in ("col", "row")
            self.rows[-1].append("")
        elif tag == "tr":
            self.rows.append([])
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "title" in self._open and "svg" in self._open:
            return
        self.texts.append(data)
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data


def drawing(svg: str) -> ElementTree.Element:
    """Parse a chart as XML."""
    return ElementTree.fromstring(svg)
