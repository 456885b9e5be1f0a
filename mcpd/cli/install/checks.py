"""Checks the entries in hosts' files: what the host ignores or misreads, its limits, and whether the server starts.

An entry is compared with the entry that mcpd would write. Files are read and never written. `check_hosts` starts the
servers of the user's own files as their hosts start them, a few at a time. Servers of a project's file are not started,
because other people may have written them.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from mcpd.cli.doctor.program import SCRIPTS
from mcpd.cli.doctor.report import Report
from mcpd.client.targets.configurations import (
    Variables,
    host_files,
    host_servers,
    read_entry,
    servers_in,
    without_comments,
)
from mcpd.client.targets.hosts import HOSTS, Host, project_places
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from .entry import (
    COMMAND_MEMBERS,
    HEADER_MEMBERS,
    URL_MEMBERS,
    VARIABLE_MEMBERS,
    Entry,
    shaped,
    texts_in,
)
from .files import Content, Journal, read
from .formats import format_named
from .hosts import found_hosts
from .launch import (
    Offers,
    Verdict,
    first_of,
    names_of,
    passed_variables,
    verify_target,
    withheld_variables,
)

_KEYS = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "extensions")
# Hosts that are known to read nothing from a file with these faults.
_STRICT = frozenset(("claude-desktop", "claude-code", "xcode-claude"))

_SAMPLE_COMMAND = Entry(command="/x", args=("x",), env={"X": "x"})
_SAMPLE_URL = Entry(url="https://x", headers={"X": "x"}, transport="http")
_VARIABLE = re.compile(r"\$\{[^}]+\}|(?<![\w$])\$[A-Za-z_]\w*|\{env:\w+\}")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class Finding(Struct, frozen=True, rename="camel"):
    """A fault, or with `is_problem=False` a fault in some cases only."""

    text: str
    advice: str = ""
    is_problem: bool = True


def is_off(entry: Mapping[str, Any]) -> bool:
    """Return whether the user has switched the entry off."""
    return entry.get("disabled") is True or entry.get("enabled") is False


def key_findings(host: Host, document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield servers under a key that only other hosts read."""
    for key in _KEYS:
        found = document.get(key)
        if key == host.key or not isinstance(found, dict):
            continue
        names = [
            str(name)
            for name, entry in found.items()
            if isinstance(entry, dict) and _has(entry, (*COMMAND_MEMBERS, *URL_MEMBERS))
        ]
        if names:
            text = f"{printable(', '.join(names[:5]), 200)}: under `{key}`, which {host.name} does not read"
            yield Finding(text, f"move the content of `{key}` to `{host.key}`")


def strictness_findings(host: Host, content: Content) -> Iterator[Finding]:
    """Yield faults that make JSON parsers fail, or that people overlook: comments, a byte order mark, repeated keys."""
    # Problems of a host that is known to be strict come first; it then reads nothing of the file.
    if host.format not in ("json", "jsonc") or not content.text.strip():
        return
    is_sure = host.id in _STRICT
    what = f"which {host.name} {'does not read' if is_sure else 'may not read'}"
    if host.format == "json":
        if (content.data or b"").startswith(codecs.BOM_UTF8):
            yield Finding(
                f"the file begins with a byte order mark, {what}", "save it as UTF-8 without the mark", is_sure
            )
        try:
            json.loads(content.text)
        except ValueError as error:
            at = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            yield Finding(f"it has comments or trailing commas{at}, {what}", "remove them", is_sure)

    for key in dict.fromkeys(_repeated_keys(content.text)):
        text = f"the key {printable(key, 100)!r} is repeated in one object: only the last one counts"
        yield Finding(text, "remove or rename the others", is_problem=False)


def is_unreadable(host: Host, findings: Sequence[Finding]) -> bool:
    """Return whether the host reads nothing of a file with these findings."""
    return host.id in _STRICT and any(finding.is_problem for finding in findings)


def _repeated_keys(text: str) -> list[str]:
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        found.extend(key for key in keys if keys.count(key) > 1)

    with suppress(ValueError, RecursionError):
        json.loads(without_comments(text), object_pairs_hook=look)

    return found


