"""Windows: clients and commands import and run there; the broker refuses with a clear error.

The tests simulate Windows: the platform's name, and no module or function that exists on POSIX
only. The standard library is imported before that, because its own modules choose by platform.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SIMULATION = """
import asyncio, concurrent.futures, ctypes, multiprocessing, os, signal, shutil, socket, ssl
import subprocess, sys, tempfile, threading, time, uuid, zoneinfo
import multiprocessing.context, multiprocessing.pool, concurrent.futures.process
try:
    import confluent_kafka.admin, numpy, pyarrow, rich.console, typer, uvicorn, kazoo.client
except ImportError:
    pass

for name in ("fcntl", "grp", "posix", "pwd", "resource", "termios", "tty", "uvloop"):
    sys.modules[name] = None
for module, names in {
    os: ("fork", "getuid", "geteuid", "O_DIRECTORY", "posix_fadvise", "sched_getaffinity"),
    signal: ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGPIPE", "pthread_sigmask", "setitimer"),
    socket: ("SO_RCVLOWAT", "SO_REUSEPORT"),
    time: ("clock_gettime", "clock_gettime_ns", "CLOCK_MONOTONIC", "CLOCK_BOOTTIME"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "win32"
"""
#: Modules of clients and tools; those of brokers, of Spark and of the simulator need POSIX.
IMPORTS = """
import importlib, pkgutil
import partage
apart = (
    "partage.broker",
    "partage.console.broker",
    "partage.console.lab",
    "partage.console.pipelines",
    "partage.console.proposal",
    "partage.lab",
    "partage.pipelines",
    "partage.proposals",
    "partage.spark",
    "partage.testing.broker",
    "partage.testing.faults",
    "partage.testing.request_interceptor",
    "partage.testing.transaction_faults",
    "partage.testing.shell_worlds",
    "partage.testing.topic_worlds",
    "partage.testing.recipe_worlds",
    "partage.testing.whatif",
    "partage.testing.world",
)
failed = {}
for found in pkgutil.walk_packages(partage.__path__, "partage.", onerror=lambda name: None):
    if not found.name.startswith(apart) and not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except Exception as error:
            failed[found.name] = repr(error)
assert not failed, failed
print("imported")
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SIMULATION + code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_clients_and_tools_import_on_windows():
    ended = run(IMPORTS)
    assert ended.stdout == "imported\n", ended.stderr


def test_member_works_on_windows(partage_broker):
    ended = run(f"""
from partage.sync import Consumer, Membership
with Membership({partage_broker.bootstrap_servers!r}, "g", "p", {{}}) as member:
    print(member.assignment().is_leader, member.exclusive_until_ms > 0)
with Consumer({partage_broker.bootstrap_servers!r}, group_id="h") as consumer:
    consumer.subscribe(["t"])
    consumer.poll(10)
""")
    assert ended.stdout == "True True\n", ended.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import partage.testing; partage.testing.ThreadedBroker",
        "import runpy; runpy.run_module('partage.broker', run_name='__main__')",
    ],
    ids=["testing", "module"],
)
def test_broker_refuses_on_windows(code):
    ended = run(code)
    last = ended.stderr.splitlines()[-1]
    assert "the broker needs Linux or macOS" in last, ended.stderr
    assert "WSL" in last
    assert ended.returncode == 1


def test_broker_command_refuses_on_windows():
    code = "from partage.console import main; sys.argv = ['partage', 'broker']; main()"
    ended = run(code)
    assert ended.stderr.startswith("error: the broker needs Linux or macOS"), ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.returncode == 1


def test_command_help_works_on_windows():
    code = "from partage.console import main; sys.argv = ['partage', '--help']; main()"
    ended = run(code)
    assert ended.returncode == 0, ended.stderr
    assert "topics" in ended.stdout
