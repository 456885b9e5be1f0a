"""`LoginServer`: what protects a server with the logins of its own authorization server.

Its tokens are checked as any issuer's are, by the keys that are here already, and by whether what the user allowed was
revoked since. Spec: 2026-07-28 basic/authorization.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from time import time
from typing import Unpack

from msgspec.structs import replace

from mcpd.auth.base import Auth, AuthOptions, InvalidToken, TokenRequest, Verified
from mcpd.auth.dpop import ALGORITHMS, BadProof, normalized
from mcpd.auth.jwt import Issuer, Jwt
from mcpd.auth.keys import IssuerKeys, VerifyingKey, usable_keys
from mcpd.auth_server.replies import OAuthError
from mcpd.auth_server.server import AuthorizationServer
from mcpd.auth_server.settings import Settings, development, read
from mcpd.errors import AccessDenied, ConfigurationError
from mcpd.server.registry.routes import Route, RouteRequest
from mcpd.transports.authentication import RequestHeaders

_SECONDS = 300.0
_NOWHERE = "http://127.0.0.1"


class _OwnKeys(IssuerKeys):
    """The keys of this process's own authorization server."""

    def __init__(self, server: AuthorizationServer) -> None:
        super().__init__(_NOWHERE)
        self._server = server
        self._read: tuple[object, list[VerifyingKey]] = (None, [])

    def find(self, kid: str | None, alg: str) -> list[VerifyingKey] | None:
        """See `IssuerKeys`; nothing is asked for."""
        document = self._server.core.keys.public()
        if self._read[0] != document:
            self._read = (document, usable_keys(document))
        return [key for key in self._read[1] if key.fits(alg) and key.kid == kid]

    async def load(self) -> None:
        """They are there."""


class LoginServer(Auth):
    """Logins at this server itself: `Server(auth=LoginServer("auth.toml", public_url="https://x.example/mcp"))`.

    `settings` are a file, or "dev": one user and one click, on this machine alone. `clock` gives the seconds since
    1970. Needs the extra auth. Raises ConfigurationError.
    """

    def __init__(
        self, settings: str | Settings, *, clock: Callable[[], float] = time, **options: Unpack[AuthOptions]
    ) -> None:
        if isinstance(settings, str):
            settings = development() if settings == "dev" else read(settings)
        self._is_development = settings.is_development
        # Told for good when it is known where the server is.
        self.authorization_servers = (_NOWHERE,)
        self._jwt: Jwt | None = None
        super().__init__(cache_seconds=_SECONDS, **options)

        if self._proofs is None:
            self.server = AuthorizationServer(settings, clock=clock)
        else:
            self.server = AuthorizationServer(
                settings, clock=clock, check_proof=self._check_proof, algorithms=ALGORITHMS
            )
        core = self.server.core
        core.name = options.get("resource_name", "")
        core.default_scopes = self.scopes
        core.known_scopes = lambda: self.known_scopes
        core.revoked = lambda subject, client: self.forget(subject=subject, client=client)
        if self._is_configured:
            self._issue()

    @property
    def routes(self) -> Sequence[Route]:
        """Where people log in, and clients get tokens."""
        return self.server.routes

    def close(self) -> None:
        """Close the file that all is kept in."""
        self.server.close()

    def locate(self, url: str, *, is_public: bool, is_guess: bool, is_hosted: bool = False) -> None:
        """See `Auth`. For development this machine's addresses alone will do."""
        if self._is_development and is_public:
            how = "LoginServer('auth.toml')" if is_hosted else "--auth-server auth.toml"
            raise ConfigurationError(
                "The login for development lets anybody in, so that it is for this machine alone: listen on loopback, "
                f"or say in a file who may log in ({how})"
            )
        super().locate(url, is_public=is_public, is_guess=is_guess, is_hosted=is_hosted)
        self._issue()

    def documents(self, endpoint: str) -> Mapping[str, Callable[[str], bytes]]:
        """See `Auth`."""
        found = super().documents(endpoint)
        if self.public_url:
            self._issue()
        return found

    def _issue(self) -> None:
        """Issue tokens for where the server is, and take them."""
        self.server.locate(self.public_url, self._endpoint)
        issuer = self.server.core.issuer
        self.authorization_servers = (issuer,)
        known = Issuer(url=issuer, keys=_OwnKeys(self.server))
        self._jwt = Jwt(known, algorithms=("ES256",), strict=True, public_url=self.public_url)
        self._locate()

    def _check_proof(self, request: RouteRequest) -> str:
        """The thumbprint of the key that the token to be given is bound to, "" for none. Raises OAuthError."""
        proofs = request.headers.get("dpop")
        if proofs is None and self._dpop != "require":
            return ""
        if isinstance(request.headers, RequestHeaders) and b"dpop" in request.headers.repeated:
            proofs = ""
        assert self._proofs is not None
        url = normalized(f"{self.server.core.issuer}/oauth/token") or ""
        found = self._proofs.key_of(proofs, method="POST", url=url)
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
        """See `Context.upstream_token`. Raises AccessDenied where only another login helps."""
        try:
            return await self.server.core.upstream_token(grant)
        except OAuthError as error:
            raise AccessDenied(error.sentence, error="invalid_token") from None
