"""An external broker for the tests, such as Apache Kafka; see ``interop/test_recipes.py``."""

from __future__ import annotations

from .external_broker import ELSEWHERE


def pytest_collection_modifyitems(config, items):
    """Deselect tests that control the broker process if an external broker is used."""
    if ELSEWHERE is None:
        return
    own = [item for item in items if "partage_broker" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=own)
    items[:] = [item for item in items if item not in own]
