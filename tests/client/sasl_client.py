"""Clients that authenticate with a scripted broker."""

import asyncio

import pytest

from partage.client import ClientOptions, Cluster, RetryPolicy, SecurityOptions
from partage.wire.apis.metadata import MetadataRequest

from .scripted_broker import ScriptedBroker

ALL = MetadataRequest(topics=None)
BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "pa=ss,wörd"


def options(mechanism, password=PASSWORD, **more):
    """Return options of a client with long timeouts, so that endless retries are noticed."""
    security = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        **({} if mechanism == "OAUTHBEARER" else {"sasl_username": "alice"}),
        **({} if mechanism == "OAUTHBEARER" else {"sasl_password": password}),
        **more,
    }
    return ClientOptions(
        security=SecurityOptions(**security),
        connect_timeout_ms=20_000,
        request_timeout_ms=20_000,
        retries=RetryPolicy(timeout_ms=600_000),
    )


def topics(options, script, **broker):
    async def main():
        async with (
            ScriptedBroker(script, **broker) as serving,
            Cluster([serving.address], options) as cluster,
        ):
            return list(await cluster.topics(["t"])), serving

    return asyncio.run(main())


def refused(kind, options, script, match):
    """Check that the error is raised at once and contains no secret."""
    with pytest.raises(kind, match=match) as raised:
        topics(options, script)
    assert not raised.value.is_retriable
    return str(raised.value)
