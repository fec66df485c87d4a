"""Tests of ``partage lab designs``."""

from __future__ import annotations

import pytest

from partage.proposals.simulation import trial

from .cli import PartageCli


def test_worlds_of_each_chosen_design_run(partage: PartageCli) -> None:
    ran = partage(
        "lab", "designs", "--design", "broker-side", "--design", "two-phase-eager",
        "--seeds", 2, "--jobs", 1,
    )  # fmt: skip
    rows = [line.split() for line in ran.lines if line]
    assert ["broker-side", "2", "0"] in rows
    assert ["two-phase-eager", "2", "0"] in rows


def test_failure_names_the_fewest_steps_and_a_command(
    partage: PartageCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A world in which duplicates are expected nowhere: a design that closes connections has some.
    monkeypatch.setattr("partage.proposals.designs.broker_side.BrokerSideClosing.findings", ())
    one = ("lab", "designs", "--design", "broker-side-closing", "--jobs", 1)
    ran = partage(*one, "--seed-from", 51, "--seeds", 1, "--json", code=1)
    smallest = ran.json["smallest"]
    assert ran.json["failures"][0]["rule"] == smallest["rule"] == "duplicates"
    assert len(smallest["steps"]) < len(ran.json["failures"][0]["steps"])
    words = smallest["command"].split()[1:]
    again = partage(*words, "--json", code=1).json["failures"]
    assert [each["description"] for each in again] == [smallest["description"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--design", "broker-sid"), "did you mean 'broker-side'"),
        (("--keep", "1"), "--keep applies to one world"),
        (("--design", "broker-side", "--seeds", 1, "--keep", "99"), "no step 99"),
        (("--design", "broker-side", "--seeds", 1, "--keep", "x"), "numbers separated by commas"),
    ],
)
def test_wrong_options_are_rejected(
    partage: PartageCli, arguments: tuple[object, ...], message: str
) -> None:
    ran = partage("lab", "designs", *arguments, code=2)
    assert message in ran.err


def test_steps_are_described() -> None:
    step = trial.TrialStep(at_ms=1_500, kind="cut", member="m1", for_ms=20_000)
    assert str(step) == "1.500 cut m1 for 20 s"
