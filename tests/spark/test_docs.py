"""The examples of docs/spark.md, each run as it stands there."""

import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
#: The rows that each of them shows.
ROWS = (10, 1, 2 + 10, 6)
FIRST_MS = 1357020000000


@pytest.fixture(scope="module")
def page(spark, kafka):
    """What the examples are run with: the session that the first of them makes."""
    flight = b'{"origin": "EWR", "dep_delay": 7}'
    kafka.create("flights", 2)
    kafka.produce("flights", [{"key": b"EWR", "value": flight}] * 10)
    kafka.create("weather", 2)
    hours = [{"partition": n % 2, "timestamp": FIRST_MS + n * 600_000} for n in range(20)]
    kafka.produce("weather", [{"value": b"{}", **hour} for hour in hours])
    return {"spark": spark}


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_it_runs(page, kafka, number, capsys):
    code = EXAMPLES[number].replace("localhost:9092", kafka.servers)
    # A session is there already, with the tests' settings; getOrCreate finds it.
    exec(compile(code, f"docs/spark.md, example {number + 1}", "exec"), page)
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(shown) - 1 == ROWS[number]


def test_all_are_run():
    assert len(EXAMPLES) == len(ROWS)
