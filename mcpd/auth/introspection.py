"""`Introspection`: access tokens that the issuer checks on request. Spec: RFC 7662."""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any, Unpack
from urllib.parse import urlencode

from mcpd.auth.base import Auth, AuthOptions, InvalidToken, TokenRequest, Unavailable, Verified
from mcpd.auth.claims import ClaimChecks, Expected
from mcpd.errors import ConfigurationError, missing_extra

try:
    from mcpd.auth.fetch import FetchError, Limits, basic_credentials, fetch, reach_from
    from mcpd.auth.issuers import checked_issuer, fetch_issuer_metadata
except ModuleNotFoundError as error:
    raise missing_extra(error, "asking an issuer about access tokens", "auth") from None


class Introspection(Auth):
    """Verifies tokens at the issuer's introspection endpoint, as the client `client_id`. Requires the extra `auth`.

    `endpoint` is by default read from the issuer's metadata. Results are cached for `cache_seconds` (0 to 60), but not
    longer than the token is valid. For `audience` and `expect`, see `Jwt`. Raises ConfigurationError.
    """

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        client_secret: str,
        endpoint: str | None = None,
        audience: Sequence[str] = (),
        expect: Expected | None = None,
        scope_claims: Sequence[str] = ("scope", "scp"),
        client_claims: Sequence[str] = ("client_id", "azp"),
        cache_seconds: float = 60.0,
        **options: Unpack[AuthOptions],
    ) -> None:
        if not client_id or not client_secret:
            raise ConfigurationError("introspection: client-id and its secret are required")
        self.authorization_servers = (checked_issuer(issuer),)
        self._issuer = issuer
        self._endpoint_url = None if endpoint is None else checked_issuer(endpoint)
        self._credentials = basic_credentials(client_id, client_secret)
        self._checks = ClaimChecks(
            audience=audience,
            expect=expect,
            scope_claims=scope_claims,
            client_claims=client_claims,
            needs_expiry=False,
        )
        super().__init__(cache_seconds=min(max(cache_seconds, 0.0), 60.0), **options)

    async def _verify(self, token: str, request: TokenRequest) -> Verified:
        found = await self._ask_issuer(token)
        if found.get("active") is not True:
            raise InvalidToken("the token is not active")
        if found.get("iss", self._issuer) != self._issuer:
            raise InvalidToken("the token is from another issuer")
        return self._checks.verified(found, self._issuer, self.public_url, time())

    async def _ask_issuer(self, token: str) -> dict[str, Any]:
        headers = {
            "Authorization": self._credentials,
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        try:
            if self._endpoint_url is None:
                self._endpoint_url = await self._from_metadata()
            answer = await fetch(
                self._endpoint_url,
                what="the introspection endpoint",
                method="POST",
                headers=headers,
                body=urlencode({"token": token, "token_type_hint": "access_token"}).encode(),
                reach=await reach_from(self._issuer),
                limits=Limits(seconds=5.0, redirects=0),
            )
            if answer.status != 200:
                raise Unavailable(f"the introspection endpoint of {self._issuer} answers {answer.status}")
            return answer.json_object()
        except FetchError as error:
            raise Unavailable(str(error)) from None
        except ValueError as error:
            raise Unavailable(f"the introspection endpoint of {self._issuer}: {error}") from None

    async def _from_metadata(self) -> str:
        url = (await fetch_issuer_metadata(self._issuer)).get("introspection_endpoint")
        if not isinstance(url, str):
            raise Unavailable(f"the metadata of {self._issuer} has no introspection_endpoint; set endpoint")
        return url