def entry_findings(host: Host, entry: Any) -> Iterator[Finding]:
    if not isinstance(entry, dict):
        yield Finding("it is not an object", "write an object with a command or a url, or remove it")
        return
    if _has(entry, COMMAND_MEMBERS) and not _has(entry, URL_MEMBERS):
        expected = shaped(host, "x", _SAMPLE_COMMAND)
        yield from _wrong_members(host, entry, expected, (COMMAND_MEMBERS, VARIABLE_MEMBERS))
        yield from _of_command(entry, expected)
    elif _has(entry, URL_MEMBERS):
        yield from _of_url(host, entry)
    else:
        yield Finding("it has neither a command nor a url", "add one of them, or remove the entry")

    yield from _of_variables(host, entry)


def _wrong_members(
    host: Host, entry: Mapping[str, Any], expected: Mapping[str, Any], families: tuple[tuple[str, ...], ...]
) -> Iterator[Finding]:
    for family in families:
        right = next((name for name in family if name in expected), None)
        if right is None or right in entry:
            continue
        for name in family:
            if name in entry:
                yield Finding(f"{host.name} does not read `{name}`", f"write `{right}` instead of `{name}`")


def _of_command(entry: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[Finding]:
    command = next((entry[name] for name in COMMAND_MEMBERS if entry.get(name)), None)
    wants_list = any(isinstance(expected.get(name), list) for name in COMMAND_MEMBERS)
    if isinstance(command, list) != wants_list:
        how = "a list of all words" if wants_list else "a string, and the other words a list in `args`"
        yield Finding(f"its command must be {how}", "change it: the host does not start it otherwise")
    words = texts_in([command, entry.get("args")])
    if not words:
        return
    program = words[0]
    if isinstance(command, str) and " " in program and not os.path.exists(os.path.expanduser(program)):
        text = f"its command has spaces: {printable(program, 200)}"
        yield Finding(text, "write the program alone, and each other word into `args`")
    elif "/" in program and _is_relative(program):
        yield _relative(program)

    for word in words:
        if word == "~" or word.startswith("~/"):
            advice = f"write {printable(os.path.expanduser(word), 300)}"
            yield Finding(f"{printable(word, 200)}: hosts do not replace ~, because they use no shell", advice)
    script = next((word for word in words[1:] if word.endswith(SCRIPTS) and not word.startswith("-")), "")
    # Names of npm packages look similar, but have a version or a scope.
    if script and not entry.get("cwd") and _is_relative(script) and "@" not in script and "://" not in script:
        yield _relative(script)


def _relative(word: str) -> Finding:
    return Finding(f"{printable(word, 200)} is relative to whatever folder the host runs in", "write its absolute path")


def _of_url(host: Host, entry: Mapping[str, Any]) -> Iterator[Finding]:
    try:
        expected = shaped(host, "x", _SAMPLE_URL)
    except ConfigurationError as error:
        what, _, advice = str(error).partition(": ")
        yield Finding(what, advice)
        return
    url = next((entry[name] for name in URL_MEMBERS if entry.get(name)), "")
    is_old = str(url).rstrip("/").endswith("/sse") or entry.get("type") == "sse"
    if "httpUrl" in expected and "url" in entry:
        if not is_old and "httpUrl" not in entry:
            yield Finding("`url` means HTTP+SSE of 2024-11-05 in this host", "write `httpUrl` instead of `url`")
    else:
        yield from _wrong_members(host, entry, expected, (URL_MEMBERS,))

    yield from _wrong_members(host, entry, expected, (HEADER_MEMBERS,))
    for sign, other in (("type", "transport"), ("transport", "type")):
        if sign in expected and sign not in entry and not is_old:
            instead = f"{host.name} does not read `{other}`" if other in entry else f"it has no `{sign}`"
            yield Finding(f"{instead}, so it is not taken for Streamable HTTP", f'write "{sign}": "{expected[sign]}"')
    if "transport" in entry and "transport" not in expected and "type" not in expected:
        advice = "remove it: the other members are enough"
        yield Finding(f"{host.name} does not read `transport`", advice, is_problem=False)


def _of_variables(host: Host, entry: Mapping[str, Any]) -> Iterator[Finding]:
    if host.variables != "none":
        return
    texts = texts_in([entry.get(name) for name in ("args", "command", *VARIABLE_MEMBERS)])
    found = next((match[0] for text in texts if (match := _VARIABLE.search(text))), None)
    if found is not None:
        text = f"{host.name} does not replace variables, so {printable(found, 100)} stays as it is"
        yield Finding(text, "write the value itself", is_problem=False)


def _has(entry: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    return any(entry.get(name) for name in names)


def _is_relative(word: str) -> bool:
    # A host expands variables and `~` itself, so words with these are not relative.
    return not os.path.isabs(word) and not word.startswith(("~", "$", "{", "%")) and _DRIVE.match(word) is None


_CUT_BYTES = 2048
# Hosts that cut instructions and descriptions of tools after this many bytes.
_CUT = frozenset(("claude-code", "xcode-claude"))

_NO_RESOURCES = frozenset(("zed",))
_NO_PROMPTS = frozenset(("codex", "cline", "cline-legacy", "xcode-codex"))
_MAX_SHOWN = 3
# A server that needs more than this share of the limit is too late on a slower day.
_SLOW_SHARE = 0.5


def limit_warnings(host: Host, server: str, offers: Offers, seconds: float = 0.0) -> Iterator[str]:
    """Yield warnings about the limits of the host; `server` is the name there, `seconds` the time of the start."""
    limit = host.limits.start_seconds
    if seconds > limit * _SLOW_SHARE:
        mend = {"codex": ", or raise startup_timeout_sec", "claude-code": ", or raise MCP_TIMEOUT"}.get(host.id, "")
        yield f"the first response took {seconds:.1f} s, and this host gives up after {limit:g} s: load less{mend}"
    yield from _of_tools(host, server, offers)
    yield from _of_texts(host, offers)
    if offers.apps and not host.has_apps:
        apps = first_of(offers.apps, _MAX_SHOWN)
        yield f"this host shows no pages: {apps} will answer with text (--no-apps switches pages off)"
    if host.id in _NO_RESOURCES and (offers.resources or offers.templates):
        yield "this host does not read resources: offer their content with a tool"
    if host.id in _NO_PROMPTS and offers.prompts:
        yield "this host does not show prompts"


def _of_tools(host: Host, server: str, offers: Offers) -> Iterator[str]:
    limits = host.limits
    if limits.tools is not None and len(offers.tools) > limits.tools:
        yield f"{len(offers.tools)} tools, but this host accepts {limits.tools} of all servers together: offer fewer"
    if limits.tool_name is None:
        return
    room = limits.tool_name - len(limits.prefix.format(server=server))
    long = [name for name in names_of(offers.tools) if len(name) > room]
    if long:
        text = f"{first_of(long, _MAX_SHOWN)} may be missing: names of tools can have {room} characters here"
        yield f"{text}; shorten them{', or the name of the server with --name' if '{' in limits.prefix else ''}"


def _of_texts(host: Host, offers: Offers) -> Iterator[str]:
    alone = host.limits.instructions
    if alone is not None and len(offers.instructions) > alone:
        yield f"the first {alone} characters of its instructions must make sense alone in this host"
    if host.id not in _CUT:
        return
    size = _bytes(offers.instructions)
    if size > _CUT_BYTES:
        yield f"its instructions have {size:,} bytes, and are cut after {_CUT_BYTES:,}"
    long = names_of(tool for tool in offers.tools if _bytes(tool.get("description")) > _CUT_BYTES)
    if long:
        yield f"the descriptions of {first_of(long, _MAX_SHOWN)} are cut after {_CUT_BYTES:,} bytes"


def _bytes(text: Any) -> int:
    return len(text.encode("utf-8", "replace")) if isinstance(text, str) else 0


def examine_entry(target: str, report: Report) -> None:
    """Check the entry of a HOST:NAME target, for `mcpd doctor`. Other targets are ignored."""
    id, colon, name = target.partition(":")
    if not colon or id not in HOSTS:
        return
    host = HOSTS[id]
    try:
        servers = {path: host_servers(host, path) for path in host_files(host)}
    except ConfigurationError:
        return  # the code that connects reports this
    path, entry = next(((path, found[name]) for path, found in servers.items() if name in found), ("", None))
    if not isinstance(entry, dict):
        return

    if is_off(entry):
        advice = "switch it on in the host, or remove `disabled` or `enabled`"
        report.fail("configuration", f"{host.name}: the server is switched off in it", advice, file=path)
    found = list(entry_findings(host, entry))
    for finding in found:
        say = report.fail if finding.is_problem else report.warn
        say("configuration", f"{host.name}: {finding.text}", finding.advice, file=path)
    if not found and not is_off(entry):
        report.ok("configuration", printable(path, 1000), file=path)


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
    # If only mcpd lacks a library to read the file, the file is not at fault.
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


def _find_duplicates(host: Host, entries: Mapping[str, Any], checked: CheckedFile) -> None:
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
    # The program or the served file may have been moved since the entry was written.
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
