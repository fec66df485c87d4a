"""Any order of sessions, answers and deletions leaves one coordinator.

``PARTAGE_PROPERTIES=long`` runs many more examples.
"""

from __future__ import annotations

from hypothesis import settings

from .elector_properties import ElectorMachine
from .property_settings import LONG, PROPERTY_SETTINGS

TestElector = ElectorMachine.TestCase
TestElector.settings = PROPERTY_SETTINGS if LONG else settings(PROPERTY_SETTINGS, max_examples=15)
