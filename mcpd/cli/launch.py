"""From the options of `mcpd serve` to a running server, and what people are told meanwhile, on stderr.

No click here: what a host waits for when it starts `mcpd serve --stdio` loads nothing else than this.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, cast

from mcpd.cli.log_setup import configure
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.serve_defaults import DEMO
from mcpd.serve_options import Options, command_options

if TYPE_CHECKING:
    from threading import Event

    from mcpd.cli.target import Found, Watcher
    from mcpd.protocol.principal import Principal
    from mcpd.server import Server
    from mcpd.server.http import HttpSettings
    from mcpd.transports.authentication import Protection

_WORKER = "_MCPD_WORKER"
"""As in `workers.handover`, which few starts load."""

_SETTLED_SECONDS = 1.0
"""After a list a host may still want its first answers."""


def launch(options: Options) -> int:
    """Load the target and serve it until it is stopped; the exit code. Raises ConfigurationError.

    With no transport named: stdio if a program started us; in a terminal, where nobody writes JSON-RPC by hand,
    `--http :8080`, or `--ws :8080` where HTTP is not installed.
    """
    from mcpd.cli.header_files import surroundings

    if os.getpid() == 1:
        from mcpd.cli.worker_options import serve_below_init

        serve_below_init()
    began = time_ns()
    found = _targets(options)
    left_out = surroundings(found)
    target, from_file = found[0], frozenset[str]()
    place = None if options.more_targets else target.place
    if place is not None and target.configuration is not None:
        from mcpd.cli.file_options import take

        from_file = take(options, target.configuration.serve, place)
        if target.configuration.auth is not None:
            from mcpd.cli.protection import table_of

            options.auth_table = table_of(target.configuration.auth, place)
    if not options.stdio and options.ws is None and options.http is None:
        _choose_transport(options, found, left_out)
    if options.workers is not None:
        from mcpd.cli.worker_options import check

        check(options, from_file)
    is_typed_at = options.stdio and sys.stdin is not None and sys.stdin.isatty()
    without_effect = list(_without_effect(options, from_file))
    if options.stdio:
        # Before any code of the user is loaded: what it prints must not reach the protocol.
        from mcpd.transports.stdio import claim

        options.descriptors = claim()
    configure(options.log_level, options.target, options.log_format)
    is_worker = _WORKER in os.environ
    if is_worker:
        from mcpd.cli.worker_options import become_worker

        become_worker(options)

    # What is said from here on has the form of the log.
    for name, why in without_effect:
        _tell(f"mcpd: {name} has no effect: {why}")
    if is_typed_at:
        what = "the demo server of mcpd " if options.target == DEMO else ""
        _tell(f"mcpd: serving {what}on stdio: an MCP client is expected to talk here, line by line. Ctrl-C ends it.")
    if place is not None and place.ignored_file:
        _tell(f"mcpd: {printable(place.ignored_file)} belongs to another user and says nothing here")
    if options.workers is not None and not is_worker:
        from mcpd.cli.worker_options import run_parent

        _resume_collector()
        return run_parent(options, read_token(options.token_file))
    _load_and_serve(options, found, left_out, began)
    return 0


def _targets(options: Options) -> list[Found]:
    """What is to be served. Raises ConfigurationError."""
    from mcpd.cli.target import find

    if options.demo:
        if options.target is not None:
            raise ConfigurationError(f"--demo serves the demo server of mcpd; leave out {options.target} or --demo")
        options.target = DEMO
    found = [find(each) for each in (options.target, *options.more_targets)]
    options.target = found[0].name
    return found


def _load_and_serve(options: Options, found: list[Found], left_out: dict[str, str], began: int) -> None:
    from mcpd.cli.target import load

    way = _Way(options)
    watched = _to_be_watched(options)
    if options.more_targets:
        from mcpd.cli.several import load_all

        server: Server | None = load_all(options, found, left_out, watched)
    else:
        program = None if options.no_compat else way
        words = (*options.words, *options.arguments)
        server = load(found[0], program, words, watched=watched, is_growing=options.reload, left_out=left_out)
    if server is not None:
        _serve(server, way, options, watched, began)


def _serve(server: Server, way: _Way, options: Options, watched: list[Watcher] | None, began: int) -> None:
    """Serve what was loaded after `began`, and follow its files where that is wanted. Raises ConfigurationError."""
    if options.reload and not watched:
        raise ConfigurationError("--reload: the demo server has no files that change; name a target")
    if not watched:
        way.run(server)
    elif options.reload:
        from mcpd.sources.watch import watching

        with watching([make(options, began) for make in watched]):
            way.run(server)
    else:
        way.later = _Later(watched, options, began)
        try:
            way.run(server)
        finally:
            way.later.stop()


def _to_be_watched(options: Options) -> list[Watcher] | None:
    """Where what can be watched is put; None if nothing is to be. Raises ConfigurationError."""
    if options.reload and options.no_reload:
        raise ConfigurationError("--reload and --no-reload: say one of them")
    is_alone = options.stdio and options.http is None and options.ws is None
    return [] if options.reload or (is_alone and not options.no_reload) else None


class _Later:
    """What is watched though nobody asked for it: from when a host has had its first answers, and if that is there
    which watches."""

    def __init__(self, watched: list[Watcher], options: Options, began: int) -> None:
        """Files that have changed since `began`, in nanoseconds, are loaded again at once."""
        self._watched = watched
        self._options = options
        self._began = began
        self._stop: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin, in a thread."""
        from threading import Event, Thread

        stop = Event()
        self._stop = stop.set
        Thread(target=self._watch, args=(stop,), name="mcpd-watch", daemon=True).start()

    def _watch(self, stop: Event) -> None:
        try:
            from mcpd.sources.watch import can_watch, watch_later
        except OSError:
            return  # no descriptor is left to load it with, and so none to watch with

        if can_watch():
            watch_later([make(self._options, self._began) for make in self._watched], stop, self._began)

    def stop(self) -> None:
        """End it; what it does now it ends by itself."""
        if self._stop is not None:
            self._stop()


