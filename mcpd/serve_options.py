"""How a server is served: each option once, with its type, its default, and how it is written on the command line.

From here come the options of `mcpd serve` (`cli/options.py` makes them click's, `cli/quick.py` reads some without it),
their environment variables, and the keywords of `Server.run` (`server/options.py` repeats the names for type checkers).
Those of extensions are declared in the same way, by the extension (`extensions/serving.py` reads them).
A host waits while this is loaded, so the annotations are evaluated only by who asks for them, and the types of other
packages are there for type checkers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, get_type_hints

from msgspec import Struct

from mcpd.serve_defaults import MAX_FRAME_BYTES, MAX_THREADS, SESSION_TIMEOUT, THREAD_TIMEOUT

if TYPE_CHECKING:
    from socket import socket

    from mcpd.protocol.channel import Listener, Overseer
    from mcpd.server.http import HttpSettings
    from mcpd.transports.accepting import WebSocketLimits
    from mcpd.transports.authentication import Protection
else:
    # For whoever evaluates annotations (`msgspec.structs.fields`): the real ones would cost every start-up.
    for _name in ("HttpSettings", "Listener", "Overseer", "Protection", "WebSocketLimits", "socket"):
        globals()[_name] = NewType(_name, object)

SECTIONS = ("Transports", "HTTP", "Access", "Limits", "Observing", "Other")
"""How the help is divided, in its order; sections of extensions come before the last."""


class Option(Struct, frozen=True):
    """How a setting is written on the command line, as `flag METAVAR`, and what its help says.

    What it takes follows from the type of the setting: a `bool` is there or not, a `float` is a number of seconds, an
    `int` is 1 or more, a tuple may be given several times.
    """

    flag: str
    section: str
    """One of SECTIONS, or one of the extension's own."""
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    """The words that are taken, in any case; empty if there is no such list."""
    is_size: bool = False
    """Whether K, M or G may stand behind the number."""

    @property
    def environment(self) -> str:
        """The variable that says it too."""
        return f"MCPD_{self.flag.removeprefix('--').replace('-', '_').upper()}"


