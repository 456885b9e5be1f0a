"""The command line: prints and reads options, never decides. Each command is loaded when it is called."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """The `mcpd` command. Exit codes: 0 done, 1 the thing asked for failed, 2 wrong use, 130 Ctrl-C."""
    # Loading modules leaves no garbage worth looking for; `launch` switches the collector on before it serves.
    gc.disable()
    _load_datetime()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
    finally:
        gc.enable()
    import threading

    if threading.active_count() > 1:
        # Of a target that starts threads of its own; decision D11.
        from mcpd.server.shutdown import end_if_hung

        end_if_hung(code)
    sys.exit(code)


def _load_datetime() -> None:
    """Load what msgspec needs, and free the classes in Python that it has replaced by those in C: 200 KiB.

    Only the collector frees them, here at little cost, as there is not much else yet.
    """
    import datetime  # noqa: F401

    gc.collect(0)


def _run(words: Sequence[str]) -> int:
    try:
        from mcpd.errors import ConfigurationError
    except ImportError as error:  # the package's top is another project's, or gone with it
        sys.exit(f"mcpd: {error}")

    try:
        if words[:1] == ["serve"]:
            from mcpd.cli import launch, quick

            options = quick.read(words, os.environ)
            if options is not None:
                return launch.launch(options)
        from mcpd.cli.commands import run

        return run(words)
    except ConfigurationError as error:
        import logging

        if error.__cause__ is not None and logging.getLogger().isEnabledFor(logging.DEBUG):
            sys.excepthook(type(error.__cause__), error.__cause__, error.__cause__.__traceback__)
        from mcpd.cli.talk.words import with_help

        print(f"mcpd: {with_help(error, f'mcpd {words[0]}')}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing is to be flushed into it when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