class _Way:
    """How a server is served, by the options: for the one that was loaded, and for programs that call their `run()`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.has_served = False
        self.later: _Later | None = None
        self._protection: Protection | None = None

    def run(self, server: Server, wanted: object = None) -> None:
        """Serve until stopped; blocks. What a program wants is not asked: the options say it all."""
        from mcpd.server.serving import run

        self._prepare(server, wanted)
        try:
            run(server, self._options)
        finally:
            self._close()

    async def serve(self, server: Server, wanted: object = None) -> None:
        """The same in a program's own event loop."""
        from mcpd.server.serving import serve_here

        self._prepare(server, wanted)
        try:
            await serve_here(server, self._options)
        finally:
            self._close()

    def _close(self) -> None:
        """Close what was opened for the options."""
        close = getattr(self._protection, "close", None)
        if close is not None:
            close()

    def take_words(self) -> None:
        """The words behind the target were for the program."""
        self._options.words = ()

    def _prepare(self, server: Server, wanted: object) -> None:
        options = self._options
        if wanted is not None and options.reload:
            _tell("mcpd: --reload has no effect: the target is a program, and serves itself; start it again")
        self.has_served = True
        if any(each is not None and each.startswith("fd:") for each in (options.http, options.ws, options.metrics)):
            from mcpd.server.listening import take_handed_over

            take_handed_over(options)
        _hear_own_options(server, options)
        _log_calls(server, options)
        if options.http is not None:
            options.http_settings = _http_settings(options)
        options.auth = self._protection = _protection(options, server)
        options.token = (
            None if options.auth is not None else read_token(options.token_file, warns=options.overseer is None)
        )
        teller = _Teller(server, options)
        options.announce, options.look_over = teller.announce, teller.look_over_once_listed
        if self.later is not None:
            options.look_over = partial(_both, options.look_over, self.later.start)
        if options.overseer is not None:
            from mcpd.cli.worker_options import speak

            speak()
        _resume_collector()


