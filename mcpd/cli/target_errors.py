"""Explains why a target cannot be loaded, in one line that says where the error is and what to do.

Loaded for an error only.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from inspect import isfunction, signature
from types import ModuleType

import mcpd
from mcpd.client.targets.grammar import install_hint, near_target
from mcpd.errors import McpdError
from mcpd.protocol.printable import printable
from mcpd.server import Server

# The libraries that `mcpd.compat` replaces, as people call them.
_LIBRARIES = {"fastmcp": "FastMCP", "mcp": "the official SDK", "mcp_types": "the official SDK"}


def is_missing_module(error: BaseException, name: str, function: str) -> bool:
    """Whether the module `name`, or a package that contains it, does not exist."""
    missing = error.name or "" if type(error) is ModuleNotFoundError else ""
    return bool(missing) and not function and (name == missing or name.startswith(f"{missing}."))


# Servers import these packages without declaring them, because other MCP libraries depend on them.
_WITH_LIBRARIES = {each: each for each in ("authlib", "httpx", "rich", "starlette", "typer", "uvicorn")}
_WITH_LIBRARIES |= {"dotenv": "python-dotenv", "pydantic_settings": "pydantic-settings", "yaml": "pyyaml"}


def explain(error: BaseException, name: str, function: str) -> str:
    """Explain the error of importing `name`, or of calling `function` in it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    failed = f"{name}: {function}() failed" if function else f"{name} cannot be imported"
    if isinstance(error, McpdError):
        return f"{name}: {error}{_place_of(name, error)}"
    if isinstance(error, SystemExit):
        when = f"in {function}()" if function else "while it was imported"
        return f"{name} exited {when} (exit code {error.code or 0})"
    if type(error).__module__ == "mcpd.compat.install":
        own = "; if it is a server of mcpd that uses that library, add --no-compat"
        return f"{failed}{_place_of(name, error)}: {error}{own if isinstance(error, ImportError) else ''}"
    if isinstance(error, ImportError):
        return _explain_import(error, name, function, failed)

    assert isinstance(error, Exception)
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    text = f"{type(error).__name__}: {what}" if what else type(error).__name__
    return f"{failed}: {text}{_place_of(name, error)}{_hint(error)}{_source(error)}"


def _explain_import(error: ImportError, name: str, function: str, failed: str) -> str:
    if not isinstance(error, ModuleNotFoundError):
        what = str(error).removesuffix(f" ({error.path})")  # the path of an __init__.py does not help
        return f"{failed}: {type(error).__name__}: {what}{_place_of(name, error)}{_hint(error)}"

    missing = error.name or ""
    if type(error).__name__ == "PackageNotFoundError":
        # From importlib.metadata: a library that `mcpd.compat` replaces need not be installed.
        place = _place_of(name, error)
        return f"{failed}: it reads the version of {missing}, which is not installed{place}; catch this error"
    if is_missing_module(error, name, function):
        return f"no module {missing!r} in {os.getcwd()} or installed{near_target(name)}"
    package = _WITH_LIBRARIES.get(missing.partition(".")[0], "…")
    instead = _hint(error) or f"; install it where mcpd runs: {sys.executable} -m pip install {package}"
    return f"{failed}: no module {missing!r}{_place_of(name, error)}{instead}"


def _place_of(name: str, error: BaseException) -> str:
    folder = os.path.dirname(os.path.abspath(name)) if os.path.isfile(name) else os.getcwd()
    found: tuple[str, int] | None = None
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if is_own(path, folder):
            found = path, trace.tb_lineno
        trace = trace.tb_next

    if isinstance(error, SyntaxError) and error.lineno and os.path.isfile(error.filename or ""):
        found = error.filename or "", error.lineno
    if found is None:
        return ""

    path, line = found
    if os.path.isfile(name) and os.path.samefile(path, name):
        return f" (line {line})"

    path = os.path.abspath(path)
    return f" ({path.removeprefix(os.getcwd() + os.sep)}, line {line})"


def _source(error: BaseException) -> str:
    if not isinstance(error, SyntaxError) or not error.text:
        return ""
    line = error.text.rstrip("\r\n")
    shown = line.lstrip()
    # The offset counts from 1 and includes the indentation.
    at = min(max((error.offset or 1) - 1 - (len(line) - len(shown)), 0), len(shown))
    return f"\n    {printable(shown)}\n    {' ' * at}^" if shown.isprintable() else f"\n    {printable(shown)}"


def is_own(path: str, folder: str) -> bool:
    """Whether a file below `folder` is the user's own: not installed, not part of Python, not part of mcpd."""
    path = os.path.abspath(path)
    python, ours = os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if "site-packages" in path or any(path.startswith(os.path.join(others, "")) for others in (python, ours)):
        return False
    return path.startswith(os.path.join(folder, "")) and os.path.isfile(path)


