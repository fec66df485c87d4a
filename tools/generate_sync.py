"""Generate the blocking classes from the asyncio sources.

    python tools/generate_sync.py           write the generated modules
    python tools/generate_sync.py --check   exit with 1 if one is not up to date

The asyncio module is the source. `async` and `await` are dropped, and the names and texts in
`GENERATED` are replaced. What waits differently is in a pair of modules with the same names, one
for asyncio and one for blocking code; the generated module imports from the second.

A class that runs tasks has no blocking form with the same steps. For those in `FACADES`, the
generated class has the arguments, methods and texts of the asyncio class, and runs that class on an
event loop in a thread.
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
from textwrap import indent
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "partage"

#: Special methods and exceptions.
NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
}


class Generated(NamedTuple):
    """A generated module: its source, its path, and the texts to replace."""

    source: str
    target: str
    replacements: tuple[tuple[str, str], ...]


GENERATED = (
    Generated(
        "client/consumer/consumer.py",
        "client/consumer/sync_consumer.py",
        (
            ('"""The asyncio consumer."""', '"""The blocking consumer."""'),
            ("consumer.async_support import", "consumer.sync_support import"),
            ("AsyncConsumerBase", "SyncConsumerBase"),
            (
                "on asyncio; `partage.sync.Consumer` is the blocking variant.",
                "for code without asyncio.",
            ),
            (
                "It is an asynchronous context manager and an asynchronous iterator of records::",
                "It is a context manager and an iterator of records::",
            ),
            ("        async with Consumer(", "        with Consumer("),
            ("            async for record in", "            for record in"),
            (
                "One task at a time may use a consumer, but any task may",
                "One thread at a time may use a consumer, but any thread may",
            ),
        ),
    ),
    Generated(
        "recipes/processor.py",
        "recipes/sync_processor.py",
        (
            (
                '"""A processor that joins topics partition by partition, in a group."""',
                '"""A blocking processor that joins topics partition by partition, in a group."""',
            ),
            (
                "joins topics; on asyncio, a context manager. Waiting tasks run concurrently.",
                "joins topics; a context manager for code without asyncio.",
            ),
            ("        async with Processor(", "        with Processor("),
            ("            await processor.run()", "            processor.run()"),
            ("After a cancelled run, no", "After an interrupted run, no"),
            ("As `partage.Consumer`.", "As `partage.sync.Consumer`."),
            ("As `partage.Consumer.poll`.", "As `partage.sync.Consumer.poll`."),
            ("    Consumer,\n", ""),
            (
                "from partage.client.errors import",
                "from partage.client.consumer.sync_consumer import Consumer\n"
                "from partage.client.errors import",
            ),
            ("recipes.async_support import", "recipes.sync_support import"),
            ("import partitions_of", "import partitions_of_sync"),
            (" partitions_of(self", " partitions_of_sync(self"),
        ),
    ),
)


class Facade(NamedTuple):
    """A generated module with a class that runs an asyncio class in a thread.

    Attributes:
        source: The module of the asyncio class.
        target: The generated module.
        docstring: The docstring of the generated module.
        name: The name of both classes.
        base: The base class of the generated one.
        imports: Further imports.
        arguments: By argument of the constructor: its type, and the value for the asyncio class.
        results: By method or property: its type, and its value, with {} for that of the asyncio
            class.
        attributes: By attribute of the asyncio class: the type and the docstring of its property.
        internal: The methods and properties that the generated class lacks.
        replacements: The texts to replace in the result.
        inner: The attribute with the asyncio class.
        has_work: True if the constructor creates a `WorkRunner` as ``runner``.
        timed: The methods that have a time limit, besides those whose names begin with ``wait_``.
    """

    source: str
    target: str
    docstring: str
    name: str
    base: str
    imports: tuple[str, ...]
    arguments: dict[str, tuple[str, str]]
    results: dict[str, tuple[str, str]]
    attributes: dict[str, tuple[str, str]]
    internal: frozenset[str]
    replacements: tuple[tuple[str, str], ...]
    inner: str = "_recipe"
    has_work: bool = True
    timed: frozenset[str] = frozenset()


FACADES = (
    Facade(
        "client/membership.py",
        "client/sync_membership.py",
        "`Membership` for code without asyncio, on an event loop in a separate thread.",
        "Membership",
        "BlockingMembership",
        ("from partage.client.blocking_membership import BlockingMembership",),
        {},
        {},
        {},
        frozenset({"start", "assignments"}),
        (
            (
                "A member of a group of any protocol type, on asyncio, on the running loop.",
                "A member of a group of any protocol type, for code without asyncio.",
            ),
            (
                """
    The leader, whichever""",
                """
    It starts to join when it is created, on an event loop in a thread. Any thread may use it.

    The leader, whichever""",
            ),
            ("        async with Membership(", "        with Membership("),
            ("= await member.assignment()", "= member.assignment()"),
            (
                "    A loop that is blocked for longer than the session timeout loses its "
                "membership.\n\n",
                "",
            ),
            (
                "listener: Called in order, see `MembershipListener`.",
                "listener: Called in order, in the thread of the membership.",
            ),
            (
                """later than ``after``.

        Raises:
