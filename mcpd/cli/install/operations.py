"""Installs, uninstalls, lists and undoes entries for one host, and returns values that a command line shows.

A change is planned first, with the difference to show, and then made by writing the file or by the host's own command.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from shlex import quote
from typing import Any, Literal, TypeAlias

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from mcpd.client.targets.configurations import Variables
from mcpd.client.targets.hosts import HOSTS, Host
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import mask_text, printable
from mcpd.transports.child import run_program
from .checks import is_unreadable, limit_warnings, strictness_findings
from .entry import (
    HEADER_MEMBERS,
    LAUNCH_MEMBERS,
    VARIABLE_MEMBERS,
    Entry,
    NamedEntry,
    as_target,
    describe_entry,
    entry_name,
    is_ours,
    launch_words,
    same_server,
    shaped,
    texts_in,
)
from .files import Content, Journal, Record, back_up, check, entry_fingerprint, fingerprint, read, write
from .formats import drop, format_named, put
from .hosts import file_of, found_hosts, has_folder, is_here, refuse_running, running
from .launch import Verdict, is_hidden, verify_target

Change: TypeAlias = Literal["added", "updated", "replaced", "removed", "none"]


class Plan(Struct, frozen=True):
    """A planned change of one file."""

    host: Host
    name: str
    change: Change
    before: Content
    # The new content of the file; None to delete it.
    data: bytes | None
    # The entry in the format of the host's file.
    entry: dict[str, Any]
    # Whether the change adds the member that holds all servers.
    makes_key: bool = False

    @property
    def difference(self) -> str:
        """The changed lines with two lines of context; "" for no change."""
        # Values of headers, and of variables whose name suggests a secret, are masked for all servers in the file.
        after = "" if self.data is None else self.data.removeprefix(b"\xef\xbb\xbf").decode()
        lines = unified_diff(
            self.before.text.splitlines(), after.splitlines(), self.before.path, self.before.path, lineterm="", n=2
        )
        secrets = _secrets([*entries_of(self.host, self.before).values(), self.entry])
        return "\n".join(printable(mask_text(_without(secrets, line)), 2000) for line in lines)

    @property
    def has_variables(self) -> bool:
        """Whether the host would replace parts of values, such as `$HOME`, that are meant literally."""
        variables = Variables(self.host.variables, {}, "", is_windows=False)
        try:
            return any(variables.expand(each) != each for each in texts_in(self.entry))
        except ConfigurationError:
            return True


def entries_of(host: Host, content: Content) -> dict[str, Any]:
    """Return all servers in a host's file, by name. Raises ConfigurationError for a file that cannot be read."""
    try:
        found = format_named(host.format).parse(content.text, content.path).get(host.key)
    except ConfigurationError as error:
        if "pip install" in str(error):
            raise  # a library is missing, and the file may be fine
        raise ConfigurationError(f"{error}; fix that first, nothing was written") from None
    if isinstance(found, list):
        return {str(each["name"]): each for each in found if isinstance(each, dict) and "name" in each}
    return {str(name): each for name, each in found.items()} if isinstance(found, dict) else {}


def plan_install(
    host: Host, name: str, entry: Entry, path: str, *, force: bool = False, journal: Journal | None = None
) -> Plan:
    """Plan to write this entry.

    An entry for the same server is updated, and keeps its user's variables and other members. Raises ConfigurationError
    if the name belongs to another server, unless `force` replaces it, and if the file cannot be edited.
    """
    content = read(path)
    format = format_named(host.format)
    existing = entries_of(host, content).get(name)
    made = shaped(host, name, entry)
    keys, in_list = (host.key, name), host.shape == "continue"
    if existing is None:
        text = put(format, content.text, keys, made, content.path, in_list=in_list)
        makes_key = format.parse(content.text, content.path).get(host.key) is None
        return Plan(host, name, "added", content, content.bytes_of(text), made, makes_key)

    records = [] if journal is None else journal.of(content.target, name)
    is_known = same_server(existing, made) and is_ours(existing, records) or existing == made
    if not is_known and not force:
        raise ConfigurationError(
            f"{content.path} has another server named {name!r}, {printable(describe_entry(existing))}; the new one "
            f"is {printable(describe_entry(made))}; choose another name with --name, or replace the other server with "
            "--force"
        )
    if not isinstance(existing, dict):
        text = put(format, content.text, keys, made, content.path)
        return Plan(host, name, "replaced", content, content.bytes_of(text), made)

    wanted = _merged(existing, made, keeps_variables=is_known and not force)
    # Change member by member, so that everything else in the entry stays as it is.
    text = content.text
    for member in [key for key in existing if key not in wanted]:
        text = drop(format, text, (*keys, member), content.path)
    for member, value in wanted.items():
        text = put(format, text, (*keys, member), value, content.path, in_list=in_list)
    change: Change = "none" if text == content.text else "updated" if is_known else "replaced"
    return Plan(host, name, change, content, content.bytes_of(text), wanted)


