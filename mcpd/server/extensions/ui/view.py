"""`View`: the bundled page that shows a tool's results, with its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, cast, get_args, overload

from mcpd.errors import RegistrationError

ViewKind: TypeAlias = Literal["table", "form", "chart", "markdown", "image"]

ChartKind: TypeAlias = Literal["bar", "line", "area"]


class ViewOptions(TypedDict, total=False):
    """Options of every kind."""

    title: str
    """The heading; by default the title of the tool, if the host sends it."""


class TableOptions(ViewOptions, total=False):
    """Options of `View("table")`."""

    columns: Sequence[str]
    """The keys of the columns in order; by default all. For lists of lists: the names of the columns."""
    rows: str
    """The member of the result with the rows; by default the only list."""


class ChartOptions(ViewOptions, total=False):
    """Options of `View("chart")`."""

    kind: ChartKind
    """By default a line for dates and rising numbers, otherwise bars."""
    x: str
    """The key of the column for the axis; by default the first column of dates, otherwise of text."""
    y: str | Sequence[str]
    """The keys of the columns to draw, at most eight; by default all columns of numbers."""
    stacked: bool
    """Whether bars and areas are stacked."""
    rows: str
    """The member of the result with the rows."""


class MarkdownOptions(ViewOptions, total=False):
    """Options of `View("markdown")`."""

    images: Sequence[str]
    """Origins such as "https://images.example.com" whose images are shown; other images become links."""


class ImageOptions(ViewOptions, total=False):
    """Options of `View("image")`."""

    images: Sequence[str]
    """Origins whose images are shown, for results that are addresses."""
    alt: str
    """The alternative text of the image; by default the text in the result."""


class FormOptions(ViewOptions, total=False):
    """Options of `View("form")`."""

    submit: str
    """The text of the button; by default "Run"."""


_OPTIONS: Final[dict[str, type]] = {
    "table": TableOptions,
    "form": FormOptions,
    "chart": ChartOptions,
    "markdown": MarkdownOptions,
    "image": ImageOptions,
}
_LISTS: Final = ("columns", "y", "images")
_MAX_SERIES: Final = 8


class View:
    """A bundled page with its options: `@server.tool(view=View("chart", kind="bar", y=["sales"]))`.

    The first argument is the kind: table, form, chart, markdown or image. Each kind has its own options. Raises
    RegistrationError for an unknown kind or option, and for an invalid value.
    """

    @overload
    def __init__(self, view: Literal["table"], /, **options: Unpack[TableOptions]) -> None: ...
    @overload
    def __init__(self, view: Literal["chart"], /, **options: Unpack[ChartOptions]) -> None: ...
    @overload
    def __init__(self, view: Literal["markdown"], /, **options: Unpack[MarkdownOptions]) -> None: ...
    @overload
    def __init__(self, view: Literal["image"], /, **options: Unpack[ImageOptions]) -> None: ...
    @overload
    def __init__(self, view: Literal["form"], /, **options: Unpack[FormOptions]) -> None: ...

    def __init__(self, view: ViewKind, /, **options: Any) -> None:
        kinds = get_args(ViewKind)
        if view not in kinds:
            raise RegistrationError(f"view {view!r}: there are {', '.join(kinds)}{_suggestion(view, kinds)}")
        self.view: ViewKind = view
        self.options: Mapping[str, Any] = _checked(view, options)

    def __repr__(self) -> str:
        arguments = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"View({self.view!r}{arguments})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and (self.view, self.options) == (other.view, other.options)

    def __hash__(self) -> int:
        return hash((self.view, repr(self.options)))

    @property
    def images(self) -> list[str]:
        """The origins whose images are shown."""
        return list(self.options.get("images", ()))


def view_of(given: object) -> View:
    """Return the View for the argument `view=`, a kind or a View. Raises RegistrationError."""
    if isinstance(given, View):
        return given
    if not isinstance(given, str):
        raise RegistrationError(f"view={given!r}: use a kind, such as 'table', or a View")
    return View(cast("Any", given))


def _checked(view: str, options: Mapping[str, Any]) -> dict[str, Any]:
    known = list(_OPTIONS[view].__annotations__)
    checked: dict[str, Any] = {}
    for name, value in options.items():
        where = f"View({view!r}), {name}={value!r}"
        if name not in known:
            raise RegistrationError(f"{where}: unknown option; use {', '.join(known)}{_suggestion(name, known)}")
        if name in _LISTS:
            value = _texts(where, value, is_one=name == "y")
        elif name == "stacked":
            if not isinstance(value, bool):
                raise RegistrationError(f"{where}: use True or False")
        elif name == "kind":
            if value not in get_args(ChartKind):
                near = _suggestion(value, get_args(ChartKind))
                raise RegistrationError(f"{where}: there are {', '.join(get_args(ChartKind))}{near}")
        elif not isinstance(value, str) or not value:
            raise RegistrationError(f"{where}: use a text")
        checked[name] = value

    if len(checked.get("y", ())) > _MAX_SERIES:
        raise RegistrationError(f"View({view!r}), y: use at most {_MAX_SERIES} columns")
    return checked


def _texts(where: str, value: object, *, is_one: bool) -> list[str]:
    if isinstance(value, str):
        if not is_one:
            raise RegistrationError(f"{where}: use a list, such as [{value!r}]")
        value = [value]
    if not isinstance(value, Sequence) or not value or not all(isinstance(each, str) and each for each in value):
        raise RegistrationError(f"{where}: use a list of texts")
    if len(set(value)) < len(value):
        raise RegistrationError(f"{where}: a name appears twice")
    return list(value)


def _suggestion(given: object, known: Sequence[str]) -> str:
    from difflib import get_close_matches  # on the way to an error only

    near = get_close_matches(given, known, 1) if isinstance(given, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""
