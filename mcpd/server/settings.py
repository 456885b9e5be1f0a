"""The settings of serving: each one once, with its type, its default and its option on the command line.

`mcpd serve`, its environment variables, `mcpd.toml` and the keywords of `Server.run` are all derived from `Settings`
and `Options`. `server/options.py` repeats the names for type checkers. Extensions declare options in the same way
(`extensions/serving.py` reads them).
"""

# Annotations are evaluated here, as they hold the options. The types of other packages are quoted: a host waits while
# this module is loaded.
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from msgspec import Struct

from mcpd.protocol.defaults import HEARTBEAT, MAX_FRAME_BYTES, MAX_THREADS, SESSION_TIMEOUT, THREAD_TIMEOUT

if TYPE_CHECKING:
    from socket import socket

    from mcpd.protocol.channel import Listener, Overseer
    from mcpd.server.http.core import HttpSettings
    from mcpd.transports.accepting import WebSocketLimits
    from mcpd.transports.authentication import Protection

__all__ = [
    "SECTIONS",
    "Option",
    "Options",
    "Settings",
    "command_option",
    "command_options",
    "options_in",
    "parse_size",
]

SECTIONS = ("Transports", "HTTP", "Access", "Mounts", "Limits", "Observing", "Other")
"""The sections of `mcpd serve --help-all`, in order. Sections of extensions come before the last one."""


class Option(Struct, frozen=True):
    """How a setting is written on the command line, as `flag METAVAR`, and its help text.

    The type of the setting decides which values are accepted: a `bool` is a flag, a `float` is a number of seconds, an
    `int` is 1 or more, and a tuple may be given several times. The help adds the default and the environment variable.
    """

    flag: str
    section: str
    """One of `SECTIONS`, or a section of the extension's own."""
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    """The accepted words, in upper or lower case; empty if any text is accepted."""
    is_size: bool = False
    """Whether the number of bytes may end in K, M or G."""
    is_common: bool = False
    """Whether `mcpd serve --help` shows the option; `--help-all` shows every option."""

    @property
    def environment(self) -> str:
        """The environment variable that sets the option too."""
        return f"MCPD_{self.flag.removeprefix('--').replace('-', '_').upper()}"


_CONTROL = Option(
    "--control",
    "Observing",
    "Let mcpd status and mcpd stop find this server: auto (unless it serves on stdio only), always or never.",
    "WHEN",
    ("auto", "always", "never"),
)


class Attach(Struct, frozen=True, kw_only=True):
    """What clients must have in common to share a daemon (`mcpd serve --stdio --attach`): `Server(attach=Attach(…))`.

    Program and command line are always the same. By default folder and environment are too, so that a server which
    reads them serves nobody else's. A server that reads neither lets all hosts share it with
    `Attach(environ=(), cwd=False)`.
    """

    environ: tuple[str, ...] | None = None
    """The names of the variables whose values must be the same; None for all. `ctx.client_process.environ` has them."""
    cwd: bool = True
    """Whether the working folder must be the same. `ctx.client_process.cwd` is the client's own."""


