"""Tokens that a program reads or makes itself: supplied ones, and those that stand for an identity elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from pathlib import Path

from mcpd.client.auth.documents import Place
from mcpd.client.auth.records import SecretFields
from mcpd.client.auth.settings import EnterpriseManaged, MachineGrant, Supplied, WorkloadIdentity
from mcpd.client.auth_settings import TokenSource
from mcpd.errors import ConfigurationError

_LONGEST = 64 * 1024


async def identity_of(settings: MachineGrant) -> str | None:
    """The identity token or the platform's, read anew; None for grants without one. Raises ConfigurationError."""
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
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"WorkloadIdentity: {path}: {why}") from None
    return _checked(found, f"WorkloadIdentity: {path}")


async def read_token(source: str | TokenSource, where: str) -> str:
    """A token as it is, or as a function gives it. Raises ConfigurationError, without the token in it."""
    if isinstance(source, str):
        return _checked(source, where)
    found = source()
    return _checked(await found if isawaitable(found) else found, where)


def _checked(token: object, where: str) -> str:
    is_token = isinstance(token, str) and 0 < len(token) <= _LONGEST and token.isascii() and token.isprintable()
    if not is_token or not isinstance(token, str) or " " in token:
        raise ConfigurationError(f"{where}: there is no token, which is one word of ASCII")
    return token


class SuppliedTokens:
    """An `Authorization` with a token that the program has; a function is asked again after a refusal."""

    def __init__(self, url: str, settings: Supplied) -> None:
        self._place = Place(url)
        self._source = settings.token
        self._token: str | None = None
        self._bearer: tuple[str, Mapping[str, str]] = ("", {})

    def begin(self, method: str, url: str, operation: str) -> _SuppliedRequest:
        """A request is to be sent."""
        return _SuppliedRequest(self, self._place.look(url)[1])

    def covers(self, url: str) -> bool:
        """Only what is the server itself, or below it, is sent its token."""
        return self._place.look(url)[1]

    def bearer(self, token: str) -> Mapping[str, str]:
        """The field with a token: the same object for as long as the token is."""
        if self._bearer[0] != token:
            self._bearer = (token, SecretFields({"Authorization": f"Bearer {token}"}))
        return self._bearer[1]

    async def token(self, refused: str | None = None) -> str:
        """The token, another one than was refused if there is one. Raises ConfigurationError."""
        if self._token is None or self._token == refused:
            self._token = await read_token(self._source, "auth")
        return self._token


class _SuppliedRequest:
    __slots__ = ("_is_covered", "_refused", "_sent", "_tokens")

    def __init__(self, tokens: SuppliedTokens, is_covered: bool) -> None:
        self._tokens = tokens
        self._is_covered = is_covered
        self._sent: str | None = None
        self._refused: str | None = None

    async def fields(self) -> Mapping[str, str]:
        if not self._is_covered:
            return {}
        self._sent = await self._tokens.token(self._refused)
        return self._tokens.bearer(self._sent)

    def heard(self, headers: Mapping[str, str]) -> None:
        """A plain token needs nothing of an answer."""

    async def refused(self, status: int, challenges: Sequence[str]) -> bool:
        if status != 401 or self._refused is not None or self._sent is None:
            return False
        self._refused = self._sent
        return await self._tokens.token(self._refused) != self._refused
