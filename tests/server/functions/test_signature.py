"""Functions of every form as callees: signature, context, arguments, calls."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import functools
import pathlib
import typing
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import Meta
from pydantic import Field

from mcpd.errors import ArgumentsError, InvalidParams, RegistrationError
from mcpd.protocol.types.features import Prompt, PromptArgument
from mcpd.server.functions.results import enc_hook, to_builtins
from mcpd.server.functions.signature import Callee, bind
from mcpd.server.registry.prompts import FunctionPrompt

T = TypeVar("T")


class Context:
    """Stands for the real one."""


class Special(Context, Generic[T]):
    pass


CTX = Context()


def bound(function: Callable[..., Any]) -> Callee:
    return bind(function, context_type=lambda: Context)


def call(function: Callable[..., Any], arguments: Any = None) -> Any:
    callee = bound(function)
    found = callee.call(msgspec.json.encode({} if arguments is None else arguments), CTX)
    return asyncio.run(found) if callee.is_async else found


def refusal(function: Callable[..., Any], arguments: Any) -> str:
    callee = bound(function)
    raw = msgspec.json.encode(arguments)
    with pytest.raises(ArgumentsError) as caught:
        callee.call(raw, CTX)
    return str(caught.value)


# ------------------------------------------------------------------------- shapes of functions


def test_a_plain_function() -> None:
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    callee = bound(add)
    assert callee.function is add
    assert (callee.name, callee.description, callee.title) == ("add", "Add.", "Add")
    assert callee.parameters == ("a", "b")
    assert (callee.context_name, callee.is_async) == (None, False)
    assert repr(callee) == "<Callee add(a, b)>"
    assert call(add, {"a": 1}) == 3
    assert call(add, {"b": 5, "a": 1}) == 6
    assert callee.call(msgspec.Raw(b'{"a":1}')) == 3


def test_a_coroutine_function_gives_its_coroutine() -> None:
    async def add(a: int, *, ctx: Context) -> int:
        return a if ctx is CTX else 0

    assert bound(add).is_async
    assert call(add, {"a": 1}) == 1


@pytest.mark.parametrize("raw", [b"{}", b"", b"null", b" { } ", msgspec.Raw(), msgspec.Raw(b"null")])
def test_no_arguments(raw: bytes | msgspec.Raw) -> None:
    """`arguments` may be left out, and some clients send null."""
    assert bind(lambda: "ok").call(raw) == "ok"
    assert bind(lambda a=1: a).call(raw) == 1


def test_the_context_is_found_by_its_annotation_wherever_it_stands() -> None:
    def first(ctx: Context, a: int, b: int = 2) -> Any:
        return ctx, a, b

    def last(a: int, b: int, c: Context) -> Any:
        return c, a, b

    def middle(a: int, request: Context | None, b: int) -> Any:
        return request, a, b

    def by_name(a: int, b: int, *, ctx: typing.Optional[Context] = None) -> Any:  # noqa: UP045
        return ctx, a, b

    def among_names(a: int, *, b: int, ctx: Annotated[Context, "x"]) -> Any:
        return ctx, a, b

    def first_with_names(ctx: Special[int], a: int, *, b: int) -> Any:
        return ctx, a, b

    def alone(whatever: Special) -> Any:  # type: ignore[type-arg]
        return whatever, 1, 2

    def written(ctx: "Context", a: "int", b: "int") -> Any:  # noqa: UP037
        return ctx, a, b

    for function in (first, last, middle, by_name, among_names, first_with_names, written):
        assert call(function, {"a": 1, "b": 2}) == (CTX, 1, 2)
        assert "ctx" not in bound(function).input_schema["properties"]
        assert bound(function).parameters == ("a", "b")
    assert call(alone) == (CTX, 1, 2)
    assert bound(alone).input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_name_is_never_the_context() -> None:
    def tool(ctx: str, context: int = 1) -> Any:
        return ctx, context

    assert bound(tool).context_name is None
    assert call(tool, {"ctx": "x"}) == ("x", 1)


def test_the_context_cannot_be_sent() -> None:
    def closed(a: int = 0, *, ctx: Context) -> Any:
        return ctx

    def open_(a: int = 0, *, ctx: Context, **rest: Any) -> Any:
        return ctx, rest

    assert refusal(closed, {"ctx": 1}) == "ctx: Unknown argument; there are: a"
    assert refusal(open_, {"ctx": 1}) == "ctx: Unknown argument; there are: a"


def test_keyword_only_parameters() -> None:
    def tool(a: int, *, b: int, c: str = "x") -> Any:
        return a, b, c

    assert call(tool, {"a": 1, "b": 2}) == (1, 2, "x")


def test_further_arguments_go_into_kwargs() -> None:
    def typed(a: int, **rest: int) -> Any:
        return a, rest

    def untyped(a: int, *, ctx: Context, **rest) -> Any:  # type: ignore[no-untyped-def]
        return a, rest

    assert call(typed, {"a": 1, "x": 2, "y": "3"}) == (1, {"x": 2, "y": 3})
    assert refusal(typed, {"x": "z"}) == "a: Missing, but required\nx: Expected `int`, got `str`"
    assert call(untyped, {"a": 1, "x": [{}], "s": "3"}) == (1, {"x": [{}], "s": "3"})
    assert bound(typed).input_schema["additionalProperties"] == {"type": "integer"}
    assert "additionalProperties" not in bound(untyped).input_schema


def test_methods_partials_decorated_and_callable_objects() -> None:
    class Notes:
        """A callable."""

        def read(self, name: str) -> str:
            """Read a note."""
            return name

        @classmethod
        def kind(cls, n: int) -> str:
            return cls.__name__ * n

        @staticmethod
        async def late(n: int) -> int:
            return n

        async def __call__(self, name: str, ctx: Context) -> str:
            return name

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    def scaled(a: int, b: int, c: int = 1) -> int:
        """Scale."""
        return a * b * c

    notes = Notes()
    assert call(notes.read, {"name": "x"}) == "x"
    assert (bound(notes.read).name, bound(notes.read).description) == ("read", "Read a note.")
    assert call(Notes.kind, {"n": 2}) == "NotesNotes"
    assert call(Notes.late, {"n": 2}) == 2
    assert call(Notes.__dict__["late"], {"n": 2}) == 2
    assert call(notes, {"name": "x"}) == "x"
    assert (bound(notes).name, bound(notes).description, bound(notes).is_async) == ("Notes", "A callable.", True)
    assert call(functools.partial(scaled, 2), {"b": 3}) == 6
    assert call(functools.partial(scaled, b=3), {"a": 2}) == 6
    assert call(functools.partial(scaled, b=3), {"a": 2, "b": 1, "c": 4}) == 8
    assert (bound(functools.partial(scaled, 2)).name, bound(functools.partial(scaled, 2)).description) == (
        "scaled",
        "Scale.",
    )
    assert call(decorated(scaled), {"a": 1, "b": 2}) == 2
    assert bound(decorated(scaled)).description == "Scale."
    assert call(functools.partial(notes, name="x")) == "x"


def test_missing_annotations_mean_anything() -> None:
    def tool(a, b=None, *, c: object = 3):  # type: ignore[no-untyped-def]
        return a, b, c

    assert call(tool, {"a": [1], "c": "3"}) == ([1], None, "3")
    assert bound(tool).input_schema == {
        "type": "object",
        "properties": {"a": {}, "b": {"default": None}, "c": {"default": 3}},
        "required": ["a"],
        "additionalProperties": False,
    }


def test_defaults_are_copied_where_calls_could_share_them() -> None:
    sentinel = object()

    @dataclasses.dataclass
    class Options:
        tags: list[str] = dataclasses.field(default_factory=list)

    def tool(
        a: list[int] = [1],  # noqa: B006
        b: dict[str, list[int]] = {"x": []},  # noqa: B006
        c: Any = sentinel,
        d: Options = Options(),  # noqa: B008
        e: Any = msgspec.UNSET,
    ) -> Any:
        a.append(2)
        b["x"].append(3)
        d.tags.append("t")
        return a, b, c is sentinel, d.tags, e

    for _ in range(2):
        assert bound(tool).call(b"{}") == ([1, 2], {"x": [3]}, True, ["t"], msgspec.UNSET)
    properties = bound(tool).input_schema["properties"]
    assert [properties[name].get("default", "none") for name in "abcde"] == [
        [1],
        {"x": []},
        "none",
        {"tags": []},
        "none",
    ]


def test_a_default_of_none_admits_null() -> None:
    """A model reads the default in the schema and sends it."""

    def tool(a: int = None, b: Annotated[str, Meta(min_length=2)] = None) -> Any:  # type: ignore[assignment]
        return a, b

    assert call(tool, {"a": None, "b": None}) == (None, None)
    assert refusal(tool, {"b": "x"}) == "b: Expected `str` of length >= 2"


def test_odd_names_are_fine() -> None:
    def tool(a: int, self: int, cls: int, type: int, id: int, _x: int, copy: int, mro: int, é: int) -> Any:
        return a, self, cls, type, id, _x, copy, mro, é

    names = bound(tool).parameters
    assert call(tool, dict.fromkeys(names, 1)) == (1,) * 9


# ---------------------------------------------------------------------------------- refusals


class Opaque:
    pass


async def stream(n: int) -> Any:
    yield n


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda a, /: a, ["'<lambda>'", "'a'", "by name"]),
        (lambda *a: a, ["'a'", "by name"]),
        (lambda __a: __a, ["'__a'", "underscores"]),
        (len, ["'len'", "'obj'", "by name"]),
        (Opaque, ["'Opaque'", "not a function"]),
        (3, ["3", "not a function"]),
        (stream, ["'stream'", "generator", "list"]),
        (max, ["'max'", "signature cannot be read"]),
    ],
)
def test_what_cannot_be_called_by_name_is_refused(function: Any, says: list[str]) -> None:
    with pytest.raises(RegistrationError) as caught:
        bound(function)
    for text in says:
        assert text in str(caught.value)


def test_types_that_json_cannot_hold_are_refused_by_name() -> None:
    @dataclasses.dataclass
    class Nested:
        inner: list[Opaque]

    def plain(good: int, thing: Opaque) -> None: ...
    def nested(thing: Nested) -> None: ...
    def deep(thing: dict[str, list[Opaque | None]]) -> None: ...
    def union(thing: int | Opaque) -> None: ...
    def function(thing: Callable[[int], int]) -> None: ...
    def rest(**thing: Opaque) -> None: ...
    def meta(thing: Annotated[int, Meta(min_length=1)]) -> None: ...

    for tool in (plain, nested, deep, union, function, rest, meta):
        with pytest.raises(RegistrationError) as caught:
            bound(tool)
        assert f"function {tool.__name__!r}, parameter 'thing': " in str(caught.value)
        assert "dataclass" in str(caught.value)


def test_other_refusals() -> None:
    def two(a: Context, b: Context) -> None: ...

    class Owner:
        def method(self, a: int) -> None: ...

    for function, says in ((two, "'a' is the Context already"), (Owner.method, "bound method")):
        with pytest.raises(RegistrationError, match=says):
            bound(function)
    with pytest.raises(RegistrationError, match="Opaque cannot be read"):
        bind(lambda: None, context_type=None) and bind(_wants_opaque)


def _wants_opaque(x: Opaque) -> None: ...


# --------------------------------------------------------------------------------- arguments


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def everything(
    when: datetime.datetime,
    day: datetime.date,
    key: uuid.UUID,
    price: decimal.Decimal,
    color: Color,
    data: bytes,
    path: pathlib.Path,
    kind: Literal["a", 1],
    pair: tuple[int, str],
    tags: set[str],
    by_number: dict[int, float],
) -> Any:
    return (when, day, key, price, color, data, path, kind, pair, tags, by_number)


EVERYTHING = {
    "when": "2026-01-02T03:04:05Z",
    "day": "2026-01-02",
    "key": "12345678-1234-5678-1234-567812345678",
    "price": "1.50",
    "color": "red",
    "data": "aGk=",
    "path": "/tmp/x",
    "kind": 1,
    "pair": [1, "x"],
    "tags": ["t"],
    "by_number": {"1": 2.5},
}
EXPECTED = (
    datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    datetime.date(2026, 1, 2),
    uuid.UUID("12345678-1234-5678-1234-567812345678"),
    decimal.Decimal("1.50"),
    Color.RED,
    b"hi",
    pathlib.Path("/tmp/x"),
    1,
    (1, "x"),
    {"t"},
    {1: 2.5},
)


def test_types_of_the_standard_library() -> None:
    assert call(everything, EVERYTHING) == EXPECTED
    # The same on the slow path, where one argument needs coercion.
    assert call(everything, {**EVERYTHING, "pair": '[1, "x"]'}) == EXPECTED


def test_arguments_that_models_send_as_strings() -> None:
    def tool(n: int, tags: list[int], *, deep: dict[str, bool] | None = None, text: str = "") -> Any:
        return n, tags, deep, text

    assert call(tool, {"n": "3", "tags": "[1, 2]"}) == (3, [1, 2], None, "")
    assert call(tool, {"n": 3.0, "tags": ["1"], "deep": '{"x": "true"}'}) == (3, [1], {"x": True}, "")
    assert refusal(tool, {"n": 1, "tags": [], "text": 3}) == "text: Expected `str`, got `int`"


def test_one_line_for_each_problem() -> None:
    """SEP-1303: the text is what a model corrects itself by."""

    class Item(msgspec.Struct, forbid_unknown_fields=True):
        size: int
        color: Color = Color.RED

    def tool(
        city: str,
        days: Annotated[int, Meta(ge=1, le=14)] = 3,
        items: list[Item] = [],  # noqa: B006
        color: Color | None = None,
        table: dict[str, int] | None = None,
    ) -> None: ...

    assert refusal(tool, {"days": 99}) == "city: Missing, but required\ndays: Expected `int` <= 14"
    assert refusal(tool, {"city": 3, "dayz": 1}) == (
        "city: Expected `str`, got `int`\ndayz: Unknown argument; there are: city, days, items, color, table"
    )
    assert refusal(tool, {"city": "x", "items": [{}]}) == "items[0].size: Missing, but required"
    assert refusal(tool, {"city": "x", "items": [{"size": "z"}]}) == "items[0].size: Expected `int`, got `str`"
    assert refusal(tool, {"city": "x", "items": [{"size": 1, "sice": 1}]}) == "items[0].sice: Unknown field"
    assert refusal(tool, {"city": "x", "color": "pink"}) == (
        'color: Invalid enum value \'pink\'; expected one of "red", "blue"'
    )
    assert refusal(tool, {"city": "x", "items": [{"size": 1, "color": "pink"}]}) == (
        'items[0].color: Invalid enum value \'pink\'; expected one of "red", "blue"'
    )
    assert refusal(tool, {"city": "x", "table": {"a": "b"}}) == "table[...]: Expected `int`, got `str`"
    assert refusal(lambda: None, {"x": 1}) == "x: Unknown argument; none are taken"


def test_keys_that_do_not_fit() -> None:
    def tool(table: dict[int, int]) -> None: ...

    assert refusal(tool, {"table": {"x": 1}}) == "table, a key: Expected `int`, got `str`"


def test_what_a_class_itself_refuses_is_told() -> None:
    class Range(msgspec.Struct):
        low: int
        high: int

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low is above high")

    def tool(span: Range) -> None: ...

    assert refusal(tool, {"span": {"low": 2, "high": 1}}) == "span: low is above high"


@pytest.mark.parametrize(
    "raw",
    [b"[]", b'"x"', b"3", b"{", b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":' + b"[" * 100_000, b"\x00"],
)
def test_what_is_no_object_is_a_protocol_error(raw: bytes) -> None:
    """Malformed params are -32602; only arguments that do not fit the schema are a tool's error."""
    callee = bind(lambda a=None: a)
    with pytest.raises(InvalidParams, match="arguments"):
        callee.call(raw)


