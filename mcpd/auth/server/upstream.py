"""Signing in with other providers: OpenID Connect with PKCE, and GitHub with its own API.

The provider's tokens identify the user and are never sent to a client. Spec: OpenID Connect Core section 3.1; AUTH-141
to AUTH-143.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from time import time
from typing import Any
from urllib.parse import urlencode, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import DecodeError, Struct
from msgspec.json import decode

from mcpd.auth.fetch import FetchError, Limits, Response, basic_credentials, fetch, fetch_json, reach_from
from mcpd.auth.settings import secret_in
from mcpd.auth.signatures import b64
from mcpd.transports.address import Reach
from .clients import OAuthError
from .settings import Provider
from .store import User

_ALGORITHMS = ["RS256", "PS256", "ES256", "ES384", "EdDSA"]
_SKEW = 60
_KEYS = Limits(max_bytes=128 * 1024)
_MOST_KEYS = 100


class Tokens(Struct, frozen=True):
    """A provider's tokens. `expires` is 0 if unknown."""

    access: str
    refresh: str = ""
    expires: float = 0.0

    def __repr__(self) -> str:
        return f"Tokens(expires={self.expires})"


def is_allowed(allow: Iterable[str], subject: str, email: str) -> bool:
    """Return whether a user may log in, by a verified address, its domain, or the subject.

    Names are not considered, because users choose them.
    """
    # Only ASCII is lowered: U+212A, for example, would become the letter k.
    address = email.lower() if email.isascii() else email
    for pattern in allow:
        if "@" not in pattern:
            if pattern == subject:
                return True
        elif address.count("@") == 1 and (
            address == pattern.lower() or (pattern.startswith("*@") and address.endswith(pattern[1:].lower()))
        ):
            return True
    return False


def upstreams(providers: Mapping[str, Provider]) -> dict[str, Upstream]:
    """Return the providers in the settings by name. Raises ConfigurationError."""
    return {name: (Upstream if provider.issuer else GitHub)(name, provider) for name, provider in providers.items()}


