"""The authorization server as routes beside the endpoint, and its metadata.

AUTH-120 … 122, AUTH-149. Spec: RFC 8414.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time
from urllib.parse import urlsplit

from mcpd.auth.addresses import Reach
from mcpd.auth_server.authorize import Authorize
from mcpd.auth_server.clients import METHODS
from mcpd.auth_server.core import Core
from mcpd.auth_server.interaction import Interaction
from mcpd.auth_server.registration import Registration
from mcpd.auth_server.settings import Settings
from mcpd.auth_server.token_endpoint import CheckProof, TokenEndpoint
from mcpd.server.registry.routes import Route, RouteRequest, RouteResponse

METADATA = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
_PATHS = tuple("".join(f"/{{part{number}}}" for number in range(count)) for count in range(1, 5))
"""Paths of as many segments as an issuer may have."""
_LOOPBACK: Reach = frozenset(("loopback",))
_FORM_BYTES = 16 * 1024
_KEPT = (("Cache-Control", "public, max-age=3600"),)


class AuthorizationServer:
    """What the settings say, as `routes`. Raises ConfigurationError.

    `reach` is where documents of clients may be besides global addresses, `clock` the time in seconds since 1970.
    `check_proof` looks at DPoP proofs, signed with one of `algorithms`. `locate` says where the endpoint is, before
    the first request.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time,
        reach: Reach = (),
        check_proof: CheckProof | None = None,
        algorithms: tuple[str, ...] = (),
    ) -> None:
        self.core = Core(settings, clock, _LOOPBACK if settings.is_development else reach)
        self._algorithms = algorithms
        self._endpoint = "/mcp"
        interaction = Interaction(self.core)
        tokens = TokenEndpoint(self.core) if check_proof is None else TokenEndpoint(self.core, check_proof)
        guarded = interaction.guarded
        callback, provider = "/oauth/sign-in/{name}/callback", "/oauth/sign-in/{name}"
        self.routes: list[Route] = [
            _open(METADATA, self._metadata),
            *(_open(f"{METADATA}{path}", self._metadata_of_path) for path in _PATHS),
            _open(OPENID, self._metadata_inside),
            _open("/oauth/jwks", self._jwks),
            _open("/oauth/token", tokens.token, "POST"),
            _open("/oauth/revoke", tokens.revoke, "POST"),
            Route("/oauth/authorize", guarded(Authorize(self.core, interaction)), public=True),
            _posted("/oauth/sign-in", guarded(interaction.sign_in)),
            _posted(provider, guarded(interaction.leave)),
            Route(callback, guarded(interaction.come_back), public=True),
            Route("/oauth/consent", guarded(interaction.ask), public=True),
            _posted("/oauth/consent", guarded(interaction.decide)),
        ]
        if settings.registration == "open":
            self.routes.append(_open("/oauth/register", Registration(self.core).__call__, "POST"))

    def locate(self, public_url: str, endpoint: str) -> None:
        """Where the endpoint is: by which URL clients know it, and its path in our application."""
        self.core.locate(public_url, endpoint)

    def close(self) -> None:
        """Close what is open."""
        self.core.close()

    def metadata(self) -> dict[str, object]:
        """What clients have to know. Spec: RFC 8414 2."""
        core, issuer = self.core, self.core.issuer
        said: dict[str, object] = {
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
            said["registration_endpoint"] = f"{issuer}/oauth/register"
        if self._algorithms:
            said["dpop_signing_alg_values_supported"] = list(self._algorithms)
        return said

    async def _metadata(self) -> RouteResponse:
        return RouteResponse(self.metadata(), headers=_KEPT)

    async def _metadata_of_path(self, request: RouteRequest) -> RouteResponse:
        """The same where the issuer has a path: a document at another one would name a foreign issuer."""
        if urlsplit(self.core.issuer).path != "/" + "/".join(request.params.values()):
            return _not_here("This is not the issuer's path; its metadata is at the root.")
        return await self._metadata()

    async def _metadata_inside(self) -> RouteResponse:
        """The same for clients of an application that is mounted below a path, where the root is another's.

        It is the last place where they look (2026-07-28 authorization server discovery), and some of them want the
        members there that OpenID Connect demands. No ID tokens are issued.
        """
        if not urlsplit(self.core.issuer).path:
            return _not_here(f"This is no provider of OpenID Connect; its metadata is at {METADATA}.")
        demanded = {"subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"]}
        return RouteResponse({**self.metadata(), **demanded}, headers=_KEPT)

    async def _jwks(self) -> RouteResponse:
        return RouteResponse(self.core.keys.public(), headers=_KEPT)


def _not_here(text: str) -> RouteResponse:
    return RouteResponse({"error": "not_found", "error_description": text}, 404)


def _open(path: str, function: Callable[..., object], method: str = "GET") -> Route:
    """What programs on any web page may use: it goes by no cookie."""
    return Route(path, function, methods=[method], public=True, any_origin=True, max_body_bytes=_FORM_BYTES)


def _posted(path: str, function: Callable[..., object]) -> Route:
    return Route(path, function, methods=["POST"], public=True, max_body_bytes=_FORM_BYTES)
