"""Tools: a description to list, and a function that runs on raw arguments.

Invalid arguments and failures that a tool reports are results with `isError` (SEP-1303). An unknown tool is a JSON-RPC
error, which `handlers.methods` raises. Spec: 2026-07-28 server/tools.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import UNSET, Raw, Struct, structs
from msgspec.json import Decoder

from mcpd.errors import McpdError, ProtocolError, RegistrationError, ToolError, as_told, forget_frames
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import NO_JSON, RawResult
from mcpd.protocol.types.features import AnyValue, CallToolResult, TextContent, Tool
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import is_failure
from mcpd.server.functions.annotations import Function
from mcpd.server.functions.results import is_block_list, output_hook
from mcpd.server.functions.signature import Callee
from .content import Unwritable, encode_data, is_content, tool_result
from .entries import ActiveExtensions, Entry, ToolEntry, ToolMeta

if TYPE_CHECKING:
    from mcpd.protocol.wire.headers import Mirror
    from mcpd.server.functions.json_schema import SchemaCallee
    from mcpd.server.processes.callee import ProcessCallee

log = logging.getLogger("mcpd")

_NO_ARGUMENTS = Raw(b"{}")

# A function (result, exchange, whether the tool has an output schema) that returns the result for this client.
Finisher: TypeAlias = Callable[[CallToolResult, Exchange, bool], CallToolResult]


class FunctionTool(Entry):
    """One tool.

    `extension_meta` has the additions of extensions, by the extension's id. `requires` is an extension without which
    the tool does not exist. `finish` receives the results of tools with additions, and any result of a class derived
    from CallToolResult.
    """

    def __init__(
        self,
        tool: Tool,
        callee: Callee | SchemaCallee | ProcessCallee,
        *,
        extension_meta: Mapping[str, ToolMeta] | None = None,
        requires: str | None = None,
        check_output: Callable[[Any], list[str]] | None = None,
        finish: Finisher | None = None,
    ) -> None:
        self.key = tool.name
        self.tool = tool
        self.callee = callee
        self.extension_meta = dict(extension_meta or {})
        self.requires = requires
        # Whether the text of any exception reaches the model.
        self.shows_errors = False
        # Whether `finish` receives each result, because an extension that changes results has a part in the tool.
        self.is_finished = bool(self.extension_meta)
        # The time limit of a call in seconds; None for no limit.
        self.timeout: float | None = None

        # Extensions whose clients receive structured content as objects in every version.
        self.wraps_for: frozenset[str] = frozenset()
        # Returns the active extensions of a call; needed with `wraps_for` only.
        self.active_extensions: Callable[[Exchange], ActiveExtensions] | None = None

        # Replaces the callee's own `call`.
        self._call: Function | None = None
        self._has_schema: bool | None = None
        self._has_any_root = False
        self._gives_blocks = False
        self._check_output = check_output
        self._finish = finish
        self._mirrors: tuple[Mirror, ...] | None = None

    def return_text_only(self) -> None:
        """Return text only from now on; results that the function made itself are unchanged."""
        callee = self.callee

        def as_text(value: Any) -> Any:
            if isinstance(value, Coroutine):
                return text_later(value)
            if isinstance(value, (CallToolResult, RawResult)):
                return value
            return structs.replace(tool_result(value, False), structured_content=UNSET)

        async def text_later(value: Coroutine[Any, Any, Any]) -> Any:
            return as_text(await value)

        self._call = lambda arguments, exchange: as_text(callee.call(arguments, exchange))

    def listed(self, active: ActiveExtensions) -> Tool:
        """Return the tool as `tools/list` shows it with these extensions active. Makes its schemas on first use."""
        tool = self.tool
        if self._mirrors is None:
            self._read_input_schema()
        if tool.output_schema is None:
            tool.output_schema = self.callee.output_schema
        added: dict[str, Any] = {}
        for extension, added_meta in self.extension_meta.items():
            if extension in active:
                added.update(added_meta.meta(active))
                if (change := getattr(added_meta, "listed", None)) is not None:
                    tool = change(tool)
        if not self.wraps_for.isdisjoint(active):
            from mcpd.protocol.versions.v2026 import object_schema  # few clients need this

            tool = object_schema(tool)
        return structs.replace(tool, meta={**(tool.meta or {}), **added}) if added else tool

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """The arguments that HTTP headers repeat, by `x-mcp-header` in the schema; most tools have none."""
        if self._mirrors is None:
            self._read_input_schema()
        return self._mirrors or ()

    def _read_input_schema(self) -> None:
        from mcpd.protocol.wire.headers import ANNOTATION, mirrors, without_mirrors  # loaded with the schema

        tool = self.tool
        if not tool.input_schema:
            tool.input_schema = self.callee.input_schema
        try:
            self._mirrors = mirrors(tool.input_schema)
        except RegistrationError as error:
            # Clients must drop a tool with an invalid annotation, so the annotations are dropped instead.
            log.error("tool %s: %s; its %s annotations are not served", self.key, printable(error), ANNOTATION)
            tool.input_schema = without_mirrors(tool.input_schema)
            self._mirrors = ()

    def _result(self, value: Any, exchange: Exchange) -> CallToolResult:
        # Convert the return value to a result. Raises OutputError if it does not fit the output schema (S25-057).
        if value.__class__ is RawResult:
            return value  # type: ignore[return-value]  # an extension asks for another round
        if self._has_schema is None:  # schemas are made for the first result
            schema = self.tool.output_schema or self.callee.output_schema
            self._has_schema = schema is not None
            self._gives_blocks = is_block_list(self.callee.returns, is_content)
            self._has_any_root = isinstance(schema, dict) and schema.get("type") != "object"
            if self._has_schema and self._check_output is None:
                self._check_output = typed_check(self.callee.output_type)

        result = tool_result(value, self._has_schema, self._gives_blocks)
        if self._has_schema and not result.is_error:
            if result.structured_content is UNSET:
                raise OutputError("it has an output schema but returned no structured content")
            if self._check_output is not None:
                problems = self._check_output(result.structured_content)
                if problems:
                    raise OutputError("; ".join(problems))

        if self._finish is not None and (self.is_finished or result.__class__ is not CallToolResult):
            result = self._finish(result, exchange, self._has_schema)

        # Older versions send AnyValue as an object; newer ones send its content.
        has_any_root = self._has_any_root and not result.is_error
        if result.structured_content is not UNSET and self._wraps(exchange):
            from mcpd.protocol.versions.v2026 import is_object_value, wrapped_content  # few clients need this

            if has_any_root or not is_object_value(result.structured_content):
                return wrapped_content(result)
        if has_any_root:
            return structs.replace(result, structured_content=AnyValue(result.structured_content))
        return result

    def _wraps(self, exchange: Exchange) -> bool:
        # Return whether this client receives structured content as objects in every version.
        active = self.active_extensions
        return active is not None and not self.wraps_for.isdisjoint(active(exchange))

    async def run(self, arguments: Raw, exchange: Exchange) -> CallToolResult:
        """Call the tool. Missing and null arguments mean none."""
        if arguments is NO_JSON:
            arguments = _NO_ARGUMENTS
        if exchange.task is not None:
            exchange.task.entered()
        try:
            call = self._call or self.callee.call
            if self.callee.is_async:
                work = call(arguments, exchange)
                arguments = _NO_ARGUMENTS  # they may be large, and the work may take long
                value = await work
            else:
                from mcpd.server.functions.threads import run_in_thread  # loaded with the first plain function

                value = await run_in_thread(call, arguments, exchange, exchange=exchange)
            return self._result(value, exchange)
        except BaseException as error:
            result = self._failed(error, exchange)
            if result is None:
                raise
            forget_frames(error)
            return result

    def _failed(self, error: BaseException, exchange: Exchange) -> CallToolResult | None:
        # Return a failure as a result for the model; None for exceptions to raise again.
        #
        # The caller raises them: raised here, this frame and its traceback would refer to each other.
        if isinstance(error, ToolError):
            return failed(str(error))
        if isinstance(error, ProtocolError) or not is_failure(error):
            return None

        if isinstance(error, (Unwritable, OutputError)):
            problem = "cannot be written as JSON" if isinstance(error, Unwritable) else "does not fit its output schema"
            log.error(
                "tool %s (request %s): its result %s: %s",
                self.key, printable(exchange.request_id), printable(problem), printable(error),
            )  # fmt: skip
            reason = f": {error}" if self.shows_errors else ""
            return failed(f"The tool {self.key} failed: its result {problem}{reason}")

        if isinstance(error, ExceptionGroup):
            reported, others = error.split(ToolError)
            if reported is not None and others is None:
                return failed("\n".join(_texts(reported)))

        log.error("tool %s (request %s) failed", self.key, printable(exchange.request_id), exc_info=as_told(error))
        if isinstance(error, McpdError):
            return failed(str(error))
        if self.shows_errors:
            return failed(f"The tool {self.key} failed: {type(error).__name__}: {error}")
        return failed(f"The tool {self.key} failed: internal error, details are in the server's log")


def _texts(group: BaseExceptionGroup[Any]) -> list[str]:
    return [
        text
        for one in group.exceptions
        for text in (_texts(one) if isinstance(one, BaseExceptionGroup) else [str(one)])
    ]


class OutputError(Exception):
    """A result that does not fit the tool's own output schema: a fault of the server, never sent as a valid result."""


