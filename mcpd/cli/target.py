"""Loads TARGET: finds the folder, file or module that it names, runs the user's code, and returns the `Server`.

Every error is one line that says what to do. `loading` runs the code; `programs` handles targets that run a server
themselves, `reloading` and `target_errors` are loaded when they are needed.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import CoroutineType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, structs

from mcpd.errors import ConfigurationError, missing_extra
from mcpd.protocol.defaults import DEMO
from mcpd.protocol.printable import printable
from mcpd.server import Server
from mcpd.server.functions import Source, source
from . import log
from .loading import ImportWatch, Loading, guarded, imports_mcpd, is_server, may_need_library

if TYPE_CHECKING:
    from mcpd.server.settings import Options
    from mcpd.sources.folder import Folder
    from mcpd.sources.lookup import ServerFolder
    from mcpd.sources.tables import Configuration
    from mcpd.sources.watch import Watched
    from .library import Child
    from .loading import LoadedBy

# Makes the object that watches a target's files, from the options and the start of loading in nanoseconds.
Watcher: TypeAlias = "Callable[[Options, int], Watched]"

_HEADER_MARK = b"# /// script"
_MOST_HEADER_BYTES = 1024 * 1024
_SOCKETS = ("unix:", "http+unix:", "ws+unix:")
_MOST_FILES = 1000  # the same as `MOST_OF_A_KIND` of `sources.tree`, which most starts do not load


class Found(Struct, frozen=True):
    """The file, module or folder that TARGET names; its code is not loaded yet."""

    # TARGET as it was written, or DEMO; None for the current server folder.
    name: str | None
    # The folder, if TARGET is a folder.
    place: ServerFolder | None = None
    # The content of the folder's mcpd.toml, if it has one.
    configuration: Configuration | None = None
    # Options for an OpenAPI document; None if TARGET is something else.
    openapi: Mapping[str, Any] | None = None
    # Whether it is the server of somebody else, at a URL, in an mcpServers file or the `command`.
    is_mount: bool = False
    command: tuple[str, ...] = ()
    # The mount that was already read from a file.
    wanted: Any = None
    # The server of TARGET, if its own library runs it as a mount.
    child: Child | None = None


def find(target: str | None, options: Mapping[str, Any] = {}) -> Found:
    """Find what a target names; None means the current server folder or the demo server.

    `options` are those of `mcpd serve` for OpenAPI documents.
    Raises ConfigurationError if mcpd.toml is invalid, or if the target was probably forgotten (`folder_here`).
    """
    openapi = _openapi_options(target, options)
    if target is not None and openapi is None and names_mount(target):
        return Found(target, is_mount=True)
    place = _place_of(target)
    if target is None and place is None:
        target = DEMO
    if place is None or not place.file:
        return Found(target, place, openapi=openapi)
    from mcpd.sources.configuration import read

    return Found(target, place, read(place.file))


def _openapi_options(target: str | None, options: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if target is None or not target.endswith((".json", ".yaml", ".yml")) and not target.startswith("openapi:"):
        return None
    from mcpd.sources.lookup import is_openapi

    return {name: value for name, value in options.items() if value} if is_openapi(target) else None


def names_mount(target: str) -> bool:
    """Return whether a target is a URL or a file with servers, instead of a server of one's own."""
    is_file = target.endswith((".json", ".jsonc")) or ".json:" in target or ".jsonc:" in target
    return is_file or "://" in target or target.startswith(_SOCKETS)


def command_in(target: str | None, words: Sequence[str]) -> tuple[str, ...]:
    """Return the words after `--` if they are a command to mount; () if they are arguments of a program."""
    if not words or words[0].startswith("-"):
        return ()
    takes_words = target is not None and not names_mount(target) and not os.path.isdir(target)
    if takes_words or _is_own(words[0]):
        from shutil import which

        # Programs for other libraries have arguments of their own, which may be called like a command.
        is_ours = target is not None and imports_mcpd(split(target)[0])
        return tuple(words) if takes_words and is_ours and which(words[0]) is not None else ()
    return tuple(words)


def _is_own(word: str) -> bool:
    # Whether the word is a server that mcpd can load, such as a file or the command of a Python package.
    place, attribute = split(word)
    if attribute or os.path.isdir(word) or (place.endswith(".py") and os.path.isfile(place)):
        return True
    from shutil import which

    is_beside = os.path.exists(os.path.join(os.path.dirname(sys.executable), word))
    if os.sep in word or word.startswith("python") or not (is_beside or which(word) is None):
        return False
    from .programs import find_command

    return find_command(word) is not None


