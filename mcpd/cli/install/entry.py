"""The entry of a server in a host's configuration: a command with absolute paths or a URL, as each host writes it.

Hosts that are started from a desktop have another `PATH` and another working folder than the shell in which somebody
types `mcpd install`, so an entry depends on neither. The table of hosts names a `shape` for each host.
"""

from __future__ import annotations

import json
import ntpath
import os
import re
import shutil
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct, field

from mcpd import __version__
from mcpd.client.targets.configurations import Variables, read_entry
from mcpd.client.targets.grammar import parse
from mcpd.client.targets.hosts import HOSTS, Host
from mcpd.client.targets.named import CommandTarget, FileTarget, NamedTarget, UrlTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.defaults import DEMO
from mcpd.protocol.printable import mask_command, mask_text, printable
from mcpd.sources.lookup import folder_here
from .files import Record, entry_fingerprint

_SERVE = ("serve", "--stdio")
_AGAIN = {
    "uvx": ("--from", f"mcpd-server[all]=={__version__}", "mcpd"),
    "pipx": ("run", "--spec", f"mcpd-server[all]=={__version__}", "mcpd"),
}


def serving_command(
    executable: str | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words before TARGET, beginning with an absolute path, and warnings for the user."""
    # The command must still work next month, so it does not name environments that were made for one run.
    executable = executable or environment.get("_MCPD_PYTHON", sys.executable)
    maker = temporary_environment(executable, environment)
    again = shutil.which(maker, path=environment.get("PATH")) if maker in _AGAIN else None
    if again is not None:
        text = f"this mcpd is in an environment that {maker} made for one run, so the host starts it with {maker}"
        return (os.path.abspath(again), *_AGAIN[maker], *_SERVE), (text,)

    # The command of the installation of this interpreter, if it has one.
    path = os.path.abspath(executable)
    own = shutil.which("mcpd", path=os.path.dirname(path))
    command = (own, *_SERVE) if own is not None else (path, "-m", "mcpd", *_SERVE)
    if not maker:
        return command, ()
    text = (
        f"this mcpd is in a temporary folder ({os.path.dirname(executable)}), and the host will not find "
        "it once that is deleted; install it permanently (pip install mcpd-server, or pipx install "
        "mcpd-server), and run this command again"
    )
    return command, (text,)


def temporary_environment(executable: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return `uvx` or `pipx` for an interpreter in their caches, `temporary` for one in a temporary folder."""
    path = os.path.abspath(executable).replace("\\", "/")
    parts = path.lower().split("/")
    uv_cache = environment.get("UV_CACHE_DIR")
    is_of_uv = any(part.startswith(("archive-v", "environments-v", "builds-v")) for part in parts)
    if is_of_uv or (uv_cache and _is_below(path, uv_cache)):
        return "uvx"
    if "pipx" in parts and {".cache", "cache"} & set(parts):
        return "pipx"
    return "temporary" if _is_below(path, tempfile.gettempdir()) else ""


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(os.path.abspath(folder).replace("\\", "/").rstrip("/") + "/")


def without_spaces(
    words: Sequence[str], *, platform: str = sys.platform, short: Callable[[str], str] | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a command with short names (`PROGRA~1`) for paths with spaces, and warnings about other
    paths.

    Some hosts on Windows pass the whole command to the shell without quoting it. `short` returns the short path of an
    existing file, and "" for others. On other systems the words do not change.
    """
    if platform != "win32":
        return (*words,), ()
    found, warnings = [], []

    for at, word in enumerate(words):
        plain = _plain(word, short or short_name)
        found.append(plain)
        if " " in plain and at == 0:
            warnings.append(
                f"{printable(plain, 500)} has a space in it, and no short name here: hosts that start it "
                "with a shell cannot; if yours reports that it is not recognized, install mcpd into a "
                "folder without spaces"
            )

    return (*found,), (*warnings,)


def short_name(path: str) -> str:
    """Return the path with the short names that Windows keeps for its parts; "" if it does not exist."""
    if sys.platform == "win32":
        from ctypes import create_unicode_buffer, windll

        length = windll.kernel32.GetShortPathNameW(path, None, 0)
        buffer = create_unicode_buffer(length + 1)
        if windll.kernel32.GetShortPathNameW(path, buffer, length + 1):
            return buffer.value
    return ""


def _plain(word: str, short: Callable[[str], str]) -> str:
    if " " not in word or not ntpath.isabs(word):
        return word
    path, behind = word, ""
    if not short(word):  # a file and the name of a server in it
        path, colon, name = word.rpartition(":")
        behind = colon + name

    if not ntpath.isabs(path) or not short(path):
        return word

    drive, rest = ntpath.splitdrive(path)
    so_far = made = drive + rest[0]

    for part in rest[1:].replace("/", "\\").split("\\"):
        so_far = ntpath.join(so_far, part)
        made = ntpath.join(made, ntpath.basename(short(so_far)) if " " in part else part)
    return made + behind


Transport: TypeAlias = Literal["stdio", "http", "ws"]

# Options that set variables of the server: the variables, and the help text.
SWITCHES = {
    "--attach": ({"MCPD_ATTACH": "1"}, "Let all hosts and chats share one daemon (MCPD_ATTACH=1)."),
    "--no-apps": ({"MCP_APPS_ENABLED": "false"}, "Let the server offer no pages (MCP_APPS_ENABLED=false)."),
}

_IS_EMPTY = ("server", "main", "app", "mcp", "index", "src", "dist", "build", "run", "start", "cli")
_MAX_NAME = 40


class Entry(Struct, frozen=True, kw_only=True):
    """One server as a host starts it or reaches it. Either `command` or `url` is set.

    Values of `env` and `headers` may be secrets, so `repr` does not show them.
    """

    # The absolute path of a program.
    command: str = ""
    args: tuple[str, ...] = ()
    # Variables beside the ones that the host passes.
    env: dict[str, str] = field(default_factory=dict)
    # The folder that it runs in; None for the host's choice.
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    transport: Transport = "stdio"

    def __repr__(self) -> str:
        if self.url:
            return f"Entry({mask_text(self.url.partition('?')[0])!r}, headers: {', '.join(self.headers) or 'none'})"
        return f"Entry({mask_command([self.command, *self.args])!r}, env: {', '.join(self.env) or 'none'})"


class NamedEntry(Struct, frozen=True):
    """An entry, a suitable name, and warnings for the user."""

    entry: Entry
    name: str
    warnings: tuple[str, ...] = ()
    # Whether the server is a file or folder. The name that it gives itself is then better than `name`.
    is_own: bool = False


def make_entry(
    target: str | None,
    command: Sequence[str] = (),
    *,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> NamedEntry:
    """Make the entry of a server: of TARGET, of the words behind `--`, or of a URL.

    Without any of them it is the folder that is meant here, otherwise the demo server. `env` and `headers` are added to
    those of the target. Raises ConfigurationError for two of the three at once, for a missing target or program, and
    for variables of a server that is not started.
    """
    if sum(given is not None for given in (target, url, command or None)) > 1:
        raise ConfigurationError("give only one of TARGET, --http URL and a command after --")
    env, headers = env or {}, headers or {}
    for name, value in [*env.items(), *headers.items()]:
        if not _is_text(name + value):
            raise ConfigurationError(f"{printable(name)}: its value is not UTF-8, as hosts' files require")
    for word in (target or "", url or "", *command):
        if not _is_text(word):
            raise ConfigurationError(f"{printable(word)} is not UTF-8, as hosts' files require; rename it")
    named = _named(target, command, url)
    # Variables of an entry that is copied from another configuration may hold secrets.
    values = named.headers if isinstance(named, UrlTarget) else named.env if isinstance(named, CommandTarget) else None
    copied: tuple[str, ...] = ()
    if named.name and values:
        copied = (f"{named}: the values of {', '.join(values)} are copied as they are now, written out",)
    if isinstance(named, UrlTarget):
        return NamedEntry(_of_url(named, env, headers), server_name(named), copied)
    if headers:
        raise ConfigurationError("headers are only for a server behind a URL; for a program use --env NAME=VALUE")

    if isinstance(named, CommandTarget):
        program, *args = named.command
        whole, warnings = _with_absolute_paths(args) if command else (tuple(args), ())
        plain, spaces = without_spaces([_program(program, named.cwd), *whole])
        words = start_words(plain[0], plain[1:])
        made = Entry(command=words[0], args=words[1:], env={**(named.env or {}), **env}, cwd=named.cwd)
        return NamedEntry(made, server_name(named), (*copied, *warnings, *spaces))
    if target is None and named.path == DEMO:
        copied = ("no server was named, so this is the demo server of mcpd",)
    return entry_of_files([named], env, copied)


def as_target(entry: Entry) -> CommandTarget | UrlTarget:
    """Return the entry as a target that can be started or connected to."""
    if entry.url:
        return UrlTarget(entry.url, dict(entry.headers))
    return CommandTarget((entry.command, *entry.args), dict(entry.env) or None, entry.cwd)


def start_words(
    program: str, args: Sequence[str], *, platform: str = sys.platform, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return the words that start a program. On Windows only the shell starts batch files, such as npx."""
    if platform == "win32" and program.lower().endswith((".cmd", ".bat")):
        shell = environment.get("COMSPEC") or "C:\\Windows\\System32\\cmd.exe"
        return shell, "/c", program, *args
    return program, *args


def server_name(named: NamedTarget) -> str:
    """Return a short name for a target, made of letters, digits, `-` and `_`."""
    candidates: list[str] = []
    if named.name:
        candidates = [named.name.rpartition(":")[2]]  # its name in another host
    elif isinstance(named, FileTarget) and named.path != DEMO:
        place = os.path.splitext(named.path)[0] if named.path.endswith(".py") else named.path
        candidates = [part for part in re.split(r"[/\\.]" if not os.path.isabs(place) else r"[/\\]", place) if part]
    elif isinstance(named, UrlTarget):
        parts = urlsplit(named.url)
        labels = (parts.hostname or "").split(".")
        own = labels[-2:-1] if not labels[-1].isdigit() else []
        candidates = [*own, *filter(None, parts.path.split("/"))]
    elif isinstance(named, CommandTarget):
        words = [word for word in named.command if not word.startswith("-")]
        candidates = [os.path.splitext(re.split(r"[/\\]", word.rpartition("@")[0] or word)[-1])[0] for word in words]

    for candidate in reversed(candidates):
        name = entry_name(candidate)
        if name and name.lower() not in _IS_EMPTY:
            return name
    return "mcpd"


def entry_name(name: str) -> str:
    """Return the name in characters that every host accepts: letters, digits, `-` and `_`; "" if nothing is left."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:_MAX_NAME]


def _named(target: str | None, command: Sequence[str], url: str | None) -> NamedTarget:
    if command:
        return CommandTarget((*command,))
    if target is None and url is None:
        place = folder_here()
        if place is not None and not place.is_trusted:
            # The user names a server that a host starts again and again; it is not found by chance.
            raise ConfigurationError(
                "this folder looks like a server, but has no mcpd.toml; if it is yours, name it: ."
            )
        return FileTarget(DEMO if place is None else place.root)

    named = parse(target if target is not None else url or "")
    if url is not None and not isinstance(named, UrlTarget):
        raise ConfigurationError(f"{url}: --http needs the URL of a running server, such as http://127.0.0.1:8080/mcp")
    return named


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_url(named: UrlTarget, env: Mapping[str, str], headers: Mapping[str, str]) -> Entry:
    if env:
        raise ConfigurationError(
            f"{named}: variables can only be set for a server that is started, and this one is already running"
        )
    if named.socket is not None:
        raise ConfigurationError(
            f"{named}: hosts cannot connect to unix sockets; serve it with --http :8080 and use that URL"
        )
    transport: Transport = "ws" if named.url.startswith("ws") else "http"
    return Entry(url=named.url, headers={**named.headers, **headers}, transport=transport)


def entry_of_files(named: Sequence[FileTarget], env: Mapping[str, str] = {}, said: tuple[str, ...] = ()) -> NamedEntry:
    """Return the entry that serves these files as one server."""
    command, warnings = serving_command()
    if any(not (os.path.isabs(each.path) or each.path == DEMO or _is_installed(each.path)) for each in named):
        env = {"PYTHONPATH": os.getcwd(), **env}
    plain, spaces = without_spaces([*command, *(each.words for each in named)])
    made = Entry(command=plain[0], args=plain[1:], env=dict(env))
    return NamedEntry(made, server_name(named[0]), (*said, *warnings, *spaces), is_own=not named[0].name)


def _is_installed(module: str) -> bool:
    # Hosts start servers in another folder, where a module that is found only here cannot be imported.
    top = module.partition(".")[0]
    if top == __name__.partition(".")[0]:
        return True
    here = os.getcwd()
    before = list(sys.path)
    sys.path[:] = [place for place in before if place and os.path.abspath(place) != here]
    try:
        return any(finder.find_spec(top, None) is not None for finder in sys.meta_path)
    finally:
        sys.path[:] = before


def _with_absolute_paths(args: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found, warnings = [], []
    for word in args:
        is_path = "." in word or os.path.dirname(word) != ""
        if is_path and not word.startswith("-") and not os.path.isabs(word) and os.path.isfile(word):
            warnings.append(f"{printable(word)} is written as {printable(os.path.abspath(word), 1000)}")
            word = os.path.abspath(word)
        found.append(word)
    return (*found,), (*warnings,)


def _program(word: str, cwd: str | None) -> str:
    word = os.path.expanduser(word)
    found = shutil.which(os.path.join(cwd or os.getcwd(), word) if os.path.dirname(word) else word)
    if found is None:
        raise ConfigurationError(f"{word}: no such program; install it, or give its path")
    return os.path.abspath(found)


# Members that determine what is started or reached. An update replaces them. All other members belong to the user
# (`disabled`, `autoApprove`, `timeout`, …) and stay.
LAUNCH_MEMBERS = frozenset(
    {
        "type", "transport", "command", "cmd", "args", "env", "envs", "environment", "cwd", "envFile",
        "url", "uri", "httpUrl", "serverUrl", "headers", "http_headers", "requestInit", "bearer_token_env_var",
        "env_http_headers",
    }
)  # fmt: skip

COMMAND_MEMBERS = ("command", "cmd")
URL_MEMBERS = ("url", "httpUrl", "serverUrl", "uri")
VARIABLE_MEMBERS = ("env", "environment", "envs")
# The names that hosts give to these members of an entry.
HEADER_MEMBERS = ("headers", "http_headers", "requestInit", "requestOptions")

_GOOSE = {"enabled": True, "timeout": 300}


def shaped(host: Host, name: str, entry: Entry) -> dict[str, Any]:
    """Return the entry in this host's format. Raises ConfigurationError for features that the host does not support."""
    if entry.url:
        if entry.transport == "ws" and host.id not in _KNOW_WEBSOCKET:
            raise ConfigurationError(f"{host.name} does not support WebSocket; use the http:// URL of the server")
        if host.shape == "no-url":
            raise ConfigurationError(
                f"{host.name} accepts no URLs in its file: add it in Settings > Connectors, or install the server as a "
                "TARGET"
            )
        return _URLS[host.shape](name, entry)

    if entry.cwd is not None and host.id not in _KNOW_CWD:
        raise ConfigurationError(
            f"{host.name} does not support a working folder ({entry.cwd}); name the server as a file, or "
            "use absolute paths"
        )
    return _COMMANDS.get(host.shape, _plain_command)(name, entry)


_KNOW_WEBSOCKET = ("claude-code", "xcode-claude")
_KNOW_CWD = ("codex", "xcode-codex", "gemini-cli", "qwen-code", "vscode", "vscode-insiders")


def _plain_command(name: str, entry: Entry) -> dict[str, Any]:
    return _with({"command": entry.command, "args": [*entry.args]}, env=entry.env, cwd=entry.cwd)


_Shape: TypeAlias = Callable[[str, Entry], dict[str, Any]]

_COMMANDS: dict[str, _Shape] = {
    "typed": lambda name, entry: {"type": "stdio", **_plain_command(name, entry)},
    "copilot-cli": lambda name, entry: {"type": "local", **_plain_command(name, entry), "tools": ["*"]},
    "local-remote": lambda name, entry: {
        **_with({"type": "local", "command": [entry.command, *entry.args]}, environment=entry.env),
        "enabled": True,
    },
    "goose": lambda name, entry: {
        **_with({"type": "stdio", "name": name, "cmd": entry.command, "args": [*entry.args]}, envs=entry.env),
        **_GOOSE,
    },
    "continue": lambda name, entry: {"name": name, **_plain_command(name, entry)},
}


def _url(member: str = "url", **before: Any) -> _Shape:
    return lambda name, entry: _with({**before, member: entry.url}, headers=entry.headers)


_URLS: dict[str, _Shape] = {
    "plain": _url(),
    "typed": lambda name, entry: _url(type=entry.transport)(name, entry),
    "codex": lambda name, entry: _with({"url": entry.url}, http_headers=entry.headers),
    "http-url": _url("httpUrl"),
    "server-url": _url("serverUrl"),
    "transport": _url(transport="http"),
    "cline": _url(type="streamableHttp"),
    "streamable-http": _url(type="streamable-http"),
    "copilot-cli": lambda name, entry: {**_url(type="http")(name, entry), "tools": ["*"]},
    "request-init": lambda name, entry: _with({"url": entry.url}, requestInit=_with({}, headers=entry.headers)),
    "local-remote": lambda name, entry: {**_url(type="remote")(name, entry), "enabled": True},
    "goose": lambda name, entry: {**_url("uri", type="streamable_http", name=name)(name, entry), **_GOOSE},
    "continue": lambda name, entry: _with(
        {"name": name, "type": "streamable-http", "url": entry.url}, requestOptions=_with({}, headers=entry.headers)
    ),
}


def _with(made: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**made, **{key: value for key, value in more.items() if value}}


def launch_words(entry: Any) -> list[str] | None:
    """Return the command or the URL of an entry in any host's format; None if it has neither."""
    try:
        found = read_entry(entry, Variables("none", {}, ""), "entry")
    except ConfigurationError:
        return None
    return [found.url] if isinstance(found, UrlTarget) else [*found.command]


def is_ours(entry: Any, records: Iterable[Record] = ()) -> bool:
    """Return whether `mcpd install` wrote the entry: it starts `mcpd serve --stdio`, or the journal has it."""
    words = launch_words(entry)
    if words is None or _served(words) is not None:
        return words is not None
    return any(record.entry == entry_fingerprint(words) for record in records)


def same_server(one: Any, other: Any) -> bool:
    """Return whether two entries start or reach the same server, with whichever Python or copy of mcpd."""
    a, b = launch_words(one), launch_words(other)
    if a is None or b is None:
        return False
    return a == b or (_served(a) is not None and _served(a) == _served(b))


def describe_entry(entry: Any) -> str:
    """Return the command or URL of an entry in one line, without its variables."""
    words = launch_words(entry)
    return "an unreadable entry" if words is None else " ".join(mask_command(words))


def texts_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts_in(each)]
    if isinstance(value, list):
        return [text for each in value for text in texts_in(each)]
    return [value] if isinstance(value, str) else []


def _served(words: list[str]) -> list[str] | None:
    for at in range(len(words) - 2):
        name = os.path.basename(words[at].replace("\\", "/")).lower().removesuffix(".exe")
        if name == "mcpd" and words[at + 1 : at + 3] == ["serve", "--stdio"]:
            return words[at + 3 :]
    return None


def link_to(host: Host, name: str, entry: Entry) -> str:
    """Return a link that adds the server to a host when it is opened.

    Raises ConfigurationError for a host without such links, and for entries that its links cannot express.
    """
    if host.link == "cursor":
        config = b64encode(json.dumps(shaped(host, name, entry)).encode()).decode()
        return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode({'name': name, 'config': config})}"
    if host.link in ("vscode", "vscode-insiders"):
        said = json.dumps({"name": name, **shaped(host, name, entry)}, ensure_ascii=False)
        return f"{host.link}:mcp/install?{quote(said, safe='')}"
    if host.link == "goose":
        return _goose_link(name, entry)
    have = ", ".join(each.id for each in HOSTS.values() if each.link)
    raise ConfigurationError(f"{host.name} has no links that add a server; hosts with links: {have}")


def _goose_link(name: str, entry: Entry) -> str:
    if entry.env or entry.headers:
        raise ConfigurationError("Goose's links cannot carry variables or headers; install it without --link")
    if entry.url:
        pairs = [("url", entry.url), ("type", "streamable_http")]
    else:
        pairs = [("cmd", entry.command), *(("arg", arg) for arg in entry.args)]
    return f"goose://extension?{urlencode([*pairs, ('id', name), ('name', name)], quote_via=quote)}"