def typed_check(returns: Any) -> Callable[[Any], list[str]] | None:
    """Return a check of structured content against a return annotation; None if msgspec cannot read the type."""
    try:
        decode = Decoder(returns, dec_hook=output_hook).decode
    except TypeError:
        return None

    def check(content: Any) -> list[str]:
        try:
            decode(content if isinstance(content, Raw) else encode_data(content))
        except MALFORMED as error:
            text = explain(error)
            return [f"{text} (nan and infinity are null in JSON)" if "got null" in text else text]
        return []

    return check


def failed(message: str) -> CallToolResult:
    """Return an error result with a message for the model."""
    return CallToolResult(content=[TextContent(message)], is_error=True)


def metadata_of(entry: ToolEntry) -> Tool:
    """Return the tool without additions of extensions and without its schemas, which may be impossible to make."""
    return entry.tool if isinstance(entry, FunctionTool) else entry.listed(frozenset())


T = TypeVar("T")

# Tasks that have exceeded their limit and still run; the event loop itself keeps no reference to tasks.
_left_behind: set[asyncio.Task[CallToolResult]] = set()


class TimedTool(FunctionTool):
    """A tool whose caller receives an error after `timeout` seconds, not counting questions to the client.

    A coroutine is cancelled then, and a process ended. A plain function continues in its thread, and its result is
    dropped. Dependencies that a thread still uses are closed later.
    """

    async def run(self, arguments: Raw, exchange: Exchange) -> CallToolResult:
        """Call the tool, and stop waiting when its time is over."""
        limit = asyncio.timeout(self.timeout)
        exchange.clock = _Clock(limit)
        # In its own task, so that the caller has an answer even if the tool takes long to end.
        task = asyncio.ensure_future(super().run(arguments, exchange))
        try:
            async with limit:
                try:
                    await asyncio.wait((task,))
                except BaseException as error:
                    task.cancel()
                    _left_behind.add(task)
                    task.add_done_callback(_forget)
                    if isinstance(error, asyncio.CancelledError):
                        # Most tasks end within one iteration of the loop. A client that cancelled expects no answer.
                        await asyncio.wait((task,), timeout=0 if limit.expired() else None)
                    raise
            return task.result()
        except TimeoutError:
            text = f"took longer than {self.timeout:g} s"
            log.warning("tool %s (request %s) %s", self.key, printable(exchange.request_id), text)
            return failed(f"The tool {self.key} {text}")


def _forget(task: asyncio.Task[CallToolResult]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # marks the exception as retrieved


class _Clock(Struct, eq=False):
    # The remaining time of a tool. It is paused while the client answers a question.
    _limit: asyncio.Timeout
    _questions: int = 0
    _left: float = 0.0

    def stop(self) -> None:
        self._questions += 1
        when = self._limit.when()
        if self._questions == 1 and when is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._set(None)

    def resume(self) -> None:
        self._questions -= 1
        if not self._questions:
            self._set(asyncio.get_running_loop().time() + self._left)

    def _set(self, when: float | None) -> None:
        try:
            self._limit.reschedule(when)
        except RuntimeError:
            pass  # the call has ended or is ending