class Upstream:
    """An OpenID Connect provider."""

    basic_scopes: tuple[str, ...] = ("openid", "email", "profile")

    def __init__(self, name: str, provider: Provider) -> None:
        self.name = name
        self.label = provider.label or name.capitalize()
        self.keeps_tokens = provider.keep_tokens
        self._provider = provider
        self._secret = secret_in(provider.client_secret_file, f"[sign-in.{name}]")
        self._metadata: dict[str, Any] | None = None

    async def begin(self, callback: str, state: str, nonce: str, verifier: str) -> str:
        """Return the URL to which to redirect the browser. Raises OAuthError if the provider cannot be reached."""
        metadata = await self._discovered()
        params = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": callback,
            "scope": " ".join((*self.basic_scopes, *self._provider.ask_for)),
            "state": state,
            "nonce": nonce,
            "code_challenge": b64(sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        endpoint = str(metadata["authorization_endpoint"])
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(params)}"

    async def finish(
        self, code: str, issuer: str | None, callback: str, nonce: str, verifier: str
    ) -> tuple[User, Tokens] | None:
        """Return the user who signed in, or None if not admitted. Raises OAuthError if that is unknown."""
        metadata = await self._discovered()
        # A provider that announces the parameter iss must send it (RFC 9207 section 2.4).
        is_named = metadata.get("authorization_response_iss_parameter_supported") is True
        if (issuer is not None or is_named) and issuer != metadata["issuer"]:
            raise OAuthError("access_denied", "the answer is from another provider", status=403)
        fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": callback}
        answer = await self._tokens({**fields, "code_verifier": verifier})

        claims = await self._claims(answer, nonce)
        subject, email = str(claims["sub"]), claims.get("email")
        if not isinstance(email, str) or claims.get("email_verified") not in (True, "true"):
            email = ""
        if not is_allowed(self._provider.allow, subject, email):
            return None

        name = claims.get("name")
        shown = name if isinstance(name, str) and name else email or subject
        # The prefix is needed because subjects of two providers may be equal.
        user = User(f"{self.name}:{subject}", shown[:200], self.name, email, self._provider.scopes)
        return user, _tokens(answer)

    async def refreshed(self, tokens: Tokens) -> Tokens:
        """Return refreshed tokens. Raises OAuthError."""
        answer = await self._tokens({"grant_type": "refresh_token", "refresh_token": tokens.refresh})
        found = _tokens(answer)
        return found if found.refresh else Tokens(found.access, tokens.refresh, found.expires)

    # -- the provider's endpoints ------------------------------------------------------------

    async def _reach(self) -> Reach:
        # The operator has configured the issuer, so its endpoints may be at addresses of the same kind as the issuer's.
        return await reach_from(self._provider.issuer)

    async def _discovered(self) -> dict[str, Any]:
        if self._metadata is not None:
            return self._metadata
        issuer = self._provider.issuer
        try:
            found, _ = await fetch_json(
                f"{issuer.rstrip('/')}/.well-known/openid-configuration",
                what="the provider's metadata",
                reach=await self._reach(),
            )
        except FetchError as error:
            raise self._failed(str(error)) from None

        if found.get("issuer") != issuer:
            raise self._failed("its metadata names an issuer other than the settings")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(found.get(name), str) or not _is_endpoint(found[name], issuer):
                raise self._failed(f"its metadata has no {name} that begins with https://")
        self._metadata = found
        return found

    async def _tokens(self, fields: dict[str, str]) -> dict[str, Any]:
        # Send a request to the token endpoint. Raises OAuthError.
        metadata = await self._discovered()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if not self._secret:
            fields = {**fields, "client_id": self._provider.client_id}
        elif "client_secret_basic" in methods:
            headers["Authorization"] = basic_credentials(self._provider.client_id, self._secret)
        else:
            fields = {**fields, "client_id": self._provider.client_id, "client_secret": self._secret}

        try:
            response = await fetch(
                str(metadata["token_endpoint"]),
                what="the provider's token endpoint",
                method="POST",
                headers=headers,
                body=urlencode(fields).encode(),
                reach=await self._reach(),
            )
        except FetchError as error:
            raise self._failed(str(error)) from None

        answer = response.members()
        if response.status != 200 or not isinstance(answer.get("access_token"), str):
            raise self._failed(f"its token endpoint answers {response.status} without a token")
        return answer

    async def _claims(self, answer: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        # Return the verified claims of the ID token. Raises OAuthError. Spec: OpenID Connect Core section 3.1.3.7.
        metadata = await self._discovered()
        try:
            keys, _ = await fetch_json(
                str(metadata["jwks_uri"]), what="the provider's keys", limits=_KEYS, reach=await self._reach()
            )
            token = jwt.decode(str(answer.get("id_token", "")), signing_keys(keys), algorithms=_ALGORITHMS)
            registry = jwt.JWTClaimsRegistry(
                leeway=_SKEW,
                iss={"essential": True, "value": metadata["issuer"]},
                aud={"essential": True, "value": self._provider.client_id},
                exp={"essential": True},
                sub={"essential": True},
            )
            registry.validate(token.claims)
        except FetchError as error:
            raise self._failed(str(error)) from None
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise self._failed(f"its ID token is not valid ({type(error).__name__})") from None

        claims = token.claims
        audience = claims["aud"]
        if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != self._provider.client_id:
            raise self._failed("its ID token is for another client")
        if not compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise self._failed("its ID token does not belong to this login")
        return claims

    def _failed(self, why: str) -> OAuthError:
        return OAuthError(
            "temporarily_unavailable", f"{self.label} cannot be reached to sign you in: {why}", status=502
        )


class GitHub(Upstream):
    """GitHub, which has OAuth but not OpenID Connect. Its API identifies the user. Tests replace `server` and `api`."""

    basic_scopes = ("read:user", "user:email")
    server, api = "https://github.com", "https://api.github.com"

    async def _reach(self) -> Reach:
        return await reach_from(self.api)

    async def _discovered(self) -> dict[str, Any]:
        self._metadata = {
            "issuer": self.server,
            "authorization_endpoint": f"{self.server}/login/oauth/authorize",
            "token_endpoint": f"{self.server}/login/oauth/access_token",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }
        return self._metadata

    async def _claims(self, answer: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {answer['access_token']}", "Accept": "application/json"}
        try:
            response = await fetch(f"{self.api}/user", what="the user", headers=headers, reach=await self._reach())
            user = response.json_object()
            listed = await fetch(
                f"{self.api}/user/emails", what="the addresses", headers=headers, reach=await self._reach()
            )
        except (FetchError, ValueError) as error:
            raise self._failed(str(error)) from None

        if response.status != 200 or not isinstance(user.get("id"), int) or not isinstance(user.get("login"), str):
            raise self._failed(f"its API answers {response.status} without a user")
        return {"sub": str(user["id"]), "name": user["login"], **_primary(listed)}


def _primary(listed: Response) -> dict[str, Any]:
    # Return the user's primary address if GitHub has verified it.
    try:
        found = decode(listed.body) if listed.status == 200 else []
    except DecodeError:
        found = []
    for one in found if isinstance(found, list) else []:
        if isinstance(one, dict) and one.get("primary") is True and one.get("verified") is True:
            return {"email": one.get("email"), "email_verified": True}
    return {}


def _is_endpoint(url: str, issuer: str) -> bool:
    # Return whether an endpoint is https, or is on this machine like its issuer.
    return url.startswith("https://") or urlsplit(issuer).scheme == "http"


def signing_keys(document: Mapping[str, Any]) -> KeySet:
    """Return the public keys of a document that can check signatures. Raises ValueError for malformed keys."""
    keys = document.get("keys")
    usable = [
        {name: value for name, value in key.items() if name != "key_ops"}
        for key in (keys if isinstance(keys, list) else [])[:_MOST_KEYS]
        if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP") and "d" not in key
        if key.get("use", "sig") == "sig"
    ]
    return KeySet.import_key_set({"keys": usable})


def _tokens(answer: Mapping[str, Any]) -> Tokens:
    seconds, refresh = answer.get("expires_in"), answer.get("refresh_token")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < 10**9
    return Tokens(
        str(answer["access_token"]),
        refresh if isinstance(refresh, str) else "",
        time() + float(seconds) if is_number and seconds is not None else 0.0,
    )
