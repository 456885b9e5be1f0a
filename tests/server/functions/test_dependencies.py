"""Parameters that the server gives: once for each request, closed after it in reverse order, whatever ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import pytest
from support.clock import until
from support.wires import MODERN, VERSIONS, OpenWire, each_version, each_wire, memory_wire

from mcpd import Callbacks, Client, Context, Depends, ElicitResult, Server, SyncContext, TextContent, ToolError
from mcpd.errors import RegistrationError

BOTH_KINDS = pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])


class Book:
    """What opens and closes things, and notes when."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def plain(self) -> str:
        self.notes.append("plain")
        return "plain"

    async def coroutine(self) -> str:
        self.notes.append("coroutine")
        return "coroutine"

    def _noted(self, name: str) -> Iterator[str]:
        self.notes.append(f"open {name}")
        try:
            yield name
        except BaseException as error:
            self.notes.append(f"{name} sees {type(error).__name__}")
            raise
        finally:
            self.notes.append(f"close {name}")

    def generator(self) -> Iterator[str]:
        yield from self._noted("generator")

    async def async_generator(self) -> AsyncIterator[str]:
        with contextmanager(self._noted)("async generator") as name:
            yield name

    @contextmanager
    def manager(self) -> Iterator[str]:
        yield from self._noted("manager")

    @asynccontextmanager
    async def async_manager(self) -> AsyncIterator[str]:
        with contextmanager(self._noted)("async manager") as name:
            yield name


async def said(client: Client, tool: str, arguments: dict[str, Any] | None = None) -> str:
    """The one text that a tool gives, or fails with."""
    (block,) = (await client.call_tool(tool, arguments)).content
    assert isinstance(block, TextContent)
    return block.text


OPENED = ["open generator", "open async generator", "open manager", "open async manager"]
CLOSED = ["close async manager", "close manager", "close async generator", "close generator"]


def server_with_all_kinds(book: Book, *, is_async: bool) -> Server:
    """Its tool, resource, template and prompt each want everything."""
    server = Server("kinds")

    def given(
        a: str = Depends(book.plain),
        b: str = Depends(book.coroutine),
        c: str = Depends(book.generator),
        d: str = Depends(book.async_generator),
        e: str = Depends(book.manager),
        f: str = Depends(book.async_manager),
    ) -> str:
        return ", ".join((a, b, c, d, e, f))

    def answer(all_of_it: Annotated[str, Depends(given)], what: str = "none") -> str:
        if what == "fail":
            raise ToolError("it failed")
        return f"{what}: {all_of_it}"

    async def answer_async(all_of_it: Annotated[str, Depends(given)], what: str = "none") -> str:
        return answer(all_of_it, what)

    async def no_variables(all_of_it: Annotated[str, Depends(given)]) -> str:
        return answer(all_of_it)

    function: Any = answer_async if is_async else answer
    server.add_tool(function, name="answer")
    server.add_prompt(function, name="answer")
    server.resource("kinds://{what}", name="answers")(function)
    server.resource("kinds:all", name="all")(no_variables)
    return server


EVERYTHING = "plain, coroutine, generator, async generator, manager, async manager"


@each_version
@BOTH_KINDS
async def test_every_kind_in_tools_resources_templates_and_prompts(version: str, is_async: bool) -> None:
    book = Book()
    async with memory_wire(server_with_all_kinds(book, is_async=is_async), version) as wire:
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert list(tool["inputSchema"]["properties"]) == ["what"]
        (prompt,) = (await wire.result("prompts/list"))["prompts"]
        assert [argument["name"] for argument in prompt["arguments"]] == ["what"]

        expected = ["plain", "coroutine", *OPENED, *CLOSED]
        assert await wire.text("answer", what="tool") == f"tool: {EVERYTHING}"
        assert book.notes == expected

        for uri, what in (("kinds://uri", "uri"), ("kinds:all", "none")):
            book.notes.clear()
            read = await wire.result("resources/read", {"uri": uri})
            assert read["contents"][0]["text"] == f"{what}: {EVERYTHING}"
            assert book.notes == expected

        book.notes.clear()
        got = await wire.result("prompts/get", {"name": "answer", "arguments": {"what": "prompt"}})
        assert got["messages"][0]["content"]["text"] == f"prompt: {EVERYTHING}"
        assert book.notes == expected


@each_version
@BOTH_KINDS
async def test_what_ended_the_call_is_thrown_into_all_of_them(version: str, is_async: bool) -> None:
    book = Book()
    async with memory_wire(server_with_all_kinds(book, is_async=is_async), version) as wire:
        result = await wire.call("answer", what="fail")
        assert result["isError"]
        assert result["content"][0]["text"] == "it failed"
    seen = [f"{note.removeprefix('close ')} sees ToolError" for note in CLOSED]
    assert book.notes[6:] == [note for pair in zip(seen, CLOSED, strict=True) for note in pair]


