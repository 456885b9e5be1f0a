"""HTTP routes that an author serves beside the endpoint: `Route`, its request and its response.

The HTTP part is in `http/routes.py`, so a stdio server with a route loads only this. Paths are matched by fixed texts,
not by regular expressions, because several parameters in one segment could take cubic time.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, overload
from urllib.parse import parse_qsl

from msgspec import DecodeError, Struct
from msgspec.json import decode

from mcpd.errors import InvalidRequest, RegistrationError
from mcpd.protocol.jsonrpc import explain
from mcpd.protocol.principal import ANONYMOUS, Principal


def values_between(fixed: Sequence[str], path: str) -> list[str] | None:
    """Return the texts between two or more fixed texts, each non-empty and without "/"; None if the path does not
    match.

    If a path can be cut in several ways, earlier values get more. Each text is searched for from the end, which takes
    linear time.
    """
    start, end = len(fixed[0]), len(path) - len(fixed[-1])
    if end <= start or not (path.startswith(fixed[0]) and path.endswith(fixed[-1])):
        return None

    values: list[str] = []
    for text in reversed(fixed[1:-1]):
        at = path.rfind(text, start + 1, end - 1)  # values are not empty
        if at < 0:
            return None
        values.append(path[at + len(text) : end])
        end = at

    values.append(path[start:end])
    return None if any("/" in value for value in values) else values[::-1]


def values_across(fixed: Sequence[str], path: str, wide: Collection[int]) -> list[str] | None:
    """Return the values as `values_between` does, but those at the indexes in `wide` may contain "/".

    The length of one value limits the others. A pass from the end therefore collects every place of each fixed text at
    which the rest still matches. Then the earlier values take the farthest of these places.
    """
    if not path.startswith(fixed[0]):
        return None

    length = len(path)
    slash = [length] * (length + 1)  # the next "/" from each character on
    for at in range(length - 1, -1, -1):
        slash[at] = at if path[at] == "/" else slash[at + 1]

    ends = path.endswith(fixed[-1])
    farthest = [_up_to({length - len(fixed[-1])} if ends else set(), length)]
    for index in range(len(fixed) - 2, 0, -1):
        places = set()
        at = path.find(fixed[index])
        while at >= 0:
            start = at + len(fixed[index])
            if farthest[-1][length if index in wide else slash[start]] > start:  # values are not empty
                places.add(at)
            at = path.find(fixed[index], at + 1)
        farthest.append(_up_to(places, length))

    values, start = [], len(fixed[0])
    for index, reach in enumerate(reversed(farthest)):
        end = reach[length if index in wide else slash[start]]
        if end <= start:
            return None
        values.append(path[start:end])
        start = end + len(fixed[index + 1])
    return values


def _up_to(places: Collection[int], length: int) -> list[int]:
    found, last = [], -1
    for at in range(length + 1):
        if at in places:
            last = at
        found.append(last)
    return found


T = TypeVar("T")

_METHOD = re.compile(r"[A-Z][A-Z-]{0,30}").fullmatch
_PARAMETER = re.compile(r"\{([^{}]*)\}")


async def _no_parts() -> AsyncIterator[bytes]:
    for part in tuple[bytes]():
        yield part


class RouteRequest(Struct, eq=False, kw_only=True):
    """A request to a route, with its whole body.

    `path` is relative to the application's mount point (`root_path`); `params` are the values of `{name}` in the route.
    `headers` can be looked up in any case and include credentials; repeated headers are joined by commas. `body` is
    limited to the size of a message to the endpoint. `user` is the sender, ANONYMOUS on a public route; `client` is its
    address, "" if unknown; `scheme` is http or https, as far as the server knows; `lifespan` is the value of the
    server's lifespan. `principal` is the id to which sessions are bound; `parts()` is the body of a route that
    streams, whose `body` is empty.
    """

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    query_string: str = ""
    body: bytes = b""
    user: Principal = ANONYMOUS
    client: str = ""
    root_path: str = ""
    scheme: str = "http"
    lifespan: Any = None
    principal: str = ""
    parts: Callable[[], AsyncIterator[bytes]] = _no_parts

    @property
    def query(self) -> dict[str, str]:
        """The variables of the query; the last one of a repeated name. Raises InvalidRequest for more than 1,000."""
        try:
            return dict(parse_qsl(self.query_string, keep_blank_values=True, max_num_fields=1000))
        except ValueError as error:
            raise InvalidRequest(f"The query cannot be read: {error}") from None

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, type: type[T]) -> T: ...

    def json(self, type: Any = Any) -> Any:
        """Return the body as JSON of a type. Raises InvalidRequest, which becomes status 400."""
        try:
            return decode(self.body, type=type)
        except (DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"The body does not fit: {explain(error)}") from None


class RouteResponse(Struct, frozen=True):
    """The response of a route: bytes and texts unchanged, anything else as JSON; status 200 by default.

    `headers` are a mapping, or pairs for repeated headers. The default `content_type` follows the body:
    `application/octet-stream`, `text/plain; charset=utf-8` or `application/json`.
    """

    body: object = b""
    status: int = 200
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()
    content_type: str | None = None


class Route:
    """A path and its function, plain or async, which takes a RouteRequest or nothing.

    `{name}` in `path` matches one segment. GET includes HEAD. A `public` route requires no authorization; `any_origin`
    lets every web page read it, by CORS. `max_body_bytes` is for a limit below the endpoint's. A route that `streams`
    reads its body itself, in parts and without a limit. Raises RegistrationError
    for a route that cannot be served.
    """

    __slots__ = ("any_origin", "between", "function", "is_async", "max_body_bytes", "methods", "path", "public",
                 "streams", "takes_request", "_names")  # fmt: skip

    def __init__(
        self,
        path: str,
        function: Callable[..., object],
        *,
        methods: Collection[str] = ("GET",),
        public: bool = False,
        any_origin: bool = False,
        max_body_bytes: int | None = None,
        streams: bool = False,
    ) -> None:
        where = f"route {path!r}"
        if not str(path).startswith("/") or any(c in path for c in "?#\\ "):
            raise RegistrationError(f"{where}: its path begins with / and has no query, such as /webhooks/{{name}}")
        if isinstance(methods, str) or not methods:
            raise RegistrationError(f'{where}: methods are a list, such as methods=["GET", "POST"]')
        wrong = [method for method in methods if not _METHOD(str(method))]
        if wrong:
            raise RegistrationError(f"{where}: {wrong[0]!r} is not an HTTP method; write it in capitals, such as GET")
        if any_origin and not public:
            raise RegistrationError(f"{where}: any_origin=True requires public=True")

        self.path = path
        self.function = function
        self.methods = tuple(dict.fromkeys([*methods, "HEAD"] if "GET" in methods else methods))
        self.public = public
        self.any_origin = any_origin
        self.max_body_bytes = max_body_bytes
        self.streams = streams
        # The texts around its parameters; None without parameters.
        self.between, self._names = _parts_of(path, where)
        self.is_async = _is_async(function)
        self.takes_request = _takes_request(function, where)

    def match(self, path: str) -> dict[str, str] | None:
        """Return the values of its parameters in a path; None if the path does not match."""
        if self.between is None:
            return {} if path == self.path else None
        values = values_between(self.between, path)
        if values is None or any(map(_leads_elsewhere, values)):
            return None
        return dict(zip(self._names, values, strict=True))


def _leads_elsewhere(value: str) -> bool:
    # Return whether a value would lead a joined path out of its folder, on any system.
    return value in (".", "..") or "\\" in value or "\0" in value


def _parts_of(path: str, where: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    # Return the texts around the parameters of a path, and their names; None for a path without parameters.
    pieces = _PARAMETER.split(path)
    fixed, names = pieces[::2], pieces[1::2]

    if any("{" in part or "}" in part for part in fixed):
        raise RegistrationError(f"{where}: a parameter is written {{name}}")
    if any(not name.isidentifier() for name in names) or len({*names}) != len(names):
        raise RegistrationError(f"{where}: its parameters need different names, such as {{name}}")
    return (tuple(fixed) if names else None), tuple(names)


def _takes_request(function: Callable[..., object], where: str) -> bool:
    if not callable(function):
        raise RegistrationError(f"{where}: {function!r} is not a function")

    try:
        signature = inspect.signature(function)
    except ValueError:
        return True

    try:
        signature.bind()
    except TypeError:
        pass
    else:
        # A parameter with a default may be bound by it, as in a loop; a wrapper takes everything.
        return any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values())

    try:
        signature.bind(None)
    except TypeError:
        name = getattr(function, "__qualname__", repr(function))
        raise RegistrationError(f"{where}: {name} must take the request, or nothing") from None
    return True


def _is_async(function: Any) -> bool:
    # Return whether a call returns a coroutine, also for partials and objects with an async `__call__`.
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
