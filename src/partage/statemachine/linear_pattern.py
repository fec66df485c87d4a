"""Patterns that are matched in linear time.

Python's ``re`` tries alternatives one after the other, so a client's pattern such as ``(a+)+b``
would block a coordinator for years. This module builds the position automaton of the pattern
(Glushkov) and follows all alternatives at once. Its work for a text is the length of the text times
the size of the pattern, and the latter is limited.

Supported are literals, ``.``, classes, groups, ``|``, ``*``, ``+``, ``?``, ``{m,n}``, ``\\d``,
``\\s``, ``\\w`` and their opposites, and ``^`` and ``$`` at the ends. Back references and
look-arounds have no such automaton and are rejected.
"""

from __future__ import annotations

import string
from typing import Final, NamedTuple, TypeAlias

#: Characters of a pattern.
PATTERN_LENGTH_MAX: Final = 256
#: Characters and classes of a pattern after its counted repetitions are written out.
POSITIONS_MAX: Final = 250
_DEPTH_MAX: Final = 20

_ASCII: Final = frozenset(map(chr, range(128)))
_CLASSES: Final = {
    "d": frozenset(string.digits),
    "s": frozenset(" \t\n\r\f\v"),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
}
_QUANTIFIERS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class _Characters(NamedTuple):
    """A set of characters, or all others."""

    characters: frozenset[str]
    is_negated: bool = False

    def has(self, character: str) -> bool:
        return (character in self.characters) is not self.is_negated


class _Sequence(NamedTuple):
    parts: list[_Node]


class _Alternatives(NamedTuple):
    parts: list[_Node]


class _Repeat(NamedTuple):
    part: _Node
    least: int
    most: int | None


_Node: TypeAlias = _Characters | _Sequence | _Alternatives | _Repeat


class LinearPattern:
    """A pattern that matches whole texts, such as names.

    Args:
        text: The pattern.

    Attributes:
        text: The pattern.
        size: Its characters and classes after its counted repetitions are written out.

    Raises:
        ValueError: The pattern is invalid, too large, or needs more than an automaton.
    """

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise ValueError(
                f"the pattern has {len(text)} characters; the maximum is {PATTERN_LENGTH_MAX}"
            )
        tree = _Parser(text).parse()
        self.size = _size(tree)
        if self.size > POSITIONS_MAX:
            raise ValueError(
                f"pattern {text!r} has more than {POSITIONS_MAX} characters after its counted "
                "repetitions are written out"
            )
        self.text = text
        self._automaton = _Automaton(tree)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def matches(self, text: str) -> bool:
        """True if the pattern matches the whole text."""
        return self._automaton.accepts(text)