""",
                """later than ``after``.

        Args:
            after: A generation; -1 for any assignment.
            timeout_ms: The longest time to wait; None for no limit.

        Raises:
            TimeoutError: None arrived within ``timeout_ms``.
""",
            ),
        ),
        "_member",
        has_work=False,
        timed=frozenset({"assignment"}),
    ),
    Facade(
        "recipes/election.py",
        "recipes/sync_election.py",
        "A blocking leader election: exactly one of several processes is active.",
        "LeaderElection",
        "BlockingRecipe[AsyncLeaderElection]",
        (
            "from partage.recipes.blocking_recipe import BlockingRecipe, Term, WorkRunner",
            "from partage.recipes.election import Leader",
        ),
        {"work": ("Callable[[Term], object] | None", "runner.term_work(work)")},
        {
            "term": ("Term | None", "self._runner.optional_term({})"),
            "wait_until_elected": ("Term", "self._runner.term({})"),
        },
        {"failure": ("BaseException | None", "The exception of the work, if it ended a term.")},
        frozenset({"membership", "on_assigned"}),
        (
            ("leader election; on asyncio, a context manager.", "leader election; thread-safe."),
            (
                """
    ``work`` runs while this process is active and is cancelled when its term ends. If the
    coordinator does not answer, the term ends ``stop_ms`` before the coordinator could give the
    term to another process. When ``work`` returns or raises, the process resigns and is no
    candidate until `stand`::
""",
                """
    ``work`` runs in a thread while this process is active. It must return soon after `Term` has
    ended: no other process becomes active before it returns. There is one exception. If the
    coordinator does not answer, the term ends ``stop_ms`` before the coordinator could give it to
    another process. When ``work`` returns or raises, the process resigns and is no candidate until
    `stand`::
""",
            ),
            ("        async with LeaderElection(", "        with LeaderElection("),
            ("A coroutine function that takes the `Term`.", "A function that takes the `Term`."),
            (
                """Options of `partage.Membership`, except ``group_instance_id``: a second process
            with the same instance id would replace an active one at once, and both would be active.
""",
                """Options of `partage.sync.Membership`, except ``group_instance_id``: a second
            process with the same instance id would replace an active one at once, and both would be
            active.
""",
            ),
            (
                """Wait until this process is active; raise as `Membership.assignment`.""",
                """Wait until this process is active; raise as `Membership.assignment`.

        Args:
            timeout_ms: The longest time to wait; None for no limit.

        Raises:
            TimeoutError: The process was not elected within ``timeout_ms``.
        """,
            ),
            (
                "a member is active and return it; raise as `Membership.assignment`.",
                "a member is active and return it; raise as `wait_until_elected`.",
            ),
            (
                """ If the work itself calls it, the term ends with the
        work.
""",
                """

        Raises:
            CalledFromWorkError: The work itself called it. It resigns when it returns.
""",
            ),
        ),
    ),
    Facade(
        "recipes/single_writer.py",
        "recipes/sync_single_writer.py",
        "A blocking single writer: an election whose winner holds a transactional id.",
        "SingleWriter",
        "LeaderElection",
        (
            "from partage.recipes.blocking_recipe import Term, WorkRunner",
            "from partage.recipes.single_writer import CreateProducer",
            "from partage.recipes.sync_election import LeaderElection",
        ),
        {"write": ("Callable[[Term, Any], object]", "runner.write_work(write)")},
        {},
        {"transactional_id": ("str", "The transactional id of all participants.")},
        frozenset({"resign"}),
        (
            ("from partage.recipes.election import LeaderElection, Term\n", ""),
            ("        async def write(term, producer):", "        def write(term, producer):"),
            ("        async with SingleWriter(", "        with SingleWriter("),
            (
                """A function or coroutine function that takes the transactional id and
            returns a new producer of confluent-kafka or aiokafka. Do not initialize or start it.
