"""Two other implementations read our messages, and we read theirs."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from partage.wire.types import Message

from .oracles import KafkaPython, Kio, Oracle, with_nothing_of_ours, without_ours
from .random_messages import BY_MESSAGE, CASES, Case, made, plain, random_message

EXAMPLES = 3
DEFINITIONS = KafkaPython()
ORACLES: dict[str, Oracle] = {"kio": Kio(), "kafka-python": DEFINITIONS}


@cache
def covered_cases(name: str) -> list[Case]:
    """Return the cases that an implementation knows. kio imports a module for each of them."""
    return [case for case in CASES if ORACLES[name].covers(case)]


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize(
    "versions", BY_MESSAGE, ids=lambda cases: f"{cases[0].api.name}-{cases[0].side}"
)
def test_messages_are_compatible_with_other_implementations(
    name: str, versions: list[Case]
) -> None:
    oracle = ORACLES[name]
    for case in filter(oracle.covers, versions):
        rng = case.rng("oracle")
        for _ in range(EXAMPLES):
            values = plain(random_message(case, rng, tame=True), case.version, case.flexible)
            oracle.spare(case, values)
            values = with_nothing_of_ours(values)
            message = made(values, case.cls, case.version, case.flexible)
            expected = without_ours(values)

            ours = case.encode(message)
            theirs = oracle.encode(case, expected)
            assert oracle.decode(case, ours) == expected, case
            assert plain(case.decode(theirs), case.version, case.flexible) == values, case
            assert ours == theirs, case


def test_declarations_equal_kafka_definitions() -> None:
    """Covers what random messages may miss: nulls, tags, and Kafka's explicit defaults."""
    for case in covered_cases("kafka-python"):
        for path, cls, ours, theirs in DEFINITIONS.declared(case):
            where = f"{case}{path}"
            tag = theirs.tag if theirs.tagged_field_q(case.version) else None
            assert ours.nullable == theirs.nullable_for_version_q(case.version), where
            assert ours.tag == tag, where
            if "default" in theirs._json:
                assert default_of(cls, ours.name) == DEFINITIONS.default(theirs), where


def default_of(cls: type[Message], name: str) -> object:
    (info,) = (each for each in msgspec.structs.fields(cls) if each.name == name)
    return info.default
