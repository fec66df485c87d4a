"""Two other implementations read our messages, and we read theirs."""

from __future__ import annotations

import msgspec
import pytest

from partage.wire.types import Message

from .oracles import KafkaPython, Kio, Oracle, with_nothing_of_ours, without_ours
from .random_messages import CASES, Case, made, plain, random_message

EXAMPLES = 3
DEFINITIONS = KafkaPython()
ORACLES: dict[str, Oracle] = {"kio": Kio(), "kafka-python": DEFINITIONS}
COVERED = {
    name: [case for case in CASES if oracle.covers(case)] for name, oracle in ORACLES.items()
}
PAIRS = [
    pytest.param(ORACLES[name], case, id=f"{name}-{case}")
    for name, covered in COVERED.items()
    for case in covered
]


@pytest.mark.parametrize(("oracle", "case"), PAIRS)
def test_messages_are_compatible_with_other_implementations(oracle: Oracle, case: Case) -> None:
    rng = case.rng("oracle")
    for _ in range(EXAMPLES):
        values = plain(random_message(case, rng, tame=True), case.version, case.flexible)
        oracle.spare(case, values)
        values = with_nothing_of_ours(values)
        message = made(values, case.cls, case.version, case.flexible)
        expected = without_ours(values)

        ours = case.encode(message)
        theirs = oracle.encode(case, expected)
        assert oracle.decode(case, ours) == expected
        assert plain(case.decode(theirs), case.version, case.flexible) == values
        assert ours == theirs


def test_declarations_equal_kafka_definitions() -> None:
    """Covers what random messages may miss: nulls, tags, and Kafka's explicit defaults."""
    for case in COVERED["kafka-python"]:
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
