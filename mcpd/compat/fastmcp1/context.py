"""`Context` of `mcp.server.fastmcp`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcpd.compat.lowlevel.context import RequestContext

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcpd.compat.elicitation import ElicitationResult, UrlElicitationResult
    from mcpd.compat.lowlevel.options import ReadResourceContents

__all__ = ["Context"]

SessionT = TypeVar("SessionT")
LifespanContextT = TypeVar("LifespanContextT")
RequestT = TypeVar("RequestT")
ModelT = TypeVar("ModelT", bound="BaseModel")

_NO_REQUEST = "Context is not available outside of a request"


class Context(Generic[SessionT, LifespanContextT, RequestT]):
    """What a function is given of the request that it serves."""

    def __init__(
        self,
        *,
        request_context: RequestContext[SessionT, LifespanContextT, RequestT] | None = None,
        fastmcp: Any = None,
    ) -> None:
        self._request_context = request_context
        self._fastmcp = fastmcp

    def __class_getitem__(cls, parameters: Any) -> Any:
        # Two parameters are enough: the third has a default.
        given = parameters if isinstance(parameters, tuple) else (parameters,)
        return super().__class_getitem__((*given, Any, Any, Any)[:3])  # type: ignore[misc]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    @property
    def fastmcp(self) -> Any:
        """The server."""
        if self._fastmcp is None:
            raise ValueError(_NO_REQUEST)
        return self._fastmcp

    @property
    def request_context(self) -> RequestContext[SessionT, LifespanContextT, RequestT]:
        """The request. Raises ValueError where none runs."""
        if self._request_context is None:
            raise ValueError(_NO_REQUEST)
        return self._request_context

    @property
    def session(self) -> Any:
        """The client's session, a `ServerSession`."""
        return self.request_context.session

    @property
    def request_id(self) -> str:
        """The request's id, as text."""
        return str(self.request_context.request_id)

    @property
    def client_id(self) -> str | None:
        """What the client wrote into `_meta.client_id`, if it did."""
        meta = self.request_context.meta
        found: str | None = getattr(meta, "client_id", None)
        return found

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the request has come, if the client asked for that."""
        meta = self.request_context.meta
        if meta is not None and meta.progressToken is not None:
            session: Any = self.session
            await session.send_progress_notification(
                progress_token=meta.progressToken, progress=progress, total=total, message=message
            )

    async def read_resource(self, uri: Any) -> Iterable[ReadResourceContents]:
        """Read a resource of this server."""
        found: Iterable[ReadResourceContents] = await self.fastmcp.read_resource(uri)
        return found

    async def elicit(self, message: str, schema: type[ModelT]) -> ElicitationResult[ModelT]:
        """Ask the user by a form with the fields of a model."""
        from mcpd.compat.elicitation import elicit_with_validation

        return await elicit_with_validation(self.session, message, schema, self.request_context.request_id)

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> UrlElicitationResult:
        """Ask the user to visit a page."""
        from mcpd.compat.elicitation import elicit_url

        return await elicit_url(self.session, message, url, elicitation_id, self.request_context.request_id)

    async def log(self, level: Any, message: str, *, logger_name: str | None = None, **extra: Any) -> None:
        """Send a log message to the client."""
        await self.session.send_log_message(
            level=level, data=message, logger=logger_name, related_request_id=self.request_id
        )

    async def debug(self, message: str, **extra: Any) -> None:
        """`log("debug", …)`."""
        await self.log("debug", message, **extra)

    async def info(self, message: str, **extra: Any) -> None:
        """`log("info", …)`."""
        await self.log("info", message, **extra)

    async def warning(self, message: str, **extra: Any) -> None:
        """`log("warning", …)`."""
        await self.log("warning", message, **extra)

    async def error(self, message: str, **extra: Any) -> None:
        """`log("error", …)`."""
        await self.log("error", message, **extra)

    async def close_sse_stream(self) -> None:
        """Let go of the connection on which the client waits; it comes back for the answer."""
        close = None if self._request_context is None else self._request_context.close_sse_stream
        if close is not None:
            await close()

    async def close_standalone_sse_stream(self) -> None:
        """Nothing: that stream is not the server's to close here."""
