"""Any order of responses, timers, losses and stops leaves the members in a correct state.

``PARTAGE_PROPERTIES=long`` runs many more examples. Add a scenario for each failure found.
"""

from __future__ import annotations

from .consumer_properties import PushConsumerMachine
from .member_properties import SingleMemberMachine
from .multi_member_properties import MultiMemberMachine
from .property_settings import PROPERTY_SETTINGS

TestMultiMember = MultiMemberMachine.TestCase
TestMultiMember.settings = PROPERTY_SETTINGS
TestSingleMember = SingleMemberMachine.TestCase
TestSingleMember.settings = PROPERTY_SETTINGS
TestPushConsumer = PushConsumerMachine.TestCase
TestPushConsumer.settings = PROPERTY_SETTINGS
