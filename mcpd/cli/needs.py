"""Finds the names of another library that a server needs and mcpd.compat lacks, without running its code.

`mcpd serve` reads a server before it loads it: code that fails half-way has had effects, which a second attempt would
repeat. Names in annotations, under `if TYPE_CHECKING:` or `if __name__ == "__main__":`, and in an import whose
ImportError is caught are not needed. Imports by a computed name are not seen.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from mcpd.compat.install import LIBRARIES, PRIVATE, find_name, is_guard, known_modules
from mcpd.compat.names import MISSING, Names

_MOST_FILES = 1000
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_OF_LIBRARY = re.compile(rb"^[ \t]*(?:from|import)[ \t]+(?:" + "|".join(LIBRARIES).encode() + rb")\b", re.MULTILINE)
_SERVERS = frozenset(("FastMCP", "MCPServer", "Server"))
_LOGIN = frozenset(("auth", "auth_server_provider", "token_verifier"))
# Private methods of servers that exist here, too.
_CALLED = frozenset(("_list_tools_mcp", "_call_tool_mcp"))

_TRANSPORTS = ("mcp.server.sse.", "mcp.server.streamable_http", "mcp.server.websocket.")
"""The beginnings of modules that no server needs, because mcpd has its own transports."""

_MEMBERS = frozenset(
    ("add_extension", "add_provider", "as_proxy", "from_fastapi", "from_openapi", "get_app_tool", "wrap_transform")
)
"""Members of FastMCP that mcpd.compat lacks."""

_KEYWORDS: dict[str, tuple[str, ...]] = {
    "FastMCP": ("auth", "providers"),
    "MCPServer": ("extensions", "subscriptions"),
    "ResponseCachingMiddleware": ("cache_storage",),
    "from_tool": ("transform_args", "transform_fn"),
    "resource": ("app",),
    "sample": ("tools", "result_type"),
    "tool": ("app",),
}
"""Options of functions that mcpd.compat lacks, by the function's name. These are fastmcp's, but for MCPServer."""


class Needs(Struct):
    """The needs of a server: `missing` is the first name that is not defined here, with its place."""

    libraries: set[str] = set()
    missing: str = ""
    # Whether it checks tokens itself: `FastMCP(auth=…)`.
    has_login: bool = False
    files: list[str] = []


def read_needs(paths: Iterable[str], base: str) -> Needs:
    """Return the needs of these files, and of files below the folder `base` that they import.

    In a folder of installed packages, only the packages of `paths` are read.
    """
    found = Needs()
    queue = [os.path.abspath(path) for path in paths]
    inside = {base}
    if base.endswith("-packages"):
        inside = {os.path.join(base, os.path.relpath(path, base).partition(os.sep)[0]) for path in queue}
    for path in queue:  # grows
        if path in found.files or len(found.files) >= _MOST_FILES or not path.startswith(tuple(inside)):
            continue
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError:
            continue
        found.files.append(path)
        queue += _files_of(_IMPORT.findall(text), path, base)
        if _OF_LIBRARY.search(text):
            _read(text, path, found)

    return found


def _files_of(imports: Iterable[tuple[bytes, bytes, bytes]], path: str, base: str) -> Iterator[str]:
    # Yields the files of imported modules, and of the packages above them.
    for module, names, modules in imports:
        for dotted in (module, *(each.split()[0] for each in modules.split(b",") if each.strip())):
            parts = dotted.decode().split(".")
            folder = base
            if dotted.startswith(b"."):
                level = len(dotted) - len(dotted.lstrip(b"."))
                folder, parts = os.path.dirname(path), [*[os.pardir] * (level - 1), *filter(None, parts)]
            for at in range(len(parts) + 1):
                folder = os.path.normpath(os.path.join(folder, *parts[at - 1 : at]))
                yield from _files(folder)
            for name in re.findall(r"\w+", names.decode(errors="replace")) if dotted == module else ():
                yield from _files(os.path.join(folder, name))


def _files(place: str) -> Iterator[str]:
    yield from (path for path in (f"{place}.py", os.path.join(place, "__init__.py")) if os.path.isfile(path))


def _read(text: bytes, path: str, found: Needs) -> None:
    try:
        reader = _Reader(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return  # loading the file reports the error
    found.libraries |= reader.libraries
    found.has_login |= reader.has_login
    if reader.missing and not found.missing:
        line, name = min(reader.missing)
        found.missing = f"{name} ({os.path.relpath(path)}, line {line})"


class _Reader:
    """Reads one file. `missing` has the line and name of each name that it needs and that is missing here."""

    def __init__(self, tree: ast.Module) -> None:
        self.missing: list[tuple[int, str]] = []
        self.libraries: set[str] = set()
        self.has_login = False
        # Modules and missing names of the libraries, by the names that the file gives them.
        self._modules: dict[str, str] = {}
        self._absent: dict[str, str] = {}
        nodes = list(_code(tree))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = f"{'.' * node.level}{node.module or ''}" if isinstance(node, ast.ImportFrom) else ""
                for alias in node.names:
                    self._import(alias, module)

        for node in nodes:  # such as `mcp` after `import mcp.types` and `mcp = FastMCP("x")`
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._modules.pop(node.id, None)
        for node in nodes:
            self._use(node)

    def _import(self, alias: ast.alias, module: str) -> None:
        top = (module or alias.name).partition(".")[0]
        if top not in LIBRARIES:
            return
        self.libraries.add(top)
        if not module:
            self._modules[alias.asname or top] = alias.name if alias.asname else top
        elif found := _submodule(module, alias.name):
            self._modules[alias.asname or alias.name] = found
        elif alias.name != "*" and _is_absent(module, alias.name):
            self._absent[alias.asname or alias.name] = f"{module}.{alias.name}"

    def _use(self, node: ast.AST) -> None:
        names: list[str] = []
        if isinstance(node, ast.Name) and node.id in self._absent:
            names.append(self._absent[node.id])
        elif isinstance(node, ast.Attribute):
            module = self._module(node.value)
            if "fastmcp" in self.libraries and node.attr in _MEMBERS:
                names.append(f"FastMCP.{node.attr}")
            elif module and not _submodule(module, node.attr) and _is_absent(module, node.attr):
                names.append(f"{module}.{node.attr}")
        elif isinstance(node, ast.Call):
            called = _last(node.func)
            given = {
                each.arg
                for each in node.keywords
                if not (isinstance(each.value, ast.Constant) and not each.value.value)
            }
            self.has_login |= called in _SERVERS and not given.isdisjoint(_LOGIN)
            # `FastMCP` of the official SDK has these options here.
            if "fastmcp" in self.libraries or called == "MCPServer":
                names += [f"{called}({name}=…)" for name in _KEYWORDS.get(called, ()) if name in given]
        elif isinstance(node, ast.ClassDef) and any(_last(base) in _SERVERS for base in node.bases):
            overrides = [getattr(each, "name", "") for each in node.body]
            names += [f"an override of {name}" for name in overrides if PRIVATE.fullmatch(name) and name not in _CALLED]

        self.missing += [(getattr(node, "lineno", 0), name) for name in names]

    def _module(self, node: ast.AST) -> str:
        # Returns the module of the library that an expression such as `mcp.types` names.
        if isinstance(node, ast.Attribute) and (above := self._module(node.value)):
            return _submodule(above, node.attr)
        return self._modules.get(getattr(node, "id", ""), "")


def _submodule(module: str, name: str) -> str:
    # Returns the module that `from module import name` finds, or "".
    found = f"{module}.{name}"
    return found if found in known_modules() and known_modules().get(module, Names()).find(name) is MISSING else ""


def _is_absent(module: str, name: str) -> bool:
    if f"{module}.".startswith(_TRANSPORTS) or name.startswith("__"):
        return False
    try:
        return find_name(module, name) is MISSING
    except ImportError:
        return True  # pydantic is not installed


def _last(node: ast.AST) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")


def _code(node: ast.AST, is_guarded: bool = False) -> Iterator[ast.AST]:
    # Yields the nodes below one, without annotations, guarded imports, and code that does not run.
    test = getattr(node, "test", node)
    is_left_out = _last(test) == "TYPE_CHECKING" or _last(getattr(test, "left", test)) == "__name__"
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") or (name == "body" and is_left_out):
            continue
        is_below = is_guarded or (name == "body" and is_guard(node) and not _gives_up(node))
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, ast.AST) and not (is_below and isinstance(child, ast.Import | ast.ImportFrom)):
                yield child
                yield from _code(child, is_below)


def _gives_up(node: ast.AST) -> bool:
    # Whether the code ends if the import fails, as with a text that says what to install.
    inside = [each for handler in getattr(node, "handlers", ()) for each in ast.walk(handler)]
    return any(isinstance(each, ast.Raise) or _last(getattr(each, "func", each)) == "exit" for each in inside)