""",
                """A function that takes the transactional id and returns a new producer of
            confluent-kafka. Do not initialize it.
""",
            ),
            (
                "A coroutine function that takes the `Term` and the producer.",
                "A function that takes the `Term` and the producer.",
            ),
        ),
    ),
    Facade(
        "recipes/pool.py",
        "recipes/sync_pool.py",
        "A blocking pool of workers that share units of work.",
        "WorkerPool",
        "BlockingRecipe[AsyncWorkerPool]",
        (
            "from threading import Event",
            "from partage.recipes.blocking_recipe import BlockingRecipe, WorkRunner",
            "from partage.recipes.pool import Units",
        ),
        {"work": ("Callable[[str, Event], object]", "runner.unit_work(work)")},
        {},
        {},
        frozenset({"membership", "update_metadata", "on_assigned", "stop_all"}),
        (
            ("worker of a pool; on asyncio, a context manager.", "worker of a pool; thread-safe."),
            (
                """
    ``work`` runs for each unit that is assigned to this worker. It is cancelled when the unit moves
    away, and starts on another worker only after it has stopped here. A unit whose work returns or
    raises is not restarted::
""",
                """
    ``work`` runs in a thread for each unit that is assigned to this worker. When the unit moves
    away, its event is set, and it starts on another worker only after the work has returned here. A
    unit whose work returns or raises is not restarted::
""",
            ),
            ("        async with WorkerPool(", "        with WorkerPool("),
            (
                "work: A coroutine function that takes the name of a unit.\n",
                """work: A function that takes the name of a unit, and a `threading.Event` that is
            set when it must return.
""",
            ),
            ("Options of `partage.Membership`", "Options of `partage.sync.Membership`"),
            (
                """work may take a step before it is cancelled. Check this
        before a step that only one worker may take.
""",
                """work may take a step before its event is set.
        Check this before a step that only one worker may take.
