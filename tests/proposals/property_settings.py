"""The settings of the properties: ``PARTAGE_PROPERTIES=long`` runs many more examples."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("PARTAGE_PROPERTIES") == "long"
PROPERTY_SETTINGS = settings(
    max_examples=int(os.environ.get("PARTAGE_EXAMPLES", 2_000)) if LONG else 50,
    stateful_step_count=60 if LONG else 30,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
