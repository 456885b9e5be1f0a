"""Serves files with a PEP 723 header (`# /// script`) in an environment that has the packages they require.

uv makes and caches the environment, as for `uv run`. The process then replaces itself (exec) with the environment's
Python, in which this mcpd is importable: signals, stdin, stdout and the exit code remain those of one process. Several
files share no environment: each is served where mcpd runs if its requirements are installed there. If the header
requires another Python, uv finds or downloads it, and installs the requirements of mcpd there too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import metadata
from typing import Any, NoReturn

from msgspec import Struct

from mcpd.cli.install.files import explained
from mcpd.cli.install.formats.toml import toml_key, toml_value
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

# The environment variable of a process that runs in the environment of its scripts; lists the files left out.
ENTERED = "_MCPD_SCRIPT"

_START = (
    "import site, sys; sys.argv[0] = {program!r}; [site.addsitedir(path) for path in {paths!r}]; "
    "from mcpd.cli import main; main()"
)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def enter(files: Sequence[str], below: Sequence[str] = ()) -> dict[str, str]:
    """Replace this process with one in the environment of its scripts; return if no replacement is needed.

    `files` are required: raises ConfigurationError if their requirements cannot be met. Files `below` are left out in
    that case; the result has the reasons by path.
    """
    key = sha256("\0".join(map(os.path.abspath, (*files, "", *below))).encode(errors="surrogateescape")).hexdigest()
    state = json.loads(os.environ.pop(ENTERED, "{}"))  # child processes must not see it
    if state.get("key") == key:
        left_out: dict[str, str] = state["left_out"]
        return left_out

    left_out = {}
    needing: list[Header] = []
    for path in (*files, *below):
        try:
            header = read_header(path)
        except ConfigurationError as error:
            if path in files:
                raise
            left_out[path] = str(error).removeprefix(path).lstrip(",: ")
            continue
        if header is not None and (header.dependencies or not header.allows_this_python):
            needing.append(header)

    uv = _find_uv() if needing else None
    if uv is not None and len(needing) == 1:
        header = needing[0]
        try:
            python = _python_for(uv, header)
        except _UvFailed as error:
            why = _explain(header, error)
        else:
            _replace_process(python, header, json.dumps({"key": key, "left_out": left_out}))
        if header.path in files:
            raise ConfigurationError(f"{header.path}: {why}")
        return left_out | {header.path: " ".join(why.split())}

    advice = "serve the file alone, with uv installed," if len(needing) > 1 else "install uv, which provides it,"
    for header in needing:
        if not (why := _missing(header, advice)):
            continue
        if header.path in files:
            raise ConfigurationError(f"{header.path}: {why}")
        left_out[header.path] = why
    return left_out


def _missing(header: Header, advice: str) -> str:
    if not header.allows_this_python:
        return (
            f"its header requires Python {header.python}, but mcpd runs on {_own_version()}; {advice} or install mcpd "
            "with that Python's pip: pip install mcpd-server"
        )

    missing = [each for each in header.dependencies if not _is_installed(each)]
    if not missing:
        return ""
    shown = " ".join(f"'{each}'" if re.search(r"[^\w.-]", each) else each for each in missing)
    return (
        f"its header requires {', '.join(missing)}; {advice} or install it where mcpd runs: "
        f"{sys.executable} -m pip install {shown}"
    )


def requirement_name(requirement: str) -> str:
    """Return the normalized name of the distribution that a requirement names; "" for a URL or path."""
    match = re.match(r"\s*([A-Za-z0-9][\w.-]*)", requirement)
    return normalized(match[1]) if match else ""


def normalized(name: str) -> str:
    """Return a distribution's name in the form in which package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_installed(requirement: str) -> bool:
    try:
        metadata.distribution(requirement_name(requirement) or requirement)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return True


def _own_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


_BLOCK = r"(?m)^# /// script\s*$\s(?P<content>(^#(| .*)$\s)+)^# ///\s*$"


