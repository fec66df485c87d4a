"""Random mutants of modules: one change at one node of the syntax tree.

Each candidate is one place and one change: a comparison, a condition, a number, a constant, two
arguments in the other order, or a dropped statement. The same seed draws the same ones from
the same sources.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from .mutant import Mutant

_PACKAGE = "partage"
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
}


class Change(NamedTuple):
    """One change of a source: the bytes from ``begin`` to ``end`` become ``text``."""

    kind: str
    module: str
    line: int
    description: str
    begin: int
    end: int
    text: str


class _Source:
    """The source of a module, and where its nodes are."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.data = _read(module)
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends, in bytes."""
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, node: ast.AST) -> str:
        """Return the source of a node."""
        begin, end = self.span(node)
        return self.data[begin:end].decode()

    def replace(self, kind: str, node: Any, text: str, description: str) -> Change:
        """Replace a node."""
        return Change(kind, self.module, node.lineno, description, *self.span(node), text)

    def drop(self, node: Any) -> Change:
        """Replace a statement by ``pass``."""
        return self.replace("statement", node, "pass", f"without {_shorten(self.text(node))}")

    def replace_operator(self, left: Any, right: Any, text: str) -> Change:
        """Replace the operator between two nodes; parentheses around them stay."""
        begin, end = self.span(left)[1], self.span(right)[0]
        gap = self.data[begin:end].decode()
        closing = gap[: len(gap) - len(gap.lstrip(") \n"))]
        opening = gap[len(gap.rstrip("( \n")) :]
        before = gap.strip("() \n")
        description = f"{before} becomes {text}"
        changed = f"{closing}{text}{opening}"
        return Change("operator", self.module, left.lineno, description, begin, end, changed)


def _read(module: str) -> bytes:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()


@cache
def changes(module: str) -> list[Change]:
    """Return all changes of the functions of a module, in the order of the source."""
    source = _Source(module)
    found: dict[Change, None] = {}
    for function in ast.walk(ast.parse(source.data)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node in _evaluated_nodes(statement):
                    found |= dict.fromkeys(_changes_of(source, node))
    return sorted(found, key=lambda each: (each.begin, each.description))


def _evaluated_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Return a node and those below it, without annotations, which no module evaluates."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    yield from _evaluated_nodes(each)


def _changes_of(source: _Source, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            text = _COMPARISONS.get(type(operator))
            if text is not None:
                yield source.replace_operator(left, right, text)
        case ast.BoolOp(op=connective, values=values):
            text = "or" if isinstance(connective, ast.And) else "and"
            for left, right in pairwise(values):
                yield source.replace_operator(left, right, text)
        case ast.BinOp(left=left, op=arithmetic, right=right):
            text = _OPERATORS.get(type(arithmetic))
            if text is not None:
                yield source.replace_operator(left, right, text)
        case ast.If(test=test):
            negated = f"not ({source.text(test)})"
            yield source.replace("condition", test, negated, "the condition is negated")
        case ast.Constant(value=bool() as flag):
            yield source.replace("constant", node, str(not flag), f"{flag} becomes {not flag}")
        case ast.Constant(value=int() as number):
            changed = str(number + 1)
            yield source.replace("constant", node, changed, f"{number} becomes {changed}")
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield source.drop(node)
        case ast.Assign(targets=[ast.Attribute()]):
            yield source.drop(node)
        case ast.Call(args=[first, second, *_]):
            begin, end = source.span(first)[0], source.span(second)[1]
            text = f"{source.text(second)}, {source.text(first)}"
            shown = f"arguments become {_shorten(text)}"
            yield Change("arguments", source.module, node.lineno, shown, begin, end, text)


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:57]}..."


def to_mutant(change: Change) -> Mutant | None:
    """Return the mutant of a change; None if it is no valid Python."""
    data = _read(change.module)
    changed = (data[: change.begin] + change.text.encode() + data[change.end :]).decode()
    try:
        compile(changed, change.module, "exec")
    except SyntaxError:
        return None
    place = f"{change.module.removeprefix(f'{_PACKAGE}.')}:{change.line}"
    return Mutant(f"{place}: {change.description}", change.module, data.decode(), changed)


def random_mutants(modules: Sequence[str], count: int, seed: object) -> list[Mutant]:
    """Draw mutants: first a kind of change, so that rare ones are drawn too, then a place.

    Args:
        modules: The modules to change, which are not imported.
        count: The number of mutants.
        seed: The seed of the draws. More mutants of a seed begin with the same ones.
    """
    random = Random(f"mutants {seed}")
    kinds: dict[str, list[Change]] = {}
    for module in modules:
        for change in changes(module):
            kinds.setdefault(change.kind, []).append(change)
    drawn: dict[str, Mutant] = {}
    while len(drawn) < count:
        mutant = to_mutant(random.choice(kinds[random.choice(sorted(kinds))]))
        if mutant is not None:
            drawn.setdefault(mutant.name, mutant)
    return list(drawn.values())
