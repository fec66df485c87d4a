"""The reduction of plans keeps what fails and drops the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partage.lab.reduction import reduce_steps


@given(st.integers(0, 60).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, 59)))))
def test_only_necessary_steps_remain(drawn: tuple[int, set[int]]) -> None:
    count, numbers = drawn
    necessary = {number for number in numbers if number < count}
    remaining = reduce_steps(range(count), lambda steps: necessary <= set(steps))
    assert list(remaining) == sorted(necessary)


def test_one_step_of_many_is_found_in_few_runs() -> None:
    runs = []

    def still_fails(steps) -> bool:
        runs.append(steps)
        return 777 in steps

    assert list(reduce_steps(range(1_000), still_fails)) == [777]
    assert len(runs) < 25


def test_steps_remain_if_nothing_can_be_dropped() -> None:
    assert list(reduce_steps("ab", lambda steps: False)) == ["a", "b"]
