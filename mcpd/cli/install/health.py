"""Checks every server of every host on this machine: whether it starts as its host starts it, and if not, why.

Files are read and never written. Servers of the user's own files are started, a few at a time. Servers of a project's
file are not started, because other people may have written them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from mcpd.cli.install.checks import Finding, entry_findings, is_off, key_findings, limit_warnings, strictness_findings
from mcpd.cli.install.files import Journal, read
from mcpd.cli.install.formats import format_named
from mcpd.cli.install.hosts import found_hosts
from mcpd.cli.install.launch import Verdict, passed_variables, verify_target, withheld_variables
from mcpd.client.targets.configurations import Variables, read_entry, servers_in
from mcpd.client.targets.hosts import Host, project_places
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

State: TypeAlias = Literal["works", "broken", "off", "not started"]

_AT_ONCE = 2
# After this many seconds no further server is started.
_TOTAL_SECONDS = 240.0


class CheckedServer(Struct, kw_only=True):
    """The findings for one entry."""

    name: str
    state: State
    findings: list[Finding] = field(default_factory=list)
    tools: int = 0
    seconds: float = 0.0
    stderr_tail: tuple[str, ...] = field(default=(), name="stderr")


class CheckedFile(Struct, kw_only=True):
    """The findings for one file of one host."""

    host: Host
    path: str
    is_project: bool = False
    findings: list[Finding] = field(default_factory=list)
    servers: list[CheckedServer] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        """Whether nothing in the file is broken."""
        every = [*self.findings, *(finding for server in self.servers for finding in server.findings)]
        return not any(finding.is_problem for finding in every)


async def check_hosts(
    tell: Callable[[CheckedFile], None] = lambda checked: None, *, timeout: float = 30.0, folder: str | None = None
) -> list[CheckedFile]:
    """Check all files of all hosts; `tell` is called with each as soon as it is done.

    `timeout` is how many seconds a server has for each response. `folder` is the project to check; None for none.
    """
    until = time.monotonic() + _TOTAL_SECONDS
    files = list(_files(folder))
    for file in files:
        await _check_file(file, timeout, until)
        tell(file)
    return files


def _files(folder: str | None) -> Iterator[CheckedFile]:
    hosts: dict[str, Host] = {}
    seen = set()
    for found in found_hosts():
        hosts[found.host.id] = found.host
        if os.path.lexists(found.path):
            seen.add(os.path.realpath(found.path))
            yield CheckedFile(host=found.host, path=found.path)
    for host in hosts.values() if folder is not None else ():
        for path in project_places(host, folder or ""):
            if os.path.lexists(path) and os.path.realpath(path) not in seen:  # a user's file, seen from the home folder
                yield CheckedFile(host=host, path=path, is_project=True)


async def _check_file(file: CheckedFile, timeout: float, until: float) -> None:
    host = file.host
    try:
        content = read(file.path)
        document = format_named(host.format).parse(content.text, file.path)
    except ConfigurationError as error:
        file.findings.append(_unreadable_file(str(error)))
        return
    entries = servers_in(host, document)
    file.findings += [*strictness_findings(host, content), *key_findings(host, document)]
    for missing in Journal().missing_entries(content.target, entries):
        # The host may have removed it by writing its file from memory.
        name = printable(missing, 100)
        text = f"{name} was installed here and is missing now: {host.name} or somebody removed it"
        advice = f"quit {host.name} and install it again; if you removed it: mcpd uninstall {host.id} --name {name}"
        file.findings.append(Finding(text, advice, is_problem=False))

    # Goose's own extensions are not MCP servers.
    own = ("builtin", "platform", "frontend", "inline_python") if host.key == "extensions" else ()
    servers = {
        name: entry for name, entry in entries.items() if not (isinstance(entry, dict) and entry.get("type") in own)
    }
    turns = asyncio.Semaphore(_AT_ONCE)

    async def check(name: str, entry: Any) -> CheckedServer:
        async with turns:
            return await _check_server(file, name, entry, timeout, until)

    file.servers = list(await asyncio.gather(*(check(name, entry) for name, entry in servers.items())))
    _find_duplicates(host, servers, file)


def _unreadable_file(why: str) -> Finding:
    # The finding for a file that the host cannot read either, or that only mcpd cannot read without a library.
    what, _, advice = why.rpartition(": ")
    if advice.startswith("pip install"):
        return Finding(printable(what, 500), advice, is_problem=False)
    return Finding(printable(why, 500), "repair it by hand: the host reads nothing of it")


async def _check_server(file: CheckedFile, name: str, entry: Any, timeout: float, until: float) -> CheckedServer:
    host = file.host
    if isinstance(entry, dict) and is_off(entry):
        return CheckedServer(name=name, state="off")
    found = list(entry_findings(host, entry))
    state: State = "broken" if any(finding.is_problem for finding in found) else "not started"
    checked = CheckedServer(name=name, state=state, findings=found)
    if file.is_project or not isinstance(entry, dict):
        return checked
    try:
        target = _target(host, name, entry, os.environ)
    except ConfigurationError as error:
        what, _, advice = printable(error, 500).partition("; ")
        _fail(checked, what.removeprefix(f"{host.id}:{name}: "), advice)
        return checked
    if time.monotonic() > until:
        text = f"not tried: the other servers took more than {_TOTAL_SECONDS:g} s"
        checked.findings.append(Finding(text, f"mcpd doctor {host.id}:{name}", is_problem=False))
        return checked

    names = [each for each in entry.get("env_vars") or () if isinstance(each, str)]
    verdict = await verify_target(target, host, env_vars=names, timeout=min(timeout, host.limits.start_seconds))
    _judge(checked, host, target, verdict)
    if not verdict.works and isinstance(target, CommandTarget):
        await _try_full_environment(checked, host, target, names, timeout)
    return checked


def _target(host: Host, name: str, entry: dict[str, Any], environment: Mapping[str, str]) -> CommandTarget | UrlTarget:
    where = f"{host.id}:{name}"
    return read_entry(entry, Variables(host.variables, environment, where, is_windows=sys.platform == "win32"), where)


def _judge(checked: CheckedServer, host: Host, target: CommandTarget | UrlTarget, verdict: Verdict) -> None:
    if not verdict.works:
        _fail(checked, verdict.error, verdict.advice)
        checked.stderr_tail = verdict.stderr_tail
        if isinstance(target, CommandTarget) and _is_stale(target):
            text = "mcpd wrote this entry, for a server that no longer exists"
            checked.findings.append(Finding(text, f"mcpd uninstall {host.id} --name {checked.name}"))
        return
    checked.tools, checked.seconds = len(verdict.tools), round(verdict.seconds, 4)
    if checked.state != "broken":
        checked.state = "works"
    warnings = [*verdict.warnings, *limit_warnings(host, checked.name, verdict.offers, verdict.seconds)]
    checked.findings += [Finding(warning, is_problem=False) for warning in warnings]


def _fail(checked: CheckedServer, text: str, advice: str) -> None:
    checked.state = "broken"
    if not any(finding.is_problem and finding.text == text for finding in checked.findings):
        checked.findings.append(Finding(text, advice))


async def _try_full_environment(
    checked: CheckedServer, host: Host, target: CommandTarget, names: list[str], timeout: float
) -> None:
    # Find out whether the server works with all of the user's variables, so that it lacks some of them in the host.
    given = passed_variables(host, names=names)
    kept_back = {name: value for name, value in os.environ.items() if given.get(name) != value}
    if not kept_back:
        return
    whole = CommandTarget(target.command, kept_back | (target.env or {}), target.cwd)
    if not (await verify_target(whole, host, timeout=timeout)).works:
        return
    stderr = " ".join(checked.stderr_tail)
    named = [name for name in kept_back if name in stderr] or withheld_variables(host, names=names) or ["PATH"]
    shown = ", ".join(printable(name) for name in sorted(named)[:5])
    where = "env_vars" if host.environment == "codex" else "env"
    text = f"it starts with your own variables, but {host.name} passes only some of them"
    checked.findings.append(Finding(text, f"add {shown} to its `{where}`"))


# ------------------------------------------------------------------------------------------- entries


def _find_duplicates(host: Host, entries: Mapping[str, Any], checked: CheckedFile) -> None:
    """Report entries with the same command or URL."""
    first: dict[object, str] = {}
    for server in checked.servers:
        if server.state == "off" or not isinstance(entries[server.name], dict):
            continue
        try:
            target = _target(host, server.name, entries[server.name], {})
        except ConfigurationError:
            continue
        same = (target.command, target.cwd) if isinstance(target, CommandTarget) else target.url.rstrip("/")
        if same in first:
            text = f"it is the same server as {printable(first[same])}: its tools appear twice"
            server.findings.append(Finding(text, "remove one of the two", is_problem=False))
        first.setdefault(same, server.name)


def _is_stale(target: CommandTarget) -> bool:
    """Whether it starts mcpd, but the program or the served file does not exist."""
    words = target.command
    if "serve" not in words[1:]:
        return False
    at = words.index("serve", 1)
    is_ours = any(os.path.basename(word) in ("mcpd", "mcpd.exe") for word in words[:at])
    if not is_ours:
        return False
    served = [word for word in words[at + 1 :] if not word.startswith("-")]
    paths = [word for word in (words[0], *served) if os.path.isabs(word)]
    return any(not os.path.exists(path) and not os.path.exists(path.rpartition(":")[0]) for path in paths)
