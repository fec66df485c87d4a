"""Run the examples of docs/spark.md and the Spark examples of README.md unchanged."""

import re
from pathlib import Path

import pytest

from .group_state import ends

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


EXAMPLE_PAGE = (ROOT / "docs/spark.md").read_text()
EXAMPLES = examples("docs/spark.md")
READMES = [code for code in examples("README.md") if "spark.read" in code]
#: Number of rows that each example shows; the README's is the last one. A stream prints its rows in
#: Spark's process, so they do not count.
ROWS = (10, 1, 2 + 10, 6, 10, 0, 0, 0, 0, 24, 10, 0)
#: Examples that need another example of the page to run first.
BUILDS_ON = {6: 4, 8: 7, 9: 7}
#: Topic and number of records that an example writes.
WRITES = {7: ("hours", 24)}
#: The text that an example prints.
PRINTS = {6: re.findall(r"```text\n(.*avgOffsetsBehindLatest.*\n)", EXAMPLE_PAGE)[0]}
FIRST_MS = 1357020000000


class Pages:
    """The namespace of the examples, and the set of examples already run.

    A session with the tests' settings is active, so getOrCreate returns it.
    """

    def __init__(self, spark, kafka, directory):
        self._names = {"spark": spark}
        self._directory = directory
        self._kafka = kafka
        self._were_run = set()

    def prepare(self, number):
        """Run the example on which this one builds, unless it was run."""
        before = BUILDS_ON.get(number)
        if before is not None and before not in self._were_run:
            self.prepare(before)
            self.run(before)

    def run(self, number):
        """Run an example."""
        topic, count = WRITES.get(number, (None, 0))
        count += sum(ends(self._kafka, topic))
        code = [*EXAMPLES, *READMES][number]
        code = re.sub(r"(localhost|127\.0\.0\.1):9092", self._kafka.servers, code)
        code = code.replace('"checkpoints/', f'"{self._directory}/')
        exec(compile(code, f"example {number + 1}", "exec"), self._names)
        self._were_run.add(number)
        assert sum(ends(self._kafka, topic)) == count, f"not in the topic {topic}"


@pytest.fixture(scope="module")
def pages(spark, kafka, tmp_path_factory):
    flight = b'{"origin": "EWR", "dep_delay": 7}'
    kafka.create("flights", 2)
    kafka.produce("flights", [{"key": b"EWR", "value": flight}] * 10)
    kafka.create("weather", 2)
    hours = [{"partition": n % 2, "timestamp": FIRST_MS + n * 600_000} for n in range(20)]
    kafka.produce("weather", [{"value": b"{}", **hour} for hour in hours])
    return Pages(spark, kafka, tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_example_shows_expected_row_count(pages, number, capsys):
    pages.prepare(number)
    capsys.readouterr()
    pages.run(number)
    printed = capsys.readouterr().out
    assert PRINTS.get(number, "") in printed
    shown = [line for line in printed.splitlines() if line.startswith("|")]
    assert max(len(shown) - 1, 0) == ROWS[number]


def test_all_examples_have_a_row_count():
    assert len(EXAMPLES) + len(READMES) == len(ROWS)