""",
            ),
        ),
    ),
)


def facade_text(facade: Facade) -> str:
    """Return the text of a facade's module, without its note and its format.

    Raises:
        ValueError: A text to replace does not occur in the result.
    """
    source = (PACKAGE / facade.source).read_text()
    tree = ast.parse(source)
    (found,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == facade.name)
    module = facade.source.removesuffix(".py").replace("/", ".")
    lines = [
        f'"""{facade.docstring}"""\n',
        *(ast.unparse(n) for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)),
        f"from partage.{module} import {facade.name} as Async{facade.name}",
        *facade.imports,
        f"\n\nclass {facade.name}({facade.base}):",
        indent(_docstring(source, found), "    "),
        indent("\n".join(_members(source, found, facade)), "    "),
    ]
    text = "\n".join(lines)
    for old, new in facade.replacements:
        if old not in text:
            raise ValueError(f"{old!r} does not occur in {facade.name}")
        text = text.replace(old, new)
    return text


def _docstring(source: str, node: ast.ClassDef | Function) -> str:
    """Return the literal of a docstring as it is in the source, without its first indentation."""
    statement = node.body[0]
    assert isinstance(statement, ast.Expr), f"{node.name} has a docstring"
    literal = ast.get_source_segment(source, statement)
    assert literal is not None
    return literal.replace("\n" + " " * statement.col_offset, "\n")


def _members(source: str, found: ast.ClassDef, facade: Facade) -> Iterator[str]:
    functions = [n for n in found.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    (constructor,) = (node for node in functions if node.name == "__init__")
    if facade.has_work:
        yield f"\n_recipe: Async{facade.name}"
    yield from _constructor(constructor, facade)
    for name, (kind, text) in facade.attributes.items():
        yield f'@property\ndef {name}(self) -> {kind}:\n    """{text}"""'
        yield f"    return self._recipe.{name}\n"
    for node in functions:
        if not node.name.startswith("_") and node.name not in {"close", *facade.internal}:
            yield _member(source, node, facade)


def _constructor(node: Function, facade: Facade) -> Iterator[str]:
    arguments = node.args
    for argument in (*arguments.args, *arguments.kwonlyargs):
        if argument.arg in facade.arguments:
            argument.annotation = ast.parse(facade.arguments[argument.arg][0], mode="eval").body
    yield f"\ndef __init__({ast.unparse(arguments)}) -> None:"
    if facade.has_work:
        yield "    runner = WorkRunner()"
    names = [each.arg for each in arguments.args[1:]]
    values = {name: facade.arguments.get(name, ("", name))[1] for name in names}
    values |= {
        each.arg: f"{each.arg}={facade.arguments.get(each.arg, ('', each.arg))[1]}"
        for each in arguments.kwonlyargs
    }
    assert arguments.kwarg is not None, f"{facade.name} takes options"
    passed = ", ".join([*values.values(), f"**{arguments.kwarg.arg}"])
    runner = ", runner" if facade.has_work else ""
    yield f"    self._own(Async{facade.name}({passed}){runner})\n"


def _member(source: str, node: Function, facade: Facade) -> str:
    """Return the blocking form of a method or property."""
    is_property = any(ast.unparse(each) == "property" for each in node.decorator_list)
    passed = [each.arg for each in node.args.args[1:]]
    passed += [f"{each.arg}={each.arg}" for each in node.args.kwonlyargs]
    method = f"self.{facade.inner}.{node.name}"
    called = method if is_property else f"{method}({', '.join(passed)})"
    function = f"lambda: {called}" if passed else method
    assert node.returns is not None
    kind, wrapped = facade.results.get(node.name, (ast.unparse(node.returns), "{}"))
    lines = ["@property"] if is_property else []
    arguments, checks = ast.unparse(node.args), []
    if isinstance(node, ast.AsyncFunctionDef):
        if node.name.startswith("wait_") or node.name in facade.timed:
            arguments += ", timeout_ms: int | None = None"
            function += ", timeout_ms"
        else:
            checks.append("self._runner.check_caller()")
        called = f"self._call({function})"
    elif kind == "None":
        called = f"self._on_loop({function})"
    returned = wrapped.format(called)
    lines += [
        f"def {node.name}({arguments}) -> {kind}:",
        indent(_docstring(source, node), "    "),
        *(f"    {check}" for check in checks),
        f"    {returned}" if kind == "None" else f"    return {returned}",
    ]
    return "\n".join(lines) + "\n"


def to_sync(source: str, replacements: tuple[tuple[str, str], ...]) -> str:
    """Return the blocking form of a module.

    Raises:
        ValueError: A text to replace does not occur in the source.
    """
    for old, new in replacements:
        if old not in source:
            raise ValueError(f"{old!r} does not occur in the source")
        source = source.replace(old, new)
    lines = source.split("\n")
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if token.type != tokenize.NAME:
            continue
        row, column = token.start[0] - 1, token.start[1]
        before, after = lines[row][:column], lines[row][token.end[1] :]
        if token.string in ("async", "await"):
            lines[row] = before + after.lstrip()
        elif token.string in NAMES:
            lines[row] = before + NAMES[token.string] + after
    return "\n".join(lines)


def render(module: Generated | Facade) -> str:
    """Return the text of a generated module, formatted."""
    if isinstance(module, Facade):
        text = facade_text(module)
    else:
        text = to_sync((PACKAGE / module.source).read_text(), module.replacements)
    note = f"# Generated from {Path(module.source).name} by tools/generate_sync.py; do not edit."
    docstring = re.match(r'""".*?"""\n', text, re.DOTALL)
    assert docstring is not None, f"{module.source} begins with a docstring"
    text = f"{docstring[0]}\n{note}\n{text[docstring.end() :]}"
    for command in (["check", "--fix", "--select", "I,F401"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet"]
        path = str(PACKAGE / module.target)
        done = subprocess.run(
            [*ruff, "--stdin-filename", path, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def main(arguments: list[str]) -> int:
    """Write or check the generated modules; return the exit code."""
    stale = []
    for module in (*GENERATED, *FACADES):
        text, path = render(module), PACKAGE / module.target
        if not path.exists() or path.read_text() != text:
            stale.append(module.target)
            if "--check" not in arguments:
                path.write_text(text)
    for target in stale:
        print(f"{target}: {'is stale; run make sync' if '--check' in arguments else 'written'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
