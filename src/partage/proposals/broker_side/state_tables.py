"""The state tables of the design: of a group's rebalance, of a consumer, and of an elector."""

from __future__ import annotations

from typing import Final

from partage.proposals.broker_side.consumer import ConsumerState
from partage.proposals.broker_side.elector import ElectorState
from partage.proposals.broker_side.registry import RebalancePhase
from partage.proposals.state_table import SESSION_OVER, StateTransition

_P = RebalancePhase
_PHASES: Final = tuple(RebalancePhase)
_WAITING: Final = (_P.STOPPING, _P.STARTING)
_LATE: Final = ("stop fetcher timeout", "start fetcher timeout")
_LOST: Final = ("connection lost", "ping timeout")
_STOP: Final = ("StopFetcher",)
_REGISTERED: Final = "RegisterConsumer response"
_CLOSES: Final = "closes the connection"

#: The transitions of a group's rebalance, in the coordinator.
REBALANCE_TRANSITIONS: Final = (
    StateTransition(
        (_P.IDLE,),
        "RegisterConsumer",
        _P.STOPPING,
        (_REGISTERED, *_STOP),
        "the group can rebalance",
    ),
    StateTransition(
        _PHASES,
        "RegisterConsumer",
        None,
        (_REGISTERED,),
        "the group rebalances already, or it cannot",
    ),
    StateTransition(_PHASES, "RegisterConsumer refused", None, ("RegisterConsumer error",)),
    StateTransition(
        (_P.IDLE,), "topics changed", _P.STOPPING, _STOP, "a topic of the group has new partitions"
    ),
    StateTransition(
        (_P.IDLE,), "rebalancing switched on", _P.STOPPING, _STOP, "a rebalance was requested"
    ),
    StateTransition(
        (_P.IDLE,),
        "registration timer",
        _P.STOPPING,
        _STOP,
        "some earlier consumers have registered again",
    ),
    StateTransition(
        (_P.IDLE,), "registration timer", None, ("stores owner",), "no consumer has registered"
    ),
    StateTransition(
        (_P.STOPPING,),
        "StopFetcher response",
        _P.STARTING,
        ("stores consumed offset", "StartFetcher"),
        "of the last consumer",
    ),
    StateTransition(
        (_P.STARTING,), "StartFetcher response", _P.IDLE, ("stores owner",), "of the last consumer"
    ),
    StateTransition(
        (_P.STARTING,),
        "StartFetcher response",
        _P.STOPPING,
        ("stores owner", *_STOP),
        "of the last consumer; a change came meanwhile",
    ),
    StateTransition(_WAITING, _LATE, _P.BACKING_OFF, condition="another attempt is left"),
    StateTransition(_WAITING, _LATE, _P.IDLE, condition="it was the last attempt"),
    StateTransition(
        _WAITING, _LATE, _P.STOPPING, _STOP, "it was the last attempt; a change came meanwhile"
    ),
    StateTransition((_P.BACKING_OFF,), "backoff timer", _P.STOPPING, _STOP),
    StateTransition(
        (_P.IDLE,), _LOST, _P.STOPPING, (_CLOSES, *_STOP), "other consumers are in the group"
    ),
    StateTransition(
        (*_WAITING, _P.BACKING_OFF),
        _LOST,
        _P.BACKING_OFF,
        (_CLOSES,),
        "other consumers are in the group",
    ),
    StateTransition(
        _PHASES,
        _LOST,
        _P.IDLE,
        (_CLOSES, "stores consumed offset", "stores owner"),
        "it was the last consumer, or the rebalance has to wait",
    ),
    StateTransition(_PHASES, "ping timer", None, ("Ping",)),
    StateTransition(_PHASES, "commit timer", None, ("stores consumed offset",)),
    StateTransition(
        _PHASES,
        ("Ping response", "StopFetcher response", "StartFetcher response"),
        None,
        (_CLOSES,),
        "from a consumer that was removed",
    ),
)

_S = ConsumerState
_LOOKUP: Final = (_S.CONNECTING_TO_BROKER, _S.FETCHING_METADATA)
_START_UP: Final = (*_LOOKUP, _S.CONNECTING_TO_COORDINATOR, _S.REGISTERING)
_SERVED: Final = (_S.REGISTERED, _S.FETCHING)
_CLOSE: Final = ("disconnects from the broker", "disconnects")
_START_AGAIN: Final = ("disconnects", "connects to a broker")
_SHUT_DOWN: Final = "the user has closed it"

