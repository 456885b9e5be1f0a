"""Tries a server behind a URL: the way to it, then what is spoken there, HTTP or WebSocket."""

from __future__ import annotations

from mcpd.client.targets.named import UrlTarget
from mcpd.doctor.conversation import try_client
from mcpd.doctor.network import try_network
from mcpd.doctor.report import Report


async def try_url(target: UrlTarget, report: Report, timeout: float) -> None:
    """All steps. `timeout` is how many seconds the server has for each answer."""
    if target.url.startswith("ws"):
        if await try_network(target, report):
            await try_client(target, report, timeout)
        return

    try:
        from mcpd.doctor.http_urls import try_http  # noqa: PLC0415  # needs an extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mcpd"):
            raise
        text = f"servers behind http:// URLs are reached with the package {error.name}, which is not installed"
        report.fail("found", text, "pip install 'mcpd-server[client]'")
        return

    if await try_network(target, report):
        await try_http(target, report, timeout)
