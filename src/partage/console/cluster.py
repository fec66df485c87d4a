"""One Kafka cluster, reached through librdkafka; and what its errors mean."""

from __future__ import annotations

import logging
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata

from partage.console.failure import Failure, misused

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
#: A member may have assignors that librdkafka does not know; who is no member needs none.
_STRATEGY: Final = "partition.assignment.strategy"
_REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_CAUSE: Final = re.compile(
    r"(?:.*?: )?(?:Connect to \S+ failed: |Failed to resolve '[^']*': )?(.*)"
)
_ASIDE: Final = re.compile(r" \(after \d+ms in state .*$")
#: How librdkafka names a broker that has an id: who is only an address has told of nobody yet.
_BROKER: Final = re.compile(r"(?:\w+://)?(\S+:\d+)/(\d+): ")


class Cluster:
    """One Kafka cluster: where it is, how to reach it and how long it may take to answer.

    Every method raises `Failure` when the cluster cannot be reached or refuses.
    """

    def __init__(
        self, bootstrap_servers: str, properties: Mapping[str, str], timeout_ms: int, verbose: bool
    ) -> None:
        self.bootstrap_servers = properties.get("bootstrap.servers", bootstrap_servers)
        self.timeout_ms = timeout_ms
        self.verbose = verbose
        self._properties = {"bootstrap.servers": bootstrap_servers, **properties}
        self._log = _librdkafka_log(verbose)
        self._has_answered = False
        self.troubles: deque[KafkaError] = deque(maxlen=100)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KafkaException):
            raise self.failure(error) from error

    @property
    def properties(self) -> Mapping[str, str]:
        """What was said about reaching it, in librdkafka's words."""
        return self._properties

    @property
    def timeout_s(self) -> float:
        """How long a broker may take to answer, in seconds."""
        return self.timeout_ms / 1000

    @cached_property
    def admin(self) -> AdminClient:
        """A client for everything but records, made when it is first needed."""
        return self._client(AdminClient, {}, {_STRATEGY: "range"})

    def begin_anew(self) -> None:
        """Forget what was seen so far; the next request goes out on new connections at once."""
        self.__dict__.pop("admin", None)
        self.troubles.clear()

    def producer(self, defaults: Mapping[str, Any], required: Mapping[str, Any]) -> Producer:
        """A producer; the user's properties go before ``defaults`` and after ``required``."""
        return self._client(Producer, defaults, required)

    def consumer(self, defaults: Mapping[str, Any], required: Mapping[str, Any]) -> Consumer:
        """A consumer; the user's properties go before ``defaults`` and after ``required``."""
        return self._client(Consumer, defaults, required)

    def _client(self, kind: type[C], defaults: Mapping[str, Any], required: Mapping[str, Any]) -> C:
        settings = {
            "client.id": "partage",
            # Half of it is how long librdkafka lets pass between one connection and the next,
            # and every command needs two: the bootstrap address, then the broker's own.
            "reconnect.backoff.ms": 20,
            **defaults,
            **self._properties,
            **required,
            "error_cb": self.troubles.append,
        }
        try:
            return kind(settings, logger=self._log)
        except KafkaException as error:
            raise misused(_kafka_error(error).str()) from error
        except (TypeError, ValueError) as error:
            raise misused(str(error)) from error

    def metadata(self) -> ClusterMetadata:
        """Brokers and topics of the whole cluster. Creates no topic."""
        self._has_answered = False
        try:
            found = self.admin.list_topics(timeout=self.timeout_s)
        except KafkaException as error:
            self.admin.poll(0)
            raise self.failure(error) from error
        self._has_answered = True
        return found

    def require_topics(self, topics: Iterable[str]) -> ClusterMetadata:
        """The metadata of a cluster that has all these topics."""
        metadata = self.metadata()
        missing = [topic for topic in topics if topic not in metadata.topics]
        if missing:
            raise Failure(f"no such topic: {', '.join(missing)}")
        return metadata

    def result(self, future: Future[T]) -> T:
        """What an answer holds, once it is there."""
        try:
            # librdkafka keeps to the request's own timeout; the second more is for its answer.
            return future.result(self.timeout_s + 1)
        except FutureTimeout:
            raise self._unanswered() from None
        except KafkaException as error:
            raise self.failure(error) from error

    def attempt(self, future: Future[Any], doubt: str = "") -> KafkaError | None:
        """The broker's refusal, or None where it did as asked.

        A change may be made though nobody said so: ``doubt`` is what to say then.

        Raises:
            Failure: there was no answer at all.
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
                raise self.failure(error) from error
            return refusal
        return None

    def failure(self, error: KafkaException | KafkaError) -> Failure:
        """The failure that a user can do something about."""
        refusal = error if isinstance(error, KafkaError) else _kafka_error(error)
        if refusal.code() in _REFUSED:
            return self.unreachable()
        if refusal.code() in _UNREACHED:
            return self._unanswered()
        return Failure(words(refusal))

    def _unanswered(self, doubt: str = "") -> Failure:
        """The failure for an answer that did not come, be it from one broker of those there are."""
        if "admin" in self.__dict__:  # else nobody has asked by it
            self.admin.poll(0)
        if not self._has_answered or any(each.code() in _REFUSED for each in self.troubles):
            return self.unreachable()
        silent = {}
        for error in self.troubles:
            if error.code() in _UNREACHED and (broker := _BROKER.match(error.str())):
                silent[broker[2]] = f"broker {broker[2]} at {broker[1]} ({_cause(error)})"
        doubt = doubt or "try again"
        if silent:
            return Failure(f"no answer from {', '.join(silent.values())}; start it, or {doubt}")
        return Failure(
            f"{self.bootstrap_servers} is there, and did not answer this within {self.timeout_ms} "
            f"ms: another broker may be away, or the cluster's ZooKeeper; {doubt}"
        )

    def unreachable(self) -> Failure:
        """The failure for a cluster that does not answer, with what was seen of it."""
        for error in self.troubles:
            if error.code() in _REFUSED:
                return Failure(
                    f"{self.bootstrap_servers} does not let us in: {_cause(error)}; "
                    "check --command-config and -X"
                )
        causes = [_cause(error) for error in self.troubles if error.code() in _UNREACHED]
        causes = [cause for cause in causes if "brokers are down" not in cause]
        because = f" ({causes[-1]})" if causes else ""
        return Failure(
            f"no Kafka broker answered at {self.bootstrap_servers} within {self.timeout_ms} ms"
            f"{because}; check --bootstrap-server, or start one with: partage broker"
        )


def words(error: KafkaError) -> str:
    """A broker's or librdkafka's error as it reads in a sentence."""
    text = re.sub(r"\b(?:Broker|Local): ", "", error.str() or error.name())
    first = text.partition(" ")[0]
    return text[:1].lower() + text[1:] if first[1:].islower() else text


def _kafka_error(error: KafkaException) -> KafkaError:
    inner = error.args[0]
    assert isinstance(inner, KafkaError)  # librdkafka's exceptions hold nothing else
    return inner


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
