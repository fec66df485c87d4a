"""SASL, ACLs, SCRAM credentials and quotas: this broker has none of them.

Changes of credentials and quotas are not served. Clients report them as unsupported.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from partage.broker.net.inbound_request import InboundRequest
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from partage.wire.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from partage.wire.apis.describe_acls import DescribeAclsResponse
from partage.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaFilterComponent,
)
from partage.wire.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from partage.wire.apis.sasl_authenticate import SaslAuthenticateResponse
from partage.wire.apis.sasl_handshake import SaslHandshakeResponse

_NO_SASL: Final = "This port has no SASL. Set security.protocol to PLAINTEXT."
_NO_AUTHORIZER: Final = "No Authorizer is configured."
_QUOTA_ENTITY_TYPES: Final = ("user", "client-id", "ip")
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_SHOWN_MAX: Final = 249  # characters of a client's text that an error message repeats


def sasl_handshake(inbound: InboundRequest) -> None:
    """Respond as Kafka does on a port without SASL; without this, Java's clients retry forever."""
    inbound.respond(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]))


def sasl_authenticate(inbound: InboundRequest) -> None:
    """Respond as `sasl_handshake`."""
    inbound.respond(
        SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_SASL, auth_bytes=b""
        )
    )


def describe_acls(inbound: InboundRequest) -> None:
    """Respond that there is no authorizer."""
    inbound.respond(
        DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER, resources=[]
        )
    )


def create_acls(inbound: InboundRequest) -> None:
    """Respond to each creation that there is no authorizer."""
    request: CreateAclsRequest = inbound.message
    result = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
    inbound.respond(CreateAclsResponse(results=[result] * len(request.creations)))


def delete_acls(inbound: InboundRequest) -> None:
    """Respond to each filter that there is no authorizer."""
    request: DeleteAclsRequest = inbound.message
    result = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER, matching_acls=[]
    )
    inbound.respond(DeleteAclsResponse(filter_results=[result] * len(request.filters)))


def describe_user_scram_credentials(inbound: InboundRequest) -> None:
    """Respond that no user has credentials."""
    request: DescribeUserScramCredentialsRequest = inbound.message
    results = []
    for user, count in Counter(user.name for user in request.users or ()).items():
        error, shown = ErrorCode.RESOURCE_NOT_FOUND, user[:_SHOWN_MAX]
        message = f"Attempt to describe a user credential that does not exist: {shown}"
        if count > 1:
            error = ErrorCode.DUPLICATE_RESOURCE
            message = (
                "Cannot describe SCRAM credentials for the same user twice in a single request: "
                f"{shown}"
            )
        results.append(
            DescribeUserScramCredentialsResult(
                user=user, error_code=error, error_message=message, credential_infos=[]
            )
        )
    inbound.respond(
        DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.NONE, error_message="", results=results
        )
    )


def describe_client_quotas(inbound: InboundRequest) -> None:
    """Respond that no quota is set, or with the error in the filters."""
    request: DescribeClientQuotasRequest = inbound.message
    refusal = _check_filters(request.components)
    inbound.respond(
        DescribeClientQuotasResponse(
            error_code=ErrorCode.NONE if refusal is None else refusal.code,
            error_message="" if refusal is None else refusal.message,
            entries=[] if refusal is None else None,
        )
    )


def _check_filters(components: list[QuotaFilterComponent]) -> Refusal | None:
    """Return Kafka's error for invalid filters, or None."""
    types = set[str]()
    for component in components:
        kind, match_type, match = component.entity_type, component.match_type, component.match
        why = None
        if not kind:
            why = "Invalid empty entity type."
        elif kind in types:
            why = f"Entity type {kind} cannot appear more than once in the filter."
        elif match_type not in (_EXACT, _DEFAULT, _ANY):
            why = f"Unknown match type {match_type}"
        elif match_type == _EXACT and match is None:
            why = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        elif match_type != _EXACT and match is not None:
            name = "MATCH_TYPE_DEFAULT" if match_type == _DEFAULT else "MATCH_TYPE_SPECIFIED"
            why = f"Request specified {name}, but also specified a match string."
        if why is not None:
            return Refusal(ErrorCode.INVALID_REQUEST, why)
        if kind not in _QUOTA_ENTITY_TYPES:
            why = f"Unsupported entity type {kind[:_SHOWN_MAX]}"
            return Refusal(ErrorCode.UNSUPPORTED_VERSION, why)
        types.add(kind)
    if "ip" in types and len(types) > 1:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        )
    return None