def why_unknown(target: str, place: str, attribute: str) -> str:
    """The text of the error for a target that is neither a Python file nor a module with an object."""
    if os.path.isdir(place):
        return f"{place} is a folder, which has no objects; write only {place}, or name a file in it"
    if os.path.exists(place):
        return not_a_python_file(place)
    if "://" in target:
        return f"{target} is the address of a running server; name a file or a folder to serve"
    if target in ("stdio", "ws", "http"):
        return f"{target}: no such file; to choose the transport, write --{target}"
    if place.endswith(".py") and place.startswith("~"):
        return f"{place}: no such file; only a shell expands ~, so write {os.path.expanduser(place)}"
    if not os.path.dirname(place) and shutil.which(place):
        return (
            f"{place} is a command, but not of a Python package that is installed beside mcpd. Any command works after "
            f"--: mcpd serve -- {place} …, mcpd install HOST -- {place} …"
        )

    near = near_target(place, attribute)
    if near:
        return f"{place if place.endswith('.py') else target}: no such file{near}"
    if place.endswith(".py"):
        # A host starts servers in a folder of its own.
        where = "" if os.path.isabs(place) else f" in {os.getcwd()}; write the absolute path"
        return f"{place}: no such file{where}"
    if not attribute and "." in place and all(part.isidentifier() for part in place.split(".")):
        return f"{target}: no such file; for a module, name the object too: {target}:server"
    return f"{target}: no such file, folder or module{install_hint(target)}"


def not_a_python_file(path: str) -> str:
    """The text of the error for a file that is not a Python file."""
    return f"{path} is not a Python file; name a file that ends with .py, or a folder"


def no_server_in(module: ModuleType, servers: Iterable[str]) -> str:
    """Why a module does not provide one server; `servers` are the names of all servers in it."""
    names = sorted(servers)
    if names:
        return f"its servers are {', '.join(names)}"
    for name, value in vars(module).items():
        library = _LIBRARIES.get(type(value).__module__.partition(".")[0])
        if library is not None and hasattr(value, "run"):
            return (
                f"{name} is a server of {library}, which cannot be served with --no-compat: leave out the option, "
                'or make a server with server = mcpd.Server("name")'
            )

    if isfunction(getattr(module, "main", None)):
        return "it has no server, only main(); let main() return the server, and write :main after the name"
    return 'it has no server; make one with server = mcpd.Server("name")'


# The advice for names of other libraries that mcpd does not have.
_MESSAGES = 'a prompt returns text, a ("user", text) or ("assistant", text) pair, or a list of these'
_CONTEXT = "annotate a parameter with Context to receive it"

_NAMES = {
    "FastMCP": "the class is Server",
    "MCPServer": "the class is Server",
    "Image": 'a tool returns image(path), or image(data, "image/png")',
    "Audio": 'a tool returns audio(path), or audio(data, "audio/wav")',
    "File": "a tool returns embedded(uri, content, mime_type)",
    "Message": _MESSAGES,
    "UserMessage": _MESSAGES,
    "Field": "import it from pydantic: from pydantic import Field",
    "MCPError": "all errors are McpdError; an error that the peer sent is RemoteError",
    "ResourceError": "the error for an unknown resource is ResourceNotFound",
    "CurrentContext": _CONTEXT,
    "Resolve": "the name is Depends",
    "get_context": _CONTEXT,
    "ClientSession": "the class is Client",
    "ToolResult": "the class is CallToolResult",
}

_ADDRESS = 'set the address when you serve: mcpd serve --http HOST:PORT, or server.run(http="HOST:PORT")'
_LOG_LEVEL = "set the level when you serve: mcpd serve --log-level debug"

_OPTIONS = {
    "host": _ADDRESS,
    "port": _ADDRESS,
    "log_level": _LOG_LEVEL,
    "debug": _LOG_LEVEL,
    "stateless_http": "set it when you serve: mcpd serve --stateless",
    "json_response": "leave it out: an answer is JSON unless notifications come before it",
    "middleware": "write @server.middleware above each function",
    "tags": "tags belong to tools, resources and prompts: write @server.tool(tags=…)",
    "include_tags": "write server.enable(tags=…, only=True)",
    "exclude_tags": "write server.disable(tags=…)",
    "mask_error_details": "the texts of exceptions are hidden unless show_errors=True is given",
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
    "run_async": "use mcpd serve, or run() in Python",
    "add_resource": 'write @server.resource("notes://today"), or server.add_text(uri, text, name=…)',
    "add_template": 'write @server.resource("notes://{day}")',
}

_UNKNOWN_OPTION = re.compile(r"Server\.__init__\(\) got an unexpected keyword argument '(\w+)'")


def _hint(error: Exception) -> str:
    text = _advice(error)
    return text and f"; {text}"


def _advice(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        library = _LIBRARIES.get((error.name or "").partition(".")[0])
        if library is None:
            return ""
        return f"mcpd replaces {library}: leave out --no-compat"

    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return "the file is part of a package: run mcpd in the folder that contains the package, with package.module"
    if isinstance(error, ImportError) and error.name == "mcpd":
        found = re.search(r"cannot import name '(\w+)'", str(error))
        return _suggest(found[1], _NAMES, mcpd.__all__) if found else ""
    if isinstance(error, AttributeError) and error.obj is mcpd:
        return _suggest(error.name or "", _NAMES, mcpd.__all__)
    if isinstance(error, AttributeError) and isinstance(error.obj, Server):
        return _suggest(error.name or "", _METHODS, dir(error.obj))

    unknown = _UNKNOWN_OPTION.search(str(error)) if isinstance(error, TypeError) else None
    if unknown is None:
        return ""

    options = [name for name in signature(Server).parameters if name != "name"]
    return _suggest(unknown[1], _OPTIONS, options) or f"the options are {', '.join(options)}"


def _suggest(name: str, known: dict[str, str], ours: Iterable[str]) -> str:
    if name in known:
        return known[name]
    near = get_close_matches(name, [each for each in ours if not each.startswith("_")], 1)
    return f"did you mean {near[0]}?" if near else ""
