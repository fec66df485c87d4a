"""librdkafka's properties as options of Partage's own consumer, for commands that are members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_RENAMED: Final = {
    "fetch.message.max.bytes": "max_partition_fetch_bytes",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "sasl.mechanisms": "sasl_mechanism",
    "socket.timeout.ms": "request_timeout_ms",
    "ssl.ca.location": "ssl_cafile",
    "ssl.ca.pem": "ssl_cadata",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
_HOST_NAME: Final = "ssl.endpoint.identification.algorithm"
_TRUTH: Final = {"true": True, "false": False}


def client_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Kafka's names in snake case, values as what they are; what is unknown, the consumer says."""
    options: dict[str, Any] = {}
    for name, value in properties.items():
        if name == _HOST_NAME:
            options["ssl_check_hostname"] = value.strip().lower() == "https"
        elif name != "bootstrap.servers":
            options[_RENAMED.get(name, name.replace(".", "_"))] = _value(name, value)
    return options


def _value(name: str, text: str) -> object:
    if name.startswith(("sasl.", "ssl.")):
        return text  # a password may be a number
    if text.strip().lower() in _TRUTH:
        return _TRUTH[text.strip().lower()]
    return int(text) if text.strip().isdecimal() else text
