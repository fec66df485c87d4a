"""Every example in the documentation is run, and prints what its page says."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
import typer
from confluent_kafka import Producer
from page_examples import Example, all_examples, examples_of, is_expected

from partage.console.app import app
from partage.console.common.dispatch import LazyCommands
from partage.testing import ThreadedBroker

ROOT = Path(__file__).parents[2]
#: The address that the examples use; each run puts the address of its broker there.
ADDRESS = "127.0.0.1:9092"
#: Commands that other tests run: installation in interop, the main job in CI, the
#: start of broker and web page and the comparison of designs in tests of the console.
ELSEWHERE = re.compile(
    r"^(make|pip install|git clone|partage (broker|web|lab compare)|source|python -m bench)\b"
)

#: Examples with brokers that are separate: see spark/test_docs, pipelines/test_docs,
#: client/test_security_docs and client/test_schema_registry. They check the output too.
RUN_APART = re.compile("spark|security_protocol|pipeline (archive|join)")
PAGES_RUN_APART = {"spark.md", "security.md", "schema-registry.md"}

#: Settings of the broker of an example. These pages show what a user does first, so their
#: examples must work with the defaults: the first generation of a group takes three seconds.
DEFAULTS = {"group.initial.rebalance.delay.ms": 3000, "partage.group.events.enable": True}
PAGES_WITH_DEFAULTS = {"README.md", "consumer.md", "group-events.md", "pipelines.md"}
QUICK = {"partage.group.events.enable": True}

#: The records in the topic of the examples, as README writes them: key, value, partitioner.
RECORDS = (
    (b"EWR", b"hello", "murmur2_random"),
    (b"JFK", b"world", "murmur2_random"),
    (b"EWR", b"UA1545", "consistent_random"),
)
#: Plugins of this environment that the examples do not use, and that take time.
WITHOUT_PLUGINS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
_TIMEOUT_S = 500.0


def is_run_apart(example: Example) -> bool:
    if example.language == "sh":
        return False
    is_python = example.language == "python"
    return bool(RUN_APART.search(example.code)) or (is_python and example.page in PAGES_RUN_APART)


#: All examples that this file runs.
EXAMPLES = [example for example in all_examples() if not is_run_apart(example)]


def examples(*languages: str) -> list[pytest.param]:
    return [
        pytest.param(example, id=str(example))
        for example in EXAMPLES
        if example.language in languages
        and not (example.test_count or example.reason)
        and not (example.language == "sh" and is_run_elsewhere(example))
    ]


def is_run_elsewhere(example: Example) -> bool:
    commands = example.commands()
    return bool(commands) and all(ELSEWHERE.match(each.text) for each in commands)


@pytest.fixture
def broker(example: Example) -> Iterator[ThreadedBroker]:
    settings = DEFAULTS if example.page in PAGES_WITH_DEFAULTS else QUICK
    with ThreadedBroker(settings) as broker:
        if "topics create" not in example.code:
            broker.create_topic("flights", partitions=12)
        if example.language == "python":
            for key, value, partitioner in RECORDS:
                producer = Producer(
                    {"bootstrap.servers": broker.bootstrap_servers, "partitioner": partitioner}
                )
                producer.produce("flights", value, key)
                assert producer.flush(30) == 0
        yield broker


@pytest.fixture
def script(example: Example, broker: ThreadedBroker, tmp_path: Path) -> Path:
    path = tmp_path / "test_example.py"
    path.write_text(example.code.replace(ADDRESS, broker.bootstrap_servers))
    return path


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def run_until_expected(script: Path, example: Example) -> list[str]:
    """Run a script until it has printed the expected lines, then press Ctrl-C; return its lines."""
    assert example.output is not None
    lines: list[str] = []
    with (
        script.with_suffix(".err").open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-u", str(script)],
            cwd=script.parent,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        watchdog = threading.Timer(_TIMEOUT_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if is_expected(lines, example.output, any_order=example.is_any_order):
                    process.send_signal(signal.SIGINT)
                    break
            code = process.wait()
        finally:
            watchdog.cancel()
            process.kill()
    shown = "\n".join([*lines, script.with_suffix(".err").read_text()])
    assert code in (0, -signal.SIGINT), shown
    return lines


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", examples("python"))
def test_python_example_prints_expected_output(example: Example, script: Path) -> None:
    assert example.output is not None, f"{example} declares no output: see page_examples.py"
    if example.is_interrupted:
        lines = run_until_expected(script, example)
        shown = "\n".join(lines)
    else:
        done = run(sys.executable, str(script), cwd=script.parent)
        assert done.returncode == 0, done.stdout + done.stderr
        shown, lines = done.stdout, done.stdout.splitlines()
    assert is_expected(lines, example.output, any_order=example.is_any_order), shown


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "arguments", sorted({each.pytest_arguments for each in EXAMPLES}), ids=" ".join
)
def test_examples_of_tests_pass(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """All in one run of pytest, because starting it takes longer than the examples."""
    found = [each for each in EXAMPLES if each.test_count and each.pytest_arguments == arguments]
    for example in found:
        name = re.sub(r"\W", "_", str(example))
        (tmp_path / f"test_{name}.py").write_text(example.code)
    done = run(
        sys.executable, "-m", "pytest", "-v", *WITHOUT_PLUGINS, *arguments, ".", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = re.findall(r"\b(\d+) (\w+)", done.stdout.splitlines()[-1])
    assert [outcome for _, outcome in outcomes] == ["passed"], done.stdout
    assert int(outcomes[0][0]) >= sum(each.test_count for each in found)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", examples("console", "sh"))
def test_console_example_prints_expected_output(
    example: Example, broker: ThreadedBroker, tmp_path: Path
) -> None:
    lines: list[str] = []
    (tmp_path / "tests").symlink_to(ROOT / "tests")  # for commands in the clone
    commands = example.commands()
    for number, (text, expected) in enumerate(commands, 1):
        if ELSEWHERE.match(text):
            continue
        done = run(
            "bash",
            "-c",
            f"set -o pipefail; {command_for(text, broker.bootstrap_servers)}",
            cwd=tmp_path,
        )
        is_failing = example.is_failing and number == len(commands)
        assert (done.returncode != 0) == is_failing, f"{text}\n{done.stdout}{done.stderr}"
        shown = done.stdout.splitlines()
        if expected is not None:
            assert is_expected(shown, expected), f"{text}\n{done.stdout}"
        lines += shown
    if example.output is not None:
        assert is_expected(lines, example.output), "\n".join(lines)


def command_for(text: str, address: str) -> str:
    """Return a command of a page that uses the broker and the Python of the test."""
    text = text.replace("../.venv/bin/python", sys.executable)
    reaching = r"\bpartage (?!search\b|lab (?:run|trace|designs|shells)\b)(\w+)( \w[\w-]*)?"
    return re.sub(reaching, rf"\g<0> -b {address}", text)


def test_each_example_declares_its_output() -> None:
    silent = [
        str(example)
        for example in EXAMPLES
        if not example.has_output and not is_run_elsewhere(example)
    ]
    assert silent == []


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each command ``partage`` in a line of shell."""
    words = shlex.split(text.replace(";", " ; "), comments=True)
    for is_separator, group in groupby(words, {"|", "||", "&&", ";", "&", ">"}.__contains__):
        command = list(group)
        if not is_separator and command[0] == "partage":
            yield command[1:]


