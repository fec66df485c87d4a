"""The public modules are complete, and documentation and examples use only these."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import build_site

import partage
from partage import errors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "partage"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: The job in examples/flights also uses `partage.pipelines`.
EXAMPLE_FILES = sorted((ROOT / "examples").glob("*.py"))

#: ARCHITECTURE.md lists the same modules; every other module is internal.
PUBLIC_MODULES = (
    "partage",
    "partage.sync",
    "partage.errors",
    "partage.assignors",
    "partage.recipes",
    "partage.recipes.search",
    "partage.recipes.sync",
    "partage.spark",
    "partage.testing",
)
#: Exceptions that the client handles itself.
INTERNAL_ERRORS = {"CoordinatorNotConnectedError", "InvalidFrameSizeError", "TokenEndpointError"}

EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"\b(?:from partage[\w.]* import [\w, ]+|import partage[\w.]*)")
DOTTED = re.compile(r"`+(partage(?:\.\w+)+)")
#: Names below `partage` that are modules: `partage.group.events.enable` is a setting of the broker.
MODULES = {path.stem for path in SOURCE.iterdir()}


def exported(module: str) -> set[str]:
    return set(importlib.import_module(module).__all__)


def internal_imports(code: str) -> list[str]:
    """Return the names of Partage that code imports and that are not public."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            ours = [alias.name for alias in node.names if is_ours(alias.name)]
            found += [name for name in ours if name not in PUBLIC_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
            names = {alias.name for alias in node.names}
            if node.module in PUBLIC_MODULES:
                names -= exported(node.module)
            found += [f"{node.module}.{name}" for name in sorted(names)]
    return found


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "partage"


def is_public(dotted: str) -> bool:
    """True if a dotted name is a public module, or starts with the public name of one."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        if module in PUBLIC_MODULES:
            return count == len(parts) or parts[count] in exported(module)
    return False


def internal_mentions(text: str) -> list[str]:
    """Return the dotted names in backquotes that are not public."""
    names = [name for name in DOTTED.findall(text) if name.split(".")[1] in MODULES]
    return [name for name in names if not is_public(name)]


def docstrings_of_public_names() -> Iterator[tuple[str, str]]:
    for module in PUBLIC_MODULES:
        found = importlib.import_module(module)
        yield module, found.__doc__ or ""
        for name in found.__all__:
            value = getattr(found, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{module}.{name}", inspect.getdoc(value) or ""
            for attribute, member in vars(value).items() if inspect.isclass(value) else ():
                if not attribute.startswith("_"):
                    yield f"{module}.{name}.{attribute}", inspect.getdoc(member) or ""


def test_internal_names_are_detected():
    code = "import partage.client, partage.spark\nfrom partage.client.cluster import Cluster"
    assert internal_imports(code) == ["partage.client", "partage.client.cluster.Cluster"]
    assert internal_imports("from partage import Consumer, Cluster") == ["partage.Cluster"]
    text = "`partage.Consumer.poll()`, `partage.recipes.tasks.Task`, `partage.group.events.enable`"
    assert internal_mentions(text) == ["partage.recipes.tasks.Task"]


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_public_module_exports_resolve(module):
    found = importlib.import_module(module)
    assert found.__doc__
    assert len(set(found.__all__)) == len(found.__all__)
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def test_architecture_lists_public_modules():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("\n## Public modules\n")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^- `([\w.]+)`:", section, re.MULTILINE)) == PUBLIC_MODULES


def test_site_documents_public_modules():
    assert set(build_site.API_MODULES) == set(PUBLIC_MODULES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_uses_only_public_names(page):
    text = page.read_text()
    assert [name for code in EXAMPLE.findall(text) for name in internal_imports(code)] == []
    if page.name != "coverage.md":  # It names tests
        assert internal_mentions(text) == []


@pytest.mark.parametrize("path", EXAMPLE_FILES, ids=lambda path: path.name)
def test_example_file_uses_only_public_names(path):
    assert internal_imports(path.read_text()) == []


def test_docstrings_use_only_public_names():
    found = {}
    for name, text in docstrings_of_public_names():
        imports = "\n".join(IMPORT.findall(text))
        if wrong := internal_imports(imports) + internal_mentions(text):
            found[name] = wrong
    assert found == {}


def test_sync_exports_names_of_partage():
    assert exported("partage.sync") | {"__version__", "errors"} == exported("partage")


def test_import_of_partage_imports_only_its_version():
    script = "import partage, sys; print([m for m in sys.modules if m.startswith('partage.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.strip() == b"['partage.model', 'partage.model.version']"


def test_lazy_exports_are_complete():
    assert set(partage._LAZY_EXPORTS) | {"__version__", "errors"} == exported("partage")
    with pytest.raises(AttributeError, match="no attribute 'Konsumer'"):
        partage.Konsumer  # noqa: B018


def test_errors_contains_every_public_exception():
    defined = set()
    for package in ("client", "recipes"):
        below = [str(SOURCE / package)]
        for found in pkgutil.walk_packages(below, f"partage.{package}."):
            for name, value in vars(importlib.import_module(found.name)).items():
                is_exception = inspect.isclass(value) and issubclass(value, Exception)
                if is_exception and value.__module__ == found.name:
                    defined.add(name)
    assert defined - INTERNAL_ERRORS <= exported("partage.errors")


def test_errors_documentation_names_every_exception():
    assert set(re.findall(r"`(\w+Error)`", errors.__doc__)) == exported("partage.errors")
    assert all(issubclass(getattr(errors, name), Exception) for name in errors.__all__)
