"""What HTTP routes add to `Server` for authors: its `route` decorator."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from mcpd.errors import RegistrationError

if TYPE_CHECKING:
    from mcpd.registry.routes import Route
else:
    Route = object  # for whoever evaluates annotations
from mcpd.errors import collects

F = TypeVar("F", bound=Callable[..., Any])


class RouteMethods:
    """A part of `Server`: no object of its own."""

    _routes: list[Route]

    @collects
    def route(
        self, path: str, *, methods: Collection[str] = ("GET",), public: bool = False, any_origin: bool = False
    ) -> Callable[[F], F]:
        """Register what answers HTTP requests to a path beside the endpoint: `@server.route("/orders/{id}")`.

        The function takes a RouteRequest or nothing, and may be async; a plain one runs in a thread. It gives a
        RouteResponse, or its body alone (bytes, a text, JSON of anything else), a Refusal, or None for status 204.
        `methods` are GET (with it HEAD), or others. It is for those that may use the endpoint, unless it is `public`;
        `any_origin` lets any web page read what is public.
        Raises RegistrationError for a path or function that cannot be served, and for one that is taken.
        """

        def register(function: F) -> F:
            from mcpd.registry.routes import Route  # few servers have one, and this costs start-up

            route = Route(path, function, methods=methods, public=public, any_origin=any_origin)
            taken = {method for other in self._routes if other.path == path for method in other.methods}
            if taken := taken.intersection(route.methods):
                raise RegistrationError(f"route {path!r}: there is one for {', '.join(sorted(taken))} already")
            self._routes.append(route)
            return function

        return register
