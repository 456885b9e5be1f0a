"""`mcpd serve` with several targets: each is loaded as if it were alone, and they are served as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.serve_options import Options

if TYPE_CHECKING:
    from mcpd.cli.target import Found, Watcher
    from mcpd.server import Server


def load_all(
    options: Options, targets: Sequence[Found], left_out: Mapping[str, str], watched: list[Watcher] | None = None
) -> Server:
    """The server of all targets together. Raises ConfigurationError.

    What can be watched is put into `watched`.
    What the file of a folder says of serving is not asked: it is about that folder alone.
    """
    from mcpd.server.extensions.serving import configure
    from mcpd.server.joined import join

    if options.words or options.arguments:
        word = (*options.words, *options.arguments)[0]
        raise ConfigurationError(
            f"{word}: several targets at once have no arguments of their own; serve that one alone"
        )
    servers = [_load(target, options, left_out, watched) for target in targets]
    for server in servers:
        configure(server.extensions, {id: said for id, said in options.extensions.items() if id in server.extensions})
    return join(servers)


def _load(target: Found, options: Options, left_out: Mapping[str, str], watched: list[Watcher] | None) -> Server:
    from mcpd.cli.programs import Looker
    from mcpd.cli.target import load

    if target.place is not None and target.configuration is not None and target.configuration.serve:
        import logging

        text = "%s: [serve] is not asked where several targets are served; say it on the command line"
        logging.getLogger("mcpd").warning(text, printable(target.place.file))
    looker = Looker()
    program = None if options.no_compat else looker
    server = load(target, program, watched=watched, is_growing=options.reload, left_out=left_out) or looker.found
    if server is None:
        raise ConfigurationError(f"{target.name}: the program ended without serving anything")
    return server
