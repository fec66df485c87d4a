"""The topics that the regular expressions of a consumer group match."""

from __future__ import annotations

from partage.coordinator.consumer_group.actions import ResolveRegexes
from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.events import RegexesResolved
from partage.coordinator.consumer_group.group import ConsumerGroup, subscription_of
from partage.coordinator.consumer_group.membership import bump_epoch
from partage.coordinator.consumer_group.progress import EpochCause
from partage.coordinator.consumer_group.records import RegularExpressionRecord
from partage.coordinator.event_context import EventContext
from partage.coordinator.outcome import RebalanceCause

#: The least time between two matches of the same regular expressions, as in Kafka.
REGEX_REFRESH_MIN_INTERVAL_MS = 10_000


def resolve_regexes(context: EventContext, group: ConsumerGroup, catalogue: Catalogue) -> None:
    """Order the resolution of new regular expressions, and of old ones after topics changed."""
    if not group.subscribed_regexes or group.resolution is not None:
        return
    if group.subscribed_regexes.keys() <= group.regexes.keys():
        since_ms = context.at_ms - group.regexes_resolved_ms
        is_changed = group.regexes_version != catalogue.version
        interval_ms = (
            REGEX_REFRESH_MIN_INTERVAL_MS
            if is_changed
            else max(
                context.settings.consumer.regex_refresh_interval_ms, REGEX_REFRESH_MIN_INTERVAL_MS
            )
        )
        if 0 <= since_ms < interval_ms:  # negative: the clock was set back
            return
    if not group.regexes_backoff.is_over(context.at_ms):
        return
    group.resolution = catalogue.next_sequence()
    context.actions.append(
        ResolveRegexes(
            group_id=group.id,
            sequence=group.resolution,
            regexes=frozenset(group.subscribed_regexes),
        )
    )


def on_regexes_resolved(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, event: RegexesResolved
) -> None:
    """Store the topics that regular expressions match; the epoch grows if they changed.

    After a failure the stored topics stay in force, and a later heartbeat orders a new resolution.
    """
    if group.resolution != event.sequence:
        return  # of a removed group of the same name
    group.resolution = None
    if event.topics is None:
        group.regexes_backoff.add_failure(context.at_ms)
        return
    group.regexes_backoff.reset()
    group.regexes_version = event.version
    group.regexes_resolved_ms = context.at_ms
    if group.is_empty:
        return
    has_changed = False
    new: set[str] = set()
    for regex, names in sorted(event.topics.items()):
        known = group.regexes.get(regex)
        topics = tuple(sorted(names))
        if regex not in group.subscribed_regexes or (known is not None and known.topics == topics):
            continue
        if known is None:
            new.add(regex)
        has_changed = has_changed or topics != (() if known is None else known.topics)
        context.write(
            RegularExpressionRecord(
                group_id=group.id,
                regex=regex,
                topics=topics,
                version=event.version,
                resolved_ms=context.at_ms,
            )
        )
    if new and not has_changed:
        has_changed = _leave_targets(group, catalogue, new)
    because = EpochCause(RebalanceCause.REGEX_CHANGED) if has_changed else None
    bump_epoch(context, group, catalogue, because)


def _leave_targets(group: ConsumerGroup, catalogue: Catalogue, regexes: set[str]) -> bool:
    """True if members of these expressions have targets that they no longer subscribe to.

    Other members may get these partitions.
    """
    return any(
        member.target.keys() - group.topic_ids_of(subscription_of(member.subscription), catalogue)
        for member in group.members.values()
        if member.subscription.subscribed_regex in regexes
    )
