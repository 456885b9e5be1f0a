"""`ProcessCallee` replaces the function of a tool: it checks the arguments, and has a worker call the function.

Everything around the function stays in this process: middleware, visibility, the time limit, the check of the result,
metrics and traces. Messages and questions that the function sends by its context are relayed: they are sent by the real
request.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, MsgspecError, Raw, UnsetType, convert, structs
from msgspec.json import Decoder, decode

from mcpd.errors import RegistrationError, ToolError
from mcpd.protocol.jsonrpc import as_json, encode
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import NO_JSON, LogMessageParams, ProgressParams
from mcpd.protocol.types.features import CallToolResult
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import InputRequired
from mcpd.server.context.questions import Question, read_question
from mcpd.server.functions import Source, source
from mcpd.server.functions.annotations import plain_function
from mcpd.server.functions.results import is_block_list, to_builtins
from mcpd.server.registry.content import is_content, tool_result
from mcpd.server.settings import parse_size
from .messages import Ask, Done, Reply, RequestData, Run, error_data, error_of
from .pool import NotStarted, Pool, pool_of
from .starting import Start, Worker

if TYPE_CHECKING:
    from mcpd.server.functions.json_schema import SchemaCallee
    from mcpd.server.functions.signature import Callee
    from mcpd.server.lifespan import Lifespan

log = logging.getLogger("mcpd")

# The tools of the target by their keys; None in a server.
registered: dict[str, ProcessCallee] | None = None

_MEMORY_SECONDS = 0.25
_END_SECONDS = 1.5


class ProcessCallee:
    """A function that runs in a process; used like the `Callee` that it wraps.

    Takes the options of the tool. Raises RegistrationError for those that do not fit.
    """

    is_async = True

    def __init__(
        self,
        inner: Callee | SchemaCallee,
        tool: str,
        where: str = "",
        *,
        lifespan: Lifespan | None = None,
        process_start: Any = None,
        memory: Any = None,
        calls: Any = 0,
        output_schema: object = None,
        structured_output: object = True,
        **_: object,
    ) -> None:
        self._inner = inner
        self.tool = tool
        self.runs_in_loop = inner.is_async
        self.lifespan = lifespan
        self.start = _start_of(process_start, where)
        if isinstance(calls, bool) or not isinstance(calls, int) or calls < 0:
            raise RegistrationError(f"{where}, calls: expected a number of calls (0: any number), not {calls!r}")
        # How many calls one process may run, 0 for any number; and the memory limit of a call in bytes.
        self.calls, self.memory = calls, _memory_of(memory, where)
        self._has_schema: bool | None = output_schema is not None or None
        self._is_text = structured_output is False
        key = _key_of(inner.function, tool)
        self.source = source.get() or _source_of(_registering_module() or inner.function.__module__, tool)
        # A function that makes servers may register a tool of the same name for each.
        self.source.counts[key] += 1
        self.key = f"{key}:{self.source.counts[key]}"
        if registered is not None:
            registered[self.key] = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def call(self, raw: Raw, exchange: Exchange) -> CallToolResult:
        """Check the arguments, and have a worker call the function."""
        self._inner.check(raw)
        pool = await pool_of(self.source, self.start)
        return await _RemoteCall(self, exchange).run(pool, raw)

    # -- in a worker -------------------------------------------------------------------------

    def function(self, raw: Raw, exchange: Exchange | None) -> Any:
        """Call the function itself, in a worker."""
        return self._inner.call(raw, exchange)

    def result(self, value: Any) -> CallToolResult:
        """Convert the function's value to a result, in a worker."""
        if self._is_text:
            if isinstance(value, CallToolResult):
                return value
            return structs.replace(tool_result(value, False), structured_content=UNSET)
        if self._has_schema is None:
            self._has_schema = self._inner.output_schema is not None
        return tool_result(value, self._has_schema, is_block_list(self._inner.returns, is_content))

    def prepare(self) -> None:
        """Make what calls need, so that each worker has it from the start."""
        with suppress(Exception):  # the call reports the error
            self._inner.check(Raw(b"{}"))
        with suppress(Exception):
            self.result("")


def _start_of(given: Any, where: str) -> Start:
    if given not in (None, "fork", "spawn"):
        raise RegistrationError(f"{where}, process_start: expected fork or spawn, not {given!r}")
    if given == "fork" and not hasattr(os, "fork"):
        raise RegistrationError(f"{where}, process_start: this system cannot fork; use spawn")
    return given or ("auto" if sys.platform == "linux" else "spawn")


