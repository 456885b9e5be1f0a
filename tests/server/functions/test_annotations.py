"""Annotations: strings, local names, other libraries' metadata."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NewType, Optional

import msgspec
import pytest
from msgspec import Meta

from mcpd.errors import RegistrationError
from mcpd.server.functions.annotations import find_kind, is_coroutine_function, plain_function, resolved
from mcpd.server.functions.hints import readable
from mcpd.server.functions.signature import bind

if TYPE_CHECKING:
    from nowhere import Forecast  # type: ignore[import-not-found]


def wants_forecast(city: str, base: Forecast) -> None: ...


def gives_forecast(city: str) -> Forecast: ...


def test_a_name_that_is_only_there_for_type_checkers() -> None:
    with pytest.raises(RegistrationError) as caught:
        bind(wants_forecast)
    assert str(caught.value) == (
        "function 'wants_forecast', parameter 'base': its annotation names 'Forecast', which is not defined there "
        "at run time; import or define it before the function, outside `if TYPE_CHECKING:`"
    )
    with pytest.raises(RegistrationError, match="'gives_forecast', return annotation names 'Forecast'"):
        bind(gives_forecast)


def test_an_annotation_that_is_no_type() -> None:
    def tool(a: 1 / 0) -> None: ...  # type: ignore[valid-type]
    def other(a: "((") -> None: ...  # type: ignore[syntax]  # noqa: F722

    for function in (tool, other):
        with pytest.raises(RegistrationError, match="annotation cannot be evaluated"):
            bind(function)


def test_a_decorator_finds_the_names_of_the_functions_it_is_used_in() -> None:
    class Outer(msgspec.Struct):
        n: int

    def middle() -> Any:
        class Inner(msgspec.Struct):
            n: int

        def register(function: Callable[..., Any]) -> Any:
            return bind(function)

        @register
        def tool(a: Outer, b: Inner | None = None) -> Inner:
            return Inner(a.n)

        return tool, Inner

    callee, inner = middle()
    assert callee.call(b'{"a":{"n":3}}') == inner(3)
    assert callee.returns is inner


def test_a_closure_keeps_its_names() -> None:
    def make() -> Callable[..., Any]:
        class Item(msgspec.Struct):
            n: int

        def tool(a: Item) -> int:
            assert isinstance(a, Item)
            return a.n

        return tool

    assert bind(make()).call(b'{"a":{"n":3}}') == 3


def test_a_local_name_that_is_gone_is_an_error() -> None:
    def make() -> Callable[..., Any]:
        class Item(msgspec.Struct):
            n: int

        def tool(a: Item) -> None: ...

        return tool

    with pytest.raises(RegistrationError, match="names 'Item'"):
        bind(make())


Alias = list["Missing"]  # type: ignore[name-defined]  # noqa: F821


def test_a_name_that_is_missing_behind_another() -> None:
    def tool(a: Alias) -> None: ...

    with pytest.raises(RegistrationError, match="^function 'tool': an annotation names 'Missing'"):
        bind(tool)


def test_a_closure_that_is_not_complete_yet() -> None:
    def make() -> Any:
        class Item(msgspec.Struct):
            n: int

        def tool(a: Item) -> Any:
            return later

        found = resolved(tool, "")["a"], Item
        later = None
        return found

    found, expected = make()
    assert found is expected


def test_an_inner_name_hides_an_outer_one() -> None:
    class Item(msgspec.Struct):
        outer: int

    def middle() -> Any:
        class Item(msgspec.Struct):
            inner: int

        def tool(a: Item, /) -> None: ...

        return resolved(tool, "")["a"], Item

    found, expected = middle()
    assert found is expected
    assert found is not Item


def test_a_decorator_with_a_signature_of_its_own() -> None:
    def plain(a: int) -> int:
        return a

    @functools.wraps(plain)
    def wrapper(**kwargs: Any) -> Any:
        return kwargs

    import inspect

    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("a", inspect.Parameter.KEYWORD_ONLY, annotation=str),
            inspect.Parameter("b", inspect.Parameter.KEYWORD_ONLY, annotation=bool),
        ]
    )
    callee = bind(wrapper)
    assert callee.call(b'{"a":"x","b":true}') == {"a": "x", "b": True}
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("c", inspect.Parameter.KEYWORD_ONLY, annotation="Unknown")]
    )
    with pytest.raises(RegistrationError, match="'Unknown' cannot be resolved"):
        bind(wrapper)


class Kind:
    pass


class Sub(Kind):
    pass


@pytest.mark.parametrize("hint", [Kind, Sub, Optional[Kind], Sub | None, Annotated[Kind, 1], Annotated[Sub | None, 1]])  # noqa: UP045
def test_find_kind(hint: Any) -> None:
    assert find_kind(hint, Kind) is not None


@pytest.mark.parametrize("hint", [int, None, list[Kind], Any, "Kind", Kind()])
def test_is_not_kind_of(hint: Any) -> None:
    assert find_kind(hint, Kind) is None


class Doc(NamedTuple):
    """As typing_extensions.Doc and PEP 727."""

    documentation: str


class Bound:
    """As annotated_types.Ge and its kin."""

    def __init__(self, **limits: Any) -> None:
        vars(self).update(limits)


class Field:
    """As pydantic's FieldInfo."""

    def __init__(self, *metadata: Any, description: str | None = None, title: str | None = None) -> None:
        self.metadata = list(metadata)
        self.description = description
        self.title = title


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
        (Annotated[int, Doc("How many.")], {"type": "integer", "description": "How many."}),
        (Annotated[int, Bound(ge=1), Bound(le=3)], {"type": "integer", "minimum": 1, "maximum": 3}),
        (
            Annotated[str, Field(Bound(min_length=2), Bound(pattern="^a"), description="A word.", title="Word")],
            {"type": "string", "minLength": 2, "pattern": "^a", "description": "A word.", "title": "Word"},
        ),
        (Annotated[int, Meta(ge=1, description="Mine.")], {"type": "integer", "minimum": 1, "description": "Mine."}),
        (Annotated[int, "Theirs.", Meta(description="Mine.")], {"type": "integer", "description": "Mine."}),
        (
            Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})],
            {"type": "string", "x-mcp-header": "Region"},
        ),
        (NewType("Count", int), {"type": "integer"}),
        (object, {}),
    ],
)
def test_metadata_of_all_kinds(hint: Any, schema: dict[str, Any]) -> None:
    def tool(a):  # type: ignore[no-untyped-def]
        return a

    tool.__annotations__ = {"a": hint}
    assert bind(tool).input_schema["properties"]["a"] == schema


def test_metadata_that_makes_no_sense() -> None:
    with pytest.raises(RegistrationError, match="here: .*both"):
        readable(Annotated[int, Bound(ge=1, gt=1)], "here")


def test_functions_that_give_coroutines() -> None:
    async def yes() -> None: ...
    def no() -> None: ...

    class Late:
        async def __call__(self) -> None: ...

    for function in (
        yes,
        functools.partial(yes),
        Late(),
        functools.partial(Late()),
        staticmethod(yes),
        Late().__call__,
    ):
        assert is_coroutine_function(function)
    for function in (no, functools.partial(no), Late, len, staticmethod(no)):
        assert not is_coroutine_function(function)


def test_plain_function_gives_up_on_circles() -> None:
    def function() -> None: ...

    function.__wrapped__ = function  # type: ignore[attr-defined]
    assert plain_function(function) is function
    assert plain_function(len) is len
