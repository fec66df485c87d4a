"""Access to a Kafka cluster through librdkafka, and readable messages for its errors."""

from __future__ import annotations

import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cached_property, partial
from pathlib import Path
from threading import Thread
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata

from partage.console.common.errors import CommandError, usage_error
from partage.console.common.suggestions import did_you_mean, missing_names

T = TypeVar("T")
C = TypeVar("C", AdminClient, Consumer, Producer)

_UNREACHED: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    }
)
#: The user may name assignors that librdkafka does not have. The admin client needs none of them.
_STRATEGY: Final = "partition.assignment.strategy"
_REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_CAUSE: Final = re.compile(
    r"(?:.*?: )?(?:Connect to \S+ failed: |Failed to resolve '[^']*': )?(.*)"
)
_TOKEN_FAILURE: Final = "Failed to acquire SASL OAUTHBEARER token"
_ASIDE: Final = re.compile(r" \(after \d+ms in state .*$")
#: Defaults, unless the user sets one of them. Every command needs two connections, and librdkafka
#: waits half of the first time between them. The second time is the default of Java clients: with
#: librdkafka's 10 s, commands and pages that run for long notice the end of an outage late.
_BACKOFF: Final = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 1_000}
#: Limit of the search for a reason, which begins when the command's own timeout has passed.
_PROBE_MS_MAX: Final = 2_000
_UNKNOWN_PROPERTY: Final = re.compile(r'No such configuration property: "(.*)"')
#: Prefix of librdkafka's errors for a broker with an id. A bootstrap address has no id.
_BROKER: Final = re.compile(r"(?:\w+://)?(\S+:\d+)/(\d+): ")


