"""Check the English of docstrings, comments, messages, documents and names, and links of CVEs.

    python tools/check_english.py [PATH ...]

Each CVE in a document or in the package has a link to its entry in the NVD. Without paths, the
check includes every file that git tracks. It prints one line for each finding and exits with 1 if
there is any. `ALLOWED` lists quotations that must stay unchanged.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: A docstring must not open with a noun clause: it names the thing, or says what to do.
OPENER = re.compile(
    r"(What|Who|Whoever|Whose|Whom|Whether|Where|How|Why|Nobody|Somebody|Anybody|Everybody|Whatever"
    r"|All that|That which)\b"
)

#: Phrases that hide the actor or the action, with the words to use instead.
PHRASES = [
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (r"\bwhat there (is|was)\b", "existing"),
        (r"\b(of|on) (its|their|his) own\b", "separate, by itself"),
        (r"\banew\b", "again"),
        (r"\b(is|are|was|were) gone\b", "was removed, does not exist"),
        (r"\bany more\b(?! than| [a-z]+s\b)", "no longer"),
        (r"\bas (it was|they were)\b(?! [a-z]+(ed|n)\b)", "unchanged"),
        (r"\bin the place of\b", "instead of"),
        (r"\bat hand\b", "available"),
        (r"\bso many\b", "N, this many"),
        (
            r"\b(whoever|somebody|nobody|anybody|everybody|someone|everyone|anyone)\b",
            "name the actor",
        ),
        (r"(?:^|[.;:!?] )who\b", "name the actor"),
        (r"\bof whom\b|\bthose who\b|\b(he|she) who\b", "name the actor"),
        (r"\bothers (are|have|had|were|can|may|must|will|would|do|did|take)\b", "name the actor"),
        (r"\bin the manner of\b", "like"),
        (r"\bcame of (it|that|them|what)\b", "resulted from"),
        (r"\bhas (it|them) that\b", "says that"),
        (r"\bis told of\b|\bare told of\b", "is notified of"),
        (r"\b(goes|go|went|gone) on with\b", "continues"),
        (
            r"\b(stand(s|ing)?|stood) (?!for\b|by\b)[a-z]+|\b(stands?|stood) by itself\b",
            "is, stops",
        ),
        (
            r"\b(have|has|had|having) (it|them|(a|an|the|its|their|every|each|all) [a-z']+) "
            r"([a-z]+ed|done|made|sent|written|read)"
            r"(?=[.,;:)]|$| (by|again|before|when|while|and|in|on|at|to|with|from|for|until|if)\b)",
            "schedule, name the actor",
        ),
    )
]

#: Words that hide the actor in a name.
NAMELESS = re.compile(r"\bwho\b")
#: Longest name of a test. `docs/contributing.md` asks for about 60 characters.
TEST_NAME_MAX = 75

TEXT_SUFFIXES = {".md", ".html", ".js", ".css", ".toml", ".pyx", ".pxi", ".h", ".sh", ".txt"}

#: Files that quote other people's text or code, or forbidden words, by path.
SKIPPED = (
    "LICENSE",
    "requirements/",
    "tools/check_english.py",
    "tests/docs/test_english.py",
    "tests/lab/mutants.py",
    "tests/lab/storage_mutants.py",
    "tests/lab/cluster_mutants.py",
    "tests/proposals/mutants.py",
)

#: Address of a CVE's entry, before its number.
NVD = "https://nvd.nist.gov/vuln/detail/"
#: A CVE that is neither in its address nor the text of a link to it.
UNLINKED_CVE = re.compile(rf"(?<!{re.escape(NVD)})\b(CVE-\d+-\d+)\b(?!\]\({re.escape(NVD)}\1\))")

#: (path, words): quotations that must stay.
ALLOWED: frozenset[tuple[str, str]] = frozenset()


def tracked() -> list[Path]:
    """Return the files that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [ROOT / line for line in listed.stdout.splitlines()]


def python_texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and "is a docstring" of each docstring, comment and message."""
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else ():
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                docstrings.add(id(child.value))
                yield child.lineno, child.value.value, True
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
            and " " in node.value.strip()
        ):
            yield node.lineno, node.value, False
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#:").strip()
        if block and token.start[0] == last + 1:
            block.append(text)
        else:
            if block:
                yield first, " ".join(block), False
            block, first = [text], token.start[0]
        last = token.start[0]
    if block:
        yield first, " ".join(block), False


def document_texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each paragraph outside code blocks."""
    in_code = False
    paragraph: list[str] = []
    first = 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
            continue
        if in_code or not line.strip():
            if paragraph:
                yield first, " ".join(paragraph), False
            paragraph = []
            continue
        if not paragraph:
            first = number
        paragraph.append(re.sub(r"`[^`]*`", "`", line.strip()))


def name_findings(path: str, source: str) -> Iterator[str]:
    """Yield line and advice for each bad name of a file, function or class.

    Args:
        path: The path in the repository.
        source: The text of a Python file, else empty.
    """
    names = [(1, part) for part in path.split("/")]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append((node.lineno, node.name))
            if node.name.startswith("test_") and len(node.name) > TEST_NAME_MAX:
                yield f"{node.lineno}: {node.name}: longer than {TEST_NAME_MAX} characters"
    for line, name in names:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z]+", " ", name).lower()
        for pattern, advice in [*PHRASES, (NAMELESS, "name the actor")]:
            for found in pattern.finditer(words):
                yield f"{line}: {found[0]!r} in the name {name}: write {advice!r}"


def unlinked_cves(source: str) -> Iterator[str]:
    """Yield line and advice for each CVE without a link."""
    for number, line in enumerate(source.splitlines(), 1):
        for found in UNLINKED_CVE.finditer(line):
            cve = found[1]
            yield f"{number}: {cve} has no link: write [{cve}]({NVD}{cve}), or the address in code"


def findings(path: Path) -> Iterator[str]:
    """Yield a line for each finding in a file."""
    name = path.relative_to(ROOT).as_posix()
    if name.startswith(SKIPPED):
        return
    source = path.read_text() if path.suffix == ".py" else ""
    yield from (f"{name}:{line}" for line in name_findings(name, source))
    if path.suffix == ".md" or (path.suffix == ".py" and name.startswith("src/")):
        yield from (f"{name}:{line}" for line in unlinked_cves(path.read_text()))
    if path.suffix == ".py":
        texts = python_texts(source)
    elif path.suffix in TEXT_SUFFIXES:
        texts = document_texts(path.read_text())
    else:
        return
    for line, text, is_docstring in texts:
        if is_docstring and (opener := OPENER.match(text)):
            yield f"{name}:{line}: docstring opens with {opener[0]!r}"
        flat = " ".join(text.split())
        for pattern, advice in PHRASES:
            for found in pattern.finditer(flat):
                if (name, found[0]) not in ALLOWED:
                    yield f"{name}:{line}: {found[0]!r}: write {advice!r}"


def main(arguments: list[str]) -> int:
    """Check the files or folders named, or all; return the exit code."""
    paths: list[Path] = []
    for argument in arguments:
        path = Path(argument).resolve()
        paths += [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    count = 0
    for path in paths if arguments else tracked():
        if path.exists():
            for finding in findings(path):
                print(finding)
                count += 1
    print(f"{count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
