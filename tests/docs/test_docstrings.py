"""tools/check_docstrings.py finds incomplete docstrings of public callables."""

from __future__ import annotations

from tools import check_docstrings

from partage.errors import InvalidArgumentError


class Value:
    """A value.

    Attributes:
        one: The first part.
        two: The second part.
    """

    def __init__(self, one: int, two: int) -> None:
        self.parts = one, two

    def check(self, least: int, most: int) -> bool:
        """Compare the parts with limits.

        Args:
            least: The lower limit.
            maximum: The upper limit.
        """
        if least > most:
            raise InvalidArgumentError("least > most")
        return least <= min(self.parts) and max(self.parts) <= most

    def move(self, one: int, two: int) -> None:
        """Add to the parts."""

    def move_async(self, one: int, two: int) -> None:
        """Add to the parts; see `move`."""

    def scale(self, factor: int) -> int:
        """Multiply the parts."""
        return factor

    def _internal(self, one: int, two: int) -> None: ...


def complete(one: int, *rest: int, **options: int) -> list[int]:
    """Return all numbers.

    Args:
        one: The first number.
        *rest, options: More numbers.

    Raises:
        InvalidArgumentError: A number is negative.
    """
    if one < 0:
        raise InvalidArgumentError("one is negative")
    return [one, *rest, *options.values()]


def findings(exported: object) -> list[str]:
    return [
        f"{callee.name}: {finding}"
        for callee in check_docstrings.callees_of("x", exported)
        for finding in check_docstrings.findings_of(callee)
    ]


def test_incomplete_docstrings_are_found(monkeypatch):
    monkeypatch.setattr(Value, "__module__", "partage.values")
    for name in ("__init__", "check", "move", "move_async", "scale", "_internal"):
        monkeypatch.setattr(vars(Value)[name], "__module__", "partage.values")
    assert findings(Value) == [
        "x.check: Args lacks most",
        "x.check: Args has maximum, no parameter",
        "x.check: has no Returns",
        "x.check: Raises lacks InvalidArgumentError",
        "x.move: has no Args",
    ]


def test_complete_docstring_has_no_findings():
    assert findings(complete) == []
    assert len(complete(1, 2, three=3)) == 3