def _place_of(target: str | None) -> ServerFolder | None:
    if target is None:
        from mcpd.sources.lookup import folder_here  # hosts mostly name a file

        return folder_here()
    is_package = target.isidentifier() and os.path.isfile(os.path.join(target, "__init__.py"))
    if is_package or not os.path.isdir(target):
        return None
    from mcpd.sources import lookup

    return lookup.folder_at(target)


def load(
    target: Found | str | None,
    loaded_by: LoadedBy | None = None,
    arguments: Sequence[str] = (),
    *,
    watched: list[Watcher] | None = None,
    is_growing: bool = False,
    left_out: Mapping[str, str] | None = None,
    library: str = "auto",
) -> Server | None:
    """Load the server that TARGET names. Raises ConfigurationError.

    If the target imports another MCP library and calls `run()`, `loaded_by` serves it; the result is None once the
    target has ended. Without `loaded_by`, the target uses the library as it is installed. Such a target finds
    `arguments` in `sys.argv`. Watchers of its files are added to `watched`. With `is_growing`, the server declares
    tools, resources and prompts even if it has none yet. Files in `left_out` are not imported; the value is the reason.
    `library` is the option of that name.
    """
    _check_state_key()
    found = target if isinstance(target, Found) else find(target)
    if loaded_by is not None:
        found = with_child(found, arguments, library)
    how = {"is_compatible": loaded_by is not None, "left_out": dict(left_out or {}), "log_settings": log.configured}
    again = Source("mcpd.cli.target:load_again", {"target": found.name, "arguments": list(arguments), **how})
    before = source.set(again)
    try:
        return _load(found, loaded_by, arguments, watched, is_growing, left_out)
    finally:
        source.reset(before)


def _load(
    found: Found,
    loaded_by: LoadedBy | None,
    arguments: Sequence[str],
    watched: list[Watcher] | None,
    is_growing: bool,
    left_out: Mapping[str, str] | None,
) -> Server | None:
    target, place = found.name, found.place
    if found.is_mount:
        return load_mounts([found], watched=watched)
    if place is not None:
        from mcpd.sources.folder import Folder

        folder = Folder(place, found.configuration, is_growing=is_growing, left_out=left_out)
        if watched is not None:
            watched.append(lambda *_: _watched_folder(folder))
            watched += [lambda *_, each=each: each for each in folder.documents]
        return folder.server
    if target is None or target == DEMO:
        from mcpd.sources.demo import make_server

        return make_server()
    if found.openapi is not None:
        try:
            from mcpd.sources.openapi.source import serve
        except ModuleNotFoundError as error:
            raise missing_extra(error, "serving OpenAPI documents", "openapi") from None

        served = serve(target, found.openapi)
        if watched is not None:
            watched.append(lambda *_: served)
        return served.server
    with ImportWatch(loaded_by) as watch:
        # Programs read their arguments in `main()` or while they are imported.
        sys.argv = [split(target)[0], *arguments]
        server = _find(target, Loading(watch, loaded_by))
    if server is not None and watched is not None:
        loaded = source.get()
        watched.append(lambda options, began: _watched_target(target, server, loaded, options, began))
        if is_growing:
            for kind in ("tools", "resources", "prompts"):
                server.catalog.offer(kind)
    return server


def with_child(found: Found, arguments: Sequence[str], library: str) -> Found:
    """Return a target as a mount if its own library has to run it. `library` is the option of that name."""
    is_other = found.place is not None or found.is_mount or found.openapi is not None or found.name in (None, DEMO)
    place, attribute = split(found.name or "")
    if is_other or library == "never" or not (library == "always" or may_need_library(place)):
        return found
    from .library import child_of

    _add_current_folder()
    child = child_of(place, attribute, arguments, always=library == "always")
    return found if child is None else structs.replace(found, is_mount=True, child=child)


def load_mounts(found: Sequence[Found], prefix: str = "auto", watched: list[Watcher] | None = None) -> Server:
    """Return a server that offers what other servers offer. Raises ConfigurationError."""
    from mcpd.sources.mounts.passing import server_of

    server = server_of(_wanted(found), prefix)
    _watch_mounts(server, found, watched)
    return server


def add_mounts(server: Server, found: Sequence[Found], prefix: str, watched: list[Watcher] | None) -> None:
    """Mount other servers on one's own. Raises ConfigurationError."""
    from mcpd.sources.mounts.mounted import LINE, mounts_of

    mounts_of(server).update(LINE, _wanted(found), prefix)
    _watch_mounts(server, found, watched)


