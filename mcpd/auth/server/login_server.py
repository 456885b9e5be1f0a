"""`LoginServer` protects a server with its own logins; `AuthorizationServer` provides the endpoints.

Its tokens are verified like those of any issuer, with keys of this process, and refused if the grant was revoked.

Spec: RFC 8414, 2026-07-28 basic/authorization; AUTH-120 to AUTH-122, AUTH-149.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from time import time
from typing import Unpack
from urllib.parse import urlsplit

from msgspec.structs import replace

from mcpd.auth.base import Auth, AuthOptions, InvalidToken, TokenRequest, Verified
from mcpd.auth.signatures import ALGORITHMS, BadProof, normalized
from mcpd.errors import AccessDenied, ConfigurationError, missing_extra
from mcpd.transports.authentication import RequestHeaders
from mcpd.transports.routes import Route, RouteRequest, RouteResponse

try:
    from mcpd.auth.issuers import Issuer, IssuerKeys, Jwt, VerifyingKey, usable_keys
    from mcpd.transports.address import Reach
    from .clients import METHODS, OAuthError
    from .core import Core
    from .endpoints import CheckProof, TokenEndpoint, authorize, register
    from .interaction import Interaction
    from .settings import Settings, development, read
except ModuleNotFoundError as error:
    raise missing_extra(error, "logging people in", "auth") from None

METADATA = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
# Paths with as many segments as an issuer may have.
_PATHS = tuple("".join(f"/{{part{number}}}" for number in range(count)) for count in range(1, 5))
_LOOPBACK: Reach = frozenset(("loopback",))
_FORM_BYTES = 16 * 1024
_CACHED = (("Cache-Control", "public, max-age=3600"),)


class AuthorizationServer:
    """The authorization server of the settings, as `routes`. Raises ConfigurationError.

    Args:
        clock: Returns seconds since 1970.
        reach: Kinds of addresses that client documents may be at, besides global ones.
        check_proof: Checks DPoP proofs.

    `core.locate` must be called before the first request.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time,
        reach: Reach = (),
        check_proof: CheckProof | None = None,
    ) -> None:
        self.core = Core(settings, clock, _LOOPBACK if settings.is_development else reach)
        self._has_proofs = check_proof is not None
        self._endpoint = "/mcp"

        interaction = Interaction(self.core)
        tokens = TokenEndpoint(self.core, check_proof or (lambda request: ""))
        with_error_pages = interaction.with_error_pages
        callback, provider = "/oauth/sign-in/{name}/callback", "/oauth/sign-in/{name}"

        self.routes: list[Route] = [
            _public_route(METADATA, self._metadata),
            *(_public_route(f"{METADATA}{path}", self._metadata_of_path) for path in _PATHS),
            _public_route(OPENID, self._metadata_inside),
            _public_route("/oauth/jwks", self._jwks),
            _public_route("/oauth/token", tokens.token, "POST"),
            _public_route("/oauth/revoke", tokens.revoke, "POST"),
            Route("/oauth/authorize", with_error_pages(partial(authorize, self.core, interaction)), public=True),
            _form_route("/oauth/sign-in", with_error_pages(interaction.sign_in)),
            _form_route(provider, with_error_pages(interaction.go_to_provider)),
            Route(callback, with_error_pages(interaction.return_from_provider), public=True),
            Route("/oauth/consent", with_error_pages(interaction.show_consent), public=True),
            _form_route("/oauth/consent", with_error_pages(interaction.decide)),
        ]
        if settings.registration == "open":
            self.routes.append(_public_route("/oauth/register", partial(register, self.core), "POST"))

    def metadata(self) -> dict[str, object]:
        """Return the metadata for clients. Spec: RFC 8414 section 2."""
        core, issuer = self.core, self.core.issuer
        document: dict[str, object] = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/oauth/authorize",
            "token_endpoint": f"{issuer}/oauth/token",
            "revocation_endpoint": f"{issuer}/oauth/revoke",
            "jwks_uri": f"{issuer}/oauth/jwks",
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": list(METHODS),
            "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256", "PS256", "ES384", "EdDSA"],
            "revocation_endpoint_auth_methods_supported": list(METHODS),
            "client_id_metadata_document_supported": True,
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": core.all_scopes(),
        }
        if core.settings.registration == "open":
            document["registration_endpoint"] = f"{issuer}/oauth/register"

        if self._has_proofs:
            document["dpop_signing_alg_values_supported"] = list(ALGORITHMS)
        return document

    async def _metadata(self) -> RouteResponse:
        return RouteResponse(self.metadata(), headers=_CACHED)

    async def _metadata_of_path(self, request: RouteRequest) -> RouteResponse:
        # Return the metadata if the issuer has this path. At another path it would describe a foreign issuer.
        if urlsplit(self.core.issuer).path != "/" + "/".join(request.params.values()):
            return _not_found("This is not the issuer's path; its metadata is at the root.")
        return await self._metadata()

    async def _metadata_inside(self) -> RouteResponse:
        # Return the metadata for an application mounted below a path, where the root belongs to another application.
        # Clients look here last (2026-07-28 authorization server discovery), and some require members of OpenID
        # Connect. No ID tokens are issued.
        if not urlsplit(self.core.issuer).path:
            return _not_found(f"This is not an OpenID Connect provider; its metadata is at {METADATA}.")
        demanded = {"subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"]}
        return RouteResponse({**self.metadata(), **demanded}, headers=_CACHED)

    async def _jwks(self) -> RouteResponse:
        return RouteResponse(self.core.keys.public(), headers=_CACHED)


