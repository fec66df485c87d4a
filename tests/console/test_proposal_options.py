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
        ((*MEMBER, "--pattern", "("), "--pattern: pattern '(' is invalid at character 1"),
        ((*MEMBER, "--pattern", r"(a)\1"), r"--pattern: pattern '(a)\\1' is invalid"),
        ((*MEMBER, "t", "--coordinator", "nowhere"), "--coordinator: invalid address 'nowhere'"),
        (
            (*MEMBER, "t", "--session-timeout-ms", "5999"),
            "--heartbeat-interval-ms 3000 must be at most half of --session-timeout-ms 5999",
        ),
        (
            (*MEMBER, "t", "--join-timeout-ms", "45000"),
            "--join-timeout-ms 45000 must be above --session-timeout-ms 45000",
        ),
        (
            (*MEMBER, "t", "-X", "ssl.keystore.location=probe", "-X", "security.protocol=ssl"),
            "ssl.keystore.location works only in librdkafka",
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


def test_member_that_gives_up_before_the_synchronizer_is_refused(partage: PartageCli) -> None:
    arguments = (*MEMBER, "t", "--synchronize-timeout-ms", "255000")
    assert (
        "--join-timeout-ms 300000 must be above --session-timeout-ms 45000 plus "
        "--synchronize-timeout-ms 255000"
    ) in partage("proposal", "single-assignor", *arguments, code=2).err


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
