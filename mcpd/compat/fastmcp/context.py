"""`Context` of `fastmcp`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Self

from mcpd.compat.fastmcp.current import current_context, http_request, request_context
from mcpd.compat.lowlevel.context import RequestContext, current_exchange

if TYPE_CHECKING:
    from mcpd.compat.types import asking, content, prompts

__all__ = ["Context"]

_NO_SESSION = (
    "{} is not available because the MCP session has not been established yet. "
    "Check `context.request_context` for None before accessing this attribute."
)


class Context:
    """What a function is given of the request that it serves: `ctx: Context`."""

    is_background_task = False
    task_id: str | None = None

    def __init__(self, fastmcp: Any, session: Any = None) -> None:
        self._fastmcp = fastmcp
        self._session = session
        self._values: dict[str, Any] = {}
        self._tokens: list[Any] = []

    async def __aenter__(self) -> Self:
        outer = current_context.get()
        if outer is not None:
            self._values = outer._values  # what is kept for the request only is the whole request's
        self._tokens.append(current_context.set(self))
        return self

    async def __aexit__(self, *_: object) -> None:
        current_context.reset(self._tokens.pop())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    # -- the request -------------------------------------------------------------------------

    @property
    def fastmcp(self) -> Any:
        """The server."""
        return self._fastmcp

    @property
    def request_context(self) -> RequestContext[Any, Any, Any] | None:
        """The request; None where none runs."""
        return request_context()

    @property
    def lifespan_context(self) -> Any:
        """What the server's lifespan gave."""
        request = request_context()
        return {} if request is None else request.lifespan_context

    @property
    def session(self) -> Any:
        """The client's session, a `ServerSession`. Raises RuntimeError where no request runs."""
        request = request_context()
        if request is not None:
            return request.session
        if self._session is None:
            raise RuntimeError(_NO_SESSION.format("session"))
        return self._session

    @property
    def request_id(self) -> str:
        """The request's id, as text. Raises RuntimeError where none runs."""
        request = request_context()
        if request is None:
            raise RuntimeError(_NO_SESSION.format("request_id"))
        return str(request.request_id)

    @property
    def origin_request_id(self) -> str | None:
        """The same; None where none runs."""
        request = request_context()
        return None if request is None else str(request.request_id)

    @property
    def client_id(self) -> str | None:
        """What the client wrote into `_meta.client_id`, if it did."""
        request = request_context()
        found: str | None = getattr(request.meta, "client_id", None) if request is not None else None
        return found

    @property
    def session_id(self) -> str:
        """A text that is the same for all requests of a session. Raises RuntimeError where no request runs."""
        from mcpd.compat.fastmcp.state import session_id

        return session_id()

    @property
    def transport(self) -> str | None:
        """Which way the request came: "stdio" or "streamable-http"."""
        exchange = current_exchange.get(None)
        if exchange is None:
            return None
        return "stdio" if exchange.origin.transport in ("stdio", "memory") else "streamable-http"

    def get_http_request(self) -> Any:
        """The HTTP request that brought it. Raises RuntimeError if none did."""
        return http_request()

    def client_supports_extension(self, extension_id: str) -> bool:
        """Whether the client offers an extension."""
        return self.client_extension_settings(extension_id) is not None

    def client_extension_settings(self, identifier: str) -> dict[str, Any] | None:
        """What the client says of an extension; None if it does not offer it."""
        exchange = current_exchange.get(None)
        offered = None if exchange is None else exchange.client.capabilities.extensions
        # All clients that say the same have one object.
        return deepcopy(offered[identifier]) if offered and identifier in offered else None

    # -- this server -------------------------------------------------------------------------

    async def read_resource(self, uri: Any) -> Any:
        """Read a resource of this server; gives a `ResourceResult`."""
        return await self._fastmcp.read_resource(str(uri))

    async def list_resources(self) -> list[content.Resource]:
        """The resources of this server."""
        return [one.to_mcp_resource() for one in await self._fastmcp.list_resources()]

    async def list_prompts(self) -> list[prompts.Prompt]:
        """The prompts of this server."""
        return [one.to_mcp_prompt() for one in await self._fastmcp.list_prompts()]

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> prompts.GetPromptResult:
        """The messages of a prompt of this server."""
        found: prompts.GetPromptResult = (await self._fastmcp.render_prompt(name, arguments)).to_mcp_prompt_result()
        return found

    # -- the client --------------------------------------------------------------------------

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the request has come, if the client asked for that."""
        request = request_context()
        if request is not None and request.meta is not None and request.meta.progressToken is not None:
            await self.session.send_progress_notification(
                progress_token=request.meta.progressToken, progress=progress, total=total, message=message
            )

    async def log(
        self,
        message: str,
        level: Any = None,
        logger_name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a log message to the client."""
        await self.session.send_log_message(
            level=level or "info", data={"msg": message, "extra": None if extra is None else {**extra}},
            logger=logger_name, related_request_id=self.origin_request_id,
        )  # fmt: skip

    async def debug(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """`log(…, "debug")`."""
        await self.log(message, "debug", logger_name, extra)

    async def info(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """`log(…, "info")`."""
        await self.log(message, "info", logger_name, extra)

    async def warning(
        self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        """`log(…, "warning")`."""
        await self.log(message, "warning", logger_name, extra)

    async def error(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """`log(…, "error")`."""
        await self.log(message, "error", logger_name, extra)

    async def elicit(
        self,
        message: str,
        response_type: Any = None,
        *,
        response_title: str | None = None,
        response_description: str | None = None,
        schema: Any = None,
    ) -> Any:
        """Ask the user by a form: for a text, number, choice, model or dataclass. The data come back as such."""
        from mcpd.compat.fastmcp.elicitation import elicit

        wanted = schema if response_type is None else response_type
        return await elicit(self.session, message, wanted, response_title, response_description)

    async def sample(self, messages: Any, system_prompt: str | None = None, **options: Any) -> Any:
        """Ask the client's model. The result has `text`."""
        from mcpd.compat.fastmcp.sampling import sample

        return await sample(self.session, messages, system_prompt, **options)

    async def list_roots(self) -> list[asking.Root]:
        """The client's roots."""
        return list((await self.session.list_roots()).roots)

    async def send_notification(self, notification: Any) -> None:
        """Send any notification of a server."""
        await self.session.send_notification(notification, related_request_id=self.request_id)

    async def send_tool_list_changed(self) -> None:
        """Tell the clients that the list of tools is another one now."""
        await self.session.send_tool_list_changed()

    async def send_resource_list_changed(self) -> None:
        """Tell the clients that the list of resources is another one now."""
        await self.session.send_resource_list_changed()

    async def send_prompt_list_changed(self) -> None:
        """Tell the clients that the list of prompts is another one now."""
        await self.session.send_prompt_list_changed()

    async def close_sse_stream(self) -> None:
        """Let go of the connection on which the client waits; it comes back for the answer."""
        request = request_context()
        if request is not None and request.close_sse_stream is not None:
            await request.close_sse_stream()

    # -- what is kept ------------------------------------------------------------------------

    async def set_state(self, key: str, value: Any, *, serializable: bool = True) -> None:
        """Keep a value for the session; for this request only unless `serializable`."""
        from mcpd.compat.fastmcp.state import session_values

        self._values.pop(key, None)
        if serializable:
            session_values()[key] = value
        else:
            self._values[key] = value

    async def get_state(self, key: str) -> Any:
        """What was kept; None if nothing was."""
        from mcpd.compat.fastmcp.state import session_values

        return self._values[key] if key in self._values else session_values().get(key)

    async def enable_components(self, **about: Any) -> None:
        """Offer this session what has these `names`, `keys` or `tags`."""
        await self._change(True, about)

    async def disable_components(self, **about: Any) -> None:
        """Do not."""
        await self._change(False, about)

    async def reset_visibility(self) -> None:
        """Offer it what all others are."""
        await self._change(None, {})

    async def _change(self, offers: bool | None, about: dict[str, Any]) -> None:
        from mcpd.compat.fastmcp.state import session_rules

        if offers is None:
            session_rules().clear()
        else:
            session_rules().add(offers, **{key: value for key, value in about.items() if key != "match_all"})
        kinds = about.get("components") or {"tool", "resource", "prompt"}
        for kind in sorted(kinds & {"tool", "resource", "prompt"}):
            await getattr(self.session, f"send_{kind}_list_changed")()

    async def delete_state(self, key: str) -> None:
        """Keep it no longer."""
        from mcpd.compat.fastmcp.state import session_values

        self._values.pop(key, None)
        session_values().pop(key, None)