class Header(Struct, frozen=True):
    """The header of a script (PEP 723). `uv` is its `[tool.uv]`."""

    path: str
    dependencies: tuple[str, ...] = ()
    python: str = ""
    uv: dict[str, Any] = {}

    @property
    def allows_this_python(self) -> bool:
        """Whether the header allows the running Python; uv checks specifiers that are not understood here."""
        return all(_allows(part) for part in self.python.split(","))


def read_header(path: str) -> Header | None:
    """Read the header of a file; None if it has none. Raises ConfigurationError if the header is invalid."""
    import tomllib

    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return None  # loading the file reports the error

    blocks = list(re.finditer(_BLOCK, text))
    if not blocks:
        return None
    if len(blocks) > 1:
        raise ConfigurationError(f"{path}: has more than one # /// script; PEP 723 allows one")
    lines = [line[2:] if line.startswith("# ") else line[1:] for line in blocks[0]["content"].splitlines()]
    try:
        found = tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        first = text.count("\n", 0, blocks[0].start()) + 1
        raise ConfigurationError(f"{path}, line {first}: its # /// script is not TOML: {printable(error)}") from None

    dependencies = found.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
        raise ConfigurationError(f"{path}: dependencies in its # /// script must be a list of strings")
    python = found.get("requires-python", "")
    if not isinstance(python, str):
        raise ConfigurationError(f'{path}: requires-python in its # /// script must be a string such as ">=3.12"')

    tool = found.get("tool")
    settings = tool.get("uv") if isinstance(tool, dict) else None
    return Header(path, tuple(dependencies), python.strip(), settings if isinstance(settings, dict) else {})


def _allows(specifier: str) -> bool:
    found = re.fullmatch(r"\s*(>=|<=|>|<|==|!=|~=)\s*(\d+)\.(\d+)(?:\.(\d+|\*))?\s*", specifier)
    if found is None:
        return True

    size = 2 if found[4] in (None, "*") else 3
    own, required = sys.version_info[:size], tuple(int(each) for each in found.groups()[1 : size + 1])
    return {
        ">=": own >= required, "<=": own <= required, ">": own > required, "<": own < required,
        "==": own == required, "!=": own != required,
        "~=": own >= required and own[: size - 1] == required[: size - 1],
    }[found[1]]  # fmt: skip


def _as_script(header: Header, more: Iterable[str]) -> str:
    # The script is written to another folder, so relative paths become absolute.
    dependencies = list(dict.fromkeys([*header.dependencies, *more]))
    lines = [f"requires-python = {toml_value(f'{header.python},>=3.11')}", f"dependencies = {toml_value(dependencies)}"]
    if header.uv:
        settings = _absolute(header.uv, os.path.dirname(os.path.abspath(header.path)))
        lines += ["[tool.uv]", *(f"{toml_key(name)} = {toml_value(value)}" for name, value in settings.items())]
    return "".join(f"# {line}\n" for line in ["/// script", *lines, "///"])


def _absolute(value: Any, folder: str) -> Any:
    if isinstance(value, dict):
        return {
            name: os.path.join(folder, each) if name == "path" and isinstance(each, str) else _absolute(each, folder)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_absolute(each, folder) for each in value]
    if isinstance(value, str) and value.startswith(("./", "../")):
        return os.path.normpath(os.path.join(folder, value))
    return value


_UV_SECONDS = 600
_MOST_LINES = 12
_NO_PYTHON = r"No interpreter found|No download found for request|Failed to download\W[^\n]*/c?python-"


class _UvFailed(Exception):
    """uv cannot make the environment; `lines` are the end of its output."""

    def __init__(self, stderr: str) -> None:
        super().__init__(stderr)
        self.lines = [printable(line, 500) for line in stderr.splitlines() if line.strip()][-_MOST_LINES:]
        self.has_no_python = re.search(_NO_PYTHON, stderr) is not None


def _find_uv() -> str | None:
    # Hosts start servers with a short PATH, so the folders of uv's installers are searched too.
    from shutil import which

    home = os.path.expanduser("~")
    places = [os.environ.get("UV"), which("uv"), os.path.join(os.path.dirname(sys.executable), "uv"),
              os.path.join(home, ".local", "bin", "uv"), os.path.join(home, ".cargo", "bin", "uv")]  # fmt: skip
    # Without a home folder the last ones are a folder "~" in the current one, whose files may be anybody's.
    found = (each for each in places if each and not each.startswith("~"))
    return next((each for each in found if os.path.isfile(each) and os.access(each, os.X_OK)), None)