class Settings(Struct, kw_only=True):
    """How to serve: what `Server.run` and `serving.serve` take. Times are in seconds.

    A message of more than `max_frame_bytes` is refused, over whichever transport; None for the transport's own
    limit, 64 MiB if nothing else was set.
    """

    stdio: Annotated[bool, Option("--stdio", "Transports", "Serve on stdin and stdout.")] = False
    ws: Annotated[
        str | None,
        Option(
            "--ws",
            "Transports",
            "Serve WebSocket on :PORT (this machine only), HOST:PORT or [IPV6]:PORT; 0 is any free port.",
            "ADDR",
        ),
    ] = None
    http: Annotated[
        str | None,
        Option(
            "--http",
            "Transports",
            "Serve Streamable HTTP, and WebSocket on the same port; ADDR as for --ws, or unix:/PATH, or fd:// for what "
            "a socket unit of systemd hands over.",
            "ADDR",
        ),
    ] = None
    listeners: Sequence[Listener] = ()
    """Others to serve on beside these."""
    http_settings: HttpSettings | None = None
    """The details of HTTP; None for the defaults."""
    ws_limits: WebSocketLimits | None = None
    """What one WebSocket client may use; None for the defaults."""
    sockets: Mapping[str, Sequence[socket]] = {}
    """By `http`, `ws` and `metrics` what is bound to their address already, and is listened on and closed."""
    descriptors: tuple[int, int] | None = None
    """(in, out), if stdio was claimed already."""
    token: str | None = None
    """The bearer token that clients have to send."""
    auth: Protection | None = None
    """What protects it, one of those in `mcpd.auth`; goes before the server's own."""
    insecure: Annotated[bool, Option("--insecure", "Access", "Serve beyond this machine without a token.")] = False
    allowed_hosts: Annotated[
        tuple[str, ...],
        Option(
            "--allow-host", "Access", "Another name that clients may reach this server by; can be repeated.", "NAME"
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Option(
            "--allow-origin",
            "Access",
            "A web page that may call, as https://app.example.com; can be repeated.",
            "ORIGIN",
        ),
    ] = ()
    socket_mode: Annotated[
        str,
        Option("--socket-mode", "Access", "The permissions of a socket at --http unix:/PATH, as 660.", "MODE"),
    ] = "600"
    grace: Annotated[
        float, Option("--grace", "Limits", "What running calls get when the server is stopped.", "SECONDS")
    ] = 5.0
    max_frame_bytes: int | None = None
    max_memory: Annotated[
        int | None,
        Option(
            "--max-memory",
            "Limits",
            "What may wait in all connections together, as 512M; by default half of the machine's memory.",
            "SIZE",
            is_size=True,
        ),
    ] = None
    """How many bytes may wait in all connections together; None for half of what the machine or its control group has.

    Counted are messages that are being received, the arguments of calls that run, subscriptions, events that are kept
    and what waits to be written. It is one for the process, whichever server serves.
    """
    max_threads: Annotated[
        int, Option("--max-threads", "Limits", "How many plain functions run at once.", "NUMBER")
    ] = MAX_THREADS
    """How many plain functions run at once for all clients; one connection gets two thirds of these at most."""
    thread_timeout: float = THREAD_TIMEOUT
    """How many seconds a call of a plain function waits for a thread before it fails with "try again"."""
    metrics: Annotated[
        str | None,
        Option(
            "--metrics",
            "Observing",
            "Count calls, and tell Prometheus at http://ADDR/metrics; with http for ADDR on the port of --http.",
            "ADDR",
        ),
    ] = None
    control: Annotated[
        str,
        Option(
            "--control",
            "Observing",
            "Whether mcpd status and mcpd stop find it: auto (unless it serves on stdio alone), always or never.",
            "WHEN",
            ("auto", "always", "never"),
        ),
    ] = "never"
    """`auto` is `always` where others can connect, but what keeps the socket from being made is only logged."""
    wire_log: Annotated[
        str | None,
        Option("--wire-log", "Observing", "Write each message into this file, without what is secret by name.", "FILE"),
    ] = None
    on_state: Callable[[Literal["ready", "stopping"]], None] | None = None
    """Told when everything listens, and when it is told to stop. Without it a service manager is (`NOTIFY_SOCKET`)."""
    overseer: Overseer | None = None
    """The parent process, in one of its workers."""
    announce: Callable[[str], None] | None = None
    """Told the address of each listening transport, once it listens. Without it `run` writes that on a terminal."""
    look_over: Callable[[], None] | None = None
    """Called once on stdio, some time after the start: what a host waits for comes first."""
    extensions: Mapping[str, Mapping[str, Any]] = {}
    """What is said to extensions of the server, by their id, and there by the name of the option."""


class Options(Settings, kw_only=True):
    """What `mcpd serve` can be told: how to serve, and what only a command line has to say."""

    target: str | None = None
    """The argument: a folder, file.py, file.py:object or package.module:object; None for the folder that this is in,
    or the demo server."""
    more_targets: tuple[str, ...] = ()
    """Others, which are served together with it as one server."""
    given: frozenset[str] = frozenset()
    """The members that were said on the command line or in the environment; the file of a folder says the others."""
    words: tuple[str, ...] = ()
    """What stands behind the target and is no option of ours: the target's own extensions may know it."""
    arguments: tuple[str, ...] = ()
    """What stands behind `--`: for a target that is a program with arguments of its own."""
    workers: Annotated[
        int | None,
        Option(
            "--workers",
            "Transports",
            "Serve --http and --ws from so many processes, which a parent starts again when they die, and one after "
            "the other with new code on SIGHUP.",
            "NUMBER",
        ),
    ] = None
    stateless: Annotated[
        bool, Option("--stateless", "HTTP", "HTTP: keep no sessions for clients older than 2026-07-28.")
    ] = False
    session_timeout: Annotated[
        float, Option("--session-timeout", "HTTP", "HTTP: when an idle session ends; 0 for never.", "SECONDS")
    ] = SESSION_TIMEOUT
    server_card: Annotated[
        str,
        Option(
            "--server-card",
            "HTTP",
            "HTTP: who may read the Server Card: auto (who may use the endpoint), public or never.",
            "WHO",
            ("auto", "public", "never"),
        ),
    ] = "auto"
    public_url: Annotated[
        str | None,
        Option("--public-url", "HTTP", "HTTP: the URL of the endpoint that clients use.", "URL"),
    ] = None
    path: Annotated[str, Option("--path", "HTTP", "HTTP: the path of the endpoint, as /prefix/mcp.", "PATH")] = "/mcp"
    backplane: Annotated[
        str | None,
        Option(
            "--backplane",
            "HTTP",
            "HTTP: what processes share that serve the same clients, as redis://HOST:PORT/0 or sqlite:///FILE; "
            "needs MCPD_STATE_KEY.",
            "URL",
        ),
    ] = None
    strict_ready: Annotated[
        bool, Option("--strict-ready", "HTTP", "HTTP: /readyz says 503 while the backplane is away.")
    ] = False
    token_file: Annotated[
        str | None,
        Option("--token-file", "Access", "Ask for the bearer token in this file; needed beyond this machine.", "FILE"),
    ] = None
    issuer: Annotated[
        tuple[str, ...],
        Option(
            "--issuer",
            "Access",
            "Ask for access tokens of this authorization server, which clients log in to; can be repeated.",
            "URL",
        ),
    ] = ()
    audience: Annotated[
        tuple[str, ...],
        Option(
            "--audience",
            "Access",
            "What access tokens for this server name; by default its public URL; can be repeated.",
            "NAME",
        ),
    ] = ()
    scope: Annotated[
        tuple[str, ...],
        Option("--scope", "Access", "A scope that every access token needs here; can be repeated.", "SCOPE"),
    ] = ()
    tokens_file: Annotated[
        str | None,
        Option("--tokens-file", "Access", "Ask for one of the tokens in this file, each with a name.", "FILE"),
    ] = None
    auth_table: Mapping[str, Any] | None = None
    """What the file of a folder says of authorization."""
    auth_server: Annotated[
        str | None,
        Option(
            "--auth-server",
            "Access",
            "HTTP: let people log in at this server, as this file says; dev lets in anybody on this machine.",
            "FILE",
        ),
    ] = None
    max_frame_bytes: Annotated[
        int, Option("--max-message-bytes", "Limits", "Refuse messages that are larger.", "BYTES")
    ] = MAX_FRAME_BYTES
    control: Annotated[
        str,
        Option(
            "--control",
            "Observing",
            "Whether mcpd status and mcpd stop find it: auto (unless it serves on stdio alone), always or never.",
            "WHEN",
            ("auto", "always", "never"),
        ),
    ] = "auto"
    demo: Annotated[bool, Option("--demo", "Other", "Take the demo server of mcpd in place of TARGET.")] = False
    no_compat: Annotated[
        bool,
        Option("--no-compat", "Other", "Let the target import other MCP libraries themselves, if they are installed."),
    ] = False
    reload: Annotated[
        bool,
        Option(
            "--reload",
            "Other",
            "Serve what has changed in files at once; needs the extra watch, and on stdio alone is so with it.",
        ),
    ] = False
    no_reload: Annotated[
        bool, Option("--no-reload", "Other", "Serve files as they were when it was started, on stdio too.")
    ] = False
    log_level: Annotated[
        str,
        Option(
            "--log-level",
            "Other",
            "What to log: error, warning, info or debug, which also shows where a target failed.",
            "LEVEL",
            ("debug", "info", "warning", "error"),
        ),
    ] = "info"
    log_format: Annotated[
        str,
        Option(
            "--log-format",
            "Other",
            "How to log: text for people, or json, an object on each line, with one for each request at level info.",
            "FORMAT",
            ("text", "json"),
        ),
    ] = "text"
    log_arguments: Annotated[
        bool, Option("--log-arguments", "Other", "Log the arguments of calls too, which may hold secrets.")
    ] = False


@cache
def command_options() -> dict[str, tuple[Option, Any]]:
    """Each member of `Options` that can be written on the command line: its `Option`, and its type."""
    return {name: found for name in Options.__struct_fields__ if (found := command_option(name)) is not None}


def command_option(name: str) -> tuple[Option, Any] | None:
    """The `Option` of one member of `Options`, and its type; None if there is no such member on the command line.

    Only its own annotation is evaluated, and only if it has an `Option`: a host waits meanwhile.
    """
    for cls in Options.__mro__:
        written = vars(cls).get("__annotations__", {})
        if name in written:
            if not written[name].startswith("Annotated["):
                return None
            one = SimpleNamespace(__annotations__={name: written[name]})
            hint = get_type_hints(one, globals(), include_extras=True)[name]
            return hint.__metadata__[0], hint.__origin__
    return None


def options_in(kind: type) -> dict[str, tuple[Option, Any]]:
    """Of a TypedDict of an extension's options: each that has an `Option`, with its type."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: (hint.__metadata__[0], hint.__origin__)
        for name, hint in hints.items()
        if isinstance(getattr(hint, "__metadata__", (None,))[0], Option)
    }


def parse_size(text: str) -> int:
    """Bytes as people write them: `1000`, or `512M` for so many times 1024 * 1024. Raises ValueError."""
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    digits, unit = (number[:-1].strip(), number[-1:]) if number[-1:] in ("K", "M", "G") else (number, "")
    if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise ValueError("expected bytes, or for example 512M or 2G")
    return int(digits) << (10 * ("", "K", "M", "G").index(unit))
