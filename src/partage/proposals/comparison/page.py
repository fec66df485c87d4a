"""The report as a page of HTML that needs no other file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from itertools import pairwise
from typing import Any, Final

from markdown_it import MarkdownIt

from partage.proposals.comparison.plots import inline_svg

#: The colours follow the system's. The variables are those of `inline_svg`, and some more.
_STYLE: Final = """
:root {
  color-scheme: light dark;
  --ground: #fcfcfb; --text: #1c1e21; --quiet: #5d646d; --rule: #d9dce0; --bed: #f0f1f3;
  --link: #0b57a4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #15181c; --text: #e4e6e9; --quiet: #a0a8b1; --rule: #343a41; --bed: #1f242a;
    --link: #8ebdf5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 84rem; padding: 0 1rem 3rem; background: var(--ground);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif;
}
a { color: var(--link); text-underline-offset: 2px; }
h1 { font-size: 1.6rem; margin: 1rem 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p, ul, blockquote { max-width: 52rem; }
nav ul { padding-left: 1.2rem; }
blockquote {
  margin: .6rem 0; padding: .1rem 1rem; border-left: 3px solid var(--rule); color: var(--quiet);
}
pre { background: var(--bed); padding: .6rem .8rem; overflow-x: auto; border-radius: 4px; }
code { font: .9em ui-monospace, monospace; }
.scroll { overflow-x: auto; margin: .8rem 0 1.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td {
  text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0;
  border-bottom: 1px solid var(--rule);
}
thead th { color: var(--quiet); font-weight: 500; vertical-align: bottom; }
td[style], td:first-child:not(:nth-last-child(2)), td:nth-child(2):not(:last-child) {
  white-space: nowrap;
}
th[style] { min-width: 4.5rem; }
tbody tr:hover { background: var(--bed); }
p:has(> svg) { max-width: none; overflow-x: auto; }
svg { width: 100%; min-width: 46rem; max-width: 62rem; height: auto; }
svg text { font-family: system-ui, sans-serif !important; }
"""


def format_page(report: str, pictures: Mapping[str, str]) -> str:
    """Return a page of HTML.

    Args:
        report: The report as Markdown.
        pictures: SVG by the address that the report uses for it.

    Raises:
        KeyError: The report has a picture that is missing.
    """
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")

    def image(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
        token = tokens[index]
        name = escape(token.content, quote=True)
        svg = inline_svg(pictures[token.attrs["src"]])
        return svg.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)

    def table(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
        return '<div class="scroll"><table>' if tokens[index].nesting == 1 else "</table></div>"

    markdown.add_render_rule("image", image)
    markdown.add_render_rule("table_open", table)
    markdown.add_render_rule("table_close", table)
    tokens = markdown.parse(report)
    contents = []
    title = ""
    for heading, inline in pairwise(tokens):
        if heading.type == "heading_open" and heading.tag == "h1":
            title = inline.content
        elif heading.type == "heading_open":
            anchor = re.sub(r"[^a-z0-9]+", "-", inline.content.lower()).strip("-")
            heading.attrSet("id", anchor)
            if heading.tag == "h2":
                contents.append(f'<li><a href="#{anchor}">{escape(inline.content)}</a></li>')
    body = markdown.renderer.render(tokens, markdown.options, {})
    head, end, rest = body.partition("</h1>")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"{head}{end}\n<nav><ul>\n{chr(10).join(contents)}\n</ul></nav>{rest}</body>\n</html>\n"
    )
