"""Build the sdist of a release, and a wheel for this machine, into ``dist/``.

    python tools/build_release.py --repository https://HOST/OWNER/NAME

A package index shows README, where links relative to the repository do not work. So the sdist is
built from a copy of the repository in which README's links are absolute and point to the tag of
the release. The same address becomes the project's URLs. Wheels are built from the sdist.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: A link or a picture whose target is relative to the repository.
LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|#|mailto:)([^)\s]+)\)")


def main() -> None:
    """Build into ``dist/``, and check the result with twine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repository", required=True, help="address of the repository")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--no-isolation", action="store_true", help="build with this environment")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "partage")
        copy_tree(tree)
        prepare(tree, given.repository.rstrip("/"))
        options = ["--no-isolation"] if given.no_isolation else []
        command = [sys.executable, "-m", "build", *options, "--outdir", given.output, tree]
        subprocess.run(command, check=True)
    files = sorted(given.output.glob("partage-*"))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)


def copy_tree(target: Path) -> None:
    """Copy all files that git does not ignore; in an unpacked sdist, all files."""
    if not (ROOT / ".git").exists():
        shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns("dist", "build", "*.egg-info"))
        return
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def prepare(tree: Path, repository: str) -> None:
    """Write the project's URLs and README's absolute links into a copy of the repository."""
    project = tree / "pyproject.toml"
    text = project.read_text()
    version = tomllib.loads(text)["project"]["version"]
    project.write_text(text.replace("[project.scripts]", f"{urls(repository)}\n[project.scripts]"))
    readme = tree / "README.md"
    readme.write_text(absolute_links(readme.read_text(), f"{repository}/blob/v{version}"))


def urls(repository: str) -> str:
    """Return the table of the project's URLs."""
    named = {
        "Homepage": repository,
        "Documentation": f"{repository}/tree/main/docs",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    lines = [f'{name} = "{address}"' for name, address in named.items()]
    return "\n".join(["[project.urls]", *lines, ""])


def absolute_links(text: str, base: str) -> str:
    """Return Markdown whose relative links point below an address."""

    def replace(found: re.Match[str]) -> str:
        raw = base.replace("/blob/", "/raw/") if found[1].startswith("!") else base
        return f"{found[1]}({raw}/{found[2]})"

    return LINK.sub(replace, text)


if __name__ == "__main__":
    main()
