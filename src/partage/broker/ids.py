"""Random ids. The state machines have no source of randomness."""

from __future__ import annotations

import base64
import uuid


def fresh_id() -> str:
    """Return a random UUID as text, for a member id."""
    return str(uuid.uuid4())


def fresh_topic_id() -> bytes:
    """Return a random UUID as 16 bytes."""
    return uuid.uuid4().bytes


def fresh_cluster_id() -> str:
    """Return a random UUID in Kafka's text format: 22 characters of base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
