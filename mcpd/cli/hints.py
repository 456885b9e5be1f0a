"""Names of other libraries, and what to write instead: added to the error that says why a target did not load.

Loaded only for that error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from inspect import signature

import mcpd
from mcpd.server import Server

# Whose servers people bring along: what `libraries.LIBRARIES` are called.
LIBRARIES = {"fastmcp": "FastMCP", "mcp": "the official SDK", "mcp_types": "the official SDK"}

_MESSAGES = 'a prompt returns text, a ("user", text) or ("assistant", text) pair, or a list of these'
_GIVEN = "a parameter annotated with Context is given it"

_NAMES = {
    "FastMCP": "the class is Server",
    "MCPServer": "the class is Server",
    "Image": 'a tool returns image(path), or image(data, "image/png")',
    "Audio": 'a tool returns audio(path), or audio(data, "audio/wav")',
    "File": "a tool returns embedded(uri, content, mime_type)",
    "Message": _MESSAGES,
    "UserMessage": _MESSAGES,
    "AssistantMessage": _MESSAGES,
    "Field": "it is pydantic's: from pydantic import Field",
    "BaseModel": "it is pydantic's: from pydantic import BaseModel",
    "Struct": "it is msgspec's: from msgspec import Struct",
    "Meta": "it is msgspec's: from msgspec import Meta",
    "McpError": "all errors are McpdError; one that the peer answered is RemoteError",
    "MCPError": "all errors are McpdError; one that the peer answered is RemoteError",
    "FastMCPError": "all errors are McpdError",
    "ResourceError": "a resource that is not there is ResourceNotFound",
    "NotFoundError": "a resource that is not there is ResourceNotFound",
    "CurrentContext": _GIVEN,
    "CurrentHeaders": "they are ctx.headers",
    "CurrentAccessToken": "who asks is ctx.user",
    "Resolve": "it is Depends here",
    "CallArgument": "a dependency has a parameter of the argument's name",
    "Elicit": "a dependency takes the Context, and awaits ctx.elicit(…)",
    "Sample": "a dependency takes the Context, and awaits ctx.sample(…)",
    "get_context": _GIVEN,
    "ClientSession": "the class is Client",
    "ToolResult": "the class is CallToolResult",
}

_ADDRESS = 'say it when you serve: mcpd serve --http HOST:PORT, or server.run(http="HOST:PORT")'

_OPTIONS = {
    "host": _ADDRESS,
    "port": _ADDRESS,
    "log_level": "say it when you serve: mcpd serve --log-level debug",
    "debug": "say it when you serve: mcpd serve --log-level debug",
    "stateless_http": "say it when you serve: mcpd serve --stateless",
    "json_response": "leave it out: an answer is JSON unless something is said before it",
    "middleware": "write @server.middleware above each",
    "include_tags": "write server.enable(tags=…, only=True)",
    "exclude_tags": "write server.disable(tags=…)",
    "mask_error_details": "texts of exceptions are hidden unless show_errors=True is given",
}

_MOUNT = "server.asgi_app() is an ASGI application: mount it beside your own routes"

_METHODS = {
    "http_app": _MOUNT,
    "streamable_http_app": _MOUNT,
    "sse_app": _MOUNT,
    "custom_route": 'write @server.route("/path", methods=["GET"])',
    "add_middleware": "write server.middleware(function)",
    "dependency_overrides": "write server.override(dependency, replacement)",
    "local_provider": "write server.remove_tool(name)",
    "run_async": "mcpd serve runs it; in Python run() does",
    "add_resource": 'write @server.resource("notes://today"), or server.add_text(uri, text, name=…)',
    "add_template": 'write @server.resource("notes://{day}")',
}

_UNKNOWN_OPTION = re.compile(r"Server\.__init__\(\) got an unexpected keyword argument '(\w+)'")


def hint(error: Exception) -> str:
    """`; …` with what to write instead, or "" where nothing is known."""
    text = _hint(error)
    return f"; {text}" if text else ""


def _hint(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        library = LIBRARIES.get((error.name or "").partition(".")[0])
        if library is None:
            return ""
        return f"servers of {library} are served without it: leave out --no-compat"

    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return "the file is part of a package: name it as a module, package.module, where the package's folder is"
    if isinstance(error, ImportError) and error.name == "mcpd":
        found = re.search(r"cannot import name '(\w+)'", str(error))
        return _of_name(found[1]) if found else ""
    if isinstance(error, AttributeError) and error.obj is mcpd:
        return _of_name(error.name or "")
    if isinstance(error, AttributeError) and isinstance(error.obj, Server):
        return _among(error.name or "", _METHODS, dir(error.obj))

    unknown = _UNKNOWN_OPTION.search(str(error)) if isinstance(error, TypeError) else None
    if unknown is None:
        return ""

    options = [name for name in signature(Server).parameters if name != "name"]
    return _among(unknown[1], _OPTIONS, options) or f"there are {', '.join(options)}"


def _of_name(name: str) -> str:
    return _among(name, _NAMES, mcpd.__all__)


def _among(name: str, known: dict[str, str], ours: Iterable[str]) -> str:
    if name in known:
        return known[name]
    near = get_close_matches(name, [one for one in ours if not one.startswith("_")], 1)
    return f"did you mean {near[0]}?" if near else ""