def test_deep_arguments_do_not_break_anything() -> None:
    def tool(a: int) -> None: ...

    raw = b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"
    with pytest.raises(ArgumentsError, match="a: Expected `int`, got `array`"):
        bound(tool).call(raw)


def test_many_and_long_unknown_names_are_cut_short() -> None:
    text = refusal(lambda a=1: a, {**dict.fromkeys(map(str, range(100)), 1), "x" * 1000: 1})
    assert len(text.splitlines()) == 20
    assert len(refusal(lambda: 1, {"x" * 1000: 1})) < 120


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "z"]), JSON))
def test_arguments_are_taken_or_refused_and_nothing_else(arguments: dict[str, Any]) -> None:
    def tool(a: int = 0, b: list[dict[str, float]] | None = None, *, c: Any = None) -> Any:
        return a, b, c

    raw = msgspec.json.encode(arguments)
    try:
        a, b, c = bound(tool).call(raw)
    except ArgumentsError:
        return
    assert type(a) is int
    assert b is None or all(type(x) is float for entry in b for x in entry.values())
    assert c == msgspec.json.decode(raw).get("c")


# ----------------------------------------------------------------------------------- strings


def test_strings_become_what_the_function_takes() -> None:
    def note(
        name: str,
        n: int = 0,
        ratio: float = 0.0,
        flag: bool = False,
        day: datetime.date | None = None,
        tags: list[str] = [],  # noqa: B006
        *,
        ctx: Context,
    ) -> Any:
        return name, n, ratio, flag, day, tags, ctx

    values = {"name": "3", "n": "3", "ratio": "1", "flag": "true", "day": "2026-01-02", "tags": '["3"]'}
    found = bound(note).call_strings(values, CTX)
    assert found == ("3", 3, 1.0, True, datetime.date(2026, 1, 2), ["3"], CTX)
    assert type(found[2]) is float
    assert bound(note).call_strings({"name": ""}, CTX)[0] == ""


