"""What other libraries call the members of a Context, for the error when a name is not found. Loaded only then."""

from __future__ import annotations

_STATE = "what outlives a question is in ctx.state, a dict"
_SERVER = "use the Server object of your module"
_REQUEST = "request_id, meta, client_info, lifespan, headers and user are on ctx itself"

_INSTEAD = {
    "report_progress": "write ctx.progress(progress, total, message)",
    "warn": "write ctx.warning(text)",
    "request_context": _REQUEST,
    "session": _REQUEST,
    "session_id": _REQUEST,
    "client_id": "write ctx.client_info.name",
    "lifespan_context": "write ctx.lifespan",
    "get_state": _STATE,
    "set_state": _STATE,
    "fastmcp": _SERVER,
    "mcp_server": _SERVER,
    "server": _SERVER,
    "read_resource": "call the function that makes the resource",
    "get_prompt": "call the function that makes the prompt",
    "send_tool_list_changed": "write server.tools_changed()",
    "data": "write answer.get(), or answer.content",
}


def unknown(kind: str, name: str) -> AttributeError:
    """The error for a name that objects of this class do not have."""
    instead = _INSTEAD.get(name)
    return AttributeError(f"{kind!r} object has no attribute {name!r}{f'; {instead}' if instead else ''}")
