"""uv, as it is asked for the environment of a script: where it is, and what it says."""

from __future__ import annotations

import os
import re
import sys
import tempfile

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.child import run_program

_UV_SECONDS = 600
_MOST_LINES = 12
_NO_PYTHON = r"No interpreter found|No download found for request|Failed to download\W[^\n]*/c?python-"


class Unsolved(Exception):
    """uv cannot make the environment; `lines` are the last ones that it says of that."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.lines = [printable(line, 500) for line in said.splitlines() if line.strip()][-_MOST_LINES:]
        self.has_no_python = re.search(_NO_PYTHON, said) is not None


def find_uv() -> str | None:
    """uv as a shell would find it, or where its installers put it: hosts start servers with a PATH of their own."""
    from shutil import which

    home = os.path.expanduser("~")
    places = [os.environ.get("UV"), which("uv"), os.path.join(os.path.dirname(sys.executable), "uv"),
              os.path.join(home, ".local", "bin", "uv"), os.path.join(home, ".cargo", "bin", "uv")]  # fmt: skip
    return next((each for each in places if each and os.path.isfile(each) and os.access(each, os.X_OK)), None)


def python_with(uv: str, script: str, python: str | None) -> str:
    """The Python of an environment with what the header of a script asks for; `python` is the one to make it of.

    None is whichever the header allows. Raises Unsolved, and ConfigurationError if uv cannot be run.
    """
    wanted = ["--python", python] if python else []
    _run(script, [uv, "sync", "--quiet", "--script", script, *wanted])
    return _run(script, [uv, "python", "find", "--script", script]).strip()


def _run(path: str, command: list[str]) -> str:
    """What uv says on stdout."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    try:
        done = run_program(command, seconds=_UV_SECONDS, env=environment)
    except TimeoutError:
        raise ConfigurationError(f"{path}: uv took more than {_UV_SECONDS} seconds for what its header asks") from None
    except OSError as error:
        raise ConfigurationError(f"{command[0]}: cannot be run: {error.strerror}") from None

    if done.returncode:
        raise Unsolved(done.stderr)
    return done.stdout


def cache_folder(*names: str) -> str:
    """A folder of ours in the user's cache; where there is no home, one that is there for this process only."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")

    folder = os.path.join(cache, "mcpd", *names)
    try:
        if not os.path.isabs(folder):
            raise OSError
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise OSError
    except OSError:
        return tempfile.mkdtemp(prefix="mcpd-")
    return folder
