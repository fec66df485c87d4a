"""The return to the bootstrap addresses (KIP-899, KIP-1102): the decision, and a cluster."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

import partage
from partage.client import (
    BrokerResponseError,
    BrokersUnreachableError,
    ClientOptions,
    Cluster,
    RetryPolicy,
)
from partage.client.metadata_recovery import MetadataRecovery
from partage.model.errors import ErrorCode
from partage.testing import BrokerProcess
from partage.wire.apis.metadata import MetadataResponse

from .confluent_admin import produce
from .scripted_broker import SILENCE, Relay, ScriptedBroker

QUICK = RetryPolicy(attempts_max=3, backoff_ms=1, backoff_max_ms=1)
TRIGGER_MS = 1000
PATIENT = 60_000


def waiting(strategy="rebootstrap"):
    """Return the recovery of a client whose attempt at time 0 failed."""
    recovery = MetadataRecovery(strategy, TRIGGER_MS)
    recovery.on_attempt(0)
    recovery.on_failure()
    return recovery


def test_rebootstrap_is_due_after_trigger_time():
    recovery = waiting()
    recovery.on_attempt(TRIGGER_MS)  # a retry does not start the time again
    assert (recovery.is_due(TRIGGER_MS), recovery.remaining_ms(TRIGGER_MS)) == (False, 1)
    assert recovery.is_due(TRIGGER_MS + 1)


def test_metadata_stops_the_time():
    recovery = waiting()
    recovery.on_attempt(1)
    recovery.on_metadata()
    assert recovery.remaining_ms(TRIGGER_MS + 1) is None
    recovery.on_attempt(5000)
    assert recovery.remaining_ms(5000) == TRIGGER_MS + 1


def test_rebootstrap_starts_the_time_again():
    recovery = waiting()
    recovery.on_rebootstrap(2000)
    assert not recovery.is_due(2000 + TRIGGER_MS)
    recovery.on_attempt(2000)
    recovery.on_failure()
    assert recovery.is_due(2001 + TRIGGER_MS)


def test_required_rebootstrap_is_due_once():
    recovery = waiting()
    recovery.on_required()
    assert recovery.is_due(0)
    recovery.on_rebootstrap(0)
    assert not recovery.is_due(0)


def test_strategy_none_never_rebootstraps():
    recovery = waiting("none")
    recovery.on_required()
    assert not recovery.is_due(10**9)
    assert recovery.remaining_ms(10**9) is None


def test_abandoned_attempt_starts_no_time():
    recovery = MetadataRecovery("rebootstrap", TRIGGER_MS)
    recovery.on_attempt(0)
    recovery.on_abandoned()
    assert not recovery.is_due(5000)
    recovery.on_attempt(5000)
    assert recovery.remaining_ms(5000) == TRIGGER_MS + 1


def test_abandoned_attempt_after_failure_keeps_time():
    recovery = waiting()
    recovery.on_attempt(1)
    recovery.on_abandoned()
    recovery.on_attempt(2)
    assert recovery.is_due(TRIGGER_MS + 1)


def test_abandoned_attempt_keeps_time_of_concurrent_one():
    recovery = MetadataRecovery("rebootstrap", TRIGGER_MS)
    recovery.on_attempt(0)
    recovery.on_attempt(1)
    recovery.on_abandoned()
    recovery.on_attempt(2)
    recovery.on_failure()
    assert recovery.is_due(TRIGGER_MS + 1)


@given(st.lists(st.sampled_from(["on_metadata", "on_failure", "on_abandoned"])), st.booleans())
def test_metadata_ends_all_earlier_attempts(outcomes, are_concurrent):
    """The next time without metadata begins with a later attempt, for any earlier outcomes."""
    recovery = MetadataRecovery("rebootstrap", TRIGGER_MS)
    outcomes = [*outcomes, "on_metadata"]
    for outcome in outcomes:
        recovery.on_attempt(0)
        if not are_concurrent:
            getattr(recovery, outcome)()
    for outcome in outcomes if are_concurrent else ():
        getattr(recovery, outcome)()
    recovery.on_attempt(5000)
    recovery.on_abandoned()
    assert not recovery.is_due(10**9)
    recovery.on_attempt(7000)
    assert recovery.remaining_ms(7000) == TRIGGER_MS + 1
    recovery.on_failure()
    assert not recovery.is_due(7000 + TRIGGER_MS)
    assert recovery.is_due(7001 + TRIGGER_MS)


def options(strategy="rebootstrap", **more):
    return ClientOptions(retries=QUICK, metadata_recovery_strategy=strategy, **more)


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_lost_brokers_are_replaced_by_bootstrap_addresses(strategy):
    async def main():
        async with ScriptedBroker() as old, ScriptedBroker() as new:
            servers = [old.address, new.address]
            async with Cluster(servers, options(strategy)) as cluster:
                await cluster.all_topics()
                assert new.connections == 0  # the first broker's metadata does not list it
                await old.__aexit__()
                if strategy == "none":
                    with pytest.raises(BrokersUnreachableError) as raised:
                        await cluster.all_topics()
                    assert [each.address for each in raised.value.attempts] == [old.address]
                    assert new.connections == 0
                else:
                    await cluster.all_topics()
                    assert cluster.brokers.keys() == {new.node_id}
                    assert new.connections == 1

    asyncio.run(main())


def answer_metadata(*answers):
    """Return a script that answers Metadata requests with these in turn, then as usual."""
    left = list(answers)

    def script(asked):
        if asked.api.name != "Metadata" or not left:
            return None
        answer = left.pop(0)
        return answer() if callable(answer) else answer

    return script


REQUIRED = MetadataResponse(brokers=[], topics=[], error_code=ErrorCode.REBOOTSTRAP_REQUIRED)


@pytest.mark.parametrize(("strategy", "connections"), [("rebootstrap", 2), ("none", 1)])
def test_broker_requires_rebootstrap(strategy, connections):
    async def main():
        async with ScriptedBroker(answer_metadata(None, REQUIRED)) as broker:
            async with Cluster([broker.address], options(strategy)) as cluster:
                await cluster.all_topics()
                await cluster.all_topics()
            assert broker.connections == connections

    asyncio.run(main())


def test_repeated_requirement_is_raised():
    async def main():
        script = answer_metadata(*[REQUIRED] * 3)
        async with (
            ScriptedBroker(script) as broker,
            Cluster([broker.address], options()) as cluster,
        ):
            with pytest.raises(BrokerResponseError, match="REBOOTSTRAP_REQUIRED"):
                await cluster.all_topics()

    asyncio.run(main())


class AheadLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test sets forward."""

    ahead_s = 0.0

    def time(self):
        return super().time() + self.ahead_s


