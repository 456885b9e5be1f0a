"""What a program that has ended wrote last: which line of it says why, and what to do about that."""

from __future__ import annotations

import re
import signal

_TELLS = re.compile(
    r"error|exception|cannot|can't|could not|failed|fatal|denied|refused|not found|no such|unable|required|missing"
    r"|invalid|unknown|not in this registry",
    re.IGNORECASE,
)
_SAYS_NOTHING = re.compile(r"complete log of this run|^npm error (?:code|A )|--help' for more|^\s*npm (?:warn|notice)")

_NO_PYTHON_MODULE = re.compile(r"(?:ModuleNotFoundError: No module named|no module) '([\w.]{1,100})'")
_NO_NODE_MODULE = re.compile(r"Cannot find (?:module|package) '([^']{1,200})'")
_NO_VARIABLE = re.compile(r"KeyError: '([A-Z][A-Z0-9_]{2,99})'")
_NO_PACKAGE = re.compile(r"'([^']{1,200})' is not in this registry|E404")


def telling_line(lines: list[str]) -> str:
    """The line that says most of why; the last one that says anything if none does. `lines` is not empty."""
    with_words = [line for line in lines if any(map(str.isalnum, line)) and not _SAYS_NOTHING.search(line)]
    telling = [line for line in with_words if _TELLS.search(line.removeprefix("npm error"))]
    return ([lines[-1]] + with_words[-1:] + telling[-1:])[-1].strip()


def ending(code: int) -> str:
    """How a program ended: its exit code, or the signal by its name."""
    if code >= 0:
        return f"exit code {code}"

    try:
        return f"it crashed: {signal.Signals(-code).name}" if -code in _CRASHES else signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


_CRASHES = frozenset((signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE))


def mending(lines: list[str], code: int) -> str:
    """What to do about a program that ended with this code, and these last words on stderr."""
    for line in reversed(lines):
        if found := _NO_PYTHON_MODULE.search(line):
            name = found[1].partition(".")[0]
            return f"install {name} for the Python that runs it: python -m pip install {name}, by that very python"
        if found := _NO_NODE_MODULE.search(line):
            return f"{found[1]} is missing: is the path right? Else run npm install in the server's folder"
        if found := _NO_VARIABLE.search(line):
            name = found[1]
            return f"does it want the variable {name}? Give it by --env {name}=…, in a host's configuration under `env`"
        if found := _NO_PACKAGE.search(line):
            return "npm knows no such package: is its name written right?"

    if lines:
        return "stderr is where programs say what is wrong: mend that, and try again"
    if code == 0:
        return "it ends at once, without an error: is it a server, or does it need an option (such as stdio or serve)?"
    return "start it by hand in a terminal: what it says there is why"
