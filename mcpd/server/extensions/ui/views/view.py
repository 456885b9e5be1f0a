"""`View`: which of the bundled pages shows a tool's results, and how. Mistakes raise RegistrationError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypedDict, Unpack, cast, get_args, overload

from mcpd.errors import RegistrationError

ViewKind: TypeAlias = Literal["table", "form", "chart", "markdown", "image"]

ChartKind: TypeAlias = Literal["bar", "line", "area"]


class ViewOptions(TypedDict, total=False):
    """What every kind may be told."""

    title: str
    """Above the view; by default the title of the tool, where the host tells it."""


class TableOptions(ViewOptions, total=False):
    """Of `View("table")`."""

    columns: Sequence[str]
    """The columns to show, in order, by their keys; by default all. Of lists of lists: the names of the columns."""
    rows: str
    """The member of the result that has the rows; by default the only one that is a list."""


class ChartOptions(ViewOptions, total=False):
    """Of `View("chart")`."""

    kind: ChartKind
    """By default a line over dates and rising numbers, else bars."""
    x: str
    """The key of the column along the axis; by default the first one of dates, else of text."""
    y: str | Sequence[str]
    """The keys of the columns that are drawn, at most eight; by default those of numbers."""
    stacked: bool
    """Whether bars and areas stand on each other."""
    rows: str
    """The member of the result that has the rows."""


class MarkdownOptions(ViewOptions, total=False):
    """Of `View("markdown")`."""

    images: Sequence[str]
    """Origins such as "https://images.example.com" whose images may be shown; of others there is a link."""


class ImageOptions(ViewOptions, total=False):
    """Of `View("image")`."""

    images: Sequence[str]
    """Origins whose images may be shown, for results that are addresses."""
    alt: str
    """What the image shows, for those who cannot see it; by default what the result says of it."""


class FormOptions(ViewOptions, total=False):
    """Of `View("form")`."""

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
    """One of the bundled pages, with its options: `@server.tool(view=View("chart", kind="bar", y=["sales"]))`.

    The first argument is the kind: table, form, chart, markdown or image; each has options of its own. Raises
    RegistrationError for a kind or an option that is not there, and for a value that it cannot have.
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
            raise RegistrationError(f"view {view!r}: there are {', '.join(kinds)}{_near(view, kinds)}")
        self.view: ViewKind = view
        self.options: Mapping[str, Any] = _checked(view, options)

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"View({self.view!r}{given})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and (self.view, self.options) == (other.view, other.options)

    def __hash__(self) -> int:
        return hash((self.view, repr(self.options)))

    @property
    def images(self) -> list[str]:
        """The origins whose images may be shown."""
        return list(self.options.get("images", ()))


def view_of(given: object) -> View:
    """What `view=` was given, a kind or a View. Raises RegistrationError."""
    if isinstance(given, View):
        return given
    if not isinstance(given, str):
        raise RegistrationError(f"view={given!r}: give a kind, such as 'table', or a View")
    return View(cast("Any", given))


def _checked(view: str, options: Mapping[str, Any]) -> dict[str, Any]:
    known = list(_OPTIONS[view].__annotations__)
    checked: dict[str, Any] = {}
    for name, value in options.items():
        where = f"View({view!r}), {name}={value!r}"
        if name not in known:
            raise RegistrationError(f"{where}: it has no such option; there are {', '.join(known)}{_near(name, known)}")
        if name in _LISTS:
            checked[name] = _texts(where, value, is_one=name == "y")
        elif name == "stacked":
            if not isinstance(value, bool):
                raise RegistrationError(f"{where}: give True or False")
            checked[name] = value
        elif name == "kind":
            if value not in get_args(ChartKind):
                near = _near(value, get_args(ChartKind))
                raise RegistrationError(f"{where}: there are {', '.join(get_args(ChartKind))}{near}")
            checked[name] = value
        elif not isinstance(value, str) or not value:
            raise RegistrationError(f"{where}: give a text")
        else:
            checked[name] = value

    if len(checked.get("y", ())) > _MAX_SERIES:
        raise RegistrationError(f"View({view!r}), y: at most {_MAX_SERIES} columns are drawn at once")
    return checked


def _texts(where: str, value: object, *, is_one: bool) -> list[str]:
    """Several texts; of an option that may have one, that alone."""
    if isinstance(value, str):
        if not is_one:
            raise RegistrationError(f"{where}: give a list, such as [{value!r}]")
        value = [value]
    if not isinstance(value, Sequence) or not value or not all(isinstance(each, str) and each for each in value):
        raise RegistrationError(f"{where}: give a list of texts")
    if len(set(value)) < len(value):
        raise RegistrationError(f"{where}: names something twice")
    return list(value)


def _near(given: object, known: Sequence[str]) -> str:
    from difflib import get_close_matches  # on the way to an error only

    near = get_close_matches(given, known, 1) if isinstance(given, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""