def _python_for(uv: str, header: Header) -> str:
    if header.allows_this_python:
        return _sync(uv, header.path, sys.executable)  # uses the lock file beside the script, if any

    script = _as_script(header, _own_requirements())
    path = os.path.join(_cache_folder(), f"{sha256(script.encode()).hexdigest()[:16]}.py")
    if not os.path.isfile(path):
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as file:
            file.write(script)
        os.replace(partial, path)
    return _sync(uv, path, None)


def _sync(uv: str, script: str, python: str | None) -> str:
    choice = ["--python", python] if python else []
    _run_uv(script, [uv, "sync", "--quiet", "--script", script, *choice])
    return _run_uv(script, [uv, "python", "find", "--script", script]).strip()


def _run_uv(path: str, command: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=environment,
            timeout=_UV_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        text = f"{path}: uv needed more than {_UV_SECONDS} seconds to install the requirements of its header"
        raise ConfigurationError(text) from None
    except OSError as error:
        raise ConfigurationError(f"{command[0]}: cannot be run: {error.strerror}") from None

    if done.returncode:
        raise _UvFailed(done.stderr)
    return done.stdout


def _explain(header: Header, error: _UvFailed) -> str:
    if error.has_no_python and not header.allows_this_python:
        return (
            f"its header requires Python {header.python}, mcpd runs on {_own_version()}, and uv has no other Python "
            "that fits (mcpd needs 3.11 or newer); install one with uv python install"
        )
    return "\n".join(["uv cannot install the requirements of its header:", *(f"  {line}" for line in error.lines)])


def _own_requirements() -> list[str]:
    try:
        declared = metadata.requires("mcpd-server") or []
    except metadata.PackageNotFoundError:
        declared = ["anyio", "click", "msgspec", "websockets"]
    found = []
    for each in declared:
        extra = re.search(r"\s*(?:;|and)\s*extra\s*==\s*['\"]([^'\"]+)['\"]", each)
        if extra is None or (extra[1] not in ("all", "test") and _is_installed(each)):
            found.append(each.replace(extra[0], "") if extra else each)
    return list(dict.fromkeys(found))


def _cache_folder(*names: str) -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")

    folder = os.path.join(cache, "mcpd", "scripts", *names)
    # A user without a home folder, as in some containers, does not get a folder "~" in the current one.
    with suppress(OSError):
        if os.path.isabs(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return tempfile.mkdtemp(prefix="mcpd-")


def _replace_process(python: str, header: Header, entered: str) -> NoReturn:
    # The packages of the environment come before those of mcpd: the header decides about versions.
    paths = [os.path.dirname(_PACKAGE), *(each for each in sys.path if each.endswith("-packages"))]
    if not header.allows_this_python:
        paths = [_folder_with_mcpd_only()]  # the packages beside mcpd are for this Python

    start = _START.format(program=sys.argv[0], paths=list(dict.fromkeys(paths)))
    environment = {**os.environ, ENTERED: entered}
    environment.setdefault("_MCPD_PYTHON", sys.executable)
    sys.stdout.flush()
    sys.stderr.flush()
    with explained(f"{python} cannot be run"):
        os.execve(python, [python, "-c", start, *sys.argv[1:]], environment)


def _folder_with_mcpd_only() -> str:
    # Nothing else that is installed beside mcpd must be importable.
    folder = _cache_folder(sha256(os.fsencode(_PACKAGE)).hexdigest()[:16])
    for name in (os.path.basename(_PACKAGE), "assets"):  # in a checkout, assets is beside the package
        place, link = os.path.join(os.path.dirname(_PACKAGE), name), os.path.join(folder, name)
        if os.path.isdir(place) and not os.path.islink(link):
            partial = f"{link}.{os.getpid()}"
            os.symlink(place, partial)
            os.replace(partial, link)
    return folder
