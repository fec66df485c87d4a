"""The examples of docs/spark.md, and Spark's in README.md, each run as it stands there."""

import re
from pathlib import Path

import pytest

from .group_state import ends

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


EXAMPLES = examples("docs/spark.md")
READMES = [code for code in examples("README.md") if "spark.read" in code]
#: The rows that each of them shows, the README's being the last; the stream there shows them in
#: Spark's own process.
ROWS = (10, 1, 2 + 10, 6, 10, 0, 0, 24, 10, 0)
#: Examples that need another one of their page to have been run.
BUILDS_ON = {7: 6}
#: What has come into a topic after an example, whatever Spark says.
WRITES = {6: ("hours", 24)}
FIRST_MS = 1357020000000


class Pages:
    """What the examples are run with, and which of them have been.

    A session is there already, with the tests' settings; getOrCreate finds it.
    """

    def __init__(self, spark, kafka):
        self._names = {"spark": spark}
        self._kafka = kafka
        self._were_run = set()

    def run(self, number):
        """Run an example, and first what it builds on."""
        before = BUILDS_ON.get(number)
        if before is not None and before not in self._were_run:
            self.run(before)
        topic, count = WRITES.get(number, (None, 0))
        count += sum(ends(self._kafka, topic))
        code = [*EXAMPLES, *READMES][number]
        code = re.sub(r"(localhost|127\.0\.0\.1):9092", self._kafka.servers, code)
        exec(compile(code, f"example {number + 1}", "exec"), self._names)
        self._were_run.add(number)
        assert sum(ends(self._kafka, topic)) == count, f"not in the topic {topic}"


@pytest.fixture(scope="module")
def pages(spark, kafka):
    flight = b'{"origin": "EWR", "dep_delay": 7}'
    kafka.create("flights", 2)
    kafka.produce("flights", [{"key": b"EWR", "value": flight}] * 10)
    kafka.create("weather", 2)
    hours = [{"partition": n % 2, "timestamp": FIRST_MS + n * 600_000} for n in range(20)]
    kafka.produce("weather", [{"value": b"{}", **hour} for hour in hours])
    return Pages(spark, kafka)


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_it_runs(pages, number, capsys):
    pages.run(number)
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert max(len(shown) - 1, 0) == ROWS[number]


def test_all_are_run():
    assert len(EXAMPLES) + len(READMES) == len(ROWS)
