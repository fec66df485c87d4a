"""The examples of the documentation, and the output that each page declares for them.

A block of Python or of commands is an example. A ``console`` block has commands after ``$`` and
their output, and an ``sh`` block has only commands. The output is declared in one of these ways:

- A ``text`` block right after a Python example shows the output.
- In a ``console`` block, the lines after a command show its output.
- A comment right before the block has the output if the page does not show it:
  ``<!-- output: LINES -->``, or ``<!-- output: none -->``.
- A Python example that does not print needs no declaration.
- An example that defines tests is run by pytest, and all its tests must pass.

``...`` stands for any text in a line, or for any number of lines if it is alone in a line.
A comment ``<!-- example: OPTION, OPTION -->`` before the block has options:

- ``any order``: the lines may be printed in any order.
- ``fails``: the last command ends with another exit code than 0.
- ``interrupted``: the example runs until Ctrl-C, which follows when all lines have been printed.
- ``pytest ARGUMENTS``: arguments of pytest.

``<!-- example: not run: REASON -->`` declares an ``sh`` block that no test runs, and
``<!-- examples: not run: REASON -->`` declares those up to the next comment of this form, or up to
a comment that begins with ``end of``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

BLOCK = re.compile(
    r"(?P<comments>(?:^<!--(?:(?!-->).)*-->\n)*)"
    r"^```(?P<language>python|console|sh)\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
COMMENT = re.compile(r"^<!-- (example|output):(.*?)-->$", re.MULTILINE | re.DOTALL)
SCOPE = re.compile(r"^<!-- (?:end of|examples:(?P<value>.*?)-->$)", re.MULTILINE | re.DOTALL)
REASON = re.compile(r"\s*not run:\s+(?P<reason>\S.*?)\s*", re.DOTALL)
HIDDEN = re.compile(r"^```text\n\$ ", re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*?)(?:\s+#.*)?$")
TEST = re.compile(r"^ *(?:async )?def test_", re.MULTILINE)
OPTION = re.compile(r"any order|fails|interrupted|pytest( \S+)+")
WILDCARD = "..."


class Command(NamedTuple):
    """A command of an example, and its expected output; None if the page declares none."""

    text: str
    output: list[str] | None


class Example(NamedTuple):
    """A block of a page."""

    page: str
    number: int  # on its page, from 1 on
    language: str
    code: str
    output: list[str] | None  # expected lines; None if the page declares none
    options: list[str]
    reason: str = ""  # why no test runs the example

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"

    @property
    def test_count(self) -> int:
        """Number of tests that the example defines."""
        return len(TEST.findall(self.code)) if self.language == "python" else 0

    @property
    def is_interrupted(self) -> bool:
        """True if the example ends with Ctrl-C only."""
        return "interrupted" in self.options

    @property
    def is_failing(self) -> bool:
        """True if the last command ends with an error."""
        return "fails" in self.options

    @property
    def is_any_order(self) -> bool:
        """True if lines may be printed in any order."""
        return "any order" in self.options

    @property
    def pytest_arguments(self) -> tuple[str, ...]:
        """Additional arguments of pytest."""
        found = [each for each in self.options if each.startswith("pytest ")]
        return tuple(found[0].split()[1:]) if found else ()

    def commands(self) -> list[Command]:
        """Return the commands of a block, in a console block each with the output shown after it.

        If a console block shows any output, then a command without output must print nothing.
        """
        if self.language == "sh":
            joined = self.code.replace("\\\n", " ").splitlines()
            stripped = [re.sub(r"(^|\s+)#.*", "", line) for line in joined]
            return [Command(line, None) for line in stripped if line]
        if self.language != "console":
            return []
        texts: list[str] = []
        outputs: list[list[str]] = []
        for line in self.code.splitlines():
            if found := COMMAND.match(line):
                texts.append(found[1])
                outputs.append([])
            else:
                outputs[-1].append(line)
        is_shown = any(outputs)
        return [
            Command(text, output if is_shown else None)
            for text, output in zip(texts, outputs, strict=True)
        ]

    @property
    def has_output(self) -> bool:
        """True if the page declares what the example prints."""
        if self.language == "sh":
            return self.output is not None or bool(self.reason)
        if self.language == "console" and self.output is None:
            return all(each.output is not None for each in self.commands())
        return self.output is not None or self.test_count > 0


def examples_of(text: str, page: str) -> Iterator[Example]:
    """Yield the examples of a page.

    Raises:
        ValueError: a comment for an example is malformed, or does not precede one; or a block of
            text has commands.
    """
    if HIDDEN.search(text):
        raise ValueError(f"{page}: a text block has a command: use console or sh")
    attached = 0
    for number, block in enumerate(BLOCK.finditer(text), start=1):
        comments = COMMENT.findall(block["comments"])
        attached += len(comments)
        outputs = [value for kind, value in comments if kind == "output"]
        reason, options = "", []
        for kind, value in comments:
            if kind == "example" and (found := REASON.fullmatch(value)):
                reason = found["reason"]
            elif kind == "example":
                options += [option.strip() for option in value.split(",")]
        if block["language"] == "sh" and not outputs:
            reason = reason or _reason_of_scope(text[: block.start()], page)
        wrong = [option for option in options if not OPTION.fullmatch(option)]
        if reason and (block["language"] != "sh" or outputs):
            wrong.append("only an sh block without output may be not run")
        if wrong or len(outputs) + (block["shown"] is not None) > 1:
            raise ValueError(f"{page}, example {number}: {wrong or 'two declared outputs'}")
        output = None
        if block["language"] == "python" and block["shown"] is not None:
            output = block["shown"].splitlines()
        elif outputs:
            lines = outputs[0].strip()
            output = [] if lines == "none" else lines.splitlines()
        elif block["language"] == "python" and "print(" not in block["code"]:
            output = []
        yield Example(page, number, block["language"], block["code"], output, options, reason)
    if attached != len(COMMENT.findall(text)):
        raise ValueError(f"{page}: a comment is not right before an example")


def _reason_of_scope(before: str, page: str) -> str:
    """Return the reason that the last comment about several examples has, or an empty text."""
    scopes = list(SCOPE.finditer(before))
    value = scopes[-1]["value"] if scopes else None
    if value is None:
        return ""
    found = REASON.fullmatch(value)
    if found is None:
        raise ValueError(f"{page}: 'examples:{value}' is not 'not run: REASON'")
    return found["reason"]


def all_examples() -> list[Example]:
    """Return the examples of README and of all pages."""
    return [example for page in PAGES for example in examples_of(page.read_text(), page.name)]


def is_expected(lines: Sequence[str], expected: Sequence[str], *, any_order: bool = False) -> bool:
    """True if lines match the expected ones, in which ``...`` stands for any text."""
    if any_order:
        return _match_unordered(list(lines), expected)
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == WILDCARD else rf"{_line_pattern(line)}\n"
        for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in lines)) is not None


def _match_unordered(lines: list[str], expected: Sequence[str]) -> bool:
    for line in expected:
        if line.strip() != WILDCARD:
            pattern = re.compile(_line_pattern(line))
            found = next((each for each in lines if pattern.fullmatch(each.rstrip())), None)
            if found is None:
                return False
            lines.remove(found)
    return not lines or WILDCARD in (line.strip() for line in expected)


def _line_pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.rstrip().split(WILDCARD))