def test_strings_that_do_not_fit_are_invalid_params() -> None:
    """2025-11-25 server/prompts: missing or wrong arguments are -32602."""

    def note(name: str, n: int) -> None: ...

    with pytest.raises(InvalidParams) as caught:
        bound(note).call_strings({"n": "x", "z": "1"})
    assert caught.value.message == (
        "name: Missing, but required\nn: Expected `int`, got `str`\nz: Unknown argument; there are: name, n"
    )


def test_strings_for_further_arguments() -> None:
    def prompt(topic: str, **rest: int) -> Any:
        return topic, rest

    assert bound(prompt).call_strings({"topic": "x", "n": "1"}) == ("x", {"n": 1})


def test_a_coroutine_function_with_strings() -> None:
    async def note(n: int) -> int:
        return n

    assert asyncio.run(bound(note).call_strings({"n": "1"})) == 1


def test_the_argument_list_of_a_prompt() -> None:
    def review(
        code: str, style: Annotated[str, Meta(title="Style", description="How.")] = "short", *, ctx: Context
    ) -> str:
        """Review code.

        Args:
            code: The code.
            style: Not shown.
        """
        return code

    assert FunctionPrompt(Prompt(name="review"), bound(review)).listed(frozenset()).arguments == [
        PromptArgument(name="code", description="The code.", required=True),
        PromptArgument(name="style", title="Style", description="How.", required=False),
    ]
    assert FunctionPrompt(Prompt(name="nothing"), bind(lambda: None)).listed(frozenset()).arguments == []


