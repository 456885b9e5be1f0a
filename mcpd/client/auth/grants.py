"""Tokens for programs: client credentials, enterprise-managed authorization, workload identity, and supplied tokens.

Spec: the extensions oauth-client-credentials and enterprise-managed-authorization; SEP-1933 (draft); RFC 7523, RFC
8693.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcpd.client.callbacks import settled
from mcpd.client.http.options import TokenSource
from mcpd.errors import AuthorizationFailed, ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.challenge import Challenge
from .discovery import Discovery, check_endpoint, covers, discover, plain_url, shown
from .flow import login_record, select_scopes
from .settings import (
    ClientCredentials,
    EnterpriseManaged,
    MachineGrant,
    OAuth,
    PrivateKeyJwt,
    SuppliedToken,
    WorkloadIdentity,
)
from .steps import Steps, send_form
from .store import Login, SecretHeaders
from .tokens import ClientId, Prover, Tokens, assertion, prover_for, refusal_of, request_tokens

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_LONGEST = 64 * 1024


def obtain(url: str, settings: MachineGrant, challenge: Challenge | None, source: str | None) -> Steps[Login]:
    """Obtain tokens for the MCP server at `url`. `source` is the identity or platform token for it. No I/O.

    Each grant is requested once. Raises AuthorizationFailed, FetchError.
    """
    found = yield from discover(url, challenge, prefers=lambda issuer: int(issuer != settings.issuer), legacy=False)
    issuer = found.server.issuer
    # The server chooses what its metadata names, so it must not choose who receives the credentials.
    if settings.issuer is not None and issuer != settings.issuer:
        raise AuthorizationFailed(
            f"the credentials are for {printable(settings.issuer, 200)}, but the server names "
            f"{printable(issuer, 200)}: they are not sent there"
        )

    metadata = found.metadata
    supported = metadata.scopes_supported if metadata is not None else None
    challenged = challenge.scopes if challenge is not None else ()
    # `offline_access` would have no effect, because these tokens are not refreshed.
    scopes = select_scopes(OAuth(scopes=settings.scopes, offline=False), found.server, challenged, supported)
    prover = prover_for(settings.dpop, challenge, found)
    fields: dict[str, str | None] = {"scope": " ".join(scopes) if scopes else None, "resource": found.resource}
    client, tokens = yield from _granted(settings, found, fields, prover, source, url)
    return login_record(url, found, client, tokens, scopes, prover)


def _granted(
    settings: MachineGrant,
    found: Discovery,
    fields: dict[str, str | None],
    prover: Prover | None,
    source: str | None,
    url: str,
) -> Steps[tuple[ClientId | None, Tokens]]:
    server = found.server
    client: ClientId | None = None
    if isinstance(settings, (ClientCredentials, EnterpriseManaged)):
        client = ClientId.at(server, settings.client_id, settings.client_secret)

    if isinstance(settings, ClientCredentials):
        fields["grant_type"] = "client_credentials"
    elif isinstance(settings, PrivateKeyJwt):
        fields["grant_type"] = "client_credentials"
        fields["client_assertion_type"] = _ASSERTION_TYPE
        fields["client_assertion"] = _assertion(settings, found)
    elif isinstance(settings, EnterpriseManaged):
        fields["grant_type"] = _JWT_BEARER
        fields["assertion"] = yield from _exchanged(settings, found, fields["scope"], source or "", url)
        # Spec: RFC 7523 2.1: the assertion itself contains the resource.
        fields["resource"] = None
    elif isinstance(settings, WorkloadIdentity):
        fields["grant_type"] = _JWT_BEARER
        fields["assertion"] = source
    else:
        raise AssertionError
    return client, (yield from request_tokens(server.token_endpoint, fields, client, prover))


def _assertion(settings: PrivateKeyJwt, found: Discovery) -> str:
    algorithms = found.server.signing_algorithms
    if algorithms is not None and settings.algorithm not in algorithms:
        raise AuthorizationFailed(
            f"{printable(found.server.issuer, 200)} accepts assertions signed with "
            f"{printable(', '.join(algorithms), 200)}, not with {settings.algorithm}"
        )
    return assertion(settings.client_id, found.server.issuer, settings.key_pem, settings.algorithm)


def _exchanged(settings: EnterpriseManaged, found: Discovery, scope: str | None, identity: str, url: str) -> Steps[str]:
    # Exchange the identity token for an ID-JAG, at the company's sign-in only (RFC 8693 2).
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
    response = yield from send_form(endpoint, what, fields)
    if response.status != 200:
        raise refusal_of(response, endpoint, what)

    document = response.members()
    token = document.get("access_token")
    if document.get("issued_token_type") != _ID_JAG or not isinstance(token, str) or not 0 < len(token) <= _LONGEST:
        raise AuthorizationFailed(f"the {what} {shown(endpoint)} returned no ID-JAG for the identity token")
    return token


async def identity_of(settings: MachineGrant) -> str | None:
    """Read the identity token or the platform's token; None for grants without one. Raises ConfigurationError."""
    if isinstance(settings, EnterpriseManaged):
        return await read_token(settings.id_token, "EnterpriseManaged: id_token")
    if not isinstance(settings, WorkloadIdentity):
        return None
    if settings.source is not None:
        return await read_token(settings.source, "WorkloadIdentity: source")
    assert settings.token_file is not None
    path = Path(settings.token_file)

    def read() -> str:
        with path.open("rb") as file:
            return file.read(_LONGEST).decode().strip()

    try:
        found = await asyncio.get_running_loop().run_in_executor(None, read)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
        raise ConfigurationError(f"WorkloadIdentity: {path}: {why}") from None
    return _checked(found, f"WorkloadIdentity: {path}")