def _memory_of(given: Any, where: str) -> int | None:
    if given is None:
        return None
    try:
        most = parse_size(str(given))
    except ValueError as error:
        raise RegistrationError(f"{where}, memory: {error}, not {given!r}") from None
    if not os.path.isdir("/proc/self"):
        raise RegistrationError(f"{where}, memory: the memory of a process is known on Linux only")
    return most or None


def _key_of(function: Any, tool: str) -> str:
    # Return a key of a tool that is the same in all processes that import the target.
    plain = plain_function(function)
    code = getattr(plain, "__code__", None)
    named = plain if hasattr(plain, "__qualname__") else type(plain)
    place = named.__module__ if code is None else os.path.realpath(code.co_filename)
    return f"{place}:{named.__qualname__}:{tool}"


def _registering_module() -> str:
    # Return the name of the module whose import registers a tool now: the program's main file, otherwise the innermost;
    # "" if none is being imported. Programs that import servers, such as uvicorn, do not count.
    frame, found = inspect.currentframe(), ""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__package__") != "mcpd":
            name, path = str(frame.f_globals.get("__name__")), frame.f_code.co_filename
            if path.endswith(".py") and "-packages" not in path:
                found = found or name
                if name == "__main__":
                    return name
        frame = frame.f_back
    return found


def _source_of(module: str, tool: str) -> Source:
    # Return how to load a tool outside of `mcpd serve`: by its module, or as the main file of the program.
    found = _sources.get(module)
    if found is not None:
        return found
    main = sys.modules.get(module)
    path = getattr(main, "__file__", None) or ""
    spec = getattr(main, "__spec__", None)
    if not path:
        raise RegistrationError(
            f"tool {tool!r}: process=True needs a module that other processes can import; register it there"
        )

    arguments = {"name": module, "path": os.path.abspath(path), "package": spec.name if spec else "", "argv": sys.argv}
    found = _sources[module] = Source("mcpd.server.processes.loading:import_target", arguments)
    return found


_sources: dict[str, Source] = {}


# -- one call ----------------------------------------------------------------------------------


class _RawResult(CallToolResult, kw_only=True):
    # Kept as bytes, so that the server does not decode and encode it again.
    structured_content: Raw | UnsetType = UNSET


_read_result = Decoder(_RawResult).decode


_OF_USERS = ("subject", "issuer", "client", "scopes", "claims", "expires")