def _both(first: Callable[[], None], then: Callable[[], None]) -> None:
    first()
    then()


def _log_calls(server: Server, options: Options) -> None:
    """Let each request have a line of the log, where that is asked for: in JSON at level info, as text at debug."""
    is_json = options.log_format == "json"
    if not is_json and not options.log_arguments:
        return
    import logging

    level = logging.INFO if is_json else logging.DEBUG
    if logging.getLogger("mcpd").isEnabledFor(level):
        from mcpd.server.dispatcher.observing import CallLog

        server.add_observer(CallLog(level, arguments=options.log_arguments))


def _hear_own_options(server: Server, options: Options) -> None:
    """What was said to the extensions that the target brought itself. Raises click.UsageError."""
    from mcpd.server.extensions.builtin import BUILT_IN

    built_in = {row.id for row in BUILT_IN}
    brought = [each for id, each in server.extensions.items() if id not in built_in]
    if not brought and not options.words:
        return
    from mcpd.server.extensions.serving import serve_options_of

    own = [option for extension in brought for option in serve_options_of(extension)]
    if options.words or any(each.option.environment in os.environ for each in own):
        from mcpd.cli.own_options import read

        options.extensions = {**options.extensions, **read(own, options.words)}


class _Teller:
    """What people are told once a server listens: where, how to point hosts at it, and what is wrong with it."""

    def __init__(self, server: Server, options: Options) -> None:
        self._server = server
        self._options = options
        self._awaited = (options.ws is not None) + (options.http is not None)

    def announce(self, url: str) -> None:
        """One listener listens."""
        from mcpd.cli.announcement import addresses, pointers

        for line in addresses(url, self._options):
            _tell(line)
        metadata = None if self._options.auth is None else self._options.auth.url_of_metadata()
        if metadata is not None and self._awaited == 1:
            _tell(f"mcpd: clients log in as {metadata} says: see that they reach it")
        self._awaited -= 1
        if not self._awaited:
            # A log that programs read has no use for lines to copy.
            for line in pointers(url, self._server.name, self._options) if self._options.log_format == "text" else ():
                _tell(line)
            if not self._options.stdio:
                self.look_over()

    def look_over_once_listed(self) -> None:
        """`look_over` a moment after a client has listed the tools: that makes their schemas, which cost memory."""
        tools = self._server.catalog.tools
        if tools.has_pages or not len(tools):
            self.look_over()
        else:
            import asyncio

            before = tools.on_listed

            def soon() -> None:
                if before is not None:
                    before()
                asyncio.get_running_loop().call_later(_SETTLED_SECONDS, self.look_over)

            tools.on_listed = soon

    def look_over(self) -> None:
        """Name what clients would run into, in a line."""
        from mcpd.server.checks import summary, token_problems

        target = self._options.target
        for problem in token_problems(self._server.catalog, self._principals()):
            _tell(f"mcpd: {'problem' if problem.is_error else 'warning'}: {problem.where}: {problem.text}")
        said = summary(self._server.problems())
        if said:
            _tell(f"mcpd: {said}: mcpd check{' ' + target if target else ''} names them")

    def _principals(self) -> Sequence[Principal]:
        if self._options.token is not None:
            from mcpd.protocol.principal import Principal

            return (Principal("token"),)
        return () if self._options.auth is None else self._options.auth.principals


