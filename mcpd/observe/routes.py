"""`/metrics` and `/statusz` as routes of HTTP, for ports that serve clients too."""

from __future__ import annotations

from msgspec.json import encode

from mcpd.observe.report import JSON, Report
from mcpd.server.registry.routes import Route, RouteRequest, RouteResponse


def routes_of(report: Report) -> tuple[Route, ...]:
    """Both. They ask for what the endpoint asks for, so that it has to ask for a token, or be this machine's alone."""

    async def metrics(request: RouteRequest) -> RouteResponse:
        said = report.metrics(request.headers.get("accept"))
        return RouteResponse(said.body, content_type=said.content_type)

    async def statusz() -> RouteResponse:
        return RouteResponse(encode(report.status()), content_type=JSON)

    return Route("/metrics", metrics), Route("/statusz", statusz)