class _RemoteCall:
    # A call that a worker runs.
    def __init__(self, callee: ProcessCallee, exchange: Exchange) -> None:
        self._callee = callee
        self._exchange = exchange
        self._context = Context(exchange)
        self._most = exchange.call.session.max_frame_bytes
        # The questions to the client that end the call for this round.
        self._needed: dict[str, Question] = {}
        self._asks: dict[int, asyncio.Task[None]] = {}
        self._is_too_large = False
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, pool: Pool, arguments: Raw) -> CallToolResult:
        callee = self._callee
        request = self._request() if callee.uses_request else None
        try:
            async with pool.worker(callee.calls) as worker:
                done = await self._call(worker, Run(callee.key, arguments, self._most, request))
        except NotStarted as error:
            log.error("tool %s: %s: %s", callee.tool, printable(error), printable(error.details, 10_000))
            raise ToolError(f"The tool {callee.tool} cannot run: {error}; details are in the log") from None
        return self._result(done)

    async def _call(self, worker: Worker, run: Run) -> Done:
        if self._callee.memory is not None:
            self._watch(worker, self._callee.memory)
        try:
            worker.is_running = True
            await worker.send(run)
            while (message := await worker.receive(self._most)) is not None:
                if isinstance(message, Done):
                    worker.is_running = False
                    self._keep(message.kept)
                    return message
                if not isinstance(message, Ask):
                    continue
                if message.number:
                    self._asks[message.number] = asyncio.create_task(self._reply(worker, message))
                else:
                    await self._do(message.what, decode(message.body))
        except (OSError, ValueError, MsgspecError) as error:
            log.debug("tool %s: the connection to its process failed: %s", self._callee.tool, printable(error))
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._asks.values():
                task.cancel()

        raise ToolError(await self._why_ended(worker))

    def _request(self) -> RequestData:
        exchange = self._exchange
        call, origin, user = exchange.call, exchange.origin, exchange.origin.user
        session, client = call.session, call.session.client
        return RequestData(
            call.id,
            call.version.name,
            origin.transport,
            meta=decode(call.raw, type=dict[str, Raw]).get("_meta", NO_JSON) if call.meta is not None else NO_JSON,
            capabilities=Raw(encode(client.capabilities)),
            info=NO_JSON if client.info is None else Raw(encode(client.info)),
            log_level=None if session.opening.is_stateless else session.log_level,
            user={
                **{name: getattr(user, name) for name in _OF_USERS},
                "claims": as_json(dict(user.claims), to_builtins),
            },
            has_upstream=user.upstream is not None,
            headers=origin.headers(),
            trace=None if call.trace is None else call.trace().headers(),
            kept=exchange.kept,
            can_be_task=exchange.task is not None,
        )

    def _keep(self, kept: dict[str, Any] | None) -> None:
        if kept is not None:
            state = self._exchange.asking.kept
            state.clear()
            state.update(kept)

    def _result(self, done: Done) -> CallToolResult:
        if done.error is not None:
            raise error_of(done.error, self._needed)
        if not done.kind:
            return CallToolResult(**structs.asdict(_read_result(done.result)))
        module, _, name = done.kind.partition(":")
        kind = getattr(import_module(module) if module.startswith("mcpd.") else None, name, None)
        if not isinstance(kind, type) or not issubclass(kind, CallToolResult):
            kind = CallToolResult
        return decode(done.result, type=kind)

    # -- how it ends -------------------------------------------------------------------------

    def _watch(self, worker: Worker, most: int) -> None:
        # Look at the memory of the worker four times a second.
        self._timer = asyncio.get_running_loop().call_later(_MEMORY_SECONDS, self._watch, worker, most)
        if worker.resident_bytes() > most:
            self._is_too_large = True
            worker.kill()

    async def _why_ended(self, worker: Worker) -> str:
        tool, limit = self._callee.tool, self._callee.memory or 0
        code: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                code = await asyncio.shield(worker.ended)
        if self._is_too_large:
            text = f"used more memory than its limit of {limit / (1 << 20):g} MiB"
        elif code is None:
            text = "has lost its process"
        else:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            text = f"crashed ({how})" if code else "ended its process"

        log.error("tool %s (request %s) %s", tool, printable(self._exchange.request_id), text)
        return f"The tool {tool} {text}"

    # -- the context of the function -------------------------------------------------------

    async def _reply(self, worker: Worker, ask: Ask) -> None:
        reply = Reply(ask.number)
        try:
            self._keep(ask.kept)
            found = await self._do(ask.what, decode(ask.body))
            reply.result = found if isinstance(found, Raw) else Raw(encode(found))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if isinstance(error, InputRequired):
                self._needed.update(error.questions)
            reply.error = error_data(error)

        del self._asks[ask.number]
        with suppress(OSError):  # the worker has ended, and the call with it
            await worker.send(reply)

    async def _do(self, what: str, body: Any) -> Any:
        exchange, context = self._exchange, self._context
        match what:
            case "notifications/progress":
                progress = convert(body, ProgressParams)
                await context.progress(progress.progress, progress.total, progress.message)
            case "notifications/message":
                message = convert(body, LogMessageParams)
                await context.log(cast(Any, message.level), message.data, message.logger)
            case "notifications/elicitation/complete":
                await context.elicitation_complete(body["elicitationId"])
            case "close_stream":
                context.close_stream()
            case "forget":
                if body in self._asks:
                    self._asks[body].cancel()
            case "ask":
                given, timeout = body
                questions = {key: _RawQuestion.of(each) for key, each in given.items()}
                return await exchange.ask(questions, timeout)
            case "can_ask":
                return exchange.asking.can_ask(read_question(**body))
            case "require":
                exchange.asking.require(read_question(**body[0]), body[1])
            case "notify":
                return await exchange.notify(*body)
            case "upstream_token":
                return await context.upstream_token()
            case "become_task":
                return await context.become_task(body)
            case "task_id":
                return context.task_id
        return None


class _RawQuestion(Question):
    # The answer to a question is checked here, and becomes a value in the worker.
    @classmethod
    def of(cls, data: Mapping[str, Any]) -> _RawQuestion:
        return cls(**structs.asdict(read_question(**data)))

    def read(self, raw: Raw | bytes) -> Raw:
        super().read(raw)
        return Raw(raw)
