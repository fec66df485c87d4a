"""Options of ``partage proposal multi-assignor`` and ``single-assignor``."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.broker.topics.data_directory import DirectoryLock

from .cli import PartageCli

DESIGNS = ("multi-assignor", "single-assignor")
MEMBER = ("member", "--group", "g")


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*MEMBER,), "name topics, or a --pattern, but not both"),
        ((*MEMBER, "t", "--pattern", "t"), "name topics, or a --pattern, but not both"),
        ((*MEMBER, "--pattern", "("), "--pattern '(' is not a regular expression"),
        ((*MEMBER, "t", "--coordinator", "nowhere"), "--coordinator: invalid address 'nowhere'"),
        (
            (*MEMBER, "t", "--session-timeout-ms", "3000"),
            "--heartbeat-interval-ms 3000 must be below --session-timeout-ms 3000",
        ),
        (("coordinator", "--listen", "nowhere"), "--listen: invalid address 'nowhere'"),
        (
            ("coordinator", "--session-timeout-min-ms", "9", "--session-timeout-max-ms", "8"),
            "--session-timeout-min-ms 9 is above --session-timeout-max-ms 8",
        ),
    ],
)
def test_invalid_option_is_refused(
    partage: PartageCli, design: str, arguments: tuple[str, ...], message: str
) -> None:
    assert message in partage("proposal", design, *arguments, code=2).err


def test_member_of_missing_topic_is_refused(partage: PartageCli, broker: str) -> None:
    refused = partage("proposal", "multi-assignor", *MEMBER, "no-such-topic", "-b", broker, code=1)
    assert refused.err == "error: no topic 'no-such-topic' in the cluster; create it first\n"


def test_coordinator_with_a_directory_in_use_is_refused(
    partage: PartageCli, tmp_path: Path
) -> None:
    lock = DirectoryLock(tmp_path)
    arguments = ("coordinator", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    refused = partage("proposal", "single-assignor", *arguments, code=1)
    assert "is in use by another broker" in refused.err
    lock.release()
