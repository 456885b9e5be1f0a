"""Makes a planned change: copies the file, changes it, and records that; and the notes for the user."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from msgspec import Struct

from mcpd.cli.install.entry import Entry
from mcpd.cli.install.files import Journal, Record, back_up, check, entry_fingerprint, fingerprint, read, write
from mcpd.cli.install.hosts import has_folder, is_here
from mcpd.cli.install.plan import Plan, entries_of, holds_secrets
from mcpd.cli.install.shapes import launch_words, same_server
from mcpd.client.targets.hosts import HOSTS, Host
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.child import run_program

_SECONDS = 60.0
_SCOPE = ("--scope", "user")


def find_own_command(host: Host, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of the host's own command for such changes; None if it has no such command.

    Claude Code rewrites its file while it runs, so a change by another program could be lost.
    """
    if host.id != "claude-code":
        return None
    return shutil.which(host.program, path=environment.get("PATH"))


def change_by_host(program: str, plan: Plan) -> None:
    """Let the host's command make the change. Raises ConfigurationError if it fails, or if the file does not show
    it.
    """
    if plan.change in ("updated", "replaced", "removed"):
        _run([program, "mcp", "remove", *_SCOPE, plan.name])
    if plan.change != "removed":
        # Behind `--` nothing is an option, whatever the name looks like.
        _run([program, "mcp", "add-json", *_SCOPE, "--", plan.name, json.dumps(plan.entry)])

    found = entries_of(plan.host, read(plan.before.path)).get(plan.name)
    is_done = found is None if plan.change == "removed" else same_server(found, plan.entry)
    if not is_done:
        raise ConfigurationError(
            f"{os.path.basename(program)} mcp reported success, but {plan.before.path} does not show the "
            "change; use --file to write that file directly"
        )


def _run(words: Sequence[str]) -> None:
    shown = " ".join(words[:3])
    try:
        done = run_program(words, seconds=_SECONDS, cwd=os.path.expanduser("~"))
    except TimeoutError:
        raise ConfigurationError(f"{shown} did not finish within {_SECONDS:g} s") from None
    except OSError as error:
        raise ConfigurationError(f"{shown} cannot be started: {error.strerror or error}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ConfigurationError(f"{shown} failed: {printable(lines[-1]) if lines else done.returncode}")


_WITH = {"cline": "cline-legacy"}
"""Hosts whose older version, with another file, may be installed as well."""


class AppliedChange(Struct, frozen=True):
    """A change that was made."""

    path: str
    backup: str = ""
    """The copy of the previous file; "" if there was none."""
    by: str = ""
    """The host's own command that made the change; "" for none."""


def apply(
    plan: Plan,
    journal: Journal,
    *,
    is_project: bool = False,
    by_host: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> AppliedChange:
    """Make the change. Raises ConfigurationError, and then leaves the file as it was.

    The copy is beside the file, or in the state folder for a project's file, which other people may share. With
    `by_host` the host's own command is used, if it has one.
    """
    if plan.change == "none":
        return AppliedChange(plan.before.path)
    with journal.locked():
        return _apply(plan, journal, is_project=is_project, by_host=by_host, environment=environment)


def _apply(
    plan: Plan, journal: Journal, *, is_project: bool, by_host: bool, environment: Mapping[str, str]
) -> AppliedChange:
    check(plan.before)
    backup = back_up(plan.before, os.path.join(journal.folder, "backups") if is_project else None)
    program = own_command_for(plan.host, is_project=is_project, by_host=by_host, environment=environment)
    if program is not None:
        try:
            change_by_host(program, plan)
        except (ConfigurationError, KeyboardInterrupt):
            _bring_back(plan)
            raise
    else:
        write(plan.before, plan.data)

    after = read(plan.before.path)
    journal.add(
        Record(
            host=plan.host.id,
            path=plan.before.target,
            name=plan.name,
            action="uninstall" if plan.change == "removed" else "install",
            before=fingerprint(plan.before.data),
            after=fingerprint(after.data),
            backup=backup,
            made=plan.makes_key,
            entry=entry_fingerprint(launch_words(plan.entry) or []),
        )
    )
    return AppliedChange(plan.before.path, backup, "" if program is None else f"{os.path.basename(program)} mcp")


def own_command_for(
    host: Host, *, is_project: bool, by_host: bool, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the path of the host's own command, if that makes the change; None if the file is written."""
    return find_own_command(host, environment) if by_host and not is_project else None


def _bring_back(plan: Plan) -> None:
    """Restore the file after a change that failed half-way."""
    now = read(plan.before.path)
    if now.data != plan.before.data and plan.before.data is not None:
        write(now, plan.before.data)


def notes(
    plan: Plan, entry: Entry, *, project: str | None, environment: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """Yield notes for the user. The last one says what to do so that the host notices the change."""
    host = plan.host
    if project is None and not is_here(host, plan.before.path, environment) and plan.change != "none":
        yield f"{host.name} does not seem to be installed on this machine"
    written = [*entry.env, *entry.headers]
    if project is not None and written and plan.change != "none":
        yield f"the file holds the values of {', '.join(map(printable, written))}: if one is secret, do not share it"
    if project is not None and entry.command and plan.change != "none":
        yield "the file names paths of this machine: other people of the project need their own"
    if plan.has_variables:
        yield f"{host.name} replaces variables such as $NAME, also in these values"
    other = HOSTS.get(_WITH.get(host.id, ""))
    if other is not None and project is None and has_folder(other, environment):
        yield f"{other.name} is also installed, with a file of its own: mcpd install {other.id}"
    if plan.change != "none":
        asks = (
            (f", and answer yes when {host.name} asks about the servers of this project")
            if host.asks and project
            else ""
        )
        yield f"now: {host.notice.format(host=host.name)}{asks}"


def secret_warnings(plan: Plan) -> Iterator[str]:
    """Yield warnings about a file with secrets that was written."""
    if sys.platform == "win32" or plan.change == "removed" or not holds_secrets(plan.entry):
        return
    path = plan.before.target
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return
    if mode & 0o077:
        who = f"other users of this machine may read it (mode {mode:o})"
        yield f"{path} now holds secrets, and {who}: chmod 600 {quote(path)}"
