"""Any order of requests, timers and losses leaves the coordinators in a correct state.

``PARTAGE_PROPERTIES=long`` runs many more examples. Add a scenario for each failure found.
"""

from __future__ import annotations

from .coordinator_properties import MultiAssignorMachine, SingleAssignorMachine
from .property_settings import PROPERTY_SETTINGS
from .push_properties import PushMachine

TestMultiAssignor = MultiAssignorMachine.TestCase
TestMultiAssignor.settings = PROPERTY_SETTINGS
TestSingleAssignor = SingleAssignorMachine.TestCase
TestSingleAssignor.settings = PROPERTY_SETTINGS
TestPush = PushMachine.TestCase
TestPush.settings = PROPERTY_SETTINGS