#: Quoted text and arithmetic.
QUOTED = re.compile(r"""'[^']*'|"[^"]*"|\$\(\(.*?\)\)""")


def test_commands_can_be_pasted_into_zsh() -> None:
    """An interactive zsh knows no comments, and an unquoted pattern without a file is an error."""
    wrong = [
        (str(example), line)
        for example in all_examples()
        if example.language in ("console", "sh")
        for line in example.code.splitlines()
        if line.startswith("$ ") or example.language == "sh"
        if re.search(r"(^|\s)#|[\[*?~]", QUOTED.sub("", line))
    ]
    assert wrong == []


def parse(arguments: list[str]) -> None:
    """Parse the arguments of ``partage`` without running the command."""
    context, command = None, typer.main.get_command(app)
    while isinstance(command, LazyCommands):
        name, command, arguments = command.resolve_command(context, arguments)
        assert command is not None
    command.make_context(name, arguments, context)


@pytest.mark.slow
def test_shell_commands_have_valid_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also those that no test runs; only the values that a command itself checks may be wrong."""
    monkeypatch.chdir(tmp_path)
    wrong, count = {}, 0
    for example in all_examples():
        if example.language == "sh":
            for text, _ in example.commands():
                for arguments in commands_of(text):
                    count += 1
                    try:
                        parse(arguments)
                    except (typer.exceptions.TyperException, ValueError) as error:
                        wrong[example, text] = str(error)
    assert wrong == {}
    assert count > 150
    with pytest.raises(typer.exceptions.TyperException, match="nope"):
        parse(["topics", "list", "--nope"])


PAGE = """
<!-- example: any order, interrupted -->
<!-- output:
one
...
-->
```python
print()
```

