"""Any order of requests, timers and losses leaves the coordinators in a correct state.

``PARTAGE_PROPERTIES=long`` runs many more examples. Add a scenario for each failure found.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from .coordinator_properties import MultiAssignorMachine, PushMachine, SingleAssignorMachine

LONG = os.environ.get("PARTAGE_PROPERTIES") == "long"
SETTINGS = settings(
    max_examples=int(os.environ.get("PARTAGE_EXAMPLES", 2_000)) if LONG else 12,
    stateful_step_count=60 if LONG else 30,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

TestMultiAssignor = MultiAssignorMachine.TestCase
TestMultiAssignor.settings = SETTINGS
TestSingleAssignor = SingleAssignorMachine.TestCase
TestSingleAssignor.settings = SETTINGS
TestPush = PushMachine.TestCase
TestPush.settings = SETTINGS
