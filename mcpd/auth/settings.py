"""Creates the authorization from `[auth]` in mcpd.toml and options of `mcpd serve`, and knows common providers.

The provider data is from their documentation and from reports; it could not be tested with accounts.

Tokens are also chosen by the operator (`StaticTokens`) or verified by a function (`TokenFunction`). Static tokens need
no authorization server, so metadata is not published. Hosts that support only OAuth logins, such as Claude.ai and
ChatGPT, cannot use them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hmac import compare_digest
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, Unpack

from msgspec import Struct, ValidationError, convert, structs

from mcpd.errors import ConfigurationError
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from mcpd.transports.authentication import warn_of_readers
from .base import Auth, AuthOptions, TokenCache, TokenRequest, Verified
from .metadata import checked_scopes

_MAX_BYTES = 4096


def read_limited(path: str, most: int, what: str, advice: str) -> tuple[str, os.stat_result]:
    """Return the text of a file of at most `most` bytes, and its status. `what` names it in errors.

    Raises ConfigurationError.
    """
    try:
        with open(path, "rb") as file:
            status, data = os.fstat(file.fileno()), file.read(most + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"{what}: {why}; {advice}") from None

    if len(data) > most:
        raise ConfigurationError(f"{what} is larger than {most} bytes, the limit for this file")
    return text, status


def secret_in(path: str, what: str) -> str:
    """Return the text of a secret file without surrounding whitespace; "" for the path "".

    `what` names it in errors. If other users can read the file, as in volumes of Kubernetes, that is only a warning.
    Raises ConfigurationError.
    """
    if not path:
        return ""
    shown = f"{what}: {printable(path)}"
    text, status = read_limited(path, _MAX_BYTES, shown, "write the secret to that file")
    warn_of_readers(what, path, status.st_mode)
    secret = text.strip()
    if not secret:
        raise ConfigurationError(f"{shown} is empty; write the secret to it")
    return secret


class IntrospectionSettings(Struct, frozen=True, kw_only=True):
    client_id: str
    client_secret_file: str
    endpoint: str | None = None


class AuthSettings(Struct, frozen=True, kw_only=True):
    """The settings of authorization: `[auth]` in mcpd.toml, overridden by options of `mcpd serve`."""

    public_url: str | None = None
    issuer: Sequence[str] | str = ()
    audience: Sequence[str] = ()
    expect: Mapping[str, Sequence[str] | str] = {}
    jwks_url: str | None = None
    algorithms: Sequence[str] = ()
    provider: str | None = None
    tenant: str | None = None
    introspection: IntrospectionSettings | None = None
    scope_claims: Sequence[str] = ("scope", "scp")
    client_claims: Sequence[str] = ("client_id", "azp")
    strict: bool = False
    dpop: Literal["off", "accept", "require"] = "off"
    dpop_nonces: bool = False
    skew: float = 60.0
    tokens_file: str | None = None
    scopes: Sequence[str] = ()
    implies: Mapping[str, Sequence[str]] = {}
    resource_name: str | None = None


def auth_of(settings: AuthSettings) -> Auth:
    """Return the authorization for these settings. Raises ConfigurationError if they are missing or contradictory."""
    if settings.provider is not None:
        settings = _add_provider(settings, settings_of(settings.provider, settings.tenant))
    issuers = [settings.issuer] if isinstance(settings.issuer, str) else list(settings.issuer)
    options = AuthOptions(
        public_url=settings.public_url or "",
        scopes=settings.scopes,
        implies=settings.implies,
        resource_name=settings.resource_name or "",
        dpop=settings.dpop,
        dpop_nonces=settings.dpop_nonces,
    )
    if settings.tokens_file is not None:
        if issuers:
            raise ConfigurationError("--issuer and --tokens-file cannot be combined: use one of them")

        return StaticTokens(read_tokens(settings.tokens_file), **options)
    if not issuers:
        raise ConfigurationError("an issuer is missing: use --issuer URL or --tokens-file FILE")
    names = ("audience", "expect", "scope_claims", "client_claims")
    claims: dict[str, Any] = {name: getattr(settings, name) for name in names}
    if (asked := settings.introspection) is not None:
        if len(issuers) != 1:
            raise ConfigurationError("introspection: only one issuer is possible")
        from .issuers import Introspection

        return Introspection(
            issuers[0],
            client_id=asked.client_id,
            client_secret=secret_in(asked.client_secret_file, "introspection: client-secret-file"),
            endpoint=asked.endpoint,
            **claims,
            **options,
        )

    from .issuers import Jwt

    return Jwt(
        issuers,
        jwks_url=settings.jwks_url,
        algorithms=settings.algorithms,
        strict=settings.strict,
        skew=settings.skew,
        **claims,
        **options,
    )


def _add_provider(settings: AuthSettings, known: Mapping[str, Any]) -> AuthSettings:
    # Add the settings that a provider needs.
    if settings.issuer:
        raise ConfigurationError("provider and issuer cannot be combined: use one of them")
    expect = {**known.get("expect", {}), **settings.expect}
    audience = settings.audience or known.get("audience", ())
    return structs.replace(settings, **{**known, "expect": expect, "audience": audience})


class Provider(Struct, frozen=True, kw_only=True):
    """A provider of authorization. What to do in its console is in docs/providers.toml.

    `issuer` may contain `{tenant}`, which `tenant_is` describes; it is "" if its tokens cannot protect a server.
    `settings` are needed for its tokens.
    """

    issuer: str = ""
    tenant_is: str = ""
    settings: Mapping[str, Any] = {}


PROVIDERS: Mapping[str, Provider] = {
    "auth0": Provider(issuer="https://{tenant}/", tenant_is="the domain, such as example.eu.auth0.com"),
    "entra": Provider(
        issuer="https://login.microsoftonline.com/{tenant}/v2.0",
        tenant_is="the directory (tenant) ID",
        settings={"scope_claims": ("scp", "roles"), "client_claims": ("azp", "appid")},
    ),
    "google": Provider(),
    "github": Provider(),
    "okta": Provider(
        issuer="https://{tenant}",
        tenant_is="the domain with the path of a custom authorization server, such as example.okta.com/oauth2/default",
        settings={"client_claims": ("cid",)},
    ),
    "keycloak": Provider(
        issuer="https://{tenant}", tenant_is="the host with the realm, such as sso.example.com/realms/tools"
    ),
    "cognito": Provider(
        issuer="https://cognito-idp.{region}.amazonaws.com/{tenant}",
        tenant_is="the user pool ID, such as eu-west-1_AbCdEfGhI",
        settings={"expect": {"token_use": "access"}},
    ),
    "workos": Provider(issuer="https://{tenant}", tenant_is="the AuthKit domain, such as example.authkit.app"),
    "clerk": Provider(
        issuer="https://{tenant}", tenant_is="the host of the Frontend API, such as verb-noun-42.clerk.accounts.dev"
    ),
    "supabase": Provider(
        issuer="https://{tenant}.supabase.co/auth/v1",
        tenant_is="the project's reference",
        settings={"audience": ("authenticated",)},
    ),
    "descope": Provider(
        issuer="https://api.descope.com/v1/apps/agentic/{tenant}",
        tenant_is="the IDs of the project and of the MCP server, such as P2abc/M3def",
    ),
}


def settings_of(name: str, tenant: str | None) -> dict[str, Any]:
    """Return the settings of a provider, including the issuer. Raises ConfigurationError."""
    found = PROVIDERS.get(name)
    if found is None:
        raise ConfigurationError(f"provider {name!r}: unknown; use {', '.join(PROVIDERS)}, or issuer for others")
    if not found.issuer:
        why = "its tokens name no audience, so any app could use them here; use it to sign in at mcpd's login server"
        raise ConfigurationError(f"provider {name!r}: {why}")
    if not tenant:
        raise ConfigurationError(f"provider {name!r}: tenant is missing: {found.tenant_is}")
    tenant = tenant.removeprefix("https://").strip("/")
    region = tenant.partition("_")[0]
    return {**found.settings, "issuer": found.issuer.format(tenant=tenant, region=region)}


_ISSUER = "static"
_MAX_FILE_BYTES = 1024 * 1024
_MIN_CHARACTERS = 16


class _Entry(Struct, forbid_unknown_fields=True, rename="kebab"):
    token: str
    scopes: list[str] = []


class StaticTokens(Auth):
    """Tokens and their principals: `StaticTokens({"TOKEN": Principal("ada", scopes=["read"])})`.

    Raises ConfigurationError for a token that is shorter than 16 characters or has characters that a header cannot
    carry.
    """

    def __init__(self, tokens: Mapping[str, Principal], **options: Unpack[AuthOptions]) -> None:
        super().__init__(**options)
        # The lookup by digest reveals nothing by its timing; the token is then compared in constant time.
        self._tokens = {TokenCache.key(_checked_token(token)): (token.encode(), who) for token, who in tokens.items()}
        self.principals = (*tokens.values(),)
        for who in self.principals:
            self.known_scopes |= who.scopes

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Unpack[AuthOptions]) -> StaticTokens:
        """Read the tokens from a file, see `read_tokens`."""
        return cls(read_tokens(path, "tokens file"), **options)

    def _verify(self, token: str, request: TokenRequest) -> Verified | None:
        sent = token.encode()
        found = self._tokens.get(TokenCache.key(sent))
        return Verified(found[1]) if found is not None and compare_digest(found[0], sent) else None


def read_tokens(path: str | os.PathLike[str], option: str = "--tokens-file") -> dict[str, Principal]:
    """Return the tokens in a TOML file with a table per name: `[ada]`, containing `token = "…"` and `scopes = ["…"]`.

    `option` names the file in errors. Logs a warning if other users can read the file. Raises ConfigurationError.
    """
    import tomllib

    shown = os.fspath(path)
    text, status = read_limited(shown, _MAX_FILE_BYTES, f"{option} {shown}", "name a file with tokens")
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError):
        # The parser's message would contain a line with a token.
        raise ConfigurationError(
            f'{option} {shown} is not valid TOML; write a table [NAME] per client, with token = "…", scopes = ["…"]'
        ) from None
    warn_of_readers(option, shown, status.st_mode)

    found: dict[str, Principal] = {}
    for name, table in tables.items():
        where = f"{option} {shown}, [{printable(name)}]"
        try:
            entry = convert(table, _Entry)
        except ValidationError:
            raise ConfigurationError(
                f'{where}: write token = "…" and scopes = ["…"] in it, and no other keys'
            ) from None
        _checked_token(entry.token, where)
        if entry.token in found:
            raise ConfigurationError(f"{where}: another client has the same token; use a token per client")
        found[entry.token] = Principal(name, issuer=_ISSUER, scopes=checked_scopes(entry.scopes, where))
    if not found:
        raise ConfigurationError(
            f'{option} {shown} has no tokens; write a table [NAME] for each client, with token = "…"'
        )
    return found


def _checked_token(token: str, where: str = "StaticTokens") -> bytes:
    if len(token) < _MIN_CHARACTERS or not all(c.isascii() and (c.isalnum() or c in "-._~+/=") for c in token):
        raise ConfigurationError(
            f"{where}: a token must have at least 16 characters of A-Z a-z 0-9 - . _ ~ + / =; "
            "create one with: openssl rand -hex 32"
        )
    return token.encode()


_Found: TypeAlias = Principal | None


class TokenFunction(Auth):
    """Verifies tokens with a function that takes the token and a `TokenRequest` and returns a Principal or None.

    The function may be async, and may raise InvalidToken and Unavailable; other errors give status 500 and are only
    logged.

    Args:
        issuers: The authorization servers from which clients get tokens.
        cache_seconds: How long results are cached, at most until the principal `expires`. Use 0 if the result depends
            on more than the token.
    """

    def __init__(
        self,
        function: Callable[[str, TokenRequest], _Found | Awaitable[_Found]],
        *,
        issuers: Sequence[str] = (),
        cache_seconds: float = 60.0,
        **options: Unpack[AuthOptions],
    ) -> None:
        self.authorization_servers = tuple(issuers)
        self._function = function
        super().__init__(cache_seconds=cache_seconds, **options)

    def _verify(self, token: str, request: TokenRequest) -> Verified | None | Awaitable[Verified | None]:
        found = self._function(token, request)
        return _of_principal_later(found) if isawaitable(found) else _of_principal(found)


async def _of_principal_later(found: Awaitable[_Found]) -> Verified | None:
    return _of_principal(await found)


def _of_principal(found: object) -> Verified | None:
    if found is None:
        return None
    if not isinstance(found, Principal) or not found.is_authenticated:
        raise TypeError("the function of TokenFunction must return a Principal with a subject, or None")
    return Verified(found)
