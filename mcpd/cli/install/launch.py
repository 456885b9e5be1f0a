"""Starts a server once, exactly as a host does: the same command, the host's variables and folder, and no terminal.

`mcpd install` does so before it writes an entry, and `mcpd bundle` and `mcpd doctor --hosts` do too. No tool is called.
The variables of Claude Code, Codex, Gemini CLI, OpenCode and Qwen Code were measured on these programs. For the others
they are the variables that their libraries pass, which are fewer: a server that starts with less starts with more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, structs

from mcpd.apps.tool_metadata import OFFER
from mcpd.cli.doctor.dialogue import (
    PASSED_VARIABLES,
    Dialogue,
    NoAnswer,
    Peer,
    read_list,
    server_info,
)
from mcpd.cli.doctor.offers import LISTS, ClientPeer, capabilities_of, opening_of
from mcpd.cli.doctor.program import find_command
from mcpd.cli.doctor.report import Report
from mcpd.client.targets.hosts import Host
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import McpdError
from mcpd.protocol.printable import mask_text, printable
from mcpd.server.extensions.ui.constants import FLAT_URI

# The variables that the official libraries pass on Windows.
_WINDOWS = (
    "APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PROCESSOR_ARCHITECTURE", "SYSTEMDRIVE", "SYSTEMROOT",
    "TEMP", "USERNAME", "USERPROFILE", "PROGRAMFILES",
)  # fmt: skip

_CODEX = (*PASSED_VARIABLES, "LANG", "LC_ALL", "TMPDIR", "TZ", "__CF_USER_TEXT_ENCODING")

_SECRET_PARTS = ("TOKEN", "SECRET", "PASSWORD", "KEY", "AUTH", "CREDENTIAL")

_MINIMAL_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
# These hosts are started from the desktop, so on macOS they do not have the variables of a shell's profile.
_WITHOUT_SHELL = frozenset(("claude-desktop", "lm-studio", "xcode-claude", "xcode-codex"))


def passed_variables(
    host: Host | None,
    environment: Mapping[str, str] = os.environ,
    *,
    names: Iterable[str] = (),
    platform: str = sys.platform,
) -> dict[str, str]:
    """Return the variables that a host passes to a server beside those in its entry; `host` is None if it is unknown.

    `environment` is the host's own. `names` are further variables that the entry names.
    """
    kind = "sdk" if host is None else host.environment
    if kind == "whole":
        found = dict(environment)
    elif kind == "filtered":
        found = {name: value for name, value in environment.items() if not is_secret(name)}
    else:
        kept: tuple[str, ...] = _CODEX if kind == "codex" else PASSED_VARIABLES
        if platform == "win32":
            kept = _WINDOWS
        found = {name: environment[name] for name in (*kept, *names) if name in environment}

    if platform == "darwin" and host is not None and host.id in _WITHOUT_SHELL:
        found["PATH"] = _MINIMAL_PATH
    return found


def withheld_variables(
    host: Host, environment: Mapping[str, str] = os.environ, *, names: Iterable[str] = ()
) -> list[str]:
    """Return the variables that look like a server's settings but that the host does not pass."""
    kept = passed_variables(host, environment, names=names)
    return sorted(name for name in environment if name not in kept and (name.startswith("MCPD_") or is_secret(name)))


def is_secret(name: str) -> bool:
    """Return whether a variable of this name is taken for a secret, as some hosts do."""
    return any(part in name.upper() for part in _SECRET_PARTS)


def is_hidden(name: str) -> bool:
    """Return whether the value of this variable must not be shown: a secret for hosts, or a password."""
    return is_secret(name) or "PASS" in name.upper()


# How long a server may take for each response, in seconds. The most patient hosts wait as long.
SECONDS = 60.0

_MAX_SHOWN = 8
_LOG_PREFIXES = ("ERROR mcpd: ", "WARNING mcpd: ")


def names_of(entries: Iterable[Mapping[str, Any]], member: str = "name") -> list[str]:
    """Return the names, or another member, of these entries."""
    return [str(entry.get(member)) for entry in entries]