#: The transitions of a consumer.
CONSUMER_TRANSITIONS: Final = (
    StateTransition(
        (_S.INITIAL,), "the user starts it", _S.CONNECTING_TO_BROKER, ("connects to a broker",)
    ),
    StateTransition(
        (_S.CONNECTING_TO_BROKER,), "broker connected", _S.FETCHING_METADATA, ("ClusterMetadata",)
    ),
    StateTransition(
        (_S.FETCHING_METADATA,),
        "ClusterMetadata response",
        _S.CONNECTING_TO_COORDINATOR,
        ("disconnects from the broker", "connects to the coordinator"),
    ),
    StateTransition(
        (_S.CONNECTING_TO_COORDINATOR,), "connected", _S.REGISTERING, ("RegisterConsumer",)
    ),
    StateTransition((_S.REGISTERING,), "RegisterConsumer response", _S.REGISTERED),
    StateTransition(
        (_S.REGISTERING,),
        "RegisterConsumer error",
        _S.BACKING_OFF,
        _CLOSE,
        "duplicate id, or the broker is not the coordinator",
    ),
    StateTransition(
        (_S.REGISTERING,),
        "RegisterConsumer error",
        _S.CLOSED,
        ("raises an error", *_CLOSE),
        "invalid session timeout or registration",
    ),
    StateTransition(_START_UP, "silence timer", _S.BACKING_OFF, _CLOSE),
    StateTransition(
        (_S.CONNECTING_TO_COORDINATOR, _S.REGISTERING), "connection lost", _S.BACKING_OFF, _CLOSE
    ),
    StateTransition((_S.BACKING_OFF,), "retry timer", _S.CONNECTING_TO_BROKER, _START_AGAIN[1:]),
    StateTransition(
        (_S.REGISTERED,),
        "StartFetcher",
        _S.FETCHING,
        ("reads", "resets positions", "StartFetcher response"),
        "positions are reset after out-of-range offsets",
    ),
    StateTransition(
        _SERVED, "StopFetcher", _S.REGISTERED, ("stops reading", "StopFetcher response")
    ),
    StateTransition(_SERVED, "Ping", None, ("Ping response",)),
    StateTransition(
        _SERVED, "Ping", _S.CONNECTING_TO_BROKER, _START_AGAIN, "offsets were out of range"
    ),
    StateTransition(
        _SERVED,
        "Ping",
        _S.CLOSED,
        _CLOSE,
        f"{_SHUT_DOWN}, and an earlier response had its last offsets",
    ),
    StateTransition((_S.FETCHING,), "offsets out of range", None, ("stops reading",)),
    StateTransition(_SERVED, "connection lost", _S.BACKING_OFF, ("stops reading", *_CLOSE)),
    StateTransition(_SERVED, "connection lost", _S.CLOSED, _CLOSE, _SHUT_DOWN),
    StateTransition(
        (*_SERVED, _S.REGISTERING),
        SESSION_OVER,
        _S.CONNECTING_TO_BROKER,
        ("stops reading", *_START_AGAIN),
    ),
    StateTransition(
        _SERVED,
        SESSION_OVER,
        _S.CLOSED,
        ("stops reading", "connects to a broker", *_CLOSE),
        _SHUT_DOWN,
    ),
    StateTransition(
        (*_SERVED, _S.REGISTERING),
        "other subscription",
        _S.CONNECTING_TO_BROKER,
        ("stops reading", *_START_AGAIN),
    ),
    StateTransition(_SERVED, "other subscription", _S.CLOSED, _CLOSE, _SHUT_DOWN),
    StateTransition((_S.FETCHING,), "the user closes it", None, ("stops reading",)),
    StateTransition((*_START_UP, _S.BACKING_OFF), "the user closes it", _S.CLOSED, _CLOSE),
)

_E = ElectorState
_ELECT: Final = "creates the node"
_STOP_COORDINATOR: Final = "stops the coordinator"

#: The transitions of an elector.
ELECTOR_TRANSITIONS: Final = (
    StateTransition(
        (_E.DISCONNECTED, _E.ELECTING, _E.FOLLOWING), "session started", _E.ELECTING, (_ELECT,)
    ),
    StateTransition((_E.COORDINATOR,), "session started", _E.ELECTING, (_STOP_COORDINATOR, _ELECT)),
    StateTransition((_E.ELECTING, _E.FOLLOWING), "session expired", _E.DISCONNECTED),
    StateTransition((_E.COORDINATOR,), "session expired", _E.DISCONNECTED, (_STOP_COORDINATOR,)),
    StateTransition(
        (_E.ELECTING,),
        "node created",
        _E.COORDINATOR,
        ("starts the coordinator", "watches the node"),
    ),
    StateTransition((_E.ELECTING,), "node exists", _E.FOLLOWING, ("watches the node",)),
    StateTransition((_E.FOLLOWING,), "node deleted", _E.ELECTING, (_ELECT,)),
    StateTransition((_E.COORDINATOR,), "node deleted", _E.ELECTING, (_STOP_COORDINATOR, _ELECT)),
)