async def test_a_client_cannot_give_them() -> None:
    book = Book()
    async with memory_wire(server_with_all_kinds(book, is_async=True), MODERN) as wire:
        result = await wire.call("answer", all_of_it="mine")
        assert result["isError"]
        assert result["content"][0]["text"] == "all_of_it: Unknown argument; there are: what"
    assert book.notes == []


@each_version
async def test_completions(version: str) -> None:
    server = Server("completing")

    @server.prompt
    def greet(name: str, place: str = "here") -> str:
        return f"{name} {place}"

    def names(ctx: Context) -> list[str]:
        return ["anna", "arno", ctx.method]

    @server.completion("name", prompt="greet")
    async def complete_name(value: str, found: Annotated[list[str], Depends(names)]) -> list[str]:
        return found

    @server.completion("place", prompt="greet")
    def complete_place(ctx: SyncContext, value: str, others: dict[str, str]) -> list[str]:
        return [f"{value} {others.get('name')} {ctx.method}"]

    async def completed(wire: Any, name: str, value: str, **context: Any) -> list[str]:
        ref = {"type": "ref/prompt", "name": "greet"}
        params = {"ref": ref, "argument": {"name": name, "value": value}, **context}
        return list((await wire.result("completion/complete", params))["completion"]["values"])

    async with memory_wire(server, version) as wire:
        assert await completed(wire, "name", "c") == ["completion/complete"]
        assert await completed(wire, "name", "a") == ["anna", "arno"]
        assert (await completed(wire, "place", "x"))[0].startswith("x ")


# -- once for each request ---------------------------------------------------------------------


async def test_once_for_each_request_however_many_want_it() -> None:
    server = Server("once")
    calls: list[str] = []

    def connect() -> object:
        calls.append("connect")
        return object()

    def users(db: Annotated[object, Depends(connect)]) -> object:
        return db

    async def orders(db: object = Depends(connect)) -> object:
        return db

    def fresh(db: object = Depends(connect, use_cache=False)) -> object:
        return db

    @server.tool
    async def same(
        a: Annotated[object, Depends(users)],
        b: Annotated[object, Depends(orders)],
        c: Annotated[object, Depends(connect)],
        d: Annotated[object, Depends(fresh)],
    ) -> list[bool]:
        return [a is b, b is c, c is d]

    async with Client(server) as client:
        for _ in range(2):
            assert (await client.call_tool("same")).structured_content == [True, True, False]
    assert calls == ["connect"] * 4


async def test_they_take_arguments_of_the_call_and_who_asks() -> None:
    server = Server("stock")
    copies = {"Dune": 7}

    def stock(title: str, ctx: SyncContext) -> str:
        return f"{copies.get(title, 0)} for {ctx.user.subject or 'nobody'} by {ctx.transport}"

    async def delivery(found: Annotated[str, Depends(stock)], days: int = 3) -> str:
        return f"{found} in {days}"

    @server.tool
    def reserve(title: str, when: Annotated[str, Depends(delivery)], days: int = 2) -> str:
        return when

    @server.tool
    def order(title: str, when: Annotated[str, Depends(delivery)]) -> str:
        return when

    async with Client(server) as client:
        assert await said(client, "reserve", {"title": "Dune", "days": 1}) == "7 for nobody by memory in 1"
        assert await said(client, "order", {"title": "Emma"}) == "0 for nobody by memory in 3"


async def test_classes_and_what_they_are_annotated_with() -> None:
    server = Server("classes")
    closed: list[str] = []

    class Page:
        def __init__(self, limit: int = 10, start: int = 0) -> None:
            self.range = range(start, start + limit)

    class Connection:
        def __enter__(self) -> Connection:
            return self

        def __exit__(self, *raised: object) -> None:
            closed.append("closed")

    lasting = Connection()

    def shared() -> Connection:
        return lasting

    @server.tool
    def count(
        limit: int,
        page: Annotated[Page, Depends()],
        own: Annotated[Connection, Depends(Connection)],
        of_all: Annotated[Connection, Depends(shared)],
    ) -> str:
        return f"{page.range} {own is lasting} {of_all is lasting} {closed}"

    async with Client(server) as client:
        assert await said(client, "count", {"limit": 3}) == "range(0, 3) False True []"
    assert closed == ["closed"], "one that lasts longer than the call, and only has the methods, is left open"


async def test_context_variables_are_those_of_one_dependency() -> None:
    server = Server("variables")
    who: ContextVar[str] = ContextVar("who", default="nobody")

    def user() -> Iterator[str]:
        token = who.set("me")
        yield who.get()
        who.reset(token)

    @server.tool
    def tell(user: Annotated[str, Depends(user)]) -> str:
        return user

    async with Client(server) as client:
        assert await said(client, "tell") == "me"