# ------------------------------------------------------------------------------------- output


def test_schemas_and_hooks_are_at_hand() -> None:
    def tool() -> dict[str, int]:
        return {}

    callee = bound(tool)
    assert callee.output_schema == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert callee.output_schema is callee.output_schema
    assert callee.input_schema is callee.input_schema
    assert bind(lambda: 1).output_schema is None
    assert bind(tool, is_content=lambda kind: True).output_schema is None
    assert to_builtins({1: pathlib.Path("x")}) == {"1": "x"}
    assert enc_hook(pathlib.Path("x")) == "x"


# ------------------------------------------------------------------------- decorators' wrappers


def _passing_on(*, positions: bool) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def by_name(**kwargs: Any) -> Any:
            return function(**kwargs)

        @functools.wraps(function)
        def by_position(*args: Any) -> Any:
            return function(*args)

        return by_position if positions else by_name

    return decorate


@pytest.mark.parametrize("positions", [True, False])
def test_a_wrapper_that_takes_only_names_or_only_positions(positions: bool) -> None:
    """functools.wraps shows the signature of what is wrapped: what the wrapper takes is another matter."""

    @_passing_on(positions=positions)
    def tool(a: int, ctx: Context, b: str = "x") -> Any:
        return a, b, ctx is not None

    @_passing_on(positions=positions)
    def without(a: int, b: str = "x") -> Any:
        return a, b

    @_passing_on(positions=positions)
    def last(a: int, ctx: Context) -> Any:
        return a, ctx is not None

    if not positions:
        assert bound(tool).call(b'{"a":1}', Context()) == (1, "x", True)
    assert bound(without).call(b'{"a":1,"b":"y"}') == (1, "y")
    assert bound(without).call_strings({"a": "1"}) == (1, "x")
    assert bound(last).call(b'{"a":1}', Context()) == (1, True)
    if not positions:
        assert bound(functools.partial(without, b="z")).call(b'{"a":1}') == (1, "z")


