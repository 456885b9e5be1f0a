"""TARGET on the command line: from a folder, a file or a module to the `Server` that it is or has.

Code of the user runs here, and nowhere before. Every failure is one line that says what to do.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import CoroutineType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from mcpd.cli.libraries import Watch
from mcpd.cli.user_code import Loading, guarded, is_server
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.serve_defaults import DEMO
from mcpd.server import Server

if TYPE_CHECKING:
    from mcpd.cli.loaded_by import LoadedBy
    from mcpd.serve_options import Options
    from mcpd.sources.folder import Folder
    from mcpd.sources.lookup import ServerFolder
    from mcpd.sources.tables import Configuration
    from mcpd.sources.watch import Watched

Watcher: TypeAlias = "Callable[[Options, int], Watched]"
"""Makes what is watched, of the options and the time in nanoseconds before which it was not loaded."""


class Found(Struct, frozen=True):
    """What TARGET names, before anything of it is loaded."""

    name: str | None
    """As it was written, or DEMO; None for the folder that is meant."""
    place: ServerFolder | None = None
    """The folder, if it is one."""
    configuration: Configuration | None = None
    """What the folder's file says, if it has one."""


def find(target: str | None) -> Found:
    """What a target names; without one the folder that is meant, or the demo server.

    Raises ConfigurationError for a folder whose file is wrong, and if the target was forgotten (`folder_here`).
    """
    place = _place_of(target)
    if target is None and place is None:
        target = DEMO
    if place is None or not place.file:
        return Found(target, place)
    from mcpd.sources.configuration import read

    return Found(target, place, read(place.file))


def _place_of(target: str | None) -> ServerFolder | None:
    """The folder that TARGET names, or that is meant without one; None if it is no folder, or a package to import."""
    if target is None:
        from mcpd.sources.lookup import folder_here  # hosts name a target, and that is mostly a file

        return folder_here()
    is_package = target.isidentifier() and os.path.isfile(os.path.join(target, "__init__.py"))
    if is_package or not os.path.isdir(target):
        return None
    from mcpd.sources import lookup

    return lookup.folder_at(target)


def load(
    target: Found | str | None,
    program: LoadedBy | None = None,
    arguments: Sequence[str] = (),
    *,
    watched: list[Watcher] | None = None,
    is_growing: bool = False,
    left_out: Mapping[str, str] | None = None,
) -> Server | None:
    """The server that TARGET names; for None the folder that is meant, or the demo server. Raises
    ConfigurationError. What can be watched is put into `watched`; one that `is_growing` offers all kinds from the
    beginning. Files that are `left_out` are not imported, for the reason that is said there.

    If it imports another library, `program` serves what calls its `run()`: None if it has done that, and the target
    has come to its end. `arguments` are what such a target finds in `sys.argv`. Without `program` those libraries are
    their own.
    """
    _check_state_key()
    found = target if isinstance(target, Found) else find(target)
    target, place = found.name, found.place
    if place is not None:
        from mcpd.sources.folder import Folder

        folder = Folder(place, found.configuration, is_growing=is_growing, left_out=left_out)
        if watched is not None:
            watched.append(lambda *_: _watched_folder(folder))
        return folder.server
    if target is None or target == DEMO:
        from mcpd.sources.demo import make_server

        return make_server()
    with Watch(program) as watch:
        loading = Loading(watch, program, arguments)
        # Programs read their arguments in `main()`, or where they are imported.
        loading.say_arguments(split(target)[0])
        server = _find(target, loading)
    if server is not None and watched is not None:
        watched.append(lambda options, began: _watched_target(target, server, options, began))
        if is_growing:
            for kind in ("tools", "resources", "prompts"):
                server.catalog.offer(kind)
    return server


def _check_state_key() -> None:
    """Raise ConfigurationError for a short key, which no file of the user is to be blamed for."""
    from mcpd.protocol.state_keys import keys_of_process

    try:
        keys_of_process()
    except ValueError:
        raise ConfigurationError(
            "MCPD_STATE_KEY: a key needs at least 16 bytes; make one with: openssl rand -hex 32"
        ) from None


def _watched_folder(folder: Folder) -> Watched:
    from mcpd.sources.watch import WatchedFolder

    return WatchedFolder(folder)


