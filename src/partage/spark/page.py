"""Generator of the table of Kafka's consumer settings in ``docs/spark.md``.

The table is between the comments ``<!-- settings of Kafka's consumer -->`` and
``<!-- end of settings -->``.
"""

from __future__ import annotations

import re
from typing import Final

from partage.spark.kafka_options import settings_by_state
from partage.statemachine.pages import table

_MARKED: Final = re.compile(
    r"(<!-- settings of Kafka's consumer -->\n).*?(<!-- end of settings -->\n)", re.DOTALL
)


def fill_settings(text: str) -> str:
    """Return a page with its table of settings replaced by the current one."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{settings_table()}\n{found[2]}", text)


def settings_table() -> str:
    """Return the table of states, with the settings in each state."""
    rows = [
        (state, ", ".join(f"`{name}`" for name in names))
        for state, names in settings_by_state().items()
    ]
    return table(("state", "settings, with the prefix `kafka.`"), rows)
