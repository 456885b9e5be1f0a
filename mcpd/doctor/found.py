"""Is there something to start: the program, the files that it is given, whether they may be read and run."""

from __future__ import annotations

import os
import re
import shutil
import sys
from difflib import get_close_matches

from mcpd.client.targets.named import CommandTarget
from mcpd.doctor.report import Report

_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh", ".jar", ".php")
_FOLDERS = ("~/.local/bin", "~/bin", "~/.cargo/bin", "~/.bun/bin", "~/.deno/bin", "/usr/local/bin", "/opt/homebrew/bin")


def find_command(target: CommandTarget, report: Report) -> bool:
    """Look for what the command names; whether it can be started."""
    program = target.command[0]
    path = (target.env or {}).get("PATH", os.environ.get("PATH", os.defpath))
    if target.cwd is not None and not os.path.isdir(target.cwd):
        report.fail("found", f"there is no folder {target.cwd}", "correct `cwd`: the server is to run in it")
        return False
    if os.sep in program:
        found = _find_file(program, target.cwd, report)
    else:
        found = _find_on_path(program, path, report)
    if found is None or not _has_interpreter(found, path, report) or not _has_script(target, report):
        return False

    advice = ""
    if target.command[0] != sys.executable and not os.path.isabs(program):
        advice = f"hosts that are started from a desktop may not know your PATH: write {found} there"
    report.ok("found", found, advice=advice, path=found)
    return True


def _find_file(program: str, cwd: str | None, report: Report) -> str | None:
    path = os.path.join(cwd or "", os.path.expanduser(program))
    if program.startswith("~"):
        report.fail("found", f"{program}: a host does not know what ~ is", f"write {path}")
    elif not os.path.lexists(path):
        advice = "correct the path; in a host's configuration write it whole"
        if variable := re.search(r"\$\{(?:env:)?(\w+)\}", program):
            advice = f"give the variable a value before mcpd or the host is started: export {variable[1]}=…"
        report.fail("found", f"there is no file {path}", advice)
    elif not os.path.exists(path):
        report.fail("found", f"{path} links to what is not there", "mend the link, or install again what it belongs to")
    elif os.path.isdir(path):
        report.fail("found", f"{path} is a folder", "name the program in it")
    elif not os.access(path, os.X_OK):
        how = "chmod +x " + path if not path.endswith(_SCRIPTS) else f"name its interpreter first, as in python {path}"
        report.fail("found", f"{path} may not be run", how)
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
            report.fail("found", f"{program} is not on PATH", f"write {elsewhere}, which is there")
            return None

    first, *others = program.split()
    if others and shutil.which(first, path=path) is not None:
        text = f"there is no program {program!r}: this is a whole command line in one word"
        report.fail("found", text, f"write {first} as the command, and {' '.join(others)} as its arguments (`args`)")
        return None

    near = get_close_matches(program, _programs(path), 1, 0.8)
    advice = f"did you mean {near[0]}?" if near else f"install it, or write its whole path; PATH is {path}"
    report.fail("found", f"there is no program {program}", advice)
    return None


def _programs(path: str) -> list[str]:
    found: list[str] = []
    for folder in path.split(os.pathsep):
        try:
            found += os.listdir(folder or ".")
        except OSError:
            continue
    return found


def _has_interpreter(path: str, search: str, report: Report) -> bool:
    """Whether the program that the first line of a script names is there."""
    try:
        with open(path, "rb") as file:
            line = file.readline(300)
    except OSError:
        return True  # what may be run and not read is no script
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
        text = f"{path} is to be run by {name}, which is not there"
        report.fail("found", text, f"install {name}, or the program again: its folder may have been moved")
    return is_there


def _has_script(target: CommandTarget, report: Report) -> bool:
    """Whether the script that an interpreter is given is there: the first word that looks like a file."""
    for word in target.command[1:]:
        if word in ("-m", "-c", "-e", "--", "run", "exec", "x", "dlx"):
            return True  # what follows is no file, or another program's
        if word.startswith("-") or not word.endswith(_SCRIPTS):
            continue
        path = os.path.join(target.cwd or "", word)
        if not os.path.exists(path):
            where = "" if os.path.isabs(word) else f" in {os.path.abspath(target.cwd or '.')}"
            report.fail(
                "found", f"there is no file {word}{where}", "correct the path; in a host's configuration write it whole"
            )
            return False
        if not os.access(path, os.R_OK):
            report.fail("found", f"{path} may not be read", f"chmod +r {path}")
            return False
        if not os.path.isabs(word):
            text = f"{word} is looked for in the folder that a host happens to run in"
            report.warn("found", text, f"in a host's configuration write {os.path.abspath(path)}")
        return True
    return True
