"""Check that the docstrings of public callables are complete.

    python tools/check_docstrings.py

A public function, method or constructor with two or more parameters has a docstring that

- has a section `Args` with each parameter and no other name, or `Attributes` in a class of values,
- names what it returns, in its summary or in a section,
- names in `Raises` the public exceptions that its own body raises,
- or refers to another callable with such a docstring: "See `NAME`".

The script prints one line for each finding and exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from partage import errors

#: Classes that the package creates for its users; they are public for their methods and for types.
RETURNED = frozenset({"Batch", "Faults", "HeldResponse", "Records", "Term"})

#: Number of parameters from which on `Args` is required.
PARAMETERS_MIN = 2

SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):\n((?: .*\n|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^    \*{0,2}(\w+(?:, \*{0,2}\w+)*):", re.MULTILINE)
REFERENCE = re.compile(r"\b[Ss]ee(?: there|\s+`([\w.]+)`)")
#: Openings of a summary that names the result.
RESULT = re.compile(r"(Return|Yield|True if|Wait for)\b")


class Callee(NamedTuple):
    """A public function, method or class with its docstring."""

    name: str
    function: Callable[..., Any]
    docstring: str

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters, without ``self`` and ``cls``."""
        names = inspect.signature(self.function).parameters
        return [name for name in names if name not in ("self", "cls")]

    @property
    def is_constructor(self) -> bool:
        """True for ``__init__``, whose docstring is that of the class."""
        return self.function.__name__ == "__init__"

    @property
    def sections(self) -> dict[str, str]:
        """Text of each section, by its title."""
        return dict(SECTION.findall(f"{self.docstring}\n"))


def public_callees(modules: Iterable[str]) -> Iterator[Callee]:
    """Yield what the modules export, each once."""
    seen = set()
    for module_name in modules:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            for callee in callees_of(f"{module_name}.{name}", getattr(module, name)):
                key = callee.function, callee.docstring
                if key not in seen:
                    seen.add(key)
                    yield callee


def callees_of(name: str, exported: Any) -> Iterator[Callee]:
    """Yield an exported function, or the constructor and the public methods of a class."""
    if inspect.isfunction(exported):
        yield Callee(name, exported, inspect.getdoc(exported) or "")
    if not inspect.isclass(exported):
        return
    for attribute in dir(exported):
        is_constructor = attribute == "__init__" and not (
            issubclass(exported, BaseException) or exported.__name__ in RETURNED
        )
        found = inspect.getattr_static(exported, attribute)
        if isinstance(found, classmethod | staticmethod):
            found = found.__func__
        is_ours = str(getattr(found, "__module__", "")).partition(".")[0] == "partage"
        if not (inspect.isfunction(found) and is_ours):
            continue
        if is_constructor:
            yield Callee(name, found, inspect.getdoc(exported) or "")
        elif not attribute.startswith("_"):
            docstring = inspect.getdoc(getattr(exported, attribute)) or ""
            yield Callee(f"{name}.{attribute}", found, docstring)


def findings_of(callee: Callee) -> Iterator[str]:
    """Yield what the docstring of a callable lacks."""
    parameters, sections = callee.parameters, callee.sections
    if len(parameters) < PARAMETERS_MIN or REFERENCE.search(callee.docstring):
        return
    described = sections.get("Args", sections.get("Attributes") if callee.is_constructor else None)
    if described is None:
        yield "has no Args"
    else:
        names = [name for group in ENTRY.findall(described) for name in re.findall(r"\w+", group)]
        yield from (f"Args lacks {name}" for name in parameters if name not in names)
        if "Args" in sections:
            yield from (
                f"Args has {name}, no parameter" for name in names if name not in parameters
            )
    result = inspect.signature(callee.function).return_annotation
    is_named = RESULT.match(callee.docstring) or sections.keys() & {"Returns", "Yields"}
    if not (callee.is_constructor or result in (None, "None", "Self") or is_named):
        yield "has no Returns"
    for error in sorted(raised_by(callee.function)):
        if error not in sections.get("Raises", ""):
            yield f"Raises lacks {error}"


def raised_by(function: Callable[..., Any]) -> set[str]:
    """Return the public exceptions that the body of a function raises by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = {
        node.exc.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
    }
    return raised & set(errors.__all__)


def main() -> int:
    """Check all public callables; return the exit code."""
    from build_site import API_MODULES  # a module beside this script

    found = [
        f"{callee.name}: {finding}"
        for callee in public_callees(API_MODULES)
        for finding in findings_of(callee)
    ]
    print("\n".join([*found, f"{len(found)} findings in docstrings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