def plan_uninstall(host: Host, name: str, path: str, *, force: bool = False, journal: Journal | None = None) -> Plan:
    """Plan to remove the entry of this name, restoring the previous bytes if nothing else has changed since.

    Raises ConfigurationError if mcpd did not write the entry, unless `force` is given.
    """
    content = read(path)
    format = format_named(host.format)
    existing = entries_of(host, content).get(name)
    if existing is None:
        return Plan(host, name, "none", content, content.data, {})
    records = [] if journal is None else journal.of(content.target, name)
    if not is_ours(existing, records) and not force:
        raise ConfigurationError(
            f"{content.path}: mcpd did not install {name!r}, {printable(describe_entry(existing))}; --force removes it"
        )

    entry = existing if isinstance(existing, dict) else {}
    if journal is not None:
        is_known, data = journal.previous_bytes(content, name)
        if is_known:
            return Plan(host, name, "removed", content, data, entry)
    text = drop(format, content.text, (host.key, name), content.path)
    if any(record.made for record in records) and not entries_of(host, replace(content, text=text)):
        text = drop(format, text, (host.key,), content.path)
    is_ours_alone = bool(records) and not records[-1].before and not format.parse(text, content.path)
    return Plan(host, name, "removed", content, None if is_ours_alone else content.bytes_of(text), entry)


def rendered(host: Host, name: str, entry: Entry) -> str:
    """Return the entry as a whole file of this host."""
    format = format_named(host.format)
    return put(format, "", (host.key, name), shaped(host, name, entry), host.id, in_list=host.shape == "continue")


def _merged(existing: dict[str, Any], made: Mapping[str, Any], *, keeps_variables: bool) -> dict[str, Any]:
    wanted = {key: made.get(key, value) for key, value in existing.items() if key in made or key not in LAUNCH_MEMBERS}
    wanted.update(made)
    for key in VARIABLE_MEMBERS if keeps_variables else ():
        kept = existing.get(key)
        if isinstance(kept, dict):
            wanted[key] = {**kept, **made.get(key, {})}
    for key in ("enabled", "timeout", "tools", "type"):
        # The user may have changed these; `type` is optional in some hosts.
        if key in existing and key in made and (key != "type" or keeps_variables):
            wanted[key] = existing[key]
    return wanted


_LEAST_SECRET = 4


def _secrets(entries: list[Any]) -> list[str]:
    # Longest first: a secret that contains another one is then masked as a whole.
    found = set()
    for entry in entries:
        for key, held in entry.items() if isinstance(entry, dict) else ():
            if key in HEADER_MEMBERS:
                found.update(texts_in(held))
            elif key in VARIABLE_MEMBERS and isinstance(held, dict):
                found.update(value for name, value in held.items() if isinstance(value, str) and is_hidden(str(name)))
    return sorted((each for each in found if len(each) >= _LEAST_SECRET), key=len, reverse=True)


def _without(secrets: list[str], line: str) -> str:
    for each in secrets:
        for written in (each, json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1]):
            line = line.replace(written, f"<masked: {len(each)} characters>")
    return line


_SECONDS = 60.0
_SCOPE = ("--scope", "user")