class ClusterClient:
    """Clients for one Kafka cluster, with the user's properties and a timeout for its responses.

    Each method raises `CommandError` if the cluster is unreachable or refuses the request.

    Args:
        bootstrap_servers: Address, unless the properties have one.
        properties: librdkafka properties.
        timeout_ms: Request timeout.
        verbose: True to print librdkafka's log on stderr.
        origins: Place where the user has set a property, for messages, by its name.
        retry_timeout_ms: Timeout for all retries of a request to a coordinator, which may move to
            another broker; ``timeout_ms`` if None.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        timeout_ms: int,
        verbose: bool,
        origins: Mapping[str, str] = MappingProxyType({}),
        retry_timeout_ms: int | None = None,
    ) -> None:
        self.bootstrap_servers = properties.get("bootstrap.servers", bootstrap_servers)
        self.timeout_ms = timeout_ms
        self.retry_timeout_ms = timeout_ms if retry_timeout_ms is None else retry_timeout_ms
        self.verbose = verbose
        self._properties = {"bootstrap.servers": bootstrap_servers, **properties}
        self._origins = origins
        self._log = _librdkafka_log(verbose)
        self._has_answered = False
        self.recent_errors: deque[KafkaError] = deque(maxlen=100)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KafkaException):
            raise self.command_error(error) from error

    @property
    def properties(self) -> Mapping[str, str]:
        """librdkafka properties from the user, including ``bootstrap.servers``."""
        return self._properties

    @property
    def timeout_s(self) -> float:
        """Timeout for a response, in seconds."""
        return self.timeout_ms / 1000

    @cached_property
    def admin(self) -> AdminClient:
        """Admin client, created at first use."""
        return self._client(AdminClient, {}, {_STRATEGY: "range"})

    def reset_connections(self) -> None:
        """Drop the admin client and the recent errors; the next request opens new connections."""
        self.__dict__.pop("admin", None)
        self.recent_errors.clear()

    def producer(self, defaults: Mapping[str, Any], required: Mapping[str, Any]) -> Producer:
        """Return a producer.

        The user's properties override ``defaults``, and ``required`` overrides both.
        """
        return self._client(Producer, defaults, required)

    def consumer(self, defaults: Mapping[str, Any], required: Mapping[str, Any]) -> Consumer:
        """Return a consumer.

        The user's properties override ``defaults``, and ``required`` overrides both.
        """
        return self._client(Consumer, defaults, required)

    def _client(self, kind: type[C], defaults: Mapping[str, Any], required: Mapping[str, Any]) -> C:
        settings = {
            "client.id": "partage",
            **({} if _BACKOFF.keys() & self._properties.keys() else _BACKOFF),
            **defaults,
            **self._properties,
            **required,
            "error_cb": self.recent_errors.append,
        }
        try:
            return kind(settings, logger=self._log)
        except KafkaException as error:
            reason = _missing_file(self._properties) or self._invalid_property(error)
            raise usage_error(reason) from error
        except (TypeError, ValueError) as error:
            raise usage_error(str(error)) from error

    def _invalid_property(self, error: KafkaException) -> str:
        """Return the message for an invalid property, with the place where the user has set it."""
        text = _kafka_error(error).str()
        if unknown := _UNKNOWN_PROPERTY.fullmatch(text):
            from partage.console.common.client_options import property_names

            text += did_you_mean(unknown[1], property_names())
        for name, origin in self._origins.items():
            if f'"{name}"' in text:
                return f"{origin}: {text[:1].lower()}{text[1:]}"
        return text

    def metadata(self) -> ClusterMetadata:
        """Return the brokers and topics of the cluster. Does not create topics."""
        self._has_answered = False
        try:
            found = _interruptible(partial(self.admin.list_topics, timeout=self.timeout_s))
        except KafkaException as error:
            self.admin.poll(0)
            raise self.command_error(error) from error
        self._has_answered = True
        return found

    def require_topics(self, topics: Iterable[str]) -> ClusterMetadata:
        """Return the cluster's metadata.

        Raises:
            CommandError: One of the topics does not exist.
        """
        metadata = self.metadata()
        missing = [topic for topic in topics if topic not in metadata.topics]
        if missing:
            raise CommandError(missing_names("topic", missing, metadata.topics))
        return metadata

    def result(self, future: Future[T]) -> T:
        """Return the result of a request, waiting for the response.

        Raises:
            CommandError: There was no response, or the broker refused the request.
        """
        try:
            # librdkafka applies the request timeout itself; the extra second is for the delivery of
            # its result.
            return future.result(self.timeout_s + 1)
        except FutureTimeout:
            raise self._unanswered() from None
        except KafkaException as error:
            raise self.command_error(error) from error

    def refusal_of(self, future: Future[Any], doubt: str = "") -> KafkaError | None:
        """Wait for a request that changes something. Return the broker's error, or None on success.

        Args:
            future: Result of the request.
            doubt: Advice for a request without a response, which may have taken effect.

        Raises:
            CommandError: There was no response, or the cluster rejected the connection.
        """
        try:
            future.result(self.timeout_s + 1)
        except FutureTimeout:
            raise self._unanswered(doubt) from None
        except KafkaException as error:
            refusal = _kafka_error(error)
            if refusal.code() in _UNREACHED:
                raise self._unanswered(doubt) from error
            if refusal.code() in _REFUSED:
                raise self.command_error(error) from error
            return refusal
        return None

    def command_error(self, error: KafkaException | KafkaError) -> CommandError:
        """Return the error of a command for an error of librdkafka."""
        refusal = error if isinstance(error, KafkaError) else _kafka_error(error)
        if refusal.code() in _REFUSED:
            return self.unreachable_error()
        if refusal.code() in _UNREACHED:
            return self._unanswered()
        return CommandError(error_text(refusal))

    def _unanswered(self, doubt: str = "") -> CommandError:
        """Return the error for a missing response; it names the brokers that do not respond."""
        if "admin" in self.__dict__:  # Without it, no request was sent.
            self.admin.poll(0)
        if not self._has_answered or any(each.code() in _REFUSED for each in self.recent_errors):
            return self.unreachable_error()
        silent = {}
        for error in self.recent_errors:
            if error.code() in _UNREACHED and (broker := _BROKER.match(error.str())):
                silent[broker[2]] = f"broker {broker[2]} at {broker[1]} ({_cause(error)})"
        doubt = doubt or "try again"
        if silent:
            return CommandError(
                f"no response from {', '.join(silent.values())}; start it, or {doubt}"
            )
        return CommandError(
            f"{self.bootstrap_servers} is reachable, but the request timed out after "
            f"{self.timeout_ms} ms: another broker or ZooKeeper may be down; {doubt}"
        )

    def unreachable_error(self, waited_ms: int | None = None) -> CommandError:
        """Return the error for an unreachable cluster, with the last reported cause.

        Args:
            waited_ms: Duration of the wait; the request timeout if None.
        """
        failure = self.rejection_error() or self._security_error()
        if failure is not None:
            return failure
        cause = self.last_cause()
        because = f" ({cause})" if cause else ""
        waited_ms = self.timeout_ms if waited_ms is None else waited_ms
        return CommandError(
            f"no Kafka broker answered at {self.bootstrap_servers} within {waited_ms} ms"
            f"{because}; check --bootstrap-server, or start one with: partage broker"
        )

    def rejection_error(self) -> CommandError | None:
        """Return the error if the cluster has rejected the connection."""
        for error in self.recent_errors:
            if error.code() in _REFUSED:
                # librdkafka has one text for all certificates that it does not trust.
                if error.code() == KafkaError._SSL and (failure := self._probe()) is not None:
                    return failure
                if _TOKEN_FAILURE in error.str():
                    return CommandError(
                        f"no OAuth token is available: {_cause(error)}; check sasl.oauthbearer.* "
                        "in --command-config and -X"
                    )
                return CommandError(
                    f"{self.bootstrap_servers} rejected the connection: {_cause(error)}; "
                    "check --command-config and -X"
                )
        return None

    def lasting_error(self) -> CommandError | None:
        """Return the error if no wait makes the cluster reachable; None if its brokers may be down.

        The properties lack a security setting, or no name of a broker can be resolved.
        """
        codes = {error.code() for error in self.recent_errors}
        if KafkaError._RESOLVE in codes and KafkaError._TRANSPORT not in codes:
            return self.unreachable_error()
        return self.rejection_error() or self._security_error()

    def last_cause(self) -> str:
        """Return the last reported cause for which no broker answers; empty if there is none."""
        causes = (_cause(each) for each in self.recent_errors if each.code() in _UNREACHED)
        return next(reversed([each for each in causes if "brokers are down" not in each]), "")

    def _security_error(self) -> CommandError | None:
        """Return the error if a broker refuses the connection for a reason that a probe finds."""
        cause = self.last_cause()
        return None if cause and "SSL" not in cause else self._probe()

    def _probe(self) -> CommandError | None:
        """Return the error if a broker refuses Partage's client; None if it does not."""
        from partage.console.common.security_probe import security_error

        reason = security_error(self._properties, min(self.timeout_ms, _PROBE_MS_MAX))
        return CommandError(reason) if reason else None


