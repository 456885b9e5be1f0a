"""Files with a PEP 723 header (`# /// script`): they are served in an environment with what the headers ask for.

uv makes that environment, and keeps it in its cache: of one file as `uv run` does, of several one for all of them
together. The process becomes its Python, with this mcpd in it, by exec: signals, stdin, stdout and the exit code are
those of one process. Loaded for files with such a header only.

Where the headers ask for another Python than the one that runs, uv finds or fetches it, and installs what mcpd needs
there too.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib import metadata
from typing import NoReturn

from ..errors import ConfigurationError
from .script_headers import Header, as_script, own_version, read_header, requirement_name
from .uv import Unsolved, cache_folder, find_uv, python_with

__all__ = ["ENTERED", "enter"]

ENTERED = "_MCPD_SCRIPT"
"""Set in the process that has what the headers of these files ask for: which, and what of them is left out."""

_START = (
    "import site, sys; sys.argv[0] = {program!r}; [site.addsitedir(path) for path in {paths!r}]; "
    "from mcpd.cli import main; main()"
)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MOST_TRIED_ALONE = 20


def enter(files: Sequence[str], below: Sequence[str] = ()) -> dict[str, str]:
    """Become a process that has what the headers of files ask for; return if this one has.

    Without `files` nothing is served: raises ConfigurationError if what they need cannot be had. Those `below` in
    folders are left out then: the result says why, by their paths.
    """
    key = sha256("\0".join(map(os.path.abspath, (*files, "", *below))).encode(errors="surrogateescape")).hexdigest()
    said = json.loads(os.environ.pop(ENTERED, "{}"))  # no child has it
    if said.get("key") == key:
        left_out: dict[str, str] = said["left_out"]
        return left_out

    headers = [header for header in map(read_header, files) if _says_something(header)]

    left_out = {}
    others: list[Header] = []
    for path in below:
        try:
            header = read_header(path)
        except ConfigurationError as error:
            left_out[path] = str(error).removeprefix(path).lstrip(",: ")
            continue
        if _says_something(header):
            others.append(header)

    if all(header.allows_this_python and not header.dependencies for header in (*headers, *others)):
        return left_out

    uv = find_uv()
    if uv is None:
        for header in headers:
            if why := _without_uv(header):
                raise ConfigurationError(f"{header.path}: {why}")
        return left_out | {header.path: why for header in others if (why := _without_uv(header))}

    python, chosen, more = _solve(uv, headers, others)
    left_out |= more
    if python is not None:
        _become(python, chosen, json.dumps({"key": key, "left_out": left_out}))
    return left_out


def _says_something(header: Header) -> bool:
    return bool(header.dependencies) or not header.allows_this_python


def _without_uv(header: Header) -> str:
    """What a file lacks where there is no uv; "" if that is nothing."""
    if not header.allows_this_python:
        return (
            f"its header asks for Python {header.python}, and mcpd runs on {own_version()}; install uv, which starts "
            "it with another, or install mcpd for that one: pip install mcpd-server, with that Python's pip"
        )
    missing = [each for each in header.dependencies if not _is_installed(each)]
    if not missing:
        return ""
    shown = " ".join(f"'{each}'" if re.search(r"[^\w.-]", each) else each for each in missing)
    return (
        f"its header asks for {', '.join(missing)}; install uv, which gives it that, or where mcpd runs: "
        f"{sys.executable} -m pip install {shown}"
    )


# -- which environment -----------------------------------------------------------------------


def _solve(uv: str, headers: list[Header], others: list[Header]) -> tuple[str | None, list[Header], dict[str, str]]:
    """The Python that has it all, for which files that is, and which of the others are left out.

    Raises ConfigurationError if there is none for `headers`.
    """
    try:
        return _python_for(uv, [*headers, *others]), [*headers, *others], {}
    except (Unsolved, ConfigurationError) as error:
        if not others:
            raise _refusal(headers, error) from None

    # One after another: who cannot be had beside those before it is left out.
    chosen, python = list(headers), None
    if headers:
        try:
            python = _python_for(uv, headers)
        except (Unsolved, ConfigurationError) as error:
            raise _refusal(headers, error) from None

    left_out: dict[str, str] = {}
    for at, header in enumerate(others):
        if at >= _MOST_TRIED_ALONE:
            left_out[header.path] = "its header is not looked at, as so many files before it ask for what is not there"
            continue
        try:
            python = _python_for(uv, [*chosen, header])
        except (Unsolved, ConfigurationError) as error:
            refusal = str(_refusal([*chosen, header], error, header))
            left_out[header.path] = " ".join(refusal.removeprefix(header.path).lstrip(": ").split())
        else:
            chosen.append(header)
    return python, chosen, left_out


def _python_for(uv: str, headers: Sequence[Header]) -> str:
    """The Python of an environment with what these ask for. Raises Unsolved and ConfigurationError."""
    is_ours = all(header.allows_this_python for header in headers)
    if is_ours and not any(header.dependencies for header in headers):
        return sys.executable
    if is_ours and len(headers) == 1:
        # With the lock that may stand beside it.
        return python_with(uv, headers[0].path, sys.executable)

    more = () if is_ours else _own_requirements()
    script = as_script([*headers, *(() if is_ours else [Header(__file__, python=">=3.11")])], more)

    path = os.path.join(cache_folder("scripts"), f"{sha256(script.encode()).hexdigest()[:16]}.py")
    if not os.path.isfile(path):
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as file:
            file.write(script)
        os.replace(partial, path)
    return python_with(uv, path, sys.executable if is_ours else None)


def _refusal(headers: Sequence[Header], error: Exception, last: Header | None = None) -> ConfigurationError:
    """What is said of headers that cannot be had together: which files, and what uv says. `last` came to the others."""
    if isinstance(error, ConfigurationError):
        return error
    assert isinstance(error, Unsolved)

    lines = [f"  {line}" for line in error.lines]
    python = next((each for each in headers if not each.allows_this_python), None)
    if error.has_no_python and python is not None:
        both = _quarrel(headers, python=True)
        return ConfigurationError(
            f"{' and '.join(both) or python.path}: its header asks for Python {_pythons(headers)}, mcpd runs on "
            f"{own_version()}, and uv has no other that fits (mcpd needs 3.11 or newer); uv python install fetches one"
        )
    if len(headers) == 1:
        return ConfigurationError(
            "\n".join([f"{headers[0].path}: uv cannot give it what its header asks for:", *lines])
        )

    paths = _quarrel(headers)
    named = " and ".join(paths) if paths else ", ".join(header.path for header in headers)
    if last is not None and not any(path.startswith(f"{last.path} (") for path in paths):
        return ConfigurationError("\n".join([f"{last.path}: uv cannot give it what its header asks for:", *lines]))
    return ConfigurationError(
        "\n".join([f"{named}: uv cannot give them together what their headers ask for; serve them apart:", *lines])
    )


def _pythons(headers: Sequence[Header]) -> str:
    return ",".join(dict.fromkeys(header.python for header in headers if header.python))


def _quarrel(headers: Sequence[Header], *, python: bool = False) -> list[str]:
    """The files that ask for one thing in two ways, with what they ask for."""
    asked: dict[str, dict[str, str]] = {}
    for header in headers:
        wanted = [f"python {header.python}"] if header.python and python else [] if python else header.dependencies
        for each in wanted:
            asked.setdefault(requirement_name(each), {})[header.path] = each

    for by_file in asked.values():
        if len(set(by_file.values())) > 1:
            return [f"{path} ({each.strip()})" for path, each in by_file.items()]
    return []


def _own_requirements() -> list[str]:
    """What mcpd and its extras that are here need, for another Python."""
    try:
        said = metadata.requires("mcpd-server") or []
    except metadata.PackageNotFoundError:
        said = ["anyio", "click", "msgspec", "websockets"]
    found = []
    for each in said:
        extra = re.search(r"\s*(?:;|and)\s*extra\s*==\s*['\"]([^'\"]+)['\"]", each)
        if extra is None or (extra[1] not in ("all", "test") and _is_installed(each)):
            found.append(each.replace(extra[0], "") if extra else each)
    return list(dict.fromkeys(found))


def _is_installed(requirement: str) -> bool:
    try:
        metadata.distribution(requirement_name(requirement) or requirement)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return True


# -- becoming it -----------------------------------------------------------------------------


def _become(python: str, headers: Sequence[Header], entered: str) -> NoReturn:
    """The environment's Python, behind whose packages ours are found."""
    paths = [os.path.dirname(_PACKAGE), *(each for each in sys.path if each.endswith("-packages"))]
    if not all(header.allows_this_python for header in headers):
        paths = [_alone()]  # what is installed beside us is for our Python

    start = _START.format(program=sys.argv[0], paths=list(dict.fromkeys(paths)))
    environment = {**os.environ, ENTERED: entered}
    environment.setdefault("_MCPD_PYTHON", sys.executable)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(python, [python, "-c", start, *sys.argv[1:]], environment)
    except OSError as error:
        raise ConfigurationError(f"{python}: cannot be run: {error.strerror}") from None


def _alone() -> str:
    """A folder in which our package stands, and nothing else of where it is installed."""
    folder = cache_folder("scripts", sha256(os.fsencode(_PACKAGE)).hexdigest()[:16])
    for name in (os.path.basename(_PACKAGE), "assets"):  # those stand beside it where it runs from a checkout
        place, link = os.path.join(os.path.dirname(_PACKAGE), name), os.path.join(folder, name)
        if os.path.isdir(place) and not os.path.islink(link):
            partial = f"{link}.{os.getpid()}"
            os.symlink(place, partial)
            os.replace(partial, link)
    return folder
