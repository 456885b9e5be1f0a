"""Tokens that the operator hands out, with the name and the scopes of each: `StaticTokens`, and their file.

No authorization server has a part in this, so that no metadata is served; hosts that log in by OAuth alone, as
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
from mcpd.errors import ConfigurationError
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from mcpd.transports.authentication import warn_of_readers

_ISSUER = "static"
_MOST_BYTES = 1024 * 1024
_LEAST_CHARACTERS = 16


class _Entry(Struct, forbid_unknown_fields=True, rename="kebab"):
    token: str
    scopes: list[str] = []


class StaticTokens(Auth):
    """Tokens and the principals that they stand for: `StaticTokens({"TOKEN": Principal("ada", scopes=["read"])})`.

    Raises ConfigurationError for a token that no request could carry, or that is shorter than 16 characters.
    """

    def __init__(self, tokens: Mapping[str, Principal], **options: Unpack[AuthOptions]) -> None:
        super().__init__(**options)
        # Looked up by digest, which tells nothing by the time it takes; then compared whole.
        self._tokens = {TokenCache.key(_checked(token)): (token.encode(), who) for token, who in tokens.items()}
        self.principals = (*tokens.values(),)
        for who in self.principals:
            self.known_scopes |= who.scopes

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Unpack[AuthOptions]) -> StaticTokens:
        """Those of a file, see `read_tokens`."""
        return cls(read_tokens(path, "tokens file"), **options)

    def _verify(self, token: str, request: TokenRequest) -> Verified | None:
        sent = token.encode()
        found = self._tokens.get(TokenCache.key(sent))
        return Verified(found[1]) if found is not None and compare_digest(found[0], sent) else None


def read_tokens(path: str | os.PathLike[str], option: str = "--tokens-file") -> dict[str, Principal]:
    """The tokens of a TOML file, which has a table for each name: `[ada]`, in it `token = "…"`, `scopes = ["…"]`.
    Errors name it by `option`.

    Raises ConfigurationError for a file that cannot be read. Logs a warning if others of this machine can read it.
    """
    import tomllib

    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ConfigurationError(f"{option} {shown} is larger than {_MOST_BYTES} bytes; that is no such file")
        tables = tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigurationError(f"{option} {shown}: {error.strerror}; name a file that holds tokens") from None
    except (ValueError, RecursionError):
        # The parser's own text would show a line, with the token in it.
        raise ConfigurationError(
            f'{option} {shown} is no TOML; write for each client [NAME], and below it token = "…", scopes = ["…"]'
        ) from None
    warn_of_readers(option, shown, mode)

    found: dict[str, Principal] = {}
    for name, table in tables.items():
        where = f"{option} {shown}, [{printable(name)}]"
        try:
            entry = convert(table, _Entry)
        except ValidationError:
            raise ConfigurationError(f'{where}: write token = "…" and scopes = ["…"] in it, and nothing else') from None
        _checked(entry.token, where)
        if entry.token in found:
            raise ConfigurationError(f"{where}: another one has the same token; each has its own")
        found[entry.token] = Principal(name, issuer=_ISSUER, scopes=checked_scopes(entry.scopes, where))
    if not found:
        raise ConfigurationError(f'{option} {shown} has no tokens; write for each client [NAME] and token = "…"')
    return found


def _checked(token: str, where: str = "StaticTokens") -> bytes:
    if len(token) < _LEAST_CHARACTERS or not all(c.isascii() and (c.isalnum() or c in "-._~+/=") for c in token):
        raise ConfigurationError(
            f"{where}: a token has at least 16 characters of A-Z a-z 0-9 - . _ ~ + / =; make one: openssl rand -hex 32"
        )
    return token.encode()


_Found: TypeAlias = Principal | None


class TokenFunction(Auth):
    """Tokens as a function of yours judges them: (token, TokenRequest) -> a Principal, or None; `def` or `async def`.

    `issuers` are the authorization servers that clients get tokens from. What the function says is kept for
    `cache_seconds`, and not beyond the principal's `expires`: one that goes by more of a request than the token takes
    0. What it raises is status 500, and in no answer.
    It may raise InvalidToken and Unavailable.
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
        raise TypeError("the function of TokenFunction gives a Principal with a subject, or None")
    return Verified(found)
