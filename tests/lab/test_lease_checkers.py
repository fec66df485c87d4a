"""The rules about leases and registrations reject histories of brokers that act too long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.lab import history
from partage.lab.history import RuleViolationError
from partage.model.errors import ErrorCode
from partage.store.record_formats import encode_record

from .history_builder import HistoryBuilder, commit, group, heartbeat, member, share

A = member("a", share(0))
#: A time after all entries of these histories.
LATE_MS = 100_000
#: More requests to ZooKeeper take longer.
GIVE_UP_MS = 50


@pytest.fixture
def built() -> HistoryBuilder:
    """A group on broker 1, whose session lives for 1 s."""
    builder = HistoryBuilder()
    builder.append(
        history.ZooKeeperAnswered, broker=1, sent_ms=builder.at_ms, session_until_ms=1_000
    )
    builder.append(history.ShardLoaded, broker=1, epoch=1, state={})
    builder.generation(1, A)
    return builder


def respond(builder: HistoryBuilder) -> None:
    heartbeat(builder, "a", 1)


def remove_member(builder: HistoryBuilder) -> None:
    builder.append(history.MemberExpired, group_id="g", member_id="a", reason="no JoinGroup")


@pytest.mark.parametrize("act", [respond, remove_member])
def test_act_without_lease_is_rejected(
    built: HistoryBuilder, act: Callable[[HistoryBuilder], None]
) -> None:
    built.at_ms += 1_000
    with pytest.raises(RuleViolationError, match=r"lease: .*may have ended"):
        act(built)


@pytest.mark.parametrize("act", [respond, remove_member])
def test_act_after_session_end_is_rejected(
    built: HistoryBuilder, act: Callable[[HistoryBuilder], None]
) -> None:
    built.append(history.ZooKeeperSessionExpired, broker=1)
    with pytest.raises(RuleViolationError, match=r"lease: .*session ended"):
        act(built)


def test_removal_without_lease_is_rejected_after_renewal(built: HistoryBuilder) -> None:
    """A broker reports a removal once its lease is valid again."""
    built.history.append(
        history.ZooKeeperAnswered(
            at_ms=LATE_MS, broker=1, sent_ms=LATE_MS, session_until_ms=LATE_MS + 1_000
        )
    )
    built.at_ms += 1_000
    with pytest.raises(RuleViolationError, match=r"lease: .*may have ended"):
        remove_member(built)


def test_acts_with_renewed_lease_are_accepted(built: HistoryBuilder) -> None:
    built.append(
        history.ZooKeeperAnswered, broker=1, sent_ms=900, session_until_ms=built.at_ms + 2_000
    )
    built.at_ms += 1_500
    respond(built)
    remove_member(built)


def test_not_coordinator_without_lease_is_accepted(built: HistoryBuilder) -> None:
    built.append(history.ZooKeeperSessionExpired, broker=1)
    commit(built, writes=False, code=ErrorCode.NOT_COORDINATOR)


def lose_registration(builder: HistoryBuilder) -> None:
    """Remove the registration of broker 1; broker 2 takes its shard over."""
    builder.append(history.RegistrationRemoved, broker=1)
    state = dict(map(encode_record, [group(1, A)]))
    builder.append(history.ShardLoaded, broker=2, epoch=2, state=state)


def test_response_before_missing_registration_is_known_is_accepted(built: HistoryBuilder) -> None:
    lose_registration(built)
    respond(built)
    built.append(history.RegistrationMissed, broker=1, gives_up_by_ms=built.at_ms + GIVE_UP_MS)
    respond(built)


def test_response_with_missing_registration_is_rejected(built: HistoryBuilder) -> None:
    lose_registration(built)
    built.append(history.RegistrationMissed, broker=1, gives_up_by_ms=built.at_ms + GIVE_UP_MS)
    built.at_ms += GIVE_UP_MS
    with pytest.raises(RuleViolationError, match="shard-ownership"):
        respond(built)