def _wanted(found: Sequence[Found]) -> list[Any]:
    from mcpd.sources.mounts.targets import wanted_by

    if found[0].wanted is not None:
        return [found[0].wanted]
    command = next((each.command for each in found if each.command), ())
    children = [each.child.wanted() for each in found if each.child is not None]
    return wanted_by([each.name or "" for each in found if not (each.command or each.child)], command, children)


def _watch_mounts(server: Server, found: Sequence[Found], watched: list[Watcher] | None) -> None:
    files = [each.name for each in found if each.name is not None and ".json" in each.name and "://" not in each.name]
    paths = [each[: each.index(".json")] + ".json" for each in files]
    paths += [path for each in found if each.child is not None for path in each.child.files]
    if watched is not None and paths:
        from mcpd.sources.mounts.mounted import WatchedMounts

        watched.append(lambda *_: WatchedMounts(server, paths, lambda: _wanted(found)))


def load_caught(
    target: Found, arguments: Sequence[str] = (), *, is_compatible: bool, **how: Any
) -> tuple[Server, bool]:
    """Load a server without serving it, and return whether it is the one whose `run()` the target has called.

    `is_compatible` allows other MCP libraries; `how` are arguments of `load`. Raises ConfigurationError.
    """
    from .programs import ServerCatcher

    catcher = ServerCatcher()
    server = load(target, catcher if is_compatible else None, arguments, **how) or catcher.found
    if server is None:
        raise ConfigurationError(f"{target.name}: the program ended without serving")
    return server, catcher.has_served


def load_again(
    target: str | None,
    arguments: Sequence[str],
    *,
    is_compatible: bool,
    left_out: Mapping[str, str],
    log_settings: Sequence[Any] | None,
) -> None:
    """Load a target in another process, for tools that run there. Raises ConfigurationError."""
    if log_settings is not None:
        log.configure(*log_settings)
    load_caught(find(target), arguments, is_compatible=is_compatible, left_out=left_out, library="never")


def _check_state_key() -> None:
    # If MCPD_STATE_KEY is wrong, no file of the user should be blamed for it.
    from mcpd.protocol.state_keys import keys_of_process

    try:
        keys_of_process()
    except ValueError:
        raise ConfigurationError(
            "MCPD_STATE_KEY: the key must have at least 16 bytes; make one with: openssl rand -hex 32"
        ) from None


def _watched_folder(folder: Folder) -> Watched:
    from mcpd.sources.watch import WatchedFolder

    return WatchedFolder(folder)


def _watched_target(target: str, server: Server, loaded: Source | None, options: Options, began: int) -> Watched:
    from .reloading import ReloadedTarget

    def load() -> Server | None:
        if loaded is not None:
            source.set(Source(loaded.loader, loaded.arguments))
        return _find(target, Loading(ImportWatch(None), None))

    return ReloadedTarget(split(target)[0], server, load, options, began)


def split(target: str) -> tuple[str, str]:
    """Split a target into its file or module and its object; "" if it names no object."""
    place, colon, attribute = target.rpartition(":")
    if not colon or attribute.endswith(".py") or os.sep in attribute:
        return target, ""
    return place, attribute


def _find(target: str, loading: Loading) -> Server | None:
    place, attribute = split(target)
    is_file = os.path.isfile(place)
    is_module = not is_file and all(part.isidentifier() for part in place.split("."))
    if is_file and place.endswith(".py"):
        module: ModuleType | None = _from_file(place, loading)
    elif is_module and (attribute or _is_there(place)):
        _add_current_folder()
        module = guarded(place, lambda: loading.run(lambda: import_module(place)))
    else:
        from .programs import find_command, run_command

        command = None if attribute else find_command(place)
        if command is None:
            from mcpd.client.targets.grammar import UnknownTarget
            from .target_errors import why_unknown

            raise UnknownTarget(why_unknown(target, place, attribute))
        return _ours(run_command(command, place, loading))
    return None if module is None or loading.has_served else _pick(module, attribute, place, loading)


def _is_there(name: str) -> bool:
    from importlib.util import find_spec

    _add_current_folder()
    try:
        found = None if os.path.isfile(f"{name}.py") else find_spec(name)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None  # a folder without __init__.py has none


