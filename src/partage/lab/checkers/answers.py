"""``answers``: each request is answered once, or its connection ends."""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import Answered, History, Violation
from partage.model.settings import GroupSettings


class Answers:
    """Counts answers. That none is missing for ever is judged when all is over (`peace`)."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._answered: set[int] = set()
        history.listen(Answered, self._answer)

    def _answer(self, entry: Answered) -> None:
        if entry.asked.serial in self._answered:
            raise Violation("answers", f"answered twice: {entry.asked}")
        self._answered.add(entry.asked.serial)
