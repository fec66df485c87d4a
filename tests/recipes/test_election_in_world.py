"""Leader election in virtual time."""

import asyncio

from partage.recipes import LeaderElection
from partage.testing import PartageWorld

from .test_election import Work


def test_term_after_a_lost_one_has_a_new_token(tmp_path):
    """A coordinator answers a member that joins again, unchanged, with the same generation, unless
    it is the leader of the group. So the member got its former term again.
    """
    world, work = PartageWorld(1, tmp_path, {"group.min.session.timeout.ms": "1000"}), Work()

    async def take_part(stands):
        options = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 500}
        servers = world.bootstrap_servers
        async with LeaderElection(servers, "g", work=work, stands=stands, **options):
            await asyncio.Event().wait()

    async def test():
        world.process(lambda: take_part(False), name="leader of the group")
        await asyncio.sleep(1)
        world.process(lambda: take_part(True), name="candidate")
        await world.until(lambda: work.at_work is not None)
        await asyncio.sleep(5)
        world.pause("candidate", 4)  # longer than its session
        await asyncio.sleep(2)
        world.kill(world.broker)
        world.restart(world.broker)  # it begins the sessions again, and removes no member
        await asyncio.sleep(5)

    world.run(test)
    assert len(work.tokens) == 2
    assert work.tokens[0] < work.tokens[1]
    assert not work.overlaps