def _interruptible(call: Callable[[], T]) -> T:
    """Return the result of a call that blocks in librdkafka; Ctrl-C ends the wait at once."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # The waiting thread raises it.
            result.set_exception(error)

    Thread(target=run, name="librdkafka call", daemon=True).start()
    return result.result()


def error_text(error: KafkaError) -> str:
    """Return the text of an error of a broker or of librdkafka, for use inside a sentence."""
    text = re.sub(r"\b(?:Broker|Local): ", "", error.str() or error.name())
    first = text.partition(" ")[0]
    return text[:1].lower() + text[1:] if first[1:].islower() else text


def _kafka_error(error: KafkaException) -> KafkaError:
    inner = error.args[0]
    assert isinstance(inner, KafkaError)  # A KafkaException always holds a KafkaError.
    return inner


def _missing_file(properties: Mapping[str, str]) -> str | None:
    """Return an error message if a property names a missing file; librdkafka does not name it."""
    for name, value in properties.items():
        if name.endswith(".location") and value != "probe" and not Path(value).exists():
            return f"{name}={value}: no such file or directory; correct the path"
    return None


def _cause(error: KafkaError) -> str:
    text = _ASIDE.sub("", error.str())
    matched = _CAUSE.fullmatch(text)
    return matched.group(1) if matched else text


def _librdkafka_log(verbose: bool) -> logging.Logger:
    log = logging.getLogger("partage.librdkafka")
    log.propagate = False
    log.handlers = [logging.StreamHandler(sys.stderr) if verbose else logging.NullHandler()]
    log.setLevel(logging.DEBUG)
    return log