def test_silent_broker_causes_rebootstrap_after_trigger_time():
    """The trigger time ends before the timeout of the request."""
    loop = AheadLoop()

    def fall_silent():
        loop.ahead_s += TRIGGER_MS / 1000 + 1
        return SILENCE

    async def main():
        script = answer_metadata(None, fall_silent)
        given = options(
            metadata_recovery_rebootstrap_trigger_ms=TRIGGER_MS, request_timeout_ms=10**9
        )
        async with ScriptedBroker(script) as broker, Cluster([broker.address], given) as cluster:
            await cluster.all_topics()
            assert list(await cluster.all_topics()) == ["t"]
            assert broker.connections == 2

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_cancelled_request_causes_no_rebootstrap():
    """The connection is in use, and the broker still answers."""
    loop, asked = AheadLoop(), asyncio.Event()

    def fall_silent():
        asked.set()
        return SILENCE

    async def main():
        script = answer_metadata(None, fall_silent)
        given = options(metadata_recovery_rebootstrap_trigger_ms=TRIGGER_MS)
        async with ScriptedBroker(script) as broker, Cluster([broker.address], given) as cluster:
            await cluster.all_topics()
            abandoned = asyncio.ensure_future(cluster.all_topics())
            await asked.wait()
            abandoned.cancel()
            await asyncio.gather(abandoned, return_exceptions=True)
            loop.ahead_s += TRIGGER_MS / 1000 + 1
            await cluster.any_broker()
            assert broker.connections == 1

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.slow
def test_consumer_follows_broker_to_another_port(tmp_path):
    """The bootstrap address is the same; the address that the broker advertises changes."""

    async def main(old, new):
        old.start()
        produce(old.bootstrap_servers, "t", [{"value": b"before"}])
        async with Relay(old.bootstrap_servers) as relay:
            servers = str(relay.address)
            patient = {
                "retry_backoff_ms": 1,
                "retry_backoff_max_ms": 20,
                "default_api_timeout_ms": 300_000,  # the restart takes long on a busy machine
            }
            async with partage.Consumer(servers, **patient) as consumer:
                consumer.assign([("t", 0)])
                consumer.seek(("t", 0), 0)
                (before,) = await consumer.poll(PATIENT)
                old.kill()
                await asyncio.to_thread(new.start)
                relay.target = new.bootstrap_servers
                await asyncio.to_thread(produce, new.bootstrap_servers, "t", [{"value": b"after"}])
                (after,) = await consumer.poll(PATIENT)
        return before.value, after.value

    old, new = BrokerProcess(tmp_path / "data"), BrokerProcess(tmp_path / "data")
    try:
        assert asyncio.run(main(old, new)) == (b"before", b"after")
    finally:
        old.remove()
        new.remove()
