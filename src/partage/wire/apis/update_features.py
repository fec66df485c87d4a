"""UpdateFeatures (API key 57): changes the finalized versions of cluster features (KIP-584).

v1 types of changes (KIP-778); v2 has one error for the request. Flexible in all versions.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Since,
    String,
    Until,
)


class FeatureUpdate(Message):
    """A feature and its new version; 0 removes the feature."""

    feature: String
    max_version_level: Int16
    allow_downgrade: Annotated[Bool, Until(0)] = False
    upgrade_type: Annotated[Int8, Since(1)] = 1


class UpdateFeaturesRequest(Message):
    """The changes, or with ``validate_only`` a check of them."""

    timeout_ms: Int32 = 60_000
    feature_updates: Array[FeatureUpdate]
    validate_only: Annotated[Bool, Since(1)] = False


class UpdatableFeatureResult(Message):
    """The result for a feature."""

    feature: String
    error_code: Int16
    error_message: NullableString


class UpdateFeaturesResponse(Message):
    """The result of the request, and until v1 of each feature."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString
    results: Annotated[Array[UpdatableFeatureResult], Until(1)] = []


UPDATE_FEATURES = Api(
    57,
    "UpdateFeatures",
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    versions=(0, 2),
    flexible=0,
)
