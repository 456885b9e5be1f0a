"""Tries a server that speaks HTTP: its endpoint, who may use it, what it streams, and the versions that it takes."""

from __future__ import annotations

import asyncio

from mcpd.client.targets.named import UrlTarget
from mcpd.doctor.conversation import try_client
from mcpd.doctor.dialogue import WITH_HANDSHAKE, WITHOUT_HANDSHAKE, NoAnswer, has_handshake
from mcpd.doctor.discovery import walk_discovery
from mcpd.doctor.endpoint import Endpoint, discover, find_endpoint, hello, modern_headers, opening_of
from mcpd.doctor.exposure import try_exposure
from mcpd.doctor.refusal import judge_refusal
from mcpd.doctor.report import Report
from mcpd.doctor.streams import try_streams
from mcpd.doctor.web import Web
from mcpd.protocol.versions import table


async def try_http(target: UrlTarget, report: Report, timeout: float) -> None:
    """All steps behind the way to it. `timeout` is how many seconds the server has for each answer."""
    web = Web(target, timeout)
    endpoint = await find_endpoint(web, report)
    if endpoint is None:
        return
    if endpoint.reply.status == 401:
        await judge_refusal(web, endpoint.reply, report)
        has_token = any(name.lower() == "authorization" for name in target.headers)
        if report.works and await walk_discovery(web, endpoint.reply, report) and not has_token:
            await try_client(target, report, timeout)
        return
    if endpoint.is_old:
        await try_client(target, report, timeout)
        return
    await _try_without_token(web, report, wants_handshake=endpoint.wants_handshake)
    await try_exposure(web, report, wants_handshake=endpoint.wants_handshake)
    await try_streams(endpoint, report)
    await _let_go(endpoint)
    await try_client(target, report, timeout)
    await _try_versions(web, report)


async def _try_without_token(web: Web, report: Report, *, wants_handshake: bool) -> None:
    """Whether the token that was given is wanted at all."""
    if not any(name.lower() == "authorization" for name in web.target.headers):
        report.ok("token", "none is wanted")
        return
    newest = WITHOUT_HANDSHAKE
    plain = Web(UrlTarget(web.target.url, {}, web.target.socket, web.target.ca_file), web.timeout)
    try:
        if wants_handshake:
            reply = await plain.post(hello(WITH_HANDSHAKE))
        else:
            reply = await plain.post(discover(newest), modern_headers(newest, "server/discover"))
    except NoAnswer:
        report.skip("token", "no answer to a request without the token")
        return
    if opening_of(reply) is not None:
        report.warn("token", "the server answers without it, too", "is it checked later, or not at all?")
    else:
        report.ok("token", f"it is taken, and without it comes status {reply.status}")


async def _let_go(endpoint: Endpoint) -> None:
    """End the session that the first request has opened."""
    if endpoint.session is not None:
        fields = {"Mcp-Session-Id": endpoint.session, "MCP-Protocol-Version": WITH_HANDSHAKE}
        try:
            await endpoint.web.ask("DELETE", fields)
        except NoAnswer:
            return


async def _try_versions(web: Web, report: Report) -> None:
    """Each version of the protocol with a request of its own."""
    tried = await asyncio.gather(*(_try_version(web, version) for version in table.SUPPORTED))
    taken = [version for version, is_taken in zip(table.SUPPORTED, tried, strict=True) if is_taken]
    others = [version for version in table.SUPPORTED if version not in taken]
    not_taken = f"not {', '.join(others)}" if others else ""
    if not taken:
        report.fail("versions", "none that is known", "answer `initialize` with a version that there is")
    elif taken[0] == WITHOUT_HANDSHAKE or WITH_HANDSHAKE in taken:
        report.ok("versions", ", ".join(taken), advice=not_taken, taken=taken)
    else:
        report.warn("versions", ", ".join(taken), "update the library that the server is built on", taken=taken)


async def _try_version(web: Web, version: str) -> bool:
    try:
        if has_handshake(version):
            reply = await web.post(hello(version))
            opening = opening_of(reply) or {}
            await _let_go(Endpoint(web, reply))
            return bool(opening.get("protocolVersion") == version)
        reply = await web.post(discover(version), modern_headers(version, "server/discover"))
    except NoAnswer:
        return False
    offered = (opening_of(reply) or {}).get("supportedVersions")
    return isinstance(offered, list) and version in offered
