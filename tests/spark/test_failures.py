"""Reasons of failed queries, without Spark."""

import sys

import pytest

from partage.spark import failure_reason


def test_failure_reason_without_py4j_is_the_first_line(monkeypatch):
    """The package ``pyspark-client`` of Spark Connect has no py4j, and no JVM."""
    monkeypatch.setitem(sys.modules, "py4j.protocol", None)
    assert failure_reason(ConnectionError("no server\nat port 15002")) == "no server"


def test_failure_reason_is_the_last_error_of_this_package():
    text = (
        "[STREAM_FAILED] Query terminated with exception: x SQLSTATE: XXKST\n"
        "  partage.client.errors.UnknownTopicError: there is no topic 'a'\n"
        "partage.spark.offset_resolver.TopicDeletedError: topic 'a' was deleted\n"
        "  at java"
    )
    expected = "partage.spark.offset_resolver.TopicDeletedError: topic 'a' was deleted"
    assert failure_reason(RuntimeError(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Python worker failed to connect back.",
        "[STREAM_FAILED] Query [id = 2d220866] terminated with exception: "
        "Python worker failed to connect back. SQLSTATE: XXKST",
    ],
)
def test_failure_reason_of_late_worker_names_limit(text):
    reason = failure_reason(RuntimeError(f"{text}\n  at java"))
    assert reason.startswith("a Python process of Spark did not start within 10 s")


def test_failure_reason_of_a_killed_process_says_so():
    text = "Connection reset\n=== Streaming Query ===\nIdentifier: [id = 8a9f]"
    assert "has ended without an error" in failure_reason(RuntimeError(text))
    assert failure_reason(RuntimeError("Connection reset")) == "Connection reset"