def test_a_wrapped_method_and_a_wrapped_call() -> None:
    class Tool:
        @_passing_on_self
        def method(self, a: int, b: int = 2) -> int:
            return a + b

        @_passing_on_self
        def __call__(self, a: int) -> int:
            return a

    assert bound(Tool().method).call(b'{"a":1}') == 3
    assert bound(Tool()).call(b'{"a":1}') == 1


def _passing_on_self(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(self: Any, **kwargs: Any) -> Any:
        return function(self, **kwargs)

    return wrapper


def test_refused_parameters_come_with_a_remedy() -> None:
    def careless(function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    with pytest.raises(RegistrationError, match=r"if a decorator returns this function, write @functools\.wraps"):
        bind(careless(len))
    with pytest.raises(RegistrationError, match="'__x': names with two leading underscores are reserved; rename it"):
        bind(lambda __x: None)


def test_functions_are_called_by_name() -> None:
    """Decorators read `kwargs["user"]`, as every peer passes them, wherever the context stands."""
    seen: list[dict[str, Any]] = []

    def audited(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            assert not args
            seen.append(kwargs)
            return function(**kwargs)

        return wrapper

    def plain(user: str, what: str = "all") -> str:
        return user + what

    def before(ctx: Context, user: str) -> str:
        return user

    def between(user: str, ctx: Context, what: str = "all") -> str:
        return user

    def after(user: str, ctx: Context) -> str:
        return user

    peer = Context()
    for function in (plain, before, between, after):
        bind(audited(function), context_type=lambda: Context).call(b'{"user": "ada"}', peer)
    assert seen == [
        {"user": "ada", "what": "all"},
        {"user": "ada", "ctx": peer},
        {"user": "ada", "what": "all", "ctx": peer},
        {"user": "ada", "ctx": peer},
    ]


def test_a_partial_has_its_own_name_and_default() -> None:
    def fetch(source: str, limit: int = 5) -> str:
        """Fetch."""
        return f"{source} {limit}"

    news = functools.partial(fetch, "news")
    news.__name__ = "fetch_news"  # type: ignore[attr-defined]
    news.__doc__ = "Fetch news."
    bound = bind(news)
    assert (bound.name, bound.description, bound.parameters) == ("fetch_news", "Fetch news.", ("limit",))
    assert bound.call(b'{"limit": 2}') == "news 2"

    ten = functools.partial(fetch, limit=10)
    functools.update_wrapper(ten, fetch)
    bound = bind(ten)
    assert (bound.name, bound.description) == ("fetch", "Fetch.")
    assert bound.input_schema["properties"]["limit"] == {"type": "integer", "default": 10}
    assert bound.call(b'{"source": "a"}') == "a 10"


def test_what_a_docstring_says_of_others_stays_in_the_description() -> None:
    def find(sql: str) -> str:
        """Find.

        Args:
            sql: The text.
            limit: At most so many, set by the server.
        """
        return sql

    assert bind(find).description == "Find.\n\nlimit: At most so many, set by the server."


def test_a_default_factory_is_run_for_calls_only() -> None:
    made: list[int] = []

    def number() -> int:
        made.append(1)
        return len(made)

    def tool(at: Annotated[int, Field(default_factory=number)], more: list[int] = [1]) -> Any:  # noqa: B006
        more.append(2)
        return at, more

    bound = bind(tool)
    properties = bound.input_schema["properties"]
    assert "default" not in properties["at"]
    assert properties["more"]["default"] == [1]
    assert "at" not in bound.input_schema.get("required", ())
    assert not made
    assert [bound.call(b"{}") for _ in range(2)] == [(1, [1, 2]), (2, [1, 2])]
