"""Tokens for programs: client credentials by secret or by key, enterprise-managed authorization, workload identity.

Spec: the extensions oauth-client-credentials and enterprise-managed-authorization; SEP-1933 (draft);
RFC 7523, RFC 8693. No I/O.
"""

from __future__ import annotations

from mcpd.auth.challenge import Challenge
from mcpd.client.auth.authorization import scopes_to_ask
from mcpd.client.auth.discovery import Found, discover
from mcpd.client.auth.documents import check_endpoint, shown
from mcpd.client.auth.flow import login_of
from mcpd.client.auth.proofs_needed import Binding, binding
from mcpd.client.auth.records import Login
from mcpd.client.auth.settings import (
    ClientCredentials,
    EnterpriseManaged,
    MachineGrant,
    OAuth,
    PrivateKeyJwt,
    WorkloadIdentity,
)
from mcpd.client.auth.steps import HttpStep, Steps, ask, form, json_object
from mcpd.client.auth.tokens import ClientId, Tokens, choose_method, refusal_of, request_tokens
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_LONGEST = 64 * 1024


def obtain(url: str, settings: MachineGrant, challenge: Challenge | None, source: str | None) -> Steps[Login]:
    """Tokens for the MCP server at `url`. `source` is the identity or platform token that was read for it.

    One request for each grant; a refusal is raised as it is: AuthorizationFailed, FetchError.
    """
    found = yield from discover(url, challenge, prefers=lambda issuer: int(issuer != settings.issuer), legacy=False)
    issuer = found.server.issuer
    if settings.issuer is not None and issuer != settings.issuer:
        raise AuthorizationFailed(
            f"the credentials are for {printable(settings.issuer, 200)}, and the server names "
            f"{printable(issuer, 200)}: they are not sent there"
        )
    metadata = found.metadata
    supported = metadata.scopes_supported if metadata is not None else None
    challenged = challenge.scopes if challenge is not None else ()
    # Nobody is asked for consent, and nothing is refreshed: `offline_access` has no use here.
    scopes = scopes_to_ask(OAuth(scopes=settings.scopes, offline=False), found.server, challenged, supported)
    bound = binding(settings.dpop, challenge, found)
    fields: dict[str, str | None] = {"scope": " ".join(scopes) if scopes else None, "resource": found.resource}
    client, tokens = yield from _granted(settings, found, fields, bound, source, url)
    return login_of(url, found, client, tokens, scopes, bound)


def _granted(
    settings: MachineGrant,
    found: Found,
    fields: dict[str, str | None],
    bound: Binding,
    source: str | None,
    url: str,
) -> Steps[tuple[ClientId | None, Tokens]]:
    server = found.server
    client: ClientId | None = None
    if isinstance(settings, ClientCredentials):
        client = ClientId(
            settings.client_id, settings.client_secret, choose_method(server.auth_methods, settings.client_secret)
        )
        fields["grant_type"] = "client_credentials"
    elif isinstance(settings, PrivateKeyJwt):
        fields["grant_type"] = "client_credentials"
        fields["client_assertion_type"] = _ASSERTION_TYPE
        fields["client_assertion"] = _assertion(settings, found)
    elif isinstance(settings, EnterpriseManaged):
        client = ClientId(
            settings.client_id, settings.client_secret, choose_method(server.auth_methods, settings.client_secret)
        )
        fields["grant_type"] = _JWT_BEARER
        fields["assertion"] = yield from _exchanged(settings, found, fields["scope"], source or "", url)
        # Spec: RFC 7523 2.1: what the assertion is for stands in it.
        fields["resource"] = None
    elif isinstance(settings, WorkloadIdentity):
        fields["grant_type"] = _JWT_BEARER
        fields["assertion"] = source
    else:
        raise AssertionError
    tokens = yield from request_tokens(
        server.token_endpoint, fields, client, prover=bound.prover, needs_bound=bound.is_needed
    )
    return client, tokens


def _assertion(settings: PrivateKeyJwt, found: Found) -> str:
    algorithms = found.server.signing_algorithms
    if algorithms is not None and settings.algorithm not in algorithms:
        raise AuthorizationFailed(
            f"{printable(found.server.issuer, 200)} takes assertions signed with "
            f"{printable(', '.join(algorithms), 200)}, not with {settings.algorithm}"
        )
    from mcpd.client.auth.proofs import assertion

    return assertion(settings.client_id, found.server.issuer, settings.key_pem, settings.algorithm)


def _exchanged(settings: EnterpriseManaged, found: Found, scope: str | None, identity: str, url: str) -> Steps[str]:
    """The identity token for an ID-JAG, at the company's sign-in and nowhere else. Spec: RFC 8693 2."""
    endpoint, what = settings.idp_token_endpoint, "token endpoint of the sign-in"
    check_endpoint(what, endpoint, url)
    fields = {
        "grant_type": _EXCHANGE,
        "requested_token_type": _ID_JAG,
        "audience": found.server.issuer,
        "resource": found.resource,
        "scope": scope,
        "subject_token": identity,
        "subject_token_type": settings.subject_token_type,
        "client_id": settings.idp_client_id,
        "client_secret": settings.idp_client_secret,
    }
    headers = (("Accept", "application/json"), ("Content-Type", "application/x-www-form-urlencoded"))
    answer = yield from ask(HttpStep(endpoint, what, "POST", headers, form(fields)))
    if answer.status != 200:
        raise refusal_of(answer, endpoint, what)
    document = json_object(answer.body) or {}
    token = document.get("access_token")
    if document.get("issued_token_type") != _ID_JAG or not isinstance(token, str) or not 0 < len(token) <= _LONGEST:
        raise AuthorizationFailed(f"the {what} {shown(endpoint)} gives no ID-JAG for the identity token")
    return token
