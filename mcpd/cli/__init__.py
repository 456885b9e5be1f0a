"""The `mcpd` command: reads command lines, calls the other packages and prints. It makes no decisions of its own.

`group` dispatches to `commands/`, one module per subject. `launch` serves the server that `target` loads. Client
commands share `talk/`. `install/`, `doctor/`, `bundle/`, `trace/` and `workers/` do the work of the commands of the
same names; `attach/` lets many hosts share one daemon. Start reading in `group`; for `mcpd serve`, in `launch`.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence  # takes a millisecond, which an attached client does not need

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run `mcpd` and exit. Exit codes: 0 done, 1 failed, 2 wrong use, 130 Ctrl-C; some commands have more."""
    # Loading modules leaves no garbage worth collecting; `launch` enables the collector before it serves.
    gc.disable()
    if argv is None and ("--attach" in sys.argv or "MCPD_ATTACH" in os.environ):
        from .attach import shim

        if shim.is_wanted(sys.argv[1:], os.environ):
            shim.attach()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
    finally:
        gc.enable()
    import threading

    if threading.active_count() > 1:
        # The target started threads of its own, which must not keep the process alive (decision D11).
        from mcpd.server.shutdown import end_if_hung

        end_if_hung(code)
    sys.exit(code)


def _run(words: Sequence[str]) -> int:
    try:
        from mcpd.errors import ConfigurationError
    except ImportError as error:  # another project's package has the name mcpd, or parts of ours are missing
        sys.exit(f"mcpd: {error}")

    try:
        if words[:1] == ["serve"]:
            from . import launch

            options = launch.stdio_options(words, os.environ)
            if options is not None:
                return launch.launch(options)
        if words[:1] == ["connect"] and len(words) == 2 and "://" in words[1]:
            from .early import wait_for_call

            received = wait_for_call(words[1])
            if received is None:
                return 0
            from mcpd.server.settings import Options
            from . import launch
            from .target import Found

            return launch.launch(Options(stdio=True, received=received), Found(words[1], is_mount=True))
        from .group import run

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
        # The reader of our stdout has closed it. Python would fail to flush into it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
