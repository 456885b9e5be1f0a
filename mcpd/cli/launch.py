"""Serves a target with the options of `mcpd serve`, and prints messages for people on stderr.

A host waits for this when it starts `mcpd serve --stdio`, so click and everything that is rarely needed is not loaded.
`stdio_options` reads the command lines that hosts use; click reads all others: other commands and options, help,
mistakes and environment variables.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event, Thread
from time import time_ns
from typing import TYPE_CHECKING, Any, cast

from mcpd.errors import ConfigurationError
from mcpd.protocol.defaults import DEMO
from mcpd.protocol.printable import mask_command, printable
from mcpd.server.settings import Option, Options, command_option
from .log import configure

if TYPE_CHECKING:
    from mcpd.server import Server
    from mcpd.server.extensions.serving import ServeOption
    from mcpd.sources.lookup import ServerFolder
    from mcpd.sources.watch import Watched
    from mcpd.transports.authentication import Protection
    from .target import Found, Watcher


# These variables are read later, not as options.
_NOT_OPTIONS = ("MCPD_TOKEN", "MCPD_STATE_KEY")


def stdio_options(words: Sequence[str], environment: Mapping[str, str]) -> Options | None:
    """The options of `serve --stdio [TARGET…] [OPTIONS]`, in any order; None if click must read the line."""
    ours = words[: words.index("--")] if "--" in words else words
    if not words or words[0] != "serve" or "--stdio" not in ours:
        return None
    if any(name.startswith("MCPD_") and name not in _NOT_OPTIONS for name in environment):
        return None

    options = Options(stdio=True)
    extensions: dict[str, dict[str, Any]] = {}
    given = {"stdio"}
    rest = iter(words[1:])
    for word in rest:
        if word == "--stdio":
            continue
        if word == "--":
            options.arguments = tuple(rest)
            break
        if word.startswith("-"):
            name, found = _readable(word)
            if found is None:
                return None
            option = found if isinstance(found, Option) else found.option
            value = next(rest, "") if option.choices else True
            if option.choices and value not in option.choices:
                return None
            if isinstance(found, Option):
                setattr(options, name, value)
                given.add(name)
            else:
                extensions.setdefault(found.id, {})[name] = value
        elif not word:
            return None
        elif options.target is not None:
            options.more_targets += (word,)
        else:
            options.target = word

    options.extensions = extensions
    options.given = frozenset(given)
    return options


def _readable(flag: str) -> tuple[str, Option | ServeOption | None]:
    name = flag.removeprefix("--").replace("-", "_")
    found = command_option(name)
    if found is not None:
        option, kind = found
        is_read = option.flag == flag and (kind is bool or bool(option.choices))
        return name, option if is_read else None
    from mcpd.server.extensions.serving import serve_options  # few command lines have such options

    for each in serve_options():
        if each.option.flag == flag and (each.kind is bool or each.option.choices):
            return each.name, each
    return name, None


# The same variable as in `workers.process`, which few starts load.
_WORKER = "_MCPD_WORKER"

# The delay of advice after tools were listed, in which a host may expect its first answers.
_ADVICE_SECONDS = 1.0

_TRANSPORTS = frozenset(("stdio", "ws", "http"))


# Prints a line for the user who starts the server; a worker passes these lines to its parent.
_print: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731


def launch(options: Options, given: Found | None = None) -> int:
    """Load the target and serve it until it is stopped; returns the exit code. Raises ConfigurationError.

    `given` is a mounted server instead of the target of the options.
    """
    # The default transport is stdio if a program started us. In a terminal it is `--http :8080`, or `--ws :8080` if the
    # http extra is not installed.
    from .target import prepare_scripts

    global _print
    if os.getpid() == 1:
        from .worker_options import serve_below_init

        serve_below_init()
    began = time_ns()
    found, mounts = _targets(options) if given is None else ([], [given])
    left_out = prepare_scripts(found)
    is_daemon = _is_daemon(options)
    target, from_file = (found or mounts)[0], frozenset[str]()
    if not options.more_targets:
        from_file = _take_configuration(options, target)
    if not options.stdio and options.ws is None and options.http is None and not is_daemon:
        _choose_transport(options, found, left_out)
    if options.workers is not None:
        from .worker_options import check

        check(options, from_file)
    is_terminal = options.stdio and sys.stdin is not None and sys.stdin.isatty()
    without_effect = list(_without_effect(options))
    if options.stdio:
        # Before the user's code is loaded: its output must not get between the protocol's messages.
        from mcpd.transports.stdio import claim

        options.descriptors = claim()
    configure(options.log_level, options.target, options.log_format)
    is_worker = _WORKER in os.environ
    if is_worker:
        from .worker_options import become_worker

        _print = become_worker(options)

    # From here on, lines have the format of the log.
    for name, why in without_effect:
        _print(f"mcpd: {name} has no effect: {why}")
    if is_terminal:
        what = "the demo server of mcpd " if options.target == DEMO else ""
        _print(f"mcpd: serving {what}on stdio, which expects an MCP client and not a person; Ctrl-C stops it")
    if target.place is not None and target.place.ignored_file:
        _print(f"mcpd: {printable(target.place.ignored_file)} is ignored because it belongs to another user")
    if options.workers is not None and not is_worker:
        from .worker_options import run_parent

        _resume_collector()
        return run_parent(options, read_token(options.token_file), _print)
    _load_and_serve(options, found, mounts, left_out, began)
    return 0


def _take_configuration(options: Options, target: Found) -> frozenset[str]:
    # Take the options in the mcpd.toml of the only target, and return their names.
    place = target.place
    if place is None or target.configuration is None:
        return frozenset()
    from_file = _take_file_options(options, target.configuration.serve, place)
    if target.configuration.auth is not None:
        from .listening import settings_of_table

        options.auth_table = settings_of_table(target.configuration.auth, place)
    return from_file


def _is_daemon(options: Options) -> bool:
    # Whether this process serves the clients that attach to it, instead of stdin. Raises ConfigurationError.
    if not options.attach:
        return False
    for flag, value in (("--http", options.http), ("--ws", options.ws), ("--workers", options.workers)):
        if value is not None:
            raise ConfigurationError(f"--attach serves stdio only: leave out {flag} or --attach")
    if not options.stdio:
        raise ConfigurationError("--attach shares the daemon of a server on stdio: add --stdio")
    from .attach.daemon import is_daemon

    if is_daemon():
        options.stdio = False
    return not options.stdio


def _targets(options: Options) -> tuple[list[Found], list[Found]]:
    # Return the servers of the user, and the servers of others.
    from .target import Found, command_in, find

    if options.demo and options.target is not None:
        raise ConfigurationError(f"--demo serves the demo server of mcpd: leave out {options.target} or --demo")
    command = command_in(options.more_targets[-1] if options.more_targets else options.target, options.arguments)
    if command:
        options.arguments = ()
    elif options.target is None and options.arguments and not options.demo:
        options.target, *rest = options.arguments  # a command line, which begins with the target
        options.arguments = tuple(rest)
    texts = (DEMO if options.demo else options.target, *options.more_targets)
    openapi = {"base": options.base, "allow": options.operations, "token_file": options.api_token_file}
    found = [] if command and texts == (None,) else [find(each, openapi) for each in texts]
    if options.base is not None and sum(each.openapi is not None for each in found) != 1:
        raise ConfigurationError("--base requires one target that is an OpenAPI document")
    own, mounts = [each for each in found if not each.is_mount], [each for each in found if each.is_mount]
    if command:
        mounts.append(Found(f"-- {shlex.join(mask_command(command))}", is_mount=True, command=command))
    if not own and (options.words or options.arguments):
        word = (*options.words, *options.arguments)[0]
        raise ConfigurationError(f"{word}: a server at a URL or in a file has no arguments here")
    options.target = (own or mounts)[0].name
    options.more_targets = tuple(each.name or "" for each in own[1:])
    return own, mounts


def _take_file_options(options: Options, values: Mapping[str, Any], place: ServerFolder) -> frozenset[str]:
    # A transport on the command line replaces all transports of the file: `mcpd serve --stdio` opens no port. Paths in
    # the file are relative to its folder.
    if not values:
        return frozenset()
    from mcpd.sources.configuration import serve_keys

    known = serve_keys()
    given = options.given | (_TRANSPORTS if options.given & _TRANSPORTS else frozenset())
    if os.environ.get("MCPD_TOKEN"):
        given |= {"token_file"}
    taken: set[str] = set()
    extensions: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        id, name, option, _ = known[key]
        if id:
            extensions.setdefault(id, {})[name] = value
        elif name not in given:
            is_path = option.metavar == "FILE" and (name, value) != ("auth_server", "dev")
            setattr(options, name, os.path.join(place.root, value) if is_path else value)
            taken.add(name)

    for id, own in options.extensions.items():
        extensions[id] = {**extensions.get(id, {}), **own}
    options.extensions = extensions
    return frozenset(taken)


def _load_and_serve(
    options: Options, found: list[Found], mounts: list[Found], left_out: dict[str, str], began: int
) -> None:
    from .target import load, load_mounts, with_child

    words = (*options.words, *options.arguments)
    if words and len(found) > 1:
        raise ConfigurationError(
            f"{words[0]}: several targets cannot have arguments of their own; serve one target alone"
        )
    if not options.no_compat:
        all_found = [with_child(each, words, options.library) for each in found] + mounts
        found, mounts = ([each for each in all_found if each.is_mount is is_mount] for is_mount in (False, True))
    _check_login(mounts, options)
    if options.reload and options.no_reload:
        raise ConfigurationError("--reload and --no-reload exclude each other: give one of them")
    is_stdio_only = options.stdio and options.http is None and options.ws is None
    is_watched = options.reload or (is_stdio_only and not options.no_reload) or options.attach
    watched: list[Watcher] | None = [] if is_watched else None
    serving = _Serving(options, mounts if found else [], watched)
    if not found:
        options.words = ()  # a child has them
        server: Server | None = load_mounts(mounts, options.prefix, watched)
    elif len(found) > 1:
        server = _load_all(options, found, left_out, watched)
    else:
        loaded_by = None if options.no_compat else serving
        how: dict[str, Any] = {"watched": watched, "is_growing": options.reload, "left_out": left_out}
        server = load(found[0], loaded_by, words, library="never", **how)  # decided above
    if server is not None:
        _serve(server, serving, options, watched, began)


def _load_all(
    options: Options, targets: Sequence[Found], left_out: Mapping[str, str], watched: list[Watcher] | None
) -> Server:
    # The `[serve]` of a folder's mcpd.toml is ignored, because it describes that folder only.
    from mcpd.server.extensions.serving import configure
    from mcpd.server.joined import join
    from .target import load_caught

    servers = []
    for target in targets:
        if target.place is not None and target.configuration is not None and target.configuration.serve:
            import logging

            text = "%s: [serve] is ignored because several targets are served; use the command line"
            logging.getLogger("mcpd").warning(text, printable(target.place.file))
        how: dict[str, Any] = {"watched": watched, "is_growing": options.reload, "left_out": left_out}
        servers.append(load_caught(target, is_compatible=not options.no_compat, library="never", **how)[0])
    for server in servers:
        own = {id: values for id, values in options.extensions.items() if id in server.extensions}
        configure(server.extensions, own)
    return join(servers)


def _check_login(mounts: Sequence[Found], options: Options) -> None:
    given = (options.token_file, options.issuer, options.tokens_file, options.auth_table, options.auth_server)
    if any((*given, os.environ.get("MCPD_TOKEN"))) or not (options.http or options.ws):
        return
    for each in mounts:
        if each.child is not None and each.child.has_login:
            raise ConfigurationError(
                f"{each.name}: its own authorization (auth=) has no effect here, because its library does not serve "
                "the port; add for example --token-file or --issuer"
            )


def _serve(server: Server, serving: _Serving, options: Options, watched: list[Watcher] | None, began: int) -> None:
    if options.reload and not watched:
        raise ConfigurationError("--reload: this target has no Python files or folder to watch")
    if options.attach and not options.stdio and not options.reload:
        serving.loaded = [make(options, began) for make in watched or ()]
        serving.run(server)
    elif not watched:
        serving.run(server)
    elif options.reload:
        from mcpd.sources.watch import watching

        with watching([make(options, began) for make in watched]):
            serving.run(server)
    else:
        stop = Event()

        def watch() -> None:
            # Watching starts after the host has received its first answers, because it takes processor time.
            try:
                from mcpd.sources.watch import can_watch, watch_later
            except OSError:
                return  # no file descriptors are left

            if can_watch():
                watch_later([make(options, began) for make in watched], stop, began)

        serving.watch = watch
        try:
            serving.run(server)
        finally:
            stop.set()  # a reload that is running is not interrupted


class _Serving:
    """Serves with the options: the loaded server, or the server of a program that calls its `run()`."""

    def __init__(self, options: Options, mounts: list[Found], watched: list[Watcher] | None) -> None:
        self._options = options
        self._mounts = mounts
        self._watched = watched
        self.has_served = False
        # Watches the files of the target, in a thread of its own.
        self.watch: Callable[[], None] | None = None
        # What a daemon has loaded, which is not loaded again.
        self.loaded: Sequence[Watched] = ()
        self._protection: Protection | None = None

    def run(self, server: Server, wanted: object = None) -> None:
        from mcpd.server.serving import run

        self._prepare(server, wanted)
        try:
            run(server, self._options)
        finally:
            self._close()

    async def serve(self, server: Server, wanted: object = None) -> None:
        from mcpd.server.serving import serve_here

        self._prepare(server, wanted)
        try:
            await serve_here(server, self._options)
        finally:
            self._close()

    def _close(self) -> None:
        close = getattr(self._protection, "close", None)
        if close is not None:
            close()

    def take_words(self) -> None:
        self._options.words = ()

    def _prepare(self, server: Server, wanted: object) -> None:
        options = self._options
        if wanted is not None and options.reload:
            _print("mcpd: --reload has no effect, because the target is a program; restart it after a change")
        self.has_served = True
        if self._mounts:
            from .target import add_mounts

            add_mounts(server, self._mounts, options.prefix, self._watched)
        if options.only:
            from mcpd.sources.mounts.mounted import offer_only

            offer_only(server, options.only)
        if any(each is not None and each.startswith("fd:") for each in (options.http, options.ws, options.metrics)):
            from mcpd.server.listening import take_handed_over

            take_handed_over(options)
        _read_own_options(server, options)
        _log_calls(server, options)
        if options.attach and not options.stdio:
            from .attach.daemon import AttachListener

            options.listeners = (AttachListener(server, options, self.loaded),)
        if options.http is not None:
            from mcpd.server.http.core import HttpSettings

            options.http_settings = HttpSettings(
                path=options.path,
                stateless=options.stateless,
                session_idle_timeout=options.session_timeout,
                server_card=cast("Any", options.server_card),
                public_url=options.public_url or "",
                backplane=options.backplane,
                strict_ready=options.strict_ready,
            )
        if options.http is not None or options.ws is not None:
            from .listening import protection_of

            options.auth = self._protection = protection_of(options, server)
        if options.auth is None:
            options.token = read_token(options.token_file, warns=options.overseer is None)
        messages = _Messages(server, options)
        options.announce = messages.announce

        def after_start() -> None:
            messages.advise_once_listed()
            if self.watch is not None:
                Thread(target=self.watch, name="mcpd-watch", daemon=True).start()

        options.after_start = after_start
        if options.overseer is not None:
            from .worker_options import end_quiet_loading

            end_quiet_loading()
        _resume_collector()


def _log_calls(server: Server, options: Options) -> None:
    is_json = options.log_format == "json"
    if not is_json and not options.log_arguments:
        return
    import logging

    level = logging.INFO if is_json else logging.DEBUG
    if logging.getLogger("mcpd").isEnabledFor(level):
        from mcpd.server.dispatcher.observing import CallLog

        server.add_observer(CallLog(level, arguments=options.log_arguments))


def _read_own_options(server: Server, options: Options) -> None:
    from mcpd.server.extensions.builtin import BUILT_IN

    built_in = {row.id for row in BUILT_IN}
    brought = [each for id, each in server.extensions.items() if id not in built_in]
    if not brought and not options.words:
        return
    from mcpd.server.extensions.serving import serve_options_of

    own = [option for extension in brought for option in serve_options_of(extension)]
    if options.words or any(each.option.environment in os.environ for each in own):
        from .options import read_own_options

        options.extensions = {**options.extensions, **read_own_options(own, options.words)}


class _Messages:
    """The lines for the user once a server listens: its addresses, how to connect hosts, and its problems."""

    def __init__(self, server: Server, options: Options) -> None:
        self._server = server
        self._options = options
        self._awaited = (options.ws is not None) + (options.http is not None)

    def announce(self, url: str) -> None:
        from .listening import addresses, pointers

        for line in addresses(url, self._options):
            _print(line)
        metadata = None if self._options.auth is None else self._options.auth.url_of_metadata()
        if metadata is not None and self._awaited == 1:
            _print(f"mcpd: clients log in as described at {metadata}, which they must be able to reach")
        self._awaited -= 1
        if not self._awaited:
            # A JSON log is read by programs, which do not copy lines.
            for line in pointers(url, self._server.name, self._options) if self._options.log_format == "text" else ():
                _print(line)
            if not self._options.stdio:
                self.advise()

    def advise_once_listed(self) -> None:
        # Listing makes the schemas of the tools, which need memory, so the advice waits until a client has listed them.
        tools = self._server.catalog.tools
        if tools.has_pages or not len(tools):
            self.advise()
        else:
            import asyncio

            before = tools.on_listed

            def soon() -> None:
                if before is not None:
                    before()
                asyncio.get_running_loop().call_later(_ADVICE_SECONDS, self.advise)

            tools.on_listed = soon

    def advise(self) -> None:
        from mcpd.server.checks import summary, token_problems

        target = self._options.target
        principals = () if self._options.auth is None else self._options.auth.principals
        if self._options.token is not None:
            from mcpd.protocol.principal import Principal

            principals = (Principal("token"),)
        for problem in token_problems(self._server.catalog, principals):
            _print(f"mcpd: {'problem' if problem.is_error else 'warning'}: {problem.where}: {problem.text}")
        counts = summary(self._server.problems())
        if counts:
            _print(f"mcpd: {counts}; to list them: mcpd check{' ' + target if target else ''}")


def _choose_transport(options: Options, found: list[Found], left_out: dict[str, str]) -> None:
    if sys.stdin is not None and sys.stdin.isatty():
        from importlib.util import find_spec

        if find_spec("httptools") is not None:
            options.http = ":8080"
        else:
            options.ws = ":8080"
            _print("mcpd: more hosts support HTTP than WebSocket; to add it: pip install 'mcpd-server[http]'")
    elif _is_dev_null():
        _check_targets(options, found, left_out)
        raise ConfigurationError("stdin is empty, so no client can connect; add for example --http :8080 or --ws :8080")
    else:
        options.stdio = True


def _check_targets(options: Options, found: list[Found], left_out: dict[str, str]) -> None:
    # The user should see these errors before the advice about the missing transport.
    from .target import load_caught

    words = (*options.words, *options.arguments)
    for each in found:
        how: dict[str, Any] = {"left_out": left_out, "library": options.library}
        server, is_program = load_caught(each, words, is_compatible=not options.no_compat, **how)
        if not is_program:
            _read_own_options(server, options)


def _without_effect(options: Options) -> Iterator[tuple[str, str]]:
    # Options from mcpd.toml are not reported: they may be meant for another transport.
    why: dict[str, str] = {}
    if options.http is None:
        why["HTTP"] = "it requires HTTP; add --http :8080"
        if options.ws is None:
            why["Access"] = "it requires --http or --ws"
    for name in sorted(options.given):
        found = command_option(name)
        if found is not None and found[0].section in why:
            yield found[0].flag, why[found[0].section]


def _is_dev_null() -> bool:
    # A service or a background job has /dev/null as its stdin.
    try:
        return os.path.samestat(os.fstat(0), os.stat(os.devnull))
    except OSError:  # closed
        return True


def read_token(path: str | None, *, warns: bool = True) -> str | None:
    """The token in a file, otherwise in MCPD_TOKEN; None without either. Raises ConfigurationError."""
    if path is None:
        return os.environ.get("MCPD_TOKEN", "").strip() or None  # secrets often end with a newline
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "it is not text")
        raise ConfigurationError(f"--token-file {path}: {why}; name a file that contains the token") from None
    if not token:
        raise ConfigurationError(f"--token-file {path}: the file is empty; write the token into it")
    from mcpd.transports.authentication import warn_of_readers

    if warns:
        warn_of_readers("--token-file", path, mode)
    return token


def _resume_collector() -> None:
    gc.enable()
    gc.freeze()