async def read_token(source: str | TokenSource, where: str) -> str:
    """Return a token, or the result of a function. Raises ConfigurationError, without the token in its text."""
    if isinstance(source, str):
        return _checked(source, where)
    return _checked(await settled(source()), where)


def _checked(token: object, where: str) -> str:
    is_token = isinstance(token, str) and 0 < len(token) <= _LONGEST and token.isascii() and token.isprintable()
    if not is_token or not isinstance(token, str) or " " in token:
        raise ConfigurationError(f"{where}: not a token (one word of ASCII)")
    return token


class SuppliedTokens:
    """An `Authorization` with the program's token. A function is called again after a refusal."""

    def __init__(self, url: str, settings: SuppliedToken) -> None:
        self._url = plain_url(url)
        self._source = settings.token
        self._token: str | None = None

    def begin(self, method: str, url: str, operation: str) -> _SuppliedRequest:
        return _SuppliedRequest(self, self.covers(url))

    def covers(self, url: str) -> bool:
        """Whether the token may be sent to this URL: the server itself, or below it."""
        return covers(self._url, plain_url(url))

    async def token(self, refused: str | None = None) -> str:
        """Return a token that is not `refused` if possible. Raises ConfigurationError."""
        if self._token is None or self._token == refused:
            self._token = await read_token(self._source, "auth")
        return self._token


class _SuppliedRequest:
    def __init__(self, tokens: SuppliedTokens, is_covered: bool) -> None:
        self._tokens = tokens
        self._is_covered = is_covered
        self._sent: str | None = None
        self._refused: str | None = None

    async def fields(self) -> Mapping[str, str]:
        if not self._is_covered:
            return {}
        self._sent = await self._tokens.token(self._refused)
        return SecretHeaders({"Authorization": f"Bearer {self._sent}"})

    def on_response(self, headers: Mapping[str, str]) -> None:
        """A bearer token needs no nonce."""

    async def refused(self, status: int, challenges: Sequence[str]) -> bool:
        if status != 401 or self._refused is not None or self._sent is None:
            return False
        # Once: if the next token is refused as well, the program must see the error.
        self._refused = self._sent
        return await self._tokens.token(self._refused) != self._refused