class _Parser:
    """A recursive descent parser. Its position is the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        if self._next == "^":
            self._at += 1
        tree = self._alternatives()
        if self._next == "$" and self._at == len(self._text) - 1:
            self._at += 1
        if self._at < len(self._text):
            raise self._error(f"unexpected {self._next!r}")
        return tree

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _error(self, reason: str) -> ValueError:
        return ValueError(f"pattern {self._text!r} is invalid at character {self._at}: {reason}")

    def _take(self) -> str:
        character = self._next
        if not character:
            raise self._error("it ends too early")
        self._at += 1
        return character

    def _alternatives(self) -> _Node:
        parts = [self._sequence()]
        while self._next == "|":
            self._at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Alternatives(parts)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._next and self._next not in "|)$":
            parts.append(self._repeat(self._atom()))
        return _Sequence(parts)

    def _repeat(self, part: _Node) -> _Node:
        begin = self._at
        if self._next in _QUANTIFIERS:
            least, most = _QUANTIFIERS[self._take()]
        elif self._next == "{":
            least, most = self._counts()
        else:
            return part
        if self._next == "?":  # a lazy quantifier matches the same names
            self._at += 1
        if self._next in ("*", "+", "?", "{"):
            self._at = begin
            raise self._error("a second quantifier follows; put the first one into a group")
        return _Repeat(part, least, most)

    def _counts(self) -> tuple[int, int | None]:
        self._at += 1
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at : max(end, self._at)].partition(",")
        counts = [each for each in (least, most) if each]
        if end < 0 or not least or not all(each.isascii() and each.isdigit() for each in counts):
            raise self._error("expected {m}, {m,} or {m,n}")
        bounds = [int(each) for each in counts]
        if max(bounds) > POSITIONS_MAX or bounds != sorted(bounds):
            raise self._error(f"counts must rise and be at most {POSITIONS_MAX}")
        self._at = end + 1
        return bounds[0], bounds[-1] if most or not comma else None

    def _atom(self) -> _Node:
        match character := self._take():
            case ".":
                return _Characters(frozenset("\n"), is_negated=True)
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "\\":
                return self._escape()
            case "*" | "+" | "?" | "{" | "^":
                self._at -= 1
                raise self._error(f"unexpected {character!r}")
        return _Characters(frozenset(character))

    def _group(self) -> _Node:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._next == "?":
            raise self._error("look-arounds and flags are not supported")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._error(f"groups are nested more than {_DEPTH_MAX} deep")
        tree = self._alternatives()
        self._depth -= 1
        if self._take() != ")":
            self._at -= 1
            raise self._error("expected ')'")
        return tree

    def _escape(self) -> _Characters:
        character = self._take()
        known = _CLASSES.get(character.lower())
        if known is not None:
            return _Characters(known, is_negated=character.isupper())
        if not character.isascii() or character.isalnum():
            self._at -= 1
            raise self._error(f"\\{character} is not supported")
        return _Characters(frozenset(character))

    def _class(self) -> _Characters:
        is_negated = self._next == "^"
        if is_negated:
            self._at += 1
        members: set[str] = set()
        is_first = True
        while is_first or self._next != "]":
            is_first = False
            low = self._class_member()
            if self._next == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                members |= self._range(low, self._class_member())
            else:
                members |= low
        self._at += 1
        return _Characters(frozenset(members), is_negated)

    def _class_member(self) -> frozenset[str]:
        character = self._take()
        if character != "\\":
            return frozenset(character)
        escaped = self._escape()
        return _ASCII - escaped.characters if escaped.is_negated else escaped.characters

    def _range(self, low: frozenset[str], high: frozenset[str]) -> frozenset[str]:
        if len(low) > 1 or len(high) > 1:
            raise self._error("a range needs two characters")
        first, last = ord(min(low)), ord(min(high))
        if not first <= last < 128:
            raise self._error("a range must rise within ASCII")
        return frozenset(map(chr, range(first, last + 1)))


def _size(node: _Node) -> int:
    """Return the positions of a tree after its counted repetitions are written out."""
    match node:
        case _Characters():
            return 1
        case _Repeat(part=part, least=least, most=most):
            return _size(part) * max(1, least if most is None else most)
        case _Sequence(parts=parts) | _Alternatives(parts=parts):
            return max(1, sum(map(_size, parts)))  # empty parts are copied, too


class _Part(NamedTuple):
    """A part of the automaton: sets of positions, as the bits of a number."""

    is_nullable: bool
    first: int
    last: int


class _Automaton:
    """The position automaton of a tree. Bit 0 is the start, and each position has a bit."""

    def __init__(self, tree: _Node) -> None:
        self._characters: list[_Characters] = [_Characters(frozenset())]
        self._following = [0]
        whole = self._build(tree)
        self._following[0] = whole.first
        self._final = whole.last | (1 if whole.is_nullable else 0)
        self._tables = _following_tables(self._following)
        self._masks: dict[str, int] = {}  # the positions of each character

    def accepts(self, name: str) -> bool:
        """True if the automaton accepts the whole name."""
        current = 1
        for character in name:
            mask = self._masks.get(character)
            if mask is None:
                mask = self._masks[character] = self._mask(character)
            reachable = 0
            for table in self._tables:
                reachable |= table[current & 0xFF]
                current >>= 8
            current = reachable & mask
            if not current:
                return False
        return bool(current & self._final)

    def _mask(self, character: str) -> int:
        positions = enumerate(self._characters)
        return sum(1 << number for number, each in positions if number and each.has(character))

    def _build(self, node: _Node) -> _Part:
        match node:
            case _Characters():
                position = 1 << len(self._characters)
                self._characters.append(node)
                self._following.append(0)
                return _Part(False, position, position)
            case _Sequence(parts=parts):
                whole = _Part(True, 0, 0)
                for each in parts:
                    whole = self._join(whole, self._build(each))
                return whole
            case _Alternatives(parts=parts):
                built = [self._build(each) for each in parts]
                first = last = 0
                for part in built:
                    first |= part.first
                    last |= part.last
                return _Part(any(each.is_nullable for each in built), first, last)
            case _Repeat():
                return self._build_repeat(node)

    def _build_repeat(self, node: _Repeat) -> _Part:
        """Write a repetition out: the required copies, then the optional ones.

        Without a maximum, the last copy repeats itself.
        """
        copies = max(1, node.least) if node.most is None else node.most
        whole = _Part(True, 0, 0)
        for number in range(copies):
            part = self._build(node.part)
            if node.most is None and number == copies - 1:
                self._connect(part.last, part.first)
            if number >= node.least:
                part = part._replace(is_nullable=True)
            whole = self._join(whole, part)
        return whole

    def _join(self, left: _Part, right: _Part) -> _Part:
        self._connect(left.last, right.first)
        return _Part(
            left.is_nullable and right.is_nullable,
            left.first | (right.first if left.is_nullable else 0),
            right.last | (left.last if right.is_nullable else 0),
        )

    def _connect(self, before: int, after: int) -> None:
        for position in _positions(before):
            self._following[position] |= after


def _following_tables(following: list[int]) -> list[list[int]]:
    """Return for each eight positions the union of the following ones of each subset."""
    tables = []
    for begin in range(0, len(following), 8):
        table = [0]
        for subset in range(1, 256):
            position = begin + (subset & -subset).bit_length() - 1
            more = following[position] if position < len(following) else 0
            table.append(table[subset & (subset - 1)] | more)
        tables.append(table)
    return tables


def _positions(bits: int) -> list[int]:
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found
