"""A server file with a PEP 723 header (`# /// script`): it is served in an environment with what the header asks for.

uv makes that environment, and keeps it in its cache. The process becomes its Python, with this mcpd in it, by exec:
signals, stdin, stdout and the exit code are those of one process. Loaded for files with such a header only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from typing import Any, NoReturn

from ..errors import ConfigurationError
from ..printable import printable

__all__ = ["ENTERED", "enter"]

ENTERED = "_MCPD_SCRIPT"
"""Set in the process that has what the header of this file asks for."""

_BLOCK = r"(?m)^# /// script\s*$\s(?P<content>(^#(| .*)$\s)+)^# ///\s*$"
_START = (
    "import site, sys; sys.argv[0] = {program!r}; [site.addsitedir(path) for path in {paths!r}]; "
    "from mcpd.cli import main; main()"
)
_UV_SECONDS = 600
_MOST_LINES = 12


def enter(path: str) -> None:
    """Become a process that has what the header of a file asks for; return if this one has.

    Raises ConfigurationError if it cannot be had.
    """
    if os.environ.get(ENTERED) == os.path.abspath(path):
        return
    header = _header(path)
    needed = [str(each) for each in header.get("dependencies", ())]
    _check_python(path, str(header.get("requires-python") or ""))
    if not needed:
        return
    uv = _find_uv()
    if uv is None:
        missing = [each for each in needed if not _is_installed(each)]
        if not missing:
            return
        shown = " ".join(f"'{each}'" if re.search(r"[^\w.-]", each) else each for each in missing)
        raise ConfigurationError(
            f"{path}: its header asks for {', '.join(missing)}; install uv, which gives it that, or where mcpd runs: "
            f"{sys.executable} -m pip install {shown}"
        )
    _run(path, [uv, "sync", "--quiet", "--script", path, "--python", sys.executable])
    python = _run(path, [uv, "python", "find", "--script", path]).strip()
    _become(path, python)


def _header(path: str) -> dict[str, Any]:
    """What it says. Raises ConfigurationError."""
    import tomllib

    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return {}  # who loads it says so
    blocks = list(re.finditer(_BLOCK, text))
    if not blocks:
        return {}
    if len(blocks) > 1:
        raise ConfigurationError(f"{path}: has more than one # /// script; PEP 723 allows one")
    lines = [line[2:] if line.startswith("# ") else line[1:] for line in blocks[0]["content"].splitlines()]
    try:
        found = tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        first = text.count("\n", 0, blocks[0].start()) + 1
        raise ConfigurationError(f"{path}, line {first}: its # /// script is no TOML: {printable(error)}") from None
    dependencies = found.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
        raise ConfigurationError(f"{path}: dependencies in its # /// script is to be a list of texts")
    return found


def _check_python(path: str, wanted: str) -> None:
    """Raise ConfigurationError if this Python is none that the header allows; what is not understood is for uv."""
    for part in wanted.split(","):
        found = re.fullmatch(r"\s*(>=|<=|>|<|==|!=|~=)\s*(\d+)\.(\d+)(?:\.(\d+|\*))?\s*", part)
        if found is None:
            continue
        size = 2 if found[4] in (None, "*") else 3
        there, asked = sys.version_info[:size], tuple(int(each) for each in found.groups()[1 : size + 1])
        is_fine = {
            ">=": there >= asked, "<=": there <= asked, ">": there > asked, "<": there < asked,
            "==": there == asked, "!=": there != asked, "~=": there >= asked and there[0] == asked[0],
        }[found[1]]  # fmt: skip
        if not is_fine:
            own = ".".join(map(str, sys.version_info[:3]))
            raise ConfigurationError(
                f"{path}: its header asks for Python {wanted}, and mcpd runs on {own}; install mcpd for that one: "
                f"uv tool install --python '{wanted}' mcpd-server"
            )


def _find_uv() -> str | None:
    """uv as a shell would find it, or where its installers put it: hosts start servers with a PATH of their own."""
    from shutil import which

    home = os.path.expanduser("~")
    places = [os.environ.get("UV"), which("uv"), os.path.join(os.path.dirname(sys.executable), "uv"),
              os.path.join(home, ".local", "bin", "uv"), os.path.join(home, ".cargo", "bin", "uv")]  # fmt: skip
    return next((each for each in places if each and os.path.isfile(each) and os.access(each, os.X_OK)), None)


def _is_installed(requirement: str) -> bool:
    name = re.match(r"\s*([\w.-]+)", requirement)
    try:
        metadata.distribution(name[1] if name else requirement)
    except metadata.PackageNotFoundError:
        return False
    return True


def _run(path: str, command: list[str]) -> str:
    """What uv says on stdout. Raises ConfigurationError with its last lines if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=environment,
            timeout=_UV_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"{path}: uv took more than {_UV_SECONDS} seconds for what its header asks") from None
    except OSError as error:
        raise ConfigurationError(f"{command[0]}: cannot be run: {error.strerror}") from None
    if done.returncode:
        said = [f"  {printable(line, 500)}" for line in done.stderr.splitlines() if line.strip()][-_MOST_LINES:]
        raise ConfigurationError("\n".join([f"{path}: uv cannot give it what its header asks for:", *said]))
    return done.stdout


def _become(path: str, python: str) -> NoReturn:
    """The environment's Python, behind whose packages ours are found."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = list(dict.fromkeys([package, *(each for each in sys.path if each.endswith(("-packages",)))]))
    start = _START.format(program=sys.argv[0], paths=paths)
    os.environ[ENTERED] = os.path.abspath(path)
    os.environ.setdefault("_MCPD_PYTHON", sys.executable)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(python, [python, "-c", start, *sys.argv[1:]])
    except OSError as error:
        raise ConfigurationError(f"{python}: cannot be run: {error.strerror}") from None