def own_command_for(host: Host, *, is_project: bool, by_host: bool) -> str | None:
    """Return the path of the host's own command, if that makes the change; None if the file is written."""
    # Claude Code rewrites its file while it runs, so a change by another program could be lost.
    return shutil.which(host.program) if host.id == "claude-code" and by_host and not is_project else None


def change_by_host(program: str, plan: Plan) -> None:
    """Let the host's command make the change. Raises ConfigurationError if the file does not show it."""
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


# Hosts whose older version, with another file, may be installed as well.
_WITH = {"cline": "cline-legacy"}


class AppliedChange(Struct, frozen=True):
    path: str
    # The copy of the previous file; "" if there was none.
    backup: str = ""
    # The host's own command that made the change; "" for none.
    by: str = ""


def apply(plan: Plan, journal: Journal, *, is_project: bool = False, by_host: bool = True) -> AppliedChange:
    """Make the change. Raises ConfigurationError, and then leaves the file as it was."""
    # The copy is beside the file, or in the state folder for a project's file, which other people may share. With
    # `by_host` the host's own command is used, if it has one.
    if plan.change == "none":
        return AppliedChange(plan.before.path)
    before = plan.before
    with journal.locked():
        check(before)
        backup = back_up(before, os.path.join(journal.folder, "backups") if is_project else None)
        program = own_command_for(plan.host, is_project=is_project, by_host=by_host)
        if program is None:
            write(before, plan.data)
        else:
            try:
                change_by_host(program, plan)
            except (ConfigurationError, KeyboardInterrupt):
                # It may have failed half-way.
                now = read(before.path)
                if now.data != before.data and before.data is not None:
                    write(now, before.data)
                raise

        record = Record(
            host=plan.host.id,
            path=before.target,
            name=plan.name,
            action="uninstall" if plan.change == "removed" else "install",
            before=fingerprint(before.data),
            after=fingerprint(read(before.path).data),
            backup=backup,
            made=plan.makes_key,
            entry=entry_fingerprint(launch_words(plan.entry) or []),
        )
        journal.add(record)
        return AppliedChange(before.path, backup, "" if program is None else f"{os.path.basename(program)} mcp")


def notes(plan: Plan, entry: Entry, *, project: str | None) -> Iterator[str]:
    """Yield notes for the user. The last one says what to do so that the host notices the change."""
    host, changes = plan.host, plan.change != "none"
    if project is None and not is_here(host, plan.before.path) and changes:
        yield f"{host.name} does not seem to be installed on this machine"
    written = [*entry.env, *entry.headers]
    if project is not None and written and changes:
        yield f"the file holds the values of {', '.join(map(printable, written))}: if one is secret, do not share it"
    if project is not None and entry.command and changes:
        yield "the file names paths of this machine: other people of the project need their own"
    if plan.has_variables:
        yield f"{host.name} replaces variables such as $NAME, also in these values"
    other = HOSTS.get(_WITH.get(host.id, ""))
    if other is not None and project is None and has_folder(other):
        yield f"{other.name} is also installed, with a file of its own: mcpd install {other.id}"
    if changes:
        asks = f", and answer yes when {host.name} asks about the servers of this project"
        yield f"now: {host.notice.format(host=host.name)}{asks if host.asks and project else ''}"


def secret_warnings(plan: Plan) -> Iterator[str]:
    """Yield warnings about a file with secrets that was written."""
    holds_secrets = bool(_secrets([plan.entry])) or any(mask_text(text) != text for text in texts_in(plan.entry))
    if sys.platform == "win32" or plan.change == "removed" or not holds_secrets:
        return

    path = plan.before.target
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return
    if mode & 0o077:
        readers = f"other users of this machine may read it (mode {mode:o})"
        yield f"{path} now holds secrets, and {readers}: chmod 600 {quote(path)}"


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
    wanted = shaped(host, made.name, made.entry)
    return [name for name, entry in entries_of(host, content).items() if same_server(entry, wanted)]


async def _watch_entry(plan: Plan) -> None:
    # A running host may write the file from its memory a moment later.
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
