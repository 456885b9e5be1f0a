"""`TokenFunction`: tokens as a function of the author's judges them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import TypeAlias, Unpack

from mcpd.auth.base import Auth, AuthOptions, TokenRequest, Verified
from mcpd.protocol.principal import Principal

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