def first_of(names: list[str], most: int) -> str:
    """Return the first names, and how many more there are, safe to print."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return printable(", ".join(names[:most]), 1000) + more


class Offers(Struct, frozen=True):
    """The lists of a server, unchecked."""

    name: str = ""
    version: str = ""
    title: str = ""
    protocol: str = ""
    instructions: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()
    templates: tuple[dict[str, Any], ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()
    # The texts of prompts, if they were requested; `${arguments.NAME}` is an argument.
    prompt_texts: dict[str, str] = {}
    icons: tuple[dict[str, Any], ...] = ()

    @property
    def apps(self) -> list[str]:
        """The names of the tools that have a page."""
        return names_of(tool for tool in self.tools if _has_page(tool))


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether a server starts as its host starts it, and what it offers."""

    works: bool
    # What went wrong.
    error: str = ""
    # What to do about it.
    advice: str = ""
    # Whether it is behind a URL, and was not started.
    is_reached: bool = False
    offers: Offers = Offers()
    # Seconds from the start, or from the request to a URL, to the first response.
    seconds: float = 0.0
    # Its last lines on stderr.
    stderr_tail: tuple[str, ...] = ()
    # What works here but not everywhere.
    warnings: tuple[str, ...] = ()

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of its tools."""
        return tuple(names_of(self.offers.tools))

    @property
    def lines(self) -> tuple[str, ...]:
        """The outcome as lines for people, safe to print."""
        if not self.works:
            stderr = [f"  stderr: {printable(mask_text(line), 500)}" for line in self.stderr_tail]
            what = "it cannot be reached" if self.is_reached else "it does not start"
            return (f"{what}: {self.error}", *stderr, *([f"  {self.advice}"] if self.advice else ()))
        how = "reached" if self.is_reached else "started"
        return (*_shown(how, self.offers, self.seconds), *(f"warning: {warning}" for warning in self.warnings))


async def verify_target(
    target: CommandTarget | UrlTarget,
    host: Host | None = None,
    *,
    project: str | None = None,
    env_vars: Iterable[str] = (),
    environment: Mapping[str, str] = os.environ,
    timeout: float = SECONDS,
    with_texts: bool = False,
) -> Verdict:
    """Start the server, or connect to its URL, and read all of its lists. No behaviour of the server raises an
    exception.

    `host` is None if it is unknown. `project` is the folder whose file has the entry; None for the user's file.
    `env_vars` are variables of `environment` that the entry names. `with_texts` also requests the texts of prompts.
    """
    if isinstance(target, UrlTarget):
        return await _verify_url(target, timeout, with_texts)

    variables = passed_variables(host, environment, names=env_vars) | (target.env or {})
    folder = _working_folder(target.cwd, project)
    report = Report()
    if not find_command(CommandTarget(target.command, {"PATH": os.defpath} | variables, folder), report):
        step = report.steps[-1]
        return Verdict(works=False, error=step.text, advice=step.advice)

    dialogue = Dialogue(timeout)
    began = time.monotonic()
    try:
        await dialogue.start(CommandTarget(target.command, cwd=folder), variables)
    except (OSError, ValueError) as error:
        return Verdict(works=False, error=f"{target.command[0]}: {getattr(error, 'strerror', None) or error}")
    try:
        verdict = await _converse(dialogue, began, shows_views=host is None or host.has_apps, with_texts=with_texts)
    except NoAnswer as error:
        why, advice = f"the server {error}", dialogue.advice_on_silence()
        return Verdict(works=False, error=why, advice=advice, stderr_tail=tuple(dialogue.stderr_lines))
    finally:
        await dialogue.end()

    # mcpd reports on stderr what it leaves out of a server, such as a file with an error.
    logged = [
        f"stderr: {printable(mask_text(line), 500)}" for line in dialogue.stderr_lines if line.startswith(_LOG_PREFIXES)
    ]
    return structs.replace(verdict, warnings=(*verdict.warnings, *logged))


def _working_folder(cwd: str | None, project: str | None) -> str:
    return os.path.expanduser(cwd or project or os.path.abspath(os.sep))


async def _converse(dialogue: Dialogue, began: float, *, shows_views: bool, with_texts: bool) -> Verdict:
    capabilities: dict[str, Any] = {"extensions": OFFER} if shows_views else {}
    answer = await dialogue.greet(capabilities)
    if answer.result is None or "initialize" in dialogue.asked:
        error = dialogue.fault_of(answer)
        return Verdict(works=False, error=error, stderr_tail=tuple(dialogue.stderr_lines))
    seconds = time.monotonic() - began

    offers = await _read_offers(dialogue, answer.result, dialogue.envelope, with_texts)
    warnings = []
    if dialogue.garbage_lines:
        first = printable(dialogue.garbage[0])
        warnings.append(f'it writes lines to stdout that are not messages ("{first}"): hosts show an error, or give up')
    return Verdict(works=True, offers=offers, seconds=seconds, warnings=tuple(warnings))


async def _verify_url(target: UrlTarget, timeout: float, with_texts: bool) -> Verdict:
    try:
        from mcpd.client import Client

        client = Client(target, extensions=OFFER, timeout=timeout, reconnect=False)
        began = time.monotonic()
        await client.open()
    except (McpdError, TimeoutError) as error:
        what, _, advice = printable(error, 1000).partition("; ")
        if "pip install" not in what:  # otherwise a library is missing here, and nothing was sent
            advice = advice or f"is it running? mcpd doctor {target}"
        return Verdict(works=False, error=what, advice=advice, is_reached=True)

    try:
        seconds = time.monotonic() - began
        offers = await _read_offers(ClientPeer(client), opening_of(client), client.version, with_texts)
    except NoAnswer as error:
        return Verdict(works=False, error=f"the server {error}", is_reached=True)
    finally:
        await client.aclose()
    return Verdict(works=True, offers=offers, seconds=seconds, is_reached=True)


async def _read_offers(peer: Peer, opening: dict[str, Any], version: str | None, with_texts: bool) -> Offers:
    info = server_info(opening)
    lists: dict[str, tuple[dict[str, Any], ...]] = {}
    for capability, method, member, _ in LISTS:
        lists[member] = ()
        if capabilities_of(opening).get(capability) is not None:
            # Hosts go on without a list that is declared but not supported, unless it is the list of tools.
            found = await read_list(peer, method, member, is_optional=method != "tools/list")
            lists[member] = _objects(found.entries)

    return Offers(
        name=_text(info.get("name")),
        version=_text(info.get("version")),
        title=_text(info.get("title")),
        protocol=_text(opening.get("protocolVersion")) or version or "",
        instructions=_text(opening.get("instructions")),
        tools=lists["tools"],
        resources=lists["resources"],
        templates=lists["resourceTemplates"],
        prompts=lists["prompts"],
        prompt_texts=await _texts(peer, lists["prompts"]) if with_texts else {},
        icons=_objects(info.get("icons")),
    )


async def _texts(peer: Peer, prompts: tuple[dict[str, Any], ...]) -> dict[str, str]:
    # Prompts that refuse the placeholders are left out.
    found: dict[str, str] = {}
    for prompt in prompts:
        name = _text(prompt.get("name"))
        names = [_text(argument.get("name")) for argument in _objects(prompt.get("arguments"))]
        arguments = {each: f"${{arguments.{each}}}" for each in names}
        try:
            answer = await peer.request("prompts/get", {"name": name, "arguments": arguments})
        except NoAnswer:
            continue
        contents = [message.get("content") for message in _objects((answer.result or {}).get("messages"))]
        texts = [_text(content.get("text")) for content in _objects(contents)]
        if name and texts and all(texts):
            found[name] = "\n\n".join(texts)

    return found


def _has_page(tool: Mapping[str, Any]) -> bool:
    meta = tool.get("_meta")
    if not isinstance(meta, dict):
        return False
    ui = meta.get("ui")
    return isinstance(ui.get("resourceUri") if isinstance(ui, dict) else meta.get(FLAT_URI), str)


def _objects(value: Any) -> tuple[dict[str, Any], ...]:
    return tuple(each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shown(how: str, offers: Offers, seconds: float) -> list[str]:
    name = printable(f"{offers.name} {offers.version}".strip()) or "a server without a name"
    lines = [f"{how}: {name} (protocol {printable(offers.protocol)}), first response after {seconds:.2f} s"]
    for what, names in (
        ("tools", names_of(offers.tools)),
        ("apps", offers.apps),
        ("resources", names_of(offers.resources, "uri")),
        ("resource templates", names_of(offers.templates, "uriTemplate")),
        ("prompts", names_of(offers.prompts)),
    ):
        if names:
            lines.append(f"  {what} ({len(names)}): {first_of(names, _MAX_SHOWN)}")

    if len(lines) == 1:
        lines.append("  it offers nothing, so hosts show nothing of it")
    return lines
