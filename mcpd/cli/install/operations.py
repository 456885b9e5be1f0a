"""Installs, uninstalls, lists and undoes entries for one host, and returns values that a command line shows."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct, to_builtins

from mcpd.cli.install.checks import is_unreadable, limit_warnings, strictness_findings
from mcpd.cli.install.entry import NamedEntry, as_target, entry_name, is_ours, same_server, shaped
from mcpd.cli.install.files import Content, Journal, Record, read
from mcpd.cli.install.hosts import file_of, found_hosts, refuse_running, running
from mcpd.cli.install.launch import Verdict, verify_target
from mcpd.cli.install.plan import (
    AppliedChange,
    Plan,
    apply,
    entries_of,
    notes,
    own_command_for,
    plan_install,
    plan_uninstall,
    secret_warnings,
)
from mcpd.client.targets.hosts import HOSTS, Host
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

# Seconds for which a new entry is watched in the file of a running host that may overwrite it.
_STAYS_SECONDS = 2.0

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class InstallOptions(Struct, frozen=True):
    """The options of a command beside the host and the server."""

    name: str | None = None
    # The folder whose own file is written; None for the user's file.
    project: str | None = None
    # A file to write instead of the host's own.
    file: str | None = None
    force: bool = False
    dry_run: bool = False
    # Whether to start the server before anything is written.
    starts: bool = True

    @property
    def is_one_file(self) -> bool:
        """Whether the options name one file, or a project."""
        return self.file is not None or self.project is not None

    def path_of(self, host: Host) -> str:
        """Return the file to change. Raises ConfigurationError."""
        return os.path.abspath(self.file) if self.file is not None else file_of(host, project=self.project)

    def undo_command(self, host: Host) -> str:
        """Return the command that restores the previous file."""
        words = ["mcpd", "install", "--undo", host.id]
        if self.project is not None:
            words.append("--project" if self.project == os.getcwd() else f"--project={self.project}")
        if self.file is not None:
            words.append(f"--file={self.file}")
        return shlex.join(words)

    def check_running(self, host: Host) -> None:
        """Raise ConfigurationError if mcpd writes the file of a running host."""
        if self.project is None and not own_command_for(host, is_project=False, by_host=self.file is None):
            refuse_running(host, force=self.force)


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome for one host."""

    plan: Plan
    # None if nothing was changed.
    done: AppliedChange | None = None
    # None if the server was not started.
    verdict: Verdict | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    # The command that undoes the change, if there was one.
    undo_command: str = ""

    @property
    def works(self) -> bool:
        """Whether the server works, as far as it was tried."""
        return self.verdict is None or self.verdict.works

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for programs, without the values that `Plan.difference` masks."""
        verdict = self.verdict
        started = None if verdict is None else {
            "works": verdict.works, "error": verdict.error or None, "advice": verdict.advice or None,
            "seconds": round(verdict.seconds, 3), "server": verdict.offers.name, "version": verdict.offers.version,
            "protocolVersion": verdict.offers.protocol, "tools": verdict.tools, "apps": verdict.offers.apps,
            "stderr": verdict.stderr_tail,
        }  # fmt: skip
        return {
            "host": self.plan.host.id,
            "name": self.plan.name,
            "file": self.plan.before.path,
            "change": self.plan.change,
            "written": self.done is not None,
            "difference": self.plan.difference,
            "backup": (self.done.backup if self.done is not None else "") or None,
            "started": to_builtins(started),
            "warnings": self.warnings,
            "notes": self.notes,
        }


class Listed(Struct, frozen=True):
    """A host on this machine, and the entries in its file."""

    host: str
    name: str
    file: str
    has_file: bool
    ours: tuple[str, ...] = ()
    others: int = 0
    error: str = ""
    # Entries that were installed and not uninstalled, but are missing now.
    gone: tuple[str, ...] = ()


async def install(
    host: Host, made: NamedEntry, options: InstallOptions, journal: Journal, tell: Callable[[str], None]
) -> Outcome:
    """Write the entry, after the server has started as this host starts it. `tell` is called with the current step.

    Raises ConfigurationError if the entry cannot be written. A server that does not start is an outcome.
    """
    path, verdict = options.path_of(host), None
    existing = [*_existing_names(host, made, read(path))] if made.is_own and not options.name else []
    name = options.name or (existing[0] if existing else "")

    async def verify() -> Verdict:
        tell("connecting to the server" if made.entry.url else f"starting the server as {host.name} does")
        return await verify_target(as_target(made.entry), host, project=options.project)

    if not name and made.is_own and options.starts:
        if not options.dry_run:
            options.check_running(host)
        verdict = await verify()
        name = entry_name(verdict.offers.name)
    name = name or made.name
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{printable(name)}: a name has letters, digits, - and _, up to 64 of them")
    plan = plan_install(host, name, made.entry, path, force=options.force, journal=journal)
    said = (*notes(plan, made.entry, project=options.project),)
    strict = [*strictness_findings(host, plan.before)]
    if is_unreadable(host, strict) and not options.force:
        first = strict[0]
        raise ConfigurationError(f"{path}: {first.text}; {first.advice} and try again (--force writes anyway)")
    if verdict is not None and not verdict.works:
        return Outcome(plan=plan, verdict=verdict, warnings=made.warnings)
    warnings = [*made.warnings, *(f"{path}: {each.text}; {each.advice}" for each in strict)]
    if options.dry_run or plan.change == "none":
        return Outcome(plan=plan, warnings=tuple(warnings), notes=said)

    options.check_running(host)
    if verdict is None and options.starts:
        verdict = await verify()
        if not verdict.works:
            return Outcome(plan=plan, verdict=verdict, warnings=made.warnings)
    if verdict is not None:
        warnings += [*verdict.warnings, *limit_warnings(host, name, verdict.offers, verdict.seconds)]

    with journal.locked():
        # The start took some time, and others may have changed the file meanwhile.
        plan = plan_install(host, name, made.entry, path, force=options.force, journal=journal)
        options.check_running(host)
        done = apply(plan, journal, is_project=options.project is not None, by_host=options.file is None)
    if not done.by and options.project is None:
        await _watch_entry(plan)
    return Outcome(
        plan=plan,
        done=done,
        verdict=verdict,
        warnings=(*warnings, *secret_warnings(plan)),
        notes=said,
        undo_command=options.undo_command(host),
    )


def _existing_names(host: Host, made: NamedEntry, content: Content) -> list[str]:
    """The names of this server in the file."""
    wanted = shaped(host, made.name, made.entry)
    return [name for name, entry in entries_of(host, content).items() if same_server(entry, wanted)]


async def _watch_entry(plan: Plan) -> None:
    """Watch whether a running host overwrites the entry. Raises ConfigurationError if it does."""
    process = running(plan.host)
    until = time.monotonic() + _STAYS_SECONDS

    while process is not None and time.monotonic() < until:
        await asyncio.sleep(_STAYS_SECONDS / 20)
        if plan.name not in entries_of(plan.host, read(plan.before.path)):
            raise ConfigurationError(
                f"{plan.host.name} (process {process.pid}) has overwritten {plan.before.path}, and "
                f"{plan.name} is missing in it; quit {plan.host.name} and try again"
            )


def uninstall(host: Host, name: str, options: InstallOptions, journal: Journal) -> Outcome:
    """Remove the entry. Raises ConfigurationError if mcpd did not write it, or if the file cannot be written."""
    with journal.locked():
        plan = plan_uninstall(host, name, options.path_of(host), force=options.force, journal=journal)
        said = (f"now: {host.notice.format(host=host.name)}",) if plan.change != "none" else ()
        if plan.change == "none" and not options.dry_run:
            journal.forget_entry(plan.before.target, name)
        if plan.change == "none" or options.dry_run:
            return Outcome(plan=plan, notes=said)
        options.check_running(host)
        done = apply(plan, journal, is_project=options.project is not None, by_host=options.file is None)
    return Outcome(plan=plan, done=done, notes=said, undo_command=options.undo_command(host))


def name_to_remove(
    host: Host, word: str | None, made: NamedEntry | None, options: InstallOptions, journal: Journal
) -> str | None:
    """Return the name of the entry to remove: the given one, the name of its server, or the only entry of mcpd.

    `word` is a name, or the target of `made`. Returns None if there is no such entry. Raises ConfigurationError if
    there are several.
    """
    if options.name is not None:
        return options.name
    content = read(options.path_of(host))
    entries = entries_of(host, content)
    if word in entries:
        return word
    if word is not None and made is None:
        return None
    if made is not None:
        found = _existing_names(host, made, content)
    else:
        found = [name for name, entry in entries.items() if is_ours(entry, journal.of(content.target, name))]
    if len(found) > 1:
        raise ConfigurationError(
            f"{content.path} has several: {', '.join(map(printable, found))}; name one: --name NAME"
        )
    return found[0] if found else None


def names_in(host: Host, path: str) -> str:
    """Return the names of all servers in a host's file, for a message."""
    return printable(", ".join(entries_of(host, read(path))) or "no servers", 1000)


def undo(host: Host, options: InstallOptions, journal: Journal) -> Record:
    """Restore the file as it was before the last change. Raises ConfigurationError."""
    options.check_running(host)
    return journal.undo(host.id, os.path.realpath(options.path_of(host)), force=options.force)


def hosts_for_all() -> list[Host]:
    """Return the hosts on this machine; for a host in two versions only the newer one."""
    here = list(dict.fromkeys(found.host.id for found in found_hosts()))
    return [HOSTS[id] for id in here if not (id == "cline-legacy" and "cline" in here)]


def listed(journal: Journal) -> list[Listed]:
    """Return all hosts on this machine, each with its file and the origin of its entries."""
    rows = []
    for found in found_hosts():
        host = found.host
        try:
            content = read(found.path)
            entries = entries_of(host, content)
        except ConfigurationError as error:
            rows.append(Listed(host.id, host.name, found.path, True, error=str(error)))
            continue
        ours = tuple(name for name, entry in entries.items() if is_ours(entry, journal.of(content.target, name)))
        gone = tuple(journal.missing_entries(content.target, entries))
        has_file, others = content.data is not None, len(entries) - len(ours)
        rows.append(Listed(host.id, host.name, found.path, has_file, ours, others, gone=gone))
    return rows