Text.

```python
print()
```

```text
shown ... here
```

```console
$ one
1
$ two   # a comment
```

<!-- output: none -->
```sh
one \\
  two   # a comment
# three
three
```

<!-- example: not run: it is slow,
and it asks -->
```sh
one
```

<!-- examples: not run: generated -->

```sh
two
```

<!-- end of commands -->

```sh
three
```

<!-- example: pytest -n 2 -->
```python
def test_one(): ...
    async def test_two(): ...
```
"""


def test_page_is_parsed() -> None:
    first, second, console, *shell, tests = examples_of(PAGE, "page.md")
    assert (first.output, first.is_any_order, first.is_interrupted) == (["one", "..."], True, True)
    assert (second.output, second.options, second.number) == (["shown ... here"], [], 2)
    assert console.commands() == [("one", ["1"]), ("two", [])]
    assert (tests.test_count, tests.pytest_arguments) == (2, ("-n", "2"))
    assert all(each.has_output for each in (first, second, console, tests))
    (undeclared,) = examples_of("```console\n$ one\n```\n", "page.md")
    assert not undeclared.has_output
    assert [each.text for each in shell[0].commands()] == ["one    two", "three"]
    assert [each.has_output for each in shell] == [True, True, True, False]
    assert [each.reason for each in shell] == ["", "it is slow,\nand it asks", "generated", ""]


@pytest.mark.parametrize(
    "page",
    [
        "<!-- output: none -->\n\n```python\n```\n",
        "<!-- example: unordered -->\n```python\n```\n",
        "<!-- output: none -->\n```python\n```\n\n```text\n1\n```\n",
        "<!-- example: not run: -->\n```sh\none\n```\n",
        "<!-- example: not run: slow -->\n```console\n$ one\n```\n",
        "<!-- example: not run: slow -->\n<!-- output: none -->\n```sh\none\n```\n",
        "<!-- examples: not run -->\n\n```sh\none\n```\n",
        "```text\n$ partage topics list\n```\n",
    ],
)
def test_wrong_comments_are_detected(page: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md"):
        list(examples_of(page, "page.md"))


def test_output_is_compared_with_wildcards() -> None:
    assert is_expected(["a 1", "b"], ["a ...", "b"])
    assert is_expected(["a", "x", "y", "b"], ["a", "...", "b"])
    assert is_expected(["a", "b"], ["b", "a"], any_order=True)
    assert is_expected(["c", "a", "b"], ["b", "..."], any_order=True)
    assert not is_expected([], ["a"])
    assert not is_expected(["a", "b"], ["a"])
    assert not is_expected(["a", "b"], ["b", "a"])
    assert not is_expected(["a", "a"], ["a", "b"], any_order=True)
    assert not is_expected(["a", "b", "c"], ["a", "b"], any_order=True)
