"""`Application`: a low-level server as what serves it looks at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from mcpd.compat.lowlevel.decorators import Handler
from mcpd.compat.lowlevel.options import InitializationOptions

if TYPE_CHECKING:
    from mcpd.transports.authentication import Authenticator

__all__ = ["Application", "Handlers", "lifespan"]


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[dict[str, Any]]:
    """The lifespan of a server that has none of its own."""
    yield {}


class Handlers(Protocol):
    """What has a handler for each request that it serves, by the request's model."""

    @property
    def request_handlers(self) -> Mapping[type[Any], Handler]:
        """The handlers; more may come."""


class Application(Handlers, Protocol):
    """A low-level server."""

    notification_handlers: dict[type[Any], Handler]
    said: InitializationOptions | None
    lifespan: Callable[[Any], AbstractAsyncContextManager[Any]]
    authenticate: Authenticator | None
    keeps_unknown: bool

    @property
    def identity(self) -> InitializationOptions:
        """What it says of itself, but for what there are handlers for."""
