"""Who else can use a server: web pages of strangers by Origin, by a name that points here, by CORS."""

from __future__ import annotations

from mcpd.doctor.dialogue import WITH_HANDSHAKE, WITHOUT_HANDSHAKE, NoAnswer
from mcpd.doctor.endpoint import discover, hello, modern_headers, opening_of
from mcpd.doctor.network import is_loopback
from mcpd.doctor.report import Report
from mcpd.doctor.web import Reply, Web
from mcpd.protocol.printable import printable

_STRANGER = "https://stranger.example"
_NEEDED = ("content-type", "authorization", "mcp-protocol-version", "mcp-session-id")


async def try_exposure(web: Web, report: Report, *, wants_handshake: bool) -> None:
    """Ask as a stranger's page would, and as a browser does before it lets a page ask."""
    is_local = is_loopback(web.target)
    origin = await _ask(web, {"Origin": _STRANGER}, wants_handshake)
    if origin is None:
        report.skip("Origin", "no answer to a request with another Origin")
    elif not _is_taken(origin):
        report.ok("Origin", f"a stranger's web page is refused (status {origin.status})")
    elif is_local:
        text = f"a web page of {_STRANGER} may use this server, and so may every page that you open"
        report.fail("Origin", text, "answer 403 to an Origin that is not yours")
    else:
        text = "web pages of all origins are taken"
        report.warn("Origin", text, "answer 403 to those that you do not know, unless each request needs a token")

    if is_local and web.target.socket is None:
        await _try_host(web, report, wants_handshake)
    await _try_cors(web, report)


async def _ask(web: Web, headers: dict[str, str], wants_handshake: bool) -> Reply | None:
    newest = WITHOUT_HANDSHAKE
    try:
        if wants_handshake:
            return await web.post(hello(WITH_HANDSHAKE), headers)
        return await web.post(discover(newest), {**modern_headers(newest, "server/discover"), **headers})
    except NoAnswer:
        return None


def _is_taken(reply: Reply) -> bool:
    return reply.status < 300 and opening_of(reply) is not None


async def _try_host(web: Web, report: Report, wants_handshake: bool) -> None:
    """A stranger's name can point to this machine: a page of theirs is then of the same origin."""
    host = await _ask(web, {"Host": "stranger.example"}, wants_handshake)
    if host is None or not _is_taken(host):
        status = "" if host is None else f" (status {host.status})"
        report.ok("Host", f"other names than this machine's are refused{status}")
    else:
        text = "requests to stranger.example are taken, a name that anybody can point to this machine"
        report.fail("Host", text, "answer 403 or 421 to a Host that is not localhost or 127.0.0.1")


async def _try_cors(web: Web, report: Report) -> None:
    """Whether pages may use it, as some hosts are pages; if they may, whether with all that they need."""
    headers = {
        "Origin": _STRANGER,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": ", ".join(_NEEDED),
    }
    try:
        reply = await web.ask("OPTIONS", headers)
    except NoAnswer:
        report.skip("CORS", "no answer to OPTIONS")
        return
    allowed = reply.headers.get("access-control-allow-origin")
    if allowed is None or reply.status >= 400:
        report.ok("CORS", "pages of other origins are not let in; hosts that are web pages need a proxy of their own")
        return
    fields = reply.headers.get("access-control-allow-headers", "").lower()
    names = {name.strip() for name in fields.split(",")}
    missing = [name for name in _NEEDED if name not in names and ("*" not in names or name == "authorization")]
    if missing:
        text = f"{printable(allowed)} may ask, but not with {', '.join(missing)}"
        more = "and Mcp-Session-Id to Access-Control-Expose-Headers"
        advice = f"add {', '.join(missing)} to Access-Control-Allow-Headers, {more}"
        report.warn("CORS", text, advice)
    else:
        report.ok("CORS", f"pages of {printable(allowed)} may ask")
