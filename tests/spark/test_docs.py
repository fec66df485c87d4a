"""The examples of docs/spark.md, and Spark's in README.md, each run as it stands there."""

import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


EXAMPLES = examples("docs/spark.md")
READMES = [code for code in examples("README.md") if "spark.read" in code]
#: The rows that each of them shows, the README's being the last; the stream there shows them in
#: Spark's own process.
ROWS = (10, 1, 2 + 10, 6, 10, 0, 0, 24, 10, 0)
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
    code = re.sub(r"(localhost|127\.0\.0\.1):9092", kafka.servers, [*EXAMPLES, *READMES][number])
    # A session is there already, with the tests' settings; getOrCreate finds it.
    exec(compile(code, f"example {number + 1}", "exec"), page)
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert max(len(shown) - 1, 0) == ROWS[number]


def test_all_are_run():
    assert len(EXAMPLES) + len(READMES) == len(ROWS)
