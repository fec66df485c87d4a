"""Rule ``responses``: each request gets one response, or its connection ends."""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, ResponseSent, RuleViolationError
from partage.model.settings import GroupSettings


class ResponsesChecker:
    """Rejects second responses. `partage.lab.liveness` checks for missing responses at the end."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._answered: set[int] = set()
        history.subscribe(ResponseSent, self._on_response)

    def _on_response(self, entry: ResponseSent) -> None:
        if entry.request.serial in self._answered:
            raise RuleViolationError("responses", f"a second response to {entry.request}")
        self._answered.add(entry.request.serial)
