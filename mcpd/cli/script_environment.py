"""A file with a PEP 723 header (`# /// script`): it is served in an environment with what the header asks for.

uv makes that environment as `uv run` does, and keeps it in its cache. The process becomes its Python, with this mcpd in
it, by exec: signals, stdin, stdout and the exit code are those of one process. Several files have no environment
together: each is served where mcpd runs, if what it asks for is there. Loaded for files with such a header only.

Where the header asks for another Python than the one that runs, uv finds or fetches it, and installs what mcpd needs
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

from mcpd.cli.script_headers import Header, as_script, own_version, read_header, requirement_name
from mcpd.cli.uv import Unsolved, cache_folder, find_uv, python_with
from mcpd.errors import ConfigurationError
from mcpd.transports.files import replacing

ENTERED = "_MCPD_SCRIPT"
"""Set in the process that has what the headers of these files ask for: which, and what of them is left out."""

_START = (
    "import site, sys; sys.argv[0] = {program!r}; [site.addsitedir(path) for path in {paths!r}]; "
    "from mcpd.cli import main; main()"
)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


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

    left_out = {}
    asking: list[Header] = []
    for path in (*files, *below):
        try:
            header = read_header(path)
        except ConfigurationError as error:
            if path in files:
                raise
            left_out[path] = str(error).removeprefix(path).lstrip(",: ")
            continue
        if header.dependencies or not header.allows_this_python:
            asking.append(header)

    uv = find_uv() if asking else None
    if uv is not None and len(asking) == 1:
        header = asking[0]
        try:
            python = _python_for(uv, header)
        except Unsolved as error:
            why = _refusal(header, error)
        else:
            _become(python, header, json.dumps({"key": key, "left_out": left_out}))
        if header.path in files:
            raise ConfigurationError(f"{header.path}: {why}")
        return left_out | {header.path: " ".join(why.split())}

    instead = "serve it alone, with uv," if len(asking) > 1 else "install uv, which gives it that,"
    for header in asking:
        if not (why := _lacks(header, instead)):
            continue
        if header.path in files:
            raise ConfigurationError(f"{header.path}: {why}")
        left_out[header.path] = why
    return left_out


def _lacks(header: Header, instead: str) -> str:
    """What a file lacks where mcpd runs, and what to do, or `instead`; "" if that is nothing."""
    if not header.allows_this_python:
        return (
            f"its header asks for Python {header.python}, and mcpd runs on {own_version()}; {instead} or install mcpd "
            "for that one: pip install mcpd-server, with that Python's pip"
        )
    missing = [each for each in header.dependencies if not _is_installed(each)]
    if not missing:
        return ""
    shown = " ".join(f"'{each}'" if re.search(r"[^\w.-]", each) else each for each in missing)
    return (
        f"its header asks for {', '.join(missing)}; {instead} or install it where mcpd runs: "
        f"{sys.executable} -m pip install {shown}"
    )


# -- which environment -----------------------------------------------------------------------


def _python_for(uv: str, header: Header) -> str:
    """The Python of an environment with what it asks for. Raises Unsolved and ConfigurationError."""
    if header.allows_this_python:
        return python_with(uv, header.path, sys.executable)  # with the lock that may stand beside it

    script = as_script(header, _own_requirements(), ">=3.11")
    path = os.path.join(cache_folder("scripts"), f"{sha256(script.encode()).hexdigest()[:16]}.py")
    if not os.path.isfile(path):
        with replacing(path) as file:
            file.write(script.encode())
    return python_with(uv, path, None)


def _refusal(header: Header, error: Unsolved) -> str:
    """What uv says of a header that cannot be had."""
    if error.has_no_python and not header.allows_this_python:
        return (
            f"its header asks for Python {header.python}, mcpd runs on {own_version()}, and uv has no other that fits "
            "(mcpd needs 3.11 or newer); uv python install fetches one"
        )
    return "\n".join(["uv cannot give it what its header asks for:", *(f"  {line}" for line in error.lines)])


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


def _become(python: str, header: Header, entered: str) -> NoReturn:
    """The environment's Python, behind whose packages ours are found."""
    paths = [os.path.dirname(_PACKAGE), *(each for each in sys.path if each.endswith("-packages"))]
    if not header.allows_this_python:
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
