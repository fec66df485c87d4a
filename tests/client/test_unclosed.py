"""Consumers, memberships and recipes that were not closed: a ResourceWarning, and a quiet end."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings

import pytest

import partage
import partage.sync
from partage.recipes import Processor, RedundantIndexer, Task
from partage.recipes import sync as sync_recipes

from .confluent_admin import create_topic

SERVERS = "127.0.0.1:1"

#: Programs that end without a close, and the name in the warning.
PROGRAMS = {
    "sync-consumer": (
        "from partage.sync import Consumer\n"
        "consumer = Consumer(SERVERS, group_id='g')\n"
        "consumer.subscribe(['t'])\n"
        "consumer.poll(100)\n",
        "Consumer",
    ),
    "asyncio-consumer": (
        "import asyncio\n"
        "from partage import Consumer\n"
        "async def main():\n"
        "    consumer = Consumer(SERVERS, group_id='g')\n"
        "    consumer.subscribe(['t'])\n"
        "    await consumer.poll(100)\n"
        "asyncio.run(main())\n",
        "Consumer",
    ),
    "sync-membership": (
        "from partage.sync import Membership\n"
        "member = Membership(SERVERS, 'g', 'p', {})\n"
        "member.assignment()\n",
        "Membership",
    ),
    "asyncio-membership": (
        "import asyncio\n"
        "from partage import Membership\n"
        "async def main():\n"
        "    member = Membership(SERVERS, 'g', 'p', {})\n"
        "    await member.start()\n"
        "    await member.assignment()\n"
        "asyncio.run(main())\n",
        "Membership",
    ),
    "election": (
        "import asyncio\n"
        "from partage.recipes import LeaderElection\n"
        "async def main():\n"
        "    election = LeaderElection(SERVERS, 'g')\n"
        "    await election.__aenter__()\n"
        "    await election.wait_until_elected()\n"
        "asyncio.run(main())\n",
        "LeaderElection",
    ),
    "processor": (
        "from partage.recipes.sync import Processor\n"
        "processor = Processor(SERVERS, 'g', print, joined=['t', 'u'])\n"
        "processor.start()\n",
        "Processor",
    ),
}


class Nothing(Task):
    def process(self, record):
        """Process nothing."""


def collect(only_reference):
    """Drop the only reference to an object, and collect the object."""
    only_reference.clear()
    gc.collect()


@pytest.mark.parametrize(("program", "name"), PROGRAMS.values(), ids=PROGRAMS)
def test_program_without_close_ends_quietly(partage_broker, program, name):
    for topic in ("t", "u"):
        create_topic(partage_broker.bootstrap_servers, topic, 1)
    script = f"SERVERS = {partage_broker.bootstrap_servers!r}\n{program}"
    ended = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = [line.partition("ResourceWarning: ")[2] for line in ended.stderr.splitlines()]
    # The loop of `asyncio.run` has ended before its transports and their sockets are collected.
    left = ("transport", "<socket") if any("transport" in line for line in found) else ()
    said = [line for line in found if line and not any(part in line for part in (*left, "trace"))]
    assert said == [f"unclosed {name}: call close(), or use a with statement"], ended.stderr
    assert "Task was destroyed" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 0


def test_program_without_close_prints_nothing_by_default(partage_broker):
    create_topic(partage_broker.bootstrap_servers, "t", 1)
    script = f"SERVERS = {partage_broker.bootstrap_servers!r}\n{PROGRAMS['sync-consumer'][0]}"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60, check=True
    )
    assert ended.stderr == b""


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: partage.Consumer(SERVERS), id="Consumer"),
        pytest.param(lambda path: partage.sync.Consumer(SERVERS, group_id="g"), id="sync-Consumer"),
        pytest.param(lambda path: partage.sync.Membership(SERVERS, "g", "p", {}), id="Membership"),
        pytest.param(
            lambda path: Processor(SERVERS, "g", Nothing, joined=["a", "b"]), id="Processor"
        ),
        pytest.param(
            lambda path: sync_recipes.Processor(SERVERS, "g", Nothing, joined=["a", "b"]),
            id="sync-Processor",
        ),
        pytest.param(
            lambda path: RedundantIndexer(SERVERS, "g", ["t"], path), id="RedundantIndexer"
        ),
    ],
)
def test_abandoned_object_warns_and_ends_its_thread(tmp_path, make, request):
    before = set(threading.enumerate())
    made = make(tmp_path)
    (thread,) = set(threading.enumerate()) - before
    name = type(made).__name__
    made = [made]
    with pytest.warns(ResourceWarning, match=f"unclosed {name}: call close") as caught:
        collect(made)
    assert len(caught) == 1
    thread.join(10)
    assert not thread.is_alive()


def test_closed_consumer_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partage.sync.Consumer(SERVERS).close()
        gc.collect()


def test_failed_constructor_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (partage.Consumer, partage.sync.Consumer):
            with pytest.raises(ValueError, match="HOST:PORT"):
                kind("nowhere")
        gc.collect()


def test_abandoned_membership_stops_its_heartbeats(partage_broker):
    """The coordinator removes the member; the connection to it closes at once."""

    async def main():
        member = partage.Membership(partage_broker.bootstrap_servers, "g", "p", {})
        await member.start()
        await member.assignment()
        member = [member]
        with pytest.warns(ResourceWarning, match="unclosed Membership"):
            collect(member)
        for _ in range(50):  # the cancelled tasks end in the next turns of the loop
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