def _from_file(path: str, loading: Loading) -> ModuleType:
    folder, base = os.path.split(os.path.abspath(path))
    name = os.path.splitext(base)[0]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # A file with the name of a standard module must not replace that module. Any other file keeps its name, even if it
    # is not an identifier: child processes of multiprocessing import it by that name.
    is_free = "." not in name and name not in sys.modules and name not in sys.stdlib_module_names
    spec = spec_from_file_location(name if is_free else f"mcpd_{name}", path)
    if spec is None or spec.loader is None:
        from .target_errors import not_a_python_file

        raise ConfigurationError(not_a_python_file(path))

    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    loader = spec.loader
    guarded(path, lambda: loading.run(lambda: loader.exec_module(module)))
    if not is_free and "multiprocessing" in sys.modules:
        from mcpd.sources.modules import spawn_problem

        if problem := spawn_problem(module, "rename the file"):
            logging.getLogger("mcpd").warning("%s: %s", printable(path), printable(problem, 500))
    return module


def _add_current_folder() -> None:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _pick(module: ModuleType, attribute: str, place: str, loading: Loading) -> Server | None:
    if attribute:
        found: Any = getattr(module, attribute, None)
        if callable(found) and not is_server(found):
            from .programs import is_program, run

            if is_program(module, loading):
                return _ours(run(found, attribute, place, loading))
            found = guarded(place, found, attribute)
        if isinstance(found, CoroutineType):
            found.close()
            raise ConfigurationError(f"{place}: {attribute} is async; write it as a plain function")
        if not is_server(found):
            what = f"{attribute} is neither a Server nor a function that returns one"
            raise ConfigurationError(f"{place}: {what}; {_servers_text(module)}")
        return _ours(found)
    servers = _servers(module)
    distinct = {id(value): value for value in servers.values()}
    if len(distinct) == 1:
        return _ours(next(iter(distinct.values())))
    for name in ("server", "mcp", "app"):
        if name in servers:
            return _ours(servers[name])
    if not servers:
        from .programs import is_program, program_of, run

        program = program_of(module, place) if is_program(module, loading) else None
        if program is not None:
            return _ours(run(*program, place, loading))
        raise ConfigurationError(f"{place}: {_servers_text(module)}")
    raise ConfigurationError(f"{place}: {_servers_text(module)}; name one, for example {place}:{min(servers)}")


def _ours(found: Any) -> Server | None:
    try:
        server: Server | None = found if isinstance(found, Server | None) else found.__mcpd_server__()
    except NotImplementedError as error:  # it uses a feature that `mcpd.compat` does not have
        raise ConfigurationError(str(error)) from None

    return server


def _servers(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if is_server(value)}


def _servers_text(module: ModuleType) -> str:
    from .target_errors import no_server_in

    return no_server_in(module, _servers(module))


def prepare_scripts(targets: Sequence[Found]) -> dict[str, str]:
    """Provide the packages that PEP 723 headers of these targets require; may replace the process (`scripts`)."""
    # Returns the files of folders that must be left out, with the reasons. Raises ConfigurationError if the
    # requirements of a target itself cannot be met.
    files = [path for target in targets for path in _files_of(target)]
    below = [path for target in targets for path in _files_below(target)]
    if not files and not below:
        return {}

    from .scripts import enter

    return enter(files, below)


def _files_of(target: Found) -> list[str]:
    place, configuration = target.place, target.configuration
    if place is None:
        path = "" if target.name is None else split(target.name)[0]
        return [path] if path.endswith(".py") and _has_header(path) else []
    lifespan = "lifespan.py" if configuration is None else configuration.lifespan or "lifespan.py"
    path = os.path.join(place.root, lifespan.partition(":")[0])
    return [path] if place.is_trusted and _has_header(path) else []


def _files_below(target: Found) -> list[str]:
    place, configuration = target.place, target.configuration
    if place is None or not place.is_trusted:
        return []
    if configuration is not None and not configuration.tools.enabled:
        return []
    folder = "tools" if configuration is None else configuration.tools.folder

    from mcpd.server.folder_files import is_below

    top = os.path.normpath(os.path.join(place.root, folder))
    found: list[str] = []
    count = 0

    for above, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith("."):
                count += 1
                path = os.path.join(above, name)
                # Links that lead out of the folder are not imported.
                is_inside = not os.path.islink(path) or is_below(path, top)
                if count <= _MOST_FILES and is_inside and _has_header(path):
                    found.append(path)
    return found


def _has_header(path: str) -> bool:
    try:
        # Opening a pipe would block.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb", buffering=0) as file:
            return _HEADER_MARK in (file.read(_MOST_HEADER_BYTES) or b"")
    except OSError:
        return False  # loading the file reports the error
