"""Making a failure small."""

from __future__ import annotations

import pytest

from partage.lab import running, shrinking
from partage.lab.history import Died, Violation
from partage.lab.options import Scenario
from partage.lab.running import Verdict, draw


def test_a_sound_world_cannot_be_made_small() -> None:
    with pytest.raises(shrinking.NothingToShrink, match="breaks no rule"):
        shrinking.shrink(3)


def test_what_has_nothing_to_do_with_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that no world keeps in which the broker is killed while it has members."""

    def live(scenario: Scenario) -> tuple[object, Verdict]:
        verdict = Verdict(seed=scenario.seed)
        if any(step.kind == "broker_is_killed" for step in scenario.steps):
            verdict.rule = "no kills"
        return None, verdict

    seed = next(s for s in range(100) if live(draw(s))[1].rule and len(draw(s).plan) > 8)
    monkeypatch.setattr(shrinking, "live", live)
    told: list[str] = []
    small = shrinking.shrink(seed, told.append)
    assert [step.kind for step in small.steps] == ["broker_is_killed"]
    assert told
    assert small.options.members == 1
    assert f"--seed-from {seed} --seeds 1 --keep " in small.command()
    assert "--set members=1" in small.command()


def test_a_violation_ends_a_world_with_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoKills:
        def __init__(self, history: object, ledger: object, settings: object) -> None:
            history.listen(Died, self.die)  # type: ignore[attr-defined]

        def die(self, entry: Died) -> None:
            raise Violation("no kills", entry.how)

    monkeypatch.setattr("partage.lab.checkers.CHECKERS", (NoKills,))
    _, verdict = running.live(draw(3, (), {"members": 1}))
    assert (verdict.rule, verdict.story) == ("no kills", "it is killed, in peace")
    assert verdict.command == "partage lab run --seed-from 3 --seeds 1 --keep none --set members=1"