async def test_with_a_schema_given_as_json() -> None:
    server = Server("schema")

    def factor() -> int:
        return 2

    async def double(arguments: dict[str, Any], by: Annotated[int, Depends(factor)], ctx: Context) -> str:
        return f"{arguments['n'] * by} {ctx.method}"

    server.add_tool(double, input_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    async with Client(server) as client:
        assert await said(client, "double", {"n": 4}) == "8 tools/call"


# -- errors ------------------------------------------------------------------------------------


async def test_what_one_raises_is_the_answer_and_the_others_are_closed() -> None:
    server = Server("errors")
    book = Book()

    def refuse(open_before: Annotated[str, Depends(book.generator)]) -> str:
        raise ToolError("not for you")

    @server.tool
    def never(a: Annotated[str, Depends(refuse)]) -> str:
        raise AssertionError("called")

    async with memory_wire(server, MODERN) as wire:
        result = await wire.call("never")
    assert (result["isError"], result["content"][0]["text"]) == (True, "not for you")
    assert book.notes == ["open generator", "generator sees ToolError", "close generator"]


async def test_one_that_fails_at_its_end_fails_the_call_and_one_that_swallows_does_not_save_it() -> None:
    server = Server("ends")
    book = Book()

    async def commits() -> AsyncIterator[str]:
        yield "ready"
        raise ToolError("could not commit")

    async def swallows() -> AsyncIterator[str]:
        try:
            yield "ready"
        except ToolError:
            pass

    @server.tool
    def write(outer: Annotated[str, Depends(book.generator)], inner: Annotated[str, Depends(commits)]) -> str:
        return "written"

    @server.tool
    def fail(outer: Annotated[str, Depends(book.generator)], inner: Annotated[str, Depends(swallows)]) -> str:
        raise ToolError("it failed")

    async with memory_wire(server, MODERN) as wire:
        for tool, text in (("write", "could not commit"), ("fail", "it failed")):
            book.notes.clear()
            result = await wire.call(tool)
            assert (result["isError"], result["content"][0]["text"]) == (True, text)
            assert book.notes == ["open generator", "generator sees ToolError", "close generator"]


@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt()], ids=repr)
async def test_one_that_wants_to_end_the_program_at_its_end_fails_its_call_only(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("ends")

    def ends() -> Iterator[int]:
        yield 1
        raise error

    @server.tool
    async def use(value: Annotated[int, Depends(ends)]) -> str:
        return "used"

    async with memory_wire(server, MODERN) as wire:
        assert (await wire.call("use"))["isError"] is True
        assert (await wire.call("use"))["isError"] is True
    assert type(error).__name__ in caplog.text


@pytest.mark.parametrize("version", [each for each in VERSIONS if each >= "2025-06-18"])  # older ones ask no user
async def test_one_that_asks_the_user(version: str) -> None:
    server = Server("asks")
    book = Book()

    async def confirmed(ctx: Context, opened: Annotated[str, Depends(book.generator)], amount: int) -> bool:
        return (await ctx.elicit(f"Pay {amount}?", bool)).get()

    @server.tool
    def pay(amount: int, is_confirmed: Annotated[bool, Depends(confirmed)]) -> str:
        return f"paid {amount}" if is_confirmed else "not paid"

    async def answer(params: Any) -> Any:
        return ElicitResult(action="accept", content={"value": True})

    async with Client(server, callbacks=Callbacks(elicit_form=answer), version=version) as client:
        assert await said(client, "pay", {"amount": 5}) == "paid 5"
    assert book.notes.count("open generator") == book.notes.count("close generator") == (2 if version == MODERN else 1)


# -- cancellation ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [each for each in VERSIONS if each != "2024-10-07"])  # which has no cancellation
async def test_a_cancelled_call_closes_them(version: str) -> None:
    server = Server("cancelled")
    book = Book()
    waits = asyncio.Event()

    @server.tool
    async def wait(a: Annotated[str, Depends(book.generator)], b: Annotated[str, Depends(book.async_manager)]) -> str:
        waits.set()
        await asyncio.Event().wait()
        return "never"

    async with memory_wire(server, version) as wire:
        wire.cancel(await _started(wire, "wait", waits))
        await until(lambda: len(book.notes) == 6)
    assert book.notes[2:] == [
        "async manager sees CancelledError", "close async manager", "generator sees CancelledError", "close generator",
    ]  # fmt: skip


@each_wire
async def test_a_plain_function_is_done_before_what_it_uses_is_closed(open_wire: OpenWire) -> None:
    server = Server("thread")
    book = Book()
    waits, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @server.tool
    def work(a: Annotated[str, Depends(book.generator)]) -> str:
        loop.call_soon_threadsafe(waits.set)
        goes_on.wait(30)
        book.notes.append("used")
        return "done"

    async with open_wire(server, MODERN) as wire:
        wire.cancel(await _started(wire, "work", waits))
        await wire.quiet()
        assert book.notes == ["open generator"]
        goes_on.set()
        await until(lambda: len(book.notes) == 4)
    assert book.notes == ["open generator", "used", "generator sees CancelledError", "close generator"]


async def test_a_dependency_that_is_being_opened_in_its_thread_is_closed() -> None:
    server = Server("opening")
    notes: list[str] = []
    waits, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow() -> Iterator[str]:
        loop.call_soon_threadsafe(waits.set)
        goes_on.wait(30)
        notes.append("open")
        try:
            yield "opened"
        finally:
            notes.append("close")

    @server.tool
    def work(a: Annotated[str, Depends(slow)]) -> str:
        raise AssertionError("called")

    async with memory_wire(server, MODERN) as wire:
        wire.cancel(await _started(wire, "work", waits))
        await wire.quiet()
        goes_on.set()
        await until(lambda: notes == ["open", "close"])


async def _started(wire: Any, tool: str, waits: asyncio.Event) -> Any:
    request = wire.ask("tools/call", {"name": tool, "arguments": {}})
    async with asyncio.timeout(30):
        await waits.wait()
    return request


# -- overrides ---------------------------------------------------------------------------------


async def test_overrides() -> None:
    server = Server("tested")

    def database() -> str:
        raise AssertionError("the real one")

    async def fake(name: str = "fake") -> AsyncIterator[str]:
        yield name

    def users(db: Annotated[str, Depends(database)]) -> str:
        return f"users of {db}"

    @server.tool
    def count(name: str, found: Annotated[str, Depends(users)], db: Annotated[str, Depends(database)]) -> str:
        return f"{found}, {db}"

    async with Client(server) as client:
        with server.override(database, fake):
            assert await said(client, "count", {"name": "mine"}) == "users of mine, mine"
            with server.override(database, lambda: "other"):
                assert await said(client, "count", {"name": "mine"}) == "users of other, other"
            assert await said(client, "count", {"name": "mine"}) == "users of mine, mine"
        assert (await client.call_tool("count", {"name": "mine"})).is_error

        override = server.override(database, lambda: "until I say so")
        assert await said(client, "count", {"name": "mine"}) == "users of until I say so, until I say so"
        override.end()
        assert (await client.call_tool("count", {"name": "mine"})).is_error


# -- what cannot be registered -----------------------------------------------------------------


def _needs_more(where: int) -> str:
    return str(where)


def _loops(again: Annotated[str, Depends(lambda: None)]) -> str:
    return again


def _first(other: Annotated[str, Depends(_needs_more)]) -> str:
    return other


async def _in_a_thread(ctx: SyncContext) -> str:
    return ctx.method


class _Plain(AbstractContextManager[str]):
    def __init__(self, needed: str) -> None:
        self.needed = needed

    def __exit__(self, *raised: object) -> None:
        pass


@pytest.mark.parametrize(
    ("dependency", "message"),
    [
        (_first, "dependency _first, dependency _needs_more, parameter 'where': it has no value"),
        (_in_a_thread, "it is async; annotate the parameter as Context"),
        (_Plain, "dependency _Plain, parameter 'needed': it has no value"),
        ("database", "Depends takes a function, or no argument beside a class; got 'database'"),
    ],
)
def test_what_cannot_be_given_is_refused_when_it_is_registered(dependency: Any, message: str) -> None:
    def tool(what: str, given: str = Depends(dependency)) -> str:
        return what

    with pytest.raises(RegistrationError, match="function 'tool'") as refused:
        Server("refusing").add_tool(tool)
    assert message in str(refused.value)


def test_one_without_a_function_stands_beside_a_class() -> None:
    def tool(what: str, given: Annotated[Any, Depends()]) -> str:
        return what

    with pytest.raises(RegistrationError, match="Depends takes a function, or no argument beside a class; got None"):
        Server("refusing").add_tool(tool)


class Security:
    """Called as one of FastAPI's."""


def test_another_librarys_is_refused() -> None:
    def by_default(what: str, given: Any = Security()) -> str:  # noqa: B008
        return what

    def annotated(what: str, given: Annotated[str, Security()]) -> str:
        return what

    for function in (by_default, annotated):
        with pytest.raises(
            RegistrationError, match="'given': .* is another library's; write `from mcpd import Depends`"
        ):
            Server("refusing").add_tool(function)


def test_one_that_depends_on_itself_is_refused() -> None:
    def first(other: Any) -> str:
        return str(other)

    def second(other: Annotated[str, Depends(first)]) -> str:
        return other

    first.__annotations__["other"] = Annotated[str, Depends(second)]
    with pytest.raises(RegistrationError, match="it depends on itself"):
        Server("refusing").add_tool(second)
