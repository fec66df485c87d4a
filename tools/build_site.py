"""Build the documentation site into build/site, without network access.

    python tools/build_site.py

The pages are those of the repository. The API reference lists what the public modules export,
with their docstrings.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build" / "site-source"

#: Modules in the API reference, with their headings: all public modules.
API_MODULES = {
    "partage": "Consumer and membership (asyncio)",
    "partage.sync": "Consumer and membership (blocking)",
    "partage.errors": "Errors",
    "partage.assignors": "Assignors",
    "partage.recipes": "Recipes",
    "partage.recipes.search": "Search in the indexes",
    "partage.recipes.sync": "Recipes (blocking)",
    "partage.spark": "Spark",
    "partage.testing": "Test fixtures",
}

#: Links to source files, which the site does not have.
SOURCE_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)?(?:bench|examples|src|tests|tools)/[^)]*\)")


def copy_pages() -> None:
    """Copy the Markdown pages and pictures, without the links to source files."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for page in sorted(ROOT.glob("*.md")):
        shutil.copy(page, SOURCE)
    shutil.copytree(ROOT / "docs", SOURCE / "docs")
    for page in SOURCE.rglob("*.md"):
        page.write_text(SOURCE_LINK.sub(r"\1", page.read_text()))


def write_api_page() -> None:
    """Write the page that mkdocstrings fills with the docstrings of each exported name."""
    lines = ["# API reference", ""]
    for module_name, heading in API_MODULES.items():
        module = importlib.import_module(module_name)
        lines += [f"## {heading}", "", f"Import from `{module_name}`.", ""]
        for name in module.__all__:
            exported = getattr(module, name)
            home = getattr(exported, "__module__", None)
            if not str(home).startswith("partage") or not hasattr(exported, "__qualname__"):
                continue  # a constant, a module or a type alias
            lines += [f"::: {home}.{exported.__qualname__}", "    options:"]
            lines += ["      heading_level: 3", ""]
    (SOURCE / "api.md").write_text("\n".join(lines))


def main() -> int:
    """Build the site; return the exit code of mkdocs."""
    copy_pages()
    write_api_page()
    command = [sys.executable, "-m", "mkdocs", "build", "--clean", "--quiet"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if code == 0:
        print("The site is complete: open build/site/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
