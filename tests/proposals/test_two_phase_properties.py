"""Any order of changes, losses and stops leaves a group of a two-phase variant in a correct state.

``PARTAGE_PROPERTIES=long`` runs many more examples. Add a scenario for each failure found.
"""

from __future__ import annotations

from hypothesis import settings

from .property_settings import LONG, PROPERTY_SETTINGS
from .two_phase_properties import EagerMachine, LargestCountMachine, ResyncMachine

# Each example ends with minutes of virtual time.
_SETTINGS = (
    PROPERTY_SETTINGS
    if LONG
    else settings(PROPERTY_SETTINGS, max_examples=10, stateful_step_count=10)
)

TestEager = EagerMachine.TestCase
TestEager.settings = _SETTINGS
TestResync = ResyncMachine.TestCase
TestResync.settings = _SETTINGS
TestLargestCount = LargestCountMachine.TestCase
TestLargestCount.settings = _SETTINGS
