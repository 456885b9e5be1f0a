"""Tries a server that is started as a program and that speaks over stdin and stdout, as most hosts do."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from mcpd.apps.tool_metadata import OFFER
from mcpd.client.targets.named import CommandTarget
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table
from mcpd.transports.child import GRACE_SECONDS, Ending
from .dialogue import (
    PASSED_VARIABLES,
    Answer,
    Dialogue,
    NoAnswer,
    explaining_line,
    has_handshake,
    initialize_params,
    judge_versions,
)
from .offers import examine_offers, report_extensions, report_identity
from .report import Report

# The endings of scripts, which hosts start with an interpreter.
SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh", ".jar", ".php")
_FOLDERS = ("~/.local/bin", "~/bin", "~/.cargo/bin", "~/.bun/bin", "~/.deno/bin", "/usr/local/bin", "/opt/homebrew/bin")
_CORRECT = "correct the path; in a host's configuration write the absolute path"


def find_command(target: CommandTarget, report: Report) -> bool:
    """Look for the program and the files that the command names. Returns whether it can be started."""
    program = target.command[0]
    path = (target.env or {}).get("PATH", os.environ.get("PATH", os.defpath))
    if target.cwd is not None and not os.path.isdir(target.cwd):
        report.fail("found", f"no such folder: {target.cwd}", "correct `cwd`, the folder that the server runs in")
        return False
    found = _find_file(program, target.cwd, report) if os.sep in program else _find_on_path(program, path, report)
    if found is None or not _has_interpreter(found, path, report) or not _has_script(target, report):
        return False

    is_relative = program != sys.executable and not os.path.isabs(program)
    advice = f"hosts that are started from a desktop may not know your PATH: write {found} there" if is_relative else ""
    report.ok("found", found, advice=advice, path=found)
    return True


def _find_file(program: str, cwd: str | None, report: Report) -> str | None:
    path = os.path.join(cwd or "", os.path.expanduser(program))
    if program.startswith("~"):
        report.fail("found", f"{program}: hosts do not replace ~", f"write {path}")
    elif not os.path.lexists(path):
        advice = _CORRECT
        if variable := re.search(r"\$\{(?:env:)?(\w+)\}", program):
            advice = f"set the variable before mcpd or the host starts: export {variable[1]}=…"
        report.fail("found", f"no such file: {path}", advice)
    elif not os.path.exists(path):
        text = f"{path} is a link whose target is missing"
        report.fail("found", text, "repair the link, or install the program again")
    elif os.path.isdir(path):
        report.fail("found", f"{path} is a folder", "name the program in it")
    elif not os.access(path, os.X_OK):
        how = "chmod +x " + path if not path.endswith(SCRIPTS) else f"name its interpreter first, as in python {path}"
        report.fail("found", f"{path} is not executable", how)
    else:
        return os.path.abspath(path)

    return None


def _find_on_path(program: str, path: str, report: Report) -> str | None:
    found = shutil.which(program, path=path)
    if found is not None:
        return found
    if os.path.exists(program):
        report.fail("found", f"{program} is not on PATH", f"it is in this folder: write {os.path.abspath(program)}")
        return None
    for folder in _FOLDERS:
        elsewhere = os.path.join(os.path.expanduser(folder), program)
        if os.access(elsewhere, os.X_OK):
            report.fail("found", f"{program} is not on PATH", f"write {elsewhere}, where it is")
            return None

    first, *others = program.split()
    if others and shutil.which(first, path=path) is not None:
        text = f"no such program: {program!r}. This is a whole command line in one word"
        report.fail("found", text, f"write {first} as the command, and {' '.join(others)} as its arguments (`args`)")
        return None

    programs: list[str] = []
    for folder in path.split(os.pathsep):
        with suppress(OSError):
            programs += os.listdir(folder or ".")
    near = get_close_matches(program, programs, 1, 0.8)
    advice = f"did you mean {near[0]}?" if near else f"install it, or write its absolute path; PATH is {path}"
    report.fail("found", f"no such program: {program}", advice)
    return None


def _has_interpreter(path: str, search: str, report: Report) -> bool:
    try:
        with open(path, "rb") as file:
            line = file.readline(300)
    except OSError:
        return True  # a file that is executable but not readable is not a script

    if not line.startswith(b"#!"):
        return True
    words = line[2:].decode("utf-8", "replace").split()
    if words and words[0].endswith("/env"):
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        is_there = bool(words) and shutil.which(words[0], path=search) is not None
    else:
        is_there = bool(words) and os.access(words[0], os.X_OK)
    if not is_there:
        name = words[0] if words else "nothing"
        text = f"{path} needs {name}, which does not exist"
        report.fail("found", text, f"install {name}, or the program again: its folder may have been moved")
    return is_there


def _has_script(target: CommandTarget, report: Report) -> bool:
    for word in target.command[1:]:
        if word in ("-m", "-c", "-e", "--", "run", "exec", "x", "dlx"):
            return True  # not a file, or another program's
        if word.startswith("-") or not word.endswith(SCRIPTS):
            continue
        path = os.path.join(target.cwd or "", word)
        if not os.path.exists(path):
            where = "" if os.path.isabs(word) else f" in {os.path.abspath(target.cwd or '.')}"
            report.fail("found", f"no such file: {word}{where}", _CORRECT)
            return False
        if not os.access(path, os.R_OK):
            report.fail("found", f"{path} is not readable", f"chmod +r {path}")
            return False
        if not os.path.isabs(word):
            text = f"{word} is relative to the folder that a host happens to run in"
            report.warn("found", text, f"in a host's configuration write {os.path.abspath(path)}")
        return True

    return True


_SLOW_SECONDS = 3.0
# How many copies of the server run at once while versions are tried.
_AT_ONCE = 2

# The capabilities of a host with all known extensions. Servers declare theirs only to such hosts.
_WITH_EXTENSIONS = {"extensions": OFFER}

_FLOOD_BYTES = 1024 * 1024


async def try_command(target: CommandTarget, report: Report, timeout: float) -> None:
    """Take all steps. `timeout` is how many seconds the server has for its start and for each response."""
    if not find_command(target, report):
        return
    dialogue = Dialogue(timeout)
    try:
        await dialogue.start(target)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        report.fail("started", f"it cannot be started: {why}", "start it in a terminal to see more")
        return

    has_begun = False
    try:
        opening = await _begin(dialogue, report)
        if opening is not None:
            has_begun = True
            report_identity(opening, report)
            await examine_offers(dialogue, opening, report, any_output=dialogue.envelope is not None)
            await _try_unknown_method(dialogue, report)
    finally:
        ending = await dialogue.end()
    _judge_stdout(dialogue, report)
    if dialogue.stderr_bytes > _FLOOD_BYTES:
        text = f"{dialogue.stderr_bytes:,} bytes on stderr in this short time"
        report.warn("stderr", text, "hosts keep it in their logs, and some stop reading: write less")
    if has_begun:
        _judge_end(ending, report)
        await _try_as_hosts_do(target, report, timeout)
        capabilities = await _try_versions(target, report, timeout)
        report_extensions(capabilities, report)


async def _begin(dialogue: Dialogue, report: Report) -> dict[str, Any] | None:
    try:
        answer = await dialogue.greet()
    except NoAnswer as error:
        lines = dialogue.stderr_lines
        said = f"; its stderr says: {printable(explaining_line(lines), 300)}" if lines else ""
        text = str(error).replace(" initialize", " the first request (initialize)", 1)
        report.fail("started", f"the server {text}{said}", dialogue.advice_on_silence(), stderr=lines)
        return None

    if answer.result is None or "initialize" in dialogue.asked:
        advice = (
            "answer `initialize` with protocolVersion, capabilities and serverInfo; does the program need an option?"
        )
        report.fail("started", dialogue.fault_of(answer), advice)
        return None
    _judge_start(dialogue, answer, report)
    return answer.result


def _judge_start(dialogue: Dialogue, answer: Answer, report: Report) -> None:
    pid, first = dialogue.process.pid, dialogue.first_byte or 0.0
    report.ok("started", f"process {pid}", first_byte=round(first, 4))
    text = f"after {answer.seconds:.2f} s" if answer.seconds >= 0.01 else f"after {answer.seconds * 1000:.1f} ms"
    if answer.seconds > _SLOW_SECONDS:
        advice = (
            "people wait for it in each chat; Codex gives up after 10 s, Claude Code after 30 s: load less at the start"
        )
        report.warn("first answer", text, advice, seconds=answer.seconds)
    else:
        report.ok("first answer", text, seconds=answer.seconds)


async def _try_unknown_method(dialogue: Dialogue, report: Report) -> None:
    # Newer hosts send methods that older servers do not know, and wait for the error.
    patience = dialogue.timeout
    dialogue.timeout = min(patience, 5.0)
    try:
        answer = await dialogue.request("mcpd/unknown")
    except NoAnswer as error:
        advice = (
            "answer each request that has an `id`, unknown methods with error -32601: newer hosts send "
            "more methods, and wait"
        )
        report.warn("unknown method", f"the server {error}", advice)
        return
    finally:
        dialogue.timeout = patience

    if answer.code == -32601:
        report.ok("unknown method", "is refused correctly", seconds=answer.seconds)
    elif answer.error:
        text = f"is refused, though with {printable(answer.error)}"
        report.ok("unknown method", text, advice="error -32601 would be clearer", seconds=answer.seconds)
    else:
        advice = "answer it with error -32601, from which hosts learn what a server supports"
        report.warn("unknown method", "is answered as if it were known", advice)


def _judge_stdout(dialogue: Dialogue, report: Report) -> None:
    if dialogue.garbage_lines:
        first = printable(dialogue.garbage[0])
        many = f"{dialogue.garbage_lines} lines are not messages, the first of them"
        text = f'{"a line is not a message" if dialogue.garbage_lines == 1 else many}: "{first}"'
        advice = "print to stderr (Python: file=sys.stderr) and switch off banners: hosts show errors, or give up"
        report.fail("stdout clean", text, advice, lines=dialogue.garbage, count=dialogue.garbage_lines)
    elif dialogue.strange_answers:
        text = f"{dialogue.strange_answers} responses belong to no request, or came twice"
        report.warn("stdout clean", text, "answer each request once, with its own `id`")
    elif dialogue.first_byte is not None:
        report.ok("stdout clean", "nothing but messages")


def _judge_end(ending: Ending, report: Report) -> None:
    if ending.by == "itself":
        text = f"when its input ended, after {ending.seconds:.2f} s"
        if ending.left_others:
            advice = "end the processes that it has started: hosts do not"
            report.warn("end", f"{text}, and left processes behind", advice, seconds=ending.seconds)
        elif ending.code:
            how = f"exit code {ending.code}" if ending.code > 0 else f"signal {-ending.code}"
            report.warn("end", f"{text}, with {how}", "end with exit code 0: some hosts report a crash")
        else:
            report.ok("end", text, seconds=ending.seconds)
    elif ending.by == "SIGTERM":
        text = f"it ran on for {GRACE_SECONDS:g} s after its input had ended; SIGTERM ended it"
        report.warn("end", text, "end when stdin ends: hosts close it, and not all of them kill the process")
    else:
        text = "neither the end of its input nor SIGTERM ended it; it was killed"
        report.fail("end", text, "end when stdin ends: otherwise each chat leaves a process behind")


async def _try_as_hosts_do(target: CommandTarget, report: Report, timeout: float) -> None:
    dialogue = Dialogue(timeout)
    why = ""
    try:
        passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        await dialogue.start(CommandTarget(target.command, target.env, target.cwd or "/"), passed)
        try:
            await dialogue.greet()
        finally:
            await dialogue.end()
    except (OSError, ValueError) as error:
        why = f"cannot be started: {error}"
    except NoAnswer as error:
        lines = dialogue.stderr_lines
        why = f"{error}{f'; its stderr says: {printable(lines[-1], 300)}' if lines else ''}"

    if why:
        text = f"in another folder and with few variables the server {why}"
        advice = (
            f"hosts pass only {', '.join(PASSED_VARIABLES)} and the `env` of its entry: write absolute paths, "
            "and other variables into `env`"
        )
        report.warn("as hosts start it", text, advice)
    else:
        report.ok("as hosts start it", "it also works in another folder and with few variables")


async def _try_versions(target: CommandTarget, report: Report, timeout: float) -> list[Any]:
    # Each version gets a process of its own, because a process has one session, which has one version.
    turns = asyncio.Semaphore(_AT_ONCE)

    async def try_one(version: str) -> tuple[str, Any]:
        async with turns:
            return await _try_version(target, version, timeout)

    tried = await asyncio.gather(*map(try_one, table.SUPPORTED))
    outcomes = {version: why for version, (why, _) in zip(table.SUPPORTED, tried, strict=True)}
    judge_versions(outcomes, report)
    return [capabilities for _, capabilities in tried]


async def _try_version(target: CommandTarget, version: str, timeout: float) -> tuple[str, Any]:
    dialogue = Dialogue(timeout)
    greets = has_handshake(version)
    if not greets:
        dialogue.envelope, dialogue.timeout = version, min(timeout, 5.0)
        dialogue.capabilities = _WITH_EXTENSIONS
    try:
        await dialogue.start(target)
    except (OSError, ValueError) as error:
        return f"({error})", None
    try:
        params = initialize_params(version, _WITH_EXTENSIONS) if greets else None
        answer = await dialogue.request("initialize" if greets else "server/discover", params)
    except NoAnswer as error:
        return f"({error})", None
    finally:
        await dialogue.end()

    result = answer.result or {}
    refusal = f"(no: {printable(answer.error)})"
    if not greets:
        offered = result.get("supportedVersions")
        is_taken = isinstance(offered, list) and version in offered
    else:
        is_taken = result.get("protocolVersion") == version
        refusal = refusal if answer.error else f"(offers {printable(result.get('protocolVersion'))})"
    return ("", result.get("capabilities")) if is_taken else (refusal, None)
