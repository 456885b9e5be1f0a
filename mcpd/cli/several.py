"""`mcpd serve` with several targets: each is loaded as if it were alone, and they are served as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigurationError
from ..printable import printable
from ..serve_options import Options

if TYPE_CHECKING:
    from ..server import Server
    from .target import Watcher

__all__ = ["load_all"]


def load_all(options: Options, watched: list[Watcher] | None = None) -> Server:
    """The server of all targets together. Raises ConfigurationError.

    What can be watched is put into `watched`.
    What the file of a folder says of serving is not asked: it is about that folder alone.
    """
    from ..extensions.serving import configure
    from ..server.joined import join

    if options.words or options.arguments:
        word = (*options.words, *options.arguments)[0]
        raise ConfigurationError(
            f"{word}: several targets at once have no arguments of their own; serve that one alone"
        )
    servers = [
        _load(target, options, watched) for target in (options.target, *options.more_targets) if target is not None
    ]
    for server in servers:
        configure(server.extensions, {id: said for id, said in options.extensions.items() if id in server.extensions})
    return join(servers)


def _load(target: str, options: Options, watched: list[Watcher] | None) -> Server:
    from .programs import Looker
    from .target import load, place_of

    place, configuration = place_of(target), None
    if place is not None and place.file:
        from ..sources.configuration import read

        configuration = read(place.file)
        if configuration.serve:
            import logging

            text = "%s: [serve] is not asked where several targets are served; say it on the command line"
            logging.getLogger("mcpd").warning(text, printable(place.file))
    looker = Looker()
    program = None if options.no_compat else looker
    found = load(target, program, place=place, configuration=configuration, watched=watched, is_growing=options.reload)
    server = found or looker.found
    if server is None:
        raise ConfigurationError(f"{target}: the program ended without serving anything")
    return server
