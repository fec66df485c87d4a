"""Elect a leader: exactly one of several processes works, and another one takes over.

Start a broker, then run the example in two terminals:

    pip install 'partage[cli]'
    partage broker --ephemeral  # in a separate terminal
    python examples/leader_election.py 127.0.0.1:9092 scheduler ada
    python examples/leader_election.py 127.0.0.1:9092 scheduler ben

Stop the leader with Ctrl-C, and the other process leads at once. After a kill -9 it leads when the
session of the killed process ends. No topic is needed.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import suppress

from partage.recipes import LeaderElection, Term


async def do_step(step: int) -> None:
    """Do a step of the work that only one process may do."""
    await asyncio.sleep(1)


async def main(servers: str, group: str, name: str) -> None:
    """Take part in the election until Ctrl-C."""

    async def work(term: Term) -> None:
        # Send the token with every write: the storage can then reject a former leader's writes.
        print(f"{name} leads with token {term.token}", flush=True)
        for step in itertools.count():
            if not term.is_active:  # True only as long as no other process can lead.
                break
            await do_step(step)

    async with LeaderElection(servers, group, identity=name, work=work) as election:
        leader = await election.wait_for_leader()
        print(f"the leader is {leader.identity}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/leader_election.py SERVERS GROUP NAME")
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
