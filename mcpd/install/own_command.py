"""Hosts that rewrite their file while they run are told by their own command, where that is on the PATH: Claude Code.

What it holds in memory would be written over ours, and ours over what it has just learnt.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence

from mcpd.client.targets.hosts import Host
from mcpd.errors import ConfigurationError
from mcpd.install.files import read
from mcpd.install.ours import same_server
from mcpd.install.plan import Plan, entries_of
from mcpd.protocol.printable import printable
from mcpd.transports.child import run_program

_SECONDS = 60.0
_SCOPE = ("--scope", "user")


def has_own_command(host: Host, environment: Mapping[str, str] = os.environ) -> str | None:
    """The path of the command that changes this host's file, None if there is none."""
    if host.id != "claude-code":
        return None
    return shutil.which(host.program, path=environment.get("PATH"))


def tell(program: str, plan: Plan) -> None:
    """Let the host make the change. Raises ConfigurationError if it does not, and if nothing came of it."""
    if plan.change in ("updated", "replaced", "removed"):
        _run([program, "mcp", "remove", *_SCOPE, plan.name])
    if plan.change != "removed":
        # Behind `--` nothing is an option, whatever the name looks like.
        _run([program, "mcp", "add-json", *_SCOPE, "--", plan.name, json.dumps(plan.entry)])

    found = entries_of(plan.host, read(plan.before.path)).get(plan.name)
    is_done = found is None if plan.change == "removed" else same_server(found, plan.entry)
    if not is_done:
        raise ConfigurationError(
            f"{os.path.basename(program)} mcp said that it was done, and {plan.before.path} does not show it; "
            "to write that file itself, say --file with it"
        )


def _run(words: Sequence[str]) -> None:
    shown = " ".join(words[:3])
    try:
        done = run_program(words, seconds=_SECONDS, cwd=os.path.expanduser("~"))
    except TimeoutError:
        raise ConfigurationError(f"{shown} was not done after {_SECONDS:g} s") from None
    except OSError as error:
        raise ConfigurationError(f"{shown} cannot be started: {error.strerror or error}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ConfigurationError(f"{shown} failed: {printable(lines[-1]) if lines else done.returncode}")