class Settings(Struct, kw_only=True):
    """How to serve: what `Server.run` and `serving.serve` accept. Times are in seconds, sizes in bytes."""

    stdio: Annotated[
        bool, Option("--stdio", "Transports", "Serve on stdin and stdout, as hosts expect.", is_common=True)
    ] = False
    ws: Annotated[
        str | None,
        Option(
            "--ws",
            "Transports",
            "Serve WebSocket on :PORT (this machine only), HOST:PORT or [IPV6]:PORT. Port 0 picks a free port.",
            "ADDR",
            is_common=True,
        ),
    ] = None
    http: Annotated[
        str | None,
        Option(
            "--http",
            "Transports",
            "Serve Streamable HTTP, and WebSocket on the same port. ADDR is as for --ws, or unix:/PATH, or fd:// for a "
            "socket from systemd.",
            "ADDR",
            is_common=True,
        ),
    ] = None
    listeners: "Sequence[Listener]" = ()
    """More listeners to serve on."""
    http_settings: "HttpSettings | None" = None
    """The settings of Streamable HTTP; None for the defaults."""
    ws_limits: "WebSocketLimits | None" = None
    """The limits for one WebSocket client; None for the defaults."""
    sockets: "Mapping[str, Sequence[socket]]" = {}
    """Sockets that are already bound, by `http`, `ws` and `metrics`. The server listens on them and closes them."""
    descriptors: tuple[int, int] | None = None
    """The file descriptors (in, out) of stdio if the caller has claimed them already."""
    token: str | None = None
    """The bearer token that clients must send."""
    auth: "Protection | None" = None
    """The authorization of this server, one of the classes in `mcpd.auth`; replaces the server's own."""
    insecure: Annotated[
        bool,
        Option("--insecure", "Access", "Allow other machines to connect without a token.", is_common=True),
    ] = False
    allowed_hosts: Annotated[
        tuple[str, ...],
        Option(
            "--allow-host",
            "Access",
            "Accept requests to this host name too. Can be repeated.",
            "NAME",
            is_common=True,
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Option(
            "--allow-origin",
            "Access",
            "Accept requests from web pages of this origin, for example https://app.example.com. Can be repeated.",
            "ORIGIN",
            is_common=True,
        ),
    ] = ()
    socket_mode: Annotated[
        str,
        Option("--socket-mode", "Access", "Set the permissions of the socket at --http unix:/PATH.", "MODE"),
    ] = "600"
    grace: Annotated[
        float,
        Option(
            "--grace",
            "Limits",
            "Give running calls this many seconds to finish when the server stops.",
            "SECONDS",
        ),
    ] = 5.0
    heartbeat: Annotated[
        float,
        Option(
            "--heartbeat",
            "Limits",
            "Send progress for calls that report none for this many seconds, so that clients keep waiting; 0 for "
            "never.",
            "SECONDS",
        ),
    ] = HEARTBEAT
    """Only clients that request progress receive heartbeats."""
    max_frame_bytes: int | None = None
    """The largest message that is accepted over any transport; None for the transport's own limit, normally 64 MiB."""
    max_memory: Annotated[
        int | None,
        Option(
            "--max-memory",
            "Limits",
            "Limit the memory that all connections together may use for waiting data, for example 512M. Default: half "
            "of the machine's memory.",
            "SIZE",
            is_size=True,
        ),
    ] = None
    """The bytes that may wait in all connections together; None for half the memory of the machine or control group.

    This counts messages that are being received, arguments of running calls, subscriptions, stored events and data
    that waits to be written. The limit applies to the process, not to one server.
    """
    max_threads: Annotated[
        int,
        Option(
            "--max-threads",
            "Limits",
            "Run at most this many plain (non-async) functions at once.",
            "NUMBER",
        ),
    ] = MAX_THREADS
    """How many plain functions run at once for all clients; one connection gets at most two thirds of them."""
    thread_timeout: float = THREAD_TIMEOUT
    """How many seconds a call of a plain function waits for a free thread before it fails with "try again"."""
    metrics: Annotated[
        str | None,
        Option(
            "--metrics",
            "Observing",
            "Count calls, and serve the counts to Prometheus at http://ADDR/metrics. The word http instead of ADDR "
            "uses the port of --http.",
            "ADDR",
            is_common=True,
        ),
    ] = None
    control: Annotated[str, _CONTROL] = "never"
    """With `auto`, an error in making the control socket is only logged."""
    wire_log: Annotated[
        str | None,
        Option(
            "--wire-log",
            "Observing",
            "Write every message to this file. Values with secret names, such as passwords, are masked.",
            "FILE",
        ),
    ] = None
    tool_search: Annotated[
        str,
        Option(
            "--tool-search",
            "Other",
            "List three tools that search and call the others: off, always, or auto:N for more than N tools. For hosts "
            "that cannot search themselves.",
            "WHEN",
        ),
    ] = "off"
    resources_as_tools: Annotated[
        bool, Option("--resources-as-tools", "Other", "Add tools that list and read resources, for hosts that do not.")
    ] = False
    on_state: Callable[[Literal["ready", "stopping"]], None] | None = None
    """Called when every listener listens and when the server begins to stop. Default: notify systemd."""
    overseer: "Overseer | None" = None
    """The parent process, in a worker of `--workers`."""
    announce: Callable[[str], None] | None = None
    """Called with the address of each listener once it listens. Default: `run` prints the address on a terminal."""
    after_start: Callable[[], None] | None = None
    """Called once on stdio, some time after the start, for work that must not delay the first answers."""
    extensions: Mapping[str, Mapping[str, Any]] = {}
    """Options of the server's extensions: by the extension's id, and there by the option's name."""


class Options(Settings, kw_only=True):
    """The options of `mcpd serve`: the settings, and everything that only a command line can say."""

    target: str | None = None
    """A folder, file.py, file.py:object or package.module:object; None for the current folder or the demo server."""
    more_targets: tuple[str, ...] = ()
    """Further targets, which are served together with the first one as one server."""
    received: tuple[bytes, int | str | None] = (b"", None)
    """What was read from stdin already, and the id of its first request if that has its answer."""
    given: frozenset[str] = frozenset()
    """The members that were set on the command line or in the environment; `mcpd.toml` may set the others."""
    words: tuple[str, ...] = ()
    """The unknown options after the target, which may belong to its extensions."""
    arguments: tuple[str, ...] = ()
    """The words after `--`: a command that is served too, or the arguments of a target that is a program."""
    prefix: Annotated[
        str,
        Option(
            "--prefix",
            "Mounts",
            "Choose when names of mounted servers get a prefix: auto (if there are several targets), always or never.",
            "WHEN",
            ("auto", "always", "never"),
        ),
    ] = "auto"
    only: Annotated[
        tuple[str, ...],
        Option("--only", "Mounts", "Offer only this mounted server. Can be repeated.", "MOUNT"),
    ] = ()
    workers: Annotated[
        int | None,
        Option(
            "--workers",
            "Transports",
            "Serve --http and --ws from this many processes. A parent process restarts processes that die, and "
            "reloads the code on SIGHUP.",
            "NUMBER",
            is_common=True,
        ),
    ] = None
    stateless: Annotated[
        bool, Option("--stateless", "HTTP", "Keep no sessions for clients older than protocol version 2026-07-28.")
    ] = False
    session_timeout: Annotated[
        float,
        Option(
            "--session-timeout",
            "HTTP",
            "End a session that has been idle for this many seconds; 0 never ends it.",
            "SECONDS",
        ),
    ] = SESSION_TIMEOUT
    server_card: Annotated[
        str,
        Option(
            "--server-card",
            "HTTP",
            "Choose who may read the Server Card: auto (clients that may use the endpoint), public or never.",
            "WHO",
            ("auto", "public", "never"),
        ),
    ] = "auto"
    public_url: Annotated[
        str | None,
        Option(
            "--public-url",
            "HTTP",
            "Set the URL by which clients reach the endpoint, for example behind a proxy.",
            "URL",
            is_common=True,
        ),
    ] = None
    path: Annotated[str, Option("--path", "HTTP", "Set the path of the endpoint, for example /prefix/mcp.", "PATH")] = (
        "/mcp"
    )
    backplane: Annotated[
        str | None,
        Option(
            "--backplane",
            "HTTP",
            "Share sessions and events with other processes through redis://HOST:PORT/0 or sqlite:///FILE. Requires "
            "MCPD_STATE_KEY.",
            "URL",
        ),
    ] = None
    strict_ready: Annotated[
        bool, Option("--strict-ready", "HTTP", "Answer /readyz with status 503 while the backplane is unreachable.")
    ] = False
    token_file: Annotated[
        str | None,
        Option(
            "--token-file",
            "Access",
            "Require the bearer token in this file. A token is needed if other machines can connect.",
            "FILE",
            is_common=True,
        ),
    ] = None
    issuer: Annotated[
        tuple[str, ...],
        Option(
            "--issuer",
            "Access",
            "Require access tokens of this authorization server, at which clients log in. Can be repeated.",
            "URL",
            is_common=True,
        ),
    ] = ()
    audience: Annotated[
        tuple[str, ...],
        Option(
            "--audience",
            "Access",
            "Accept access tokens for this audience. Can be repeated. Default: the public URL.",
            "NAME",
        ),
    ] = ()
    scope: Annotated[
        tuple[str, ...],
        Option("--scope", "Access", "Require this scope in every access token. Can be repeated.", "SCOPE"),
    ] = ()
    tokens_file: Annotated[
        str | None,
        Option("--tokens-file", "Access", "Accept the tokens in this file; each one has a user name.", "FILE"),
    ] = None
    auth_table: Mapping[str, Any] | None = None
    """The `[auth]` table of `mcpd.toml`."""
    auth_server: Annotated[
        str | None,
        Option(
            "--auth-server",
            "Access",
            "Let users log in at this server, as FILE describes. The word dev instead of FILE lets in anybody on "
            "this machine.",
            "FILE",
            is_common=True,
        ),
    ] = None
    max_frame_bytes: Annotated[
        int,
        Option(
            "--max-message-bytes",
            "Limits",
            "Refuse larger messages, for example 16M.",
            "SIZE",
            is_size=True,
        ),
    ] = MAX_FRAME_BYTES
    control: Annotated[str, _CONTROL] = "auto"
    base: Annotated[
        str | None,
        Option("--base", "OpenAPI", "Set the URL of the API that an OpenAPI document describes.", "URL"),
    ] = None
    operations: Annotated[
        tuple[str, ...],
        Option(
            "--operations",
            "OpenAPI",
            "Serve only these operations of a document, for example tag:pets or 'GET /pets/*'. Can be repeated.",
            "PATTERN",
        ),
    ] = ()
    api_token_file: Annotated[
        str | None, Option("--api-token-file", "OpenAPI", "Send the bearer token in this file to the API.", "FILE")
    ] = None
    demo: Annotated[
        bool, Option("--demo", "Other", "Serve the demo server of mcpd instead of a TARGET.", is_common=True)
    ] = False
    no_compat: Annotated[
        bool,
        Option(
            "--no-compat",
            "Other",
            "Let the target import other MCP libraries as they are installed, not the replacements of mcpd.",
        ),
    ] = False
    attach: Annotated[
        bool,
        Option(
            "--attach",
            "Transports",
            "Serve stdio from one daemon for all hosts that start the same server; it is started if it is missing.",
        ),
    ] = False
    linger: Annotated[
        float,
        Option("--linger", "Transports", "End the daemon this long after its last client has left.", "SECONDS"),
    ] = 300.0
    library: Annotated[
        str,
        Option(
            "--library",
            "Other",
            "Run a server of another MCP library with that library, in a child process: auto (if mcpd's replacement "
            "lacks a name that the server uses), always or never.",
            "WHEN",
            ("auto", "always", "never"),
        ),
    ] = "auto"
    reload: Annotated[
        bool,
        Option(
            "--reload",
            "Other",
            "Reload changed files while serving. Requires the watch extra; enabled by default on stdio once it is "
            "installed.",
            is_common=True,
        ),
    ] = False
    no_reload: Annotated[bool, Option("--no-reload", "Other", "Do not reload changed files, not on stdio either.")] = (
        False
    )
    log_level: Annotated[
        str,
        Option(
            "--log-level",
            "Other",
            "Log messages of this level and above: error, warning, info or debug. With debug, a target that cannot be "
            "loaded prints its traceback.",
            "LEVEL",
            ("debug", "info", "warning", "error"),
            is_common=True,
        ),
    ] = "info"
    log_format: Annotated[
        str,
        Option(
            "--log-format",
            "Other",
            "Log as text for people, or as json: one object per line, and one line per request at level info.",
            "FORMAT",
            ("text", "json"),
        ),
    ] = "text"
    log_arguments: Annotated[
        bool, Option("--log-arguments", "Other", "Log the arguments of calls too. They may contain secrets.")
    ] = False


@cache
def command_options() -> dict[str, tuple[Option, Any]]:
    """The members of `Options` that can be set on the command line, each with its `Option` and its type."""
    return {name: found for name in Options.__struct_fields__ if (found := command_option(name)) is not None}


def command_option(name: str) -> tuple[Option, Any] | None:
    """The `Option` of one member of `Options` and its type; None if the command line cannot set such a member."""
    for cls in Options.__mro__:
        hint = vars(cls).get("__annotations__", {}).get(name)
        if hint is not None:
            return (hint.__metadata__[0], hint.__origin__) if hasattr(hint, "__metadata__") else None
    return None


def options_in(kind: type) -> dict[str, tuple[Option, Any]]:
    """The members of an extension's TypedDict that have an `Option`, each with its type."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: (hint.__metadata__[0], hint.__origin__)
        for name, hint in hints.items()
        if isinstance(getattr(hint, "__metadata__", (None,))[0], Option)
    }


def parse_size(text: str) -> int:
    """Read a number of bytes such as `1000` or `512M` (units of 1,024). Raises ValueError."""
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    digits, unit = (number[:-1].strip(), number[-1:]) if number[-1:] in ("K", "M", "G") else (number, "")
    if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise ValueError("expected bytes, or for example 512M or 2G")
    return int(digits) << (10 * ("", "K", "M", "G").index(unit))