def _not_found(text: str) -> RouteResponse:
    return RouteResponse({"error": "not_found", "error_description": text}, 404)


def _public_route(path: str, function: Callable[..., object], method: str = "GET") -> Route:
    # Return a route for programs on any web page; it uses no cookies.
    return Route(path, function, methods=[method], public=True, any_origin=True, max_body_bytes=_FORM_BYTES)


def _form_route(path: str, function: Callable[..., object]) -> Route:
    return Route(path, function, methods=["POST"], public=True, max_body_bytes=_FORM_BYTES)


_SECONDS = 300.0
_PLACEHOLDER_URL = "http://127.0.0.1"


class _OwnKeys(IssuerKeys):
    def __init__(self, server: AuthorizationServer) -> None:
        super().__init__(_PLACEHOLDER_URL)
        self._server = server
        self._read: tuple[object, list[VerifyingKey]] = (None, [])

    def find(self, kid: str | None, alg: str) -> list[VerifyingKey] | None:
        # See `IssuerKeys`. Nothing is fetched.
        document = self._server.core.keys.public()
        if self._read[0] != document:
            self._read = (document, usable_keys(document))
        return [key for key in self._read[1] if key.fits(alg) and key.kid == kid]

    async def load(self) -> None: ...


class LoginServer(Auth):
    """Protects a server with its own logins: `Server(auth=LoginServer("auth.toml",
    public_url="https://x.example/mcp"))`.

    `settings` is a file, or "dev" for one user and one click, on this machine only. `clock` returns seconds since 1970.
    Requires the extra `auth`. Raises ConfigurationError.
    """

    def __init__(
        self, settings: str | Settings, *, clock: Callable[[], float] = time, **options: Unpack[AuthOptions]
    ) -> None:
        if isinstance(settings, str):
            settings = development() if settings == "dev" else read(settings)
        self._is_development = settings.is_development
        # Replaced when the URL of the server is known.
        self.authorization_servers = (_PLACEHOLDER_URL,)
        self._jwt: Jwt | None = None
        super().__init__(cache_seconds=_SECONDS, **options)

        check_proof = None if self._proofs is None else self._check_proof
        self.server = AuthorizationServer(settings, clock=clock, check_proof=check_proof)
        core = self.server.core
        core.name = options.get("resource_name", "")
        core.default_scopes = self.scopes
        core.known_scopes = lambda: self.known_scopes
        core.on_revoked = lambda subject, client: self.forget(subject=subject, client=client)
        if self._is_configured:
            self._configure()

    @property
    def routes(self) -> Sequence[Route]:
        """The endpoints of the authorization server."""
        return self.server.routes

    def close(self) -> None:
        self.server.core.close()

    def locate(self, url: str, *, is_public: bool, is_guess: bool, is_hosted: bool = False) -> None:
        """See `Auth`. In development mode, only addresses of this machine are allowed."""
        if self._is_development and is_public:
            how = "LoginServer('auth.toml')" if is_hosted else "--auth-server auth.toml"
            raise ConfigurationError(
                "The development login admits anybody, so it is for this machine only: listen on loopback, "
                f"or configure users in a file ({how})"
            )
        super().locate(url, is_public=is_public, is_guess=is_guess, is_hosted=is_hosted)
        self._configure()

    def documents(self, endpoint: str) -> Mapping[str, Callable[[str], bytes]]:
        found = super().documents(endpoint)
        if self.public_url:
            self._configure()
        return found

    def _configure(self) -> None:
        # Issue and accept tokens for the current URL.
        self.server.core.locate(self.public_url, self._endpoint)
        issuer = self.server.core.issuer
        self.authorization_servers = (issuer,)
        known = Issuer(url=issuer, keys=_OwnKeys(self.server))
        self._jwt = Jwt(known, algorithms=("ES256",), strict=True, public_url=self.public_url)
        self._locate()

    def _check_proof(self, request: RouteRequest) -> str:
        # Return the thumbprint of the key for a new token, or "". Raises OAuthError.
        proofs = request.headers.get("dpop")
        if proofs is None and self._dpop != "require":
            return ""
        if isinstance(request.headers, RequestHeaders) and b"dpop" in request.headers.repeated:
            proofs = ""

        assert self._proofs is not None
        url = normalized(f"{self.server.core.issuer}/oauth/token") or ""
        found = self._proofs.check(proofs, method="POST", url=url)
        if not isinstance(found, BadProof):
            return found
        if found.nonce:
            raise OAuthError("use_dpop_nonce", found.why, headers=(("DPoP-Nonce", found.nonce),))
        raise OAuthError("invalid_dpop_proof", found.why)

    async def _verify(self, token: str, request: TokenRequest) -> Verified:
        assert self._jwt is not None
        found = self._jwt._verify(token, request)
        verified = await found if isawaitable(found) else found
        grant = await self.server.core.store.grant(str(verified.principal.claims.get("grant", "")))
        if grant is None or grant.is_revoked:
            raise InvalidToken("the token is revoked")
        provider = self.server.core.settings.providers.get(grant.user.way)
        if provider is None or not provider.keep_tokens:
            return verified
        who, upstream = verified.principal, partial(self._upstream, grant.id)
        return replace(verified, principal=who.with_upstream(upstream))

    async def _upstream(self, grant: str) -> str:
        # See `Context.upstream_token`. Raises AccessDenied if the user must log in again.
        try:
            return await self.server.core.upstream_token(grant)
        except OAuthError as error:
            raise AccessDenied(error.sentence, error="invalid_token") from None
