"""The `Config` classes: types and defaults equal those in use, and the documentation shows them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from partage.client.config import MembershipConfig, Option
from partage.client.consumer.config import AssignmentStrategy, ConsumerConfig, DeserializerLike
from partage.client.consumer.options import (
    ConsumerOptions,
    option_defaults,
    option_names,
    option_type,
    parse_options,
)
from partage.client.consumer.page import fill_tables, options_table
from partage.client.options import ClientOptions, RetryPolicy
from partage.client.security.options import (
    FILE_OPTION_NAMES,
    SECURITY_OPTION_NAMES,
    SecurityOptions,
)
from partage.member.settings import MemberSettings
from partage.spark.group_options import GroupOptions

ROOT = Path(__file__).parents[3]
WRONG_OPTIONS = Path(__file__).with_name("wrong_options.py")

HINTS = get_type_hints(ConsumerConfig, include_extras=True)
#: Fields of the option structures that users cannot set, or that have another name as an option.
NOT_OPTIONS = {"attempts_max", "may_retry_initial_connect", "retries", "security"}
RENAMED = {
    "backoff_max_ms": "retry_backoff_max_ms",
    "backoff_ms": "retry_backoff_ms",
    "connect_timeout_ms": "socket_connection_setup_timeout_ms",
    "timeout_ms": "default_api_timeout_ms",
}


@pytest.mark.parametrize("name", option_names())
def test_option_is_documented(name):
    _, facts = get_args(HINTS[name])
    assert isinstance(facts, Option)
    assert facts.doc
    assert not facts.doc.endswith(".")
    units = {"ms": "ms", "bytes": "bytes", "bytes_max": "bytes", "records": "records"}
    expected = [unit for suffix, unit in units.items() if name.endswith(f"_{suffix}")]
    assert facts.unit == "".join(expected)
    if facts.kafka is not None and name not in SECURITY_OPTION_NAMES:
        assert facts.kafka == name.replace("_", ".")


@pytest.mark.parametrize("name", option_names())
def test_option_type_equals_type_of_field(name):
    kind, _ = get_args(HINTS[name])
    if name == "partition_assignment_strategy":  # `parse_assignors` checks the value
        assert kind == AssignmentStrategy
    elif name.endswith("_deserializer"):  # a function checks the value
        assert kind == DeserializerLike | None
    elif name in FILE_OPTION_NAMES:  # a path is converted to text
        assert kind == str | os.PathLike[str] | None
    else:
        assert kind == option_type(name)


def test_every_field_is_an_option():
    structs = (ConsumerOptions, ClientOptions, RetryPolicy, SecurityOptions)
    fields = {name for struct in structs for name in struct.__struct_fields__} - NOT_OPTIONS
    aliases = {"sasl_plain_username", "sasl_plain_password"}
    assert {RENAMED.get(name, name) for name in fields} | aliases == set(
        ConsumerConfig.__annotations__
    )


def test_default_values_are_accepted():
    defaults = option_defaults()
    assert set(defaults) == set(ConsumerConfig.__annotations__)
    given = {name: defaults[name] for name in defaults if name not in SECURITY_OPTION_NAMES}
    assert parse_options(given) == (ConsumerOptions(), ClientOptions())


def test_defaults_of_members_and_queries_equal_those_of_consumers():
    defaults = option_defaults()
    member = MemberSettings(group_id="g", protocol_type="consumer")
    for field in set(MemberSettings.__struct_fields__) & set(MembershipConfig.__annotations__):
        assert getattr(member, field) == defaults[field], field
    assert member.rebalance_timeout_ms == defaults["max_poll_interval_ms"]
    query = msgspec.structs.asdict(GroupOptions())
    assert query.pop("rebalance_timeout_ms") == defaults["max_poll_interval_ms"]
    assert query.pop("strategy") == defaults["partition_assignment_strategy"]
    assert query.pop("instance_id") == defaults["group_instance_id"]
    assert query.pop("rack") == defaults["client_rack"]
    assert query.pop("protocol") == defaults["group_protocol"]
    assert query.pop("remote_assignor") == defaults["group_remote_assignor"]
    assert query == {name: defaults[name] for name in query}


@pytest.mark.parametrize("page", ["consumer.md", "security.md"])
def test_docs_tables_are_up_to_date(page):
    """To update: ``python tools/generate_pages.py``."""
    text = (ROOT / "docs" / page).read_text()
    assert text.count("<!-- options of ") == 1
    assert fill_tables(text) == text


def test_tables_name_every_option_once():
    tables = options_table("consumers") + options_table("security")
    assert sorted(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE)) == option_names()


@pytest.mark.timeout(600)  # Without a cache, mypy checks the whole client
def test_mypy_rejects_wrong_options():
    lines = enumerate(WRONG_OPTIONS.read_text().splitlines(), start=1)
    marks = ((number, re.search(r"# error: ([\w-]+)$", line)) for number, line in lines)
    expected = {number: mark[1] for number, mark in marks if mark}
    settings = [
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
    ]
    # In a separate process. Otherwise the later tests of this one would collect mypy's objects.
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *settings, "--no-error-summary", str(WRONG_OPTIONS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    found = re.findall(r"wrong_options\.py:(\d+): error: .*\[([\w-]+)\]$", ran.stdout, re.MULTILINE)
    assert {int(number): code for number, code in found} == expected, ran.stdout
