"""Randomness, which no core has."""

from __future__ import annotations

import base64
import uuid


def fresh_id() -> str:
    """A random UUID as text, to make a member id unique."""
    return str(uuid.uuid4())


def fresh_topic_id() -> bytes:
    """A random UUID as 16 bytes."""
    return uuid.uuid4().bytes


def fresh_cluster_id() -> str:
    """A random UUID in the form that Kafka prints: 22 characters of base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
