"""Parsing of HOST:PORT in bootstrap.servers."""

import pytest

from partage.client import Address, InvalidAddressError, parse_bootstrap_servers


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("kafka1:9092", [("kafka1", 9092)]),
        (" a:1 , b:2,, ", [("a", 1), ("b", 2)]),
        ("a:1,a:1", [("a", 1)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_parse_valid_addresses(text, addresses):
    assert parse_bootstrap_servers(text) == addresses


@pytest.mark.parametrize("text", ["", " , ", "kafka1", "kafka1:", ":9092", "a:0", "a:65536", "::1"])
def test_parse_rejects_invalid_addresses(text):
    with pytest.raises(InvalidAddressError, match="HOST:PORT"):
        parse_bootstrap_servers(text)


def test_address_str_is_parseable():
    assert [str(Address("::1", 1)), str(Address("a", 2))] == ["[::1]:1", "a:2"]