def _watched_target(target: str, server: Server, options: Options, began: int) -> Watched:
    from mcpd.cli.reloading import ReloadedTarget

    def load() -> Server | None:
        return _find(target, Loading(Watch(None), None, ()))

    return ReloadedTarget(split(target)[0], server, load, options, began)


def split(target: str) -> tuple[str, str]:
    """The file or module that a target names, and the object in it, "" if it names none."""
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
        module = _from_module(place, loading)
    else:
        from mcpd.cli.programs import find_command, run_command

        command = None if attribute else find_command(place)
        if command is None:
            from mcpd.cli.wrong_target import why_not  # on the way to an error only

            raise why_not(target, place, attribute)
        made = run_command(command, place, loading)
        return None if made is None else _ours(made)
    return None if module is None or loading.has_served else _pick(module, attribute, place, loading)


def _is_there(name: str) -> bool:
    """Whether there is a module of that name. Loads those that it is in."""
    from importlib.util import find_spec

    _look_here()
    try:
        found = None if os.path.isfile(f"{name}.py") else find_spec(name)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None  # a folder alone has none


def _from_file(path: str, loading: Loading) -> ModuleType:
    folder, base = os.path.split(os.path.abspath(path))
    name = os.path.splitext(base)[0]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # Whoever imports a module of Python's own by its name, loaded or not, is not to have this file. Otherwise it keeps
    # its name, though no identifier: a process that multiprocessing spawns imports it by that.
    is_free = "." not in name and name not in sys.modules and name not in sys.stdlib_module_names
    spec = spec_from_file_location(name if is_free else f"mcpd_{name}", path)
    if spec is None or spec.loader is None:
        from mcpd.cli.wrong_target import no_file

        raise ConfigurationError(no_file(path))

    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    loader = spec.loader
    guarded(path, lambda: loading.to_its_end(lambda: loader.exec_module(module)))
    if not is_free and "multiprocessing" in sys.modules:
        from mcpd.sources.modules import spawn_problem

        if problem := spawn_problem(module, "rename the file"):
            logging.getLogger("mcpd").warning("%s: %s", printable(path), printable(problem, 500))
    return module


def _look_here() -> None:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _from_module(name: str, loading: Loading) -> ModuleType | None:
    _look_here()
    return guarded(name, lambda: loading.to_its_end(lambda: import_module(name)))


def _pick(module: ModuleType, attribute: str, place: str, loading: Loading) -> Server | None:
    if attribute:
        found: Any = getattr(module, attribute, None)
        if callable(found) and not is_server(found):
            from mcpd.cli.programs import is_program, run

            if is_program(module, loading):
                made = run(found, attribute, place, loading)
                return None if made is None else _ours(made)
            found = guarded(place, found, attribute)
        if isinstance(found, CoroutineType):
            found.close()
            raise ConfigurationError(
                f"{place}: {attribute} is async; the function that makes the server is a plain one"
            )
        if not is_server(found):
            what = f"{attribute} is no Server, nor a function that makes one"
            raise ConfigurationError(f"{place}: {what}; {_have(module)}")
        return _ours(found)
    servers = _servers(module)
    distinct = {id(value): value for value in servers.values()}
    if len(distinct) == 1:
        return _ours(next(iter(distinct.values())))
    for name in ("server", "mcp", "app"):
        if name in servers:
            return _ours(servers[name])
    if not servers:
        from mcpd.cli.programs import is_program, program_of, run

        program = program_of(module, place) if is_program(module, loading) else None
        if program is not None:
            made = run(*program, place, loading)
            return None if made is None else _ours(made)
        raise ConfigurationError(f"{place}: {_have(module)}")
    raise ConfigurationError(f"{place}: {_have(module)}; name one, as {place}:{min(servers)}")


def _ours(found: Any) -> Server:
    try:
        server: Server = found if isinstance(found, Server) else found.__mcpd_server__()
    except NotImplementedError as error:  # it needs what `mcpd.compat` has not
        raise ConfigurationError(str(error)) from None

    return server


def _servers(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if is_server(value)}


def _have(module: ModuleType) -> str:
    from mcpd.cli.wrong_target import have

    return have(module, _servers(module))
