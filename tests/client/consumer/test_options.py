"""Consumer options: Kafka's names and defaults, invalid values and messages."""

import pytest

from partage.client.consumer.options import parse_options, parse_reset
from partage.client.consumer.partition_state import TO_EARLIEST, TO_LATEST
from partage.errors import InvalidAddressError, InvalidOptionError, UnknownOptionError
from partage.sync import Consumer


def test_defaults_match_kafka():
    ours, client = parse_options({})
    assert (ours.auto_offset_reset, ours.isolation_level) == ("latest", "read_uncommitted")
    assert (ours.max_poll_records, ours.fetch_max_wait_ms, ours.fetch_min_bytes) == (500, 500, 1)
    assert (ours.fetch_max_bytes, ours.max_partition_fetch_bytes) == (52_428_800, 1_048_576)
    assert ours.check_crcs
    assert (client.request_timeout_ms, client.metadata_max_age_ms) == (30_000, 300_000)


def test_client_options_are_passed_on():
    _, client = parse_options(
        {
            "client_id": "me",
            "retry_backoff_ms": 7,
            "default_api_timeout_ms": 9,
            "socket_connection_setup_timeout_ms": 11,
        }
    )
    assert (client.client_id, client.connect_timeout_ms) == ("me", 11)
    assert (client.retries.backoff_ms, client.retries.timeout_ms) == (7, 9)
    assert client.retries.backoff_max_ms == 1000


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("auto_offset_rest", "auto_offset_reset"),
        ("auto.offset.reset", "auto_offset_reset"),
        ("Fetch_Max_Bytes", "fetch_max_bytes"),
        ("retry_backoff", "retry_backoff_ms"),
        ("qqqq", None),
    ],
)
def test_unknown_option_names_nearest(name, suggestion):
    with pytest.raises(UnknownOptionError) as caught:
        Consumer("localhost:9092", **{name: 1})
    hint = f"; did you mean {suggestion!r}?" if suggestion else ""
    assert str(caught.value) == f"a consumer has no option {name!r}{hint}"
    assert caught.value.suggestion == suggestion
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            {"max_poll_records": 0},
            "max_poll_records=0: expected an integer from 1 to 2,147,483,647",
        ),
        (
            {"fetch_max_wait_ms": -1},
            "fetch_max_wait_ms=-1: expected an integer from 0 to 2,147,483,647",
        ),
        (
            {"max_poll_records": "many"},
            "max_poll_records='many': expected an integer number",
        ),
        ({"check_crcs": 3}, "check_crcs=3: expected True or False"),
        ({"isolation_level": "all"}, "'read_uncommitted' or 'read_committed'"),
        ({"auto_offset_reset": "smallest"}, "'earliest', 'latest', 'none' or 'by_duration:'"),
        ({"auto_offset_reset": "by_duration:1h"}, "ISO 8601 duration such as PT1H"),
    ],
)
def test_invalid_value_raises(option, said):
    with pytest.raises(InvalidOptionError, match=said):
        Consumer("localhost:9092", **option)


@pytest.mark.parametrize(
    "name",
    [
        "buffer_bytes_max",
        "metadata_max_age_ms",
        "retry_backoff_ms",
        "retry_backoff_max_ms",
        "socket_connection_setup_timeout_ms",
    ],
)
def test_long_option_accepts_64_bits(name):
    """Kafka's users write the largest number for "never"."""
    parse_options({name: 2**63 - 1})
    with pytest.raises(InvalidOptionError):
        parse_options({name: 2**63})


def test_invalid_bootstrap_servers_raise():
    with pytest.raises(InvalidAddressError):
        Consumer("localhost:port")


@pytest.mark.parametrize(
    ("written", "back_ms"),
    [
        ("PT1H", 3_600_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0.25s", 250),
        ("PT90M", 5_400_000),
    ],
)
def test_parse_reset_by_duration(written, back_ms):
    reset = parse_reset(f"by_duration:{written}")
    assert reset.back_ms == back_ms
    assert reset.timestamp_at(10**12) == 10**12 - back_ms
    assert reset.timestamp_at(0) == 0


@pytest.mark.parametrize("written", ["", "P", "PT", "P1DT", "-PT1H", "PT1H2", "P1M", "PT1,S"])
def test_parse_reset_invalid_duration_raises(written):
    with pytest.raises(InvalidOptionError):
        parse_reset(f"by_duration:{written}")


def test_parse_reset_earliest_latest_none():
    assert parse_reset("earliest") is TO_EARLIEST
    assert parse_reset("latest") is TO_LATEST
    assert parse_reset("none") is None
