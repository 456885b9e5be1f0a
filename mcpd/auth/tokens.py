"""Tokens chosen by the operator (`StaticTokens`) or verified by a function (`TokenFunction`).

Static tokens need no authorization server, so metadata is not published. Hosts that support only OAuth logins, such as
Claude.ai and ChatGPT, cannot use them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hmac import compare_digest
from inspect import isawaitable
from typing import TypeAlias, Unpack

from msgspec import Struct, ValidationError, convert

from mcpd.auth.base import Auth, AuthOptions, TokenCache, TokenRequest, Verified
from mcpd.auth.metadata import checked_scopes
from mcpd.auth.settings import read_limited
from mcpd.errors import ConfigurationError
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from mcpd.transports.authentication import warn_of_readers

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