def _choose_transport(options: Options, found: list[Found], left_out: dict[str, str]) -> None:
    """Stdio for a program that started us, and a port in a terminal. Raises ConfigurationError."""
    if sys.stdin is not None and sys.stdin.isatty():
        if _has_http():
            options.http = ":8080"
        else:
            options.ws = ":8080"
            _tell("mcpd: for HTTP, which more hosts speak than WebSocket: pip install 'mcpd-server[http]'")
    elif _is_nothing(0):
        _look_for_mistakes(options, found, left_out)
        raise ConfigurationError(
            "nobody can talk to it: stdin is empty; say where to listen, for example --http :8080 or --ws :8080"
        )
    else:
        options.stdio = True


def _look_for_mistakes(options: Options, found: list[Found], left_out: dict[str, str]) -> None:
    """Raise for a target that cannot be loaded and for unknown options: they are what is wrong first."""
    from mcpd.cli.programs import Looker
    from mcpd.cli.target import load

    for each in found:
        looker = Looker()
        program = None if options.no_compat else looker
        server = load(each, program, (*options.words, *options.arguments), left_out=left_out) or looker.found
        if server is not None and not looker.has_served:
            _hear_own_options(server, options)


def _has_http() -> bool:
    from importlib.util import find_spec

    return find_spec("httptools") is not None


_ALWAYS_WITH_EFFECT = {
    "stdio",
    "target",
    "more_targets",
    "given",
    "log_level",
    "log_format",
    "log_arguments",
    "extensions",
    "words",
    "arguments",
    "auth_table",
    "demo",
    "no_compat",
    "no_reload",
    "reload",
    "workers",
}


def _without_effect(options: Options, from_file: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Each option that was given and changes nothing, with the reason; what a file says may be for another way."""
    why: dict[str, str] = {}
    if options.http is None:
        why["HTTP"] = "it is about HTTP, which is not served; add --http :8080"
        if options.ws is None:
            why["Access"] = "on stdio nobody connects; it is about --http and --ws"
    defaults = Options()
    changed = {name for name in Options.__struct_fields__ if getattr(options, name) != getattr(defaults, name)}
    changed -= from_file
    if why and not changed <= _ALWAYS_WITH_EFFECT:  # to read the table costs start-up
        for name, (option, _) in command_options().items():
            if option.section in why and name in changed:
                yield option.flag, why[option.section]


def _http_settings(options: Options) -> HttpSettings:
    from mcpd.server.http import HttpSettings

    return HttpSettings(
        path=options.path,
        stateless=options.stateless,
        session_idle_timeout=options.session_timeout,
        server_card=cast("Any", options.server_card),
        public_url=options.public_url or "",
        backplane=options.backplane,
        strict_ready=options.strict_ready,
    )


def _tell(line: str) -> None:
    from mcpd.cli.telling import tell

    tell(line)


def _is_nothing(descriptor: int) -> bool:
    """Whether this reads from /dev/null, as that of a service or a background job does."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(os.devnull))
    except OSError:  # closed
        return True


def _protection(options: Options, server: Server) -> Protection | None:
    if options.http is None and options.ws is None:
        return None
    if options.auth_server is not None:
        from mcpd.cli.login_server import login_server

        return login_server(options.auth_server, server, options)
    if not (options.issuer or options.audience or options.scope or options.tokens_file or options.auth_table):
        return None
    from mcpd.cli.protection import protection_of

    return protection_of(options)


def read_token(path: str | None, *, warns: bool = True) -> str | None:
    """The token in a file, else that of the environment; None if there is none. Raises ConfigurationError."""
    if path is None:
        return os.environ.get("MCPD_TOKEN", "").strip() or None  # secrets often come with a line end
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"--token-file {path}: {why}; name a file that holds the token") from None
    if not token:
        raise ConfigurationError(f"--token-file {path}: the file is empty; write the token into it")
    from mcpd.transports.authentication import warn_of_readers

    if warns:
        warn_of_readers("--token-file", path, mode)
    return token


def _resume_collector() -> None:
    """The collector rests while modules are loaded (`main`), and need never look at what they left."""
    gc.enable()
    gc.freeze()
