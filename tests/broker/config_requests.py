"""Requests that describe and alter configs."""

from __future__ import annotations

from partage.wire.apis.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequest,
    ReplacedConfigsResource,
    ReplacementConfig,
)
from partage.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from partage.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER, GROUP = 2, 4, 32


def describe(raw, name="t", kind=TOPIC, keys=None, version=4, **options):
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], **options)
    (result,) = raw.request(DESCRIBE_CONFIGS, request, version).results
    return result


def config(raw, key, **options):
    (entry,) = describe(raw, keys=[key], **options).configs
    return entry


def alter(raw, *changes, **options):
    """Return the error code."""
    return alter_result(raw, *changes, **options).error_code


def alter_result(raw, *changes, name="t", kind=TOPIC, version=1, validate_only=False):
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for operation, key, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = raw.request(INCREMENTAL_ALTER_CONFIGS, request, version).responses
    assert (result.error_message is None) == (not result.error_code)
    return result


def replace(raw, name="t", kind=TOPIC, version=2, validate_only=False, **configs):
    """Replace all configs of a resource; in config names write ``_`` for ``.``."""
    resource = ReplacedConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            ReplacementConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = raw.request(ALTER_CONFIGS, request, version).responses
    assert (result.error_message is None) == (not result.error_code)
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code
