"""Examines the lists of a server, whether hosts accept their entries, and one call that changes nothing.

A server behind a URL is examined with the client of mcpd.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.json import decode, encode

from mcpd.apps.tool_metadata import OFFER
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import McpdError, RemoteError
from mcpd.protocol.printable import printable
from mcpd.server.registry.entries import Problem
from mcpd.server.registry.portability import instructions_problems, list_problems, resource_problems, tool_problems
from .dialogue import Answer, NoAnswer, Peer, has_handshake, read_list, server_info
from .report import Report

if TYPE_CHECKING:
    from mcpd.client import Client

_MAX_SHOWN = 10
_SLOW_SECONDS = 5.0

# The lists of a server: the capability that declares each, its method, the member of the result, and its name.
LISTS = (
    ("tools", "tools/list", "tools", "tools"),
    ("resources", "resources/list", "resources", "resources"),
    ("resources", "resources/templates/list", "resourceTemplates", "resource templates"),
    ("prompts", "prompts/list", "prompts", "prompts"),
)


def report_identity(opening: Mapping[str, Any], report: Report) -> None:
    """Report the server's name, instructions and capabilities. `opening` is its first result."""
    info = server_info(opening)
    name, version = printable(info.get("name", "")), printable(info.get("version", ""))
    if not name:
        report.warn("name", "the server does not give its name", "return `serverInfo` with name and version")
    else:
        report.ok("name", f"{name} {version}".strip(), server=name, version=version)
    instructions = opening.get("instructions")
    for problem in instructions_problems(instructions if isinstance(instructions, str) else None):
        report.warn("instructions", *_split(problem))

    if not {"tools", "resources", "prompts"} & capabilities_of(opening).keys():
        text = "the server offers neither tools nor resources nor prompts"
        report.warn("offers", text, "hosts show nothing of it: declare in `capabilities` what it has")


def report_extensions(capabilities: Sequence[Any], report: Report) -> None:
    """Report the extensions in these capabilities, which come from several versions of the protocol."""
    found: set[str] = set()
    for each in capabilities:
        extensions = each.get("extensions") if isinstance(each, dict) else None
        found |= set(extensions) if isinstance(extensions, dict) else set()
    shown = ", ".join(printable(each) for each in sorted(found)[:_MAX_SHOWN])
    report.ok("extensions", shown or "none", extensions=sorted(found))


async def examine_offers(peer: Peer, opening: Mapping[str, Any], report: Report, *, any_output: bool) -> None:
    """Examine all lists, the tools in them, and a call. `any_output`: results may be any JSON in this version."""
    offered = capabilities_of(opening)
    tools: list[Any] = []
    for capability, method, member, title in LISTS:
        if offered.get(capability) is None:
            continue
        found = await _list(peer, method, member, title, report)
        if member == "tools" and found is not None:
            tools = found
            _judge_tools(found, report, any_output=any_output)
        elif member == "resources":
            for each in found or ():
                for problem in resource_problems(each) if isinstance(each, dict) else ():
                    report.fail("resources", *_split(problem))

    if offered.get("tools") is not None:
        await _call(peer, tools, report)


async def _list(peer: Peer, method: str, member: str, title: str, report: Report) -> list[Any] | None:
    try:
        found = await read_list(peer, method, member, is_optional=method == "resources/templates/list")
    except NoAnswer as error:
        advice = f"answer {method} with a list, or do not declare it in `capabilities`"
        is_endless = "never ends" in str(error)
        report.fail(title, f"the server {error}", "leave out `nextCursor` on the last page" if is_endless else advice)
        return None

    text = f"{len(found.entries)}{f' on {found.pages} pages' if found.pages > 1 else ''}"
    if found.seconds > _SLOW_SECONDS:
        advice = "hosts request lists at their start and wait for them: answer at once"
        report.warn(title, f"{text}, after {found.seconds:.1f} s", advice, seconds=found.seconds)
    else:
        report.ok(title, text, seconds=found.seconds, count=len(found.entries))
    return found.entries


def _judge_tools(tools: list[Any], report: Report, *, any_output: bool) -> None:
    problems: list[Problem] = []
    for tool in tools:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            problems.append(Problem("tool", "one in the list has no name: many clients then drop the whole list"))
        else:
            problems += tool_problems(tool, any_output=any_output)
    names = [tool["name"] for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    problems += list_problems(names, len(encode(tools)))

    problems.sort(key=lambda problem: not problem.is_error)
    for problem in problems[:_MAX_SHOWN]:
        (report.fail if problem.is_error else report.warn)("schemas", *_split(problem))
    if len(problems) > _MAX_SHOWN:
        remaining = [str(problem) for problem in problems[_MAX_SHOWN:]]
        add = report.fail if problems[_MAX_SHOWN].is_error else report.warn
        add("schemas", f"{len(remaining)} more like these", "--json lists all of them", problems=remaining)
    if not problems and tools:
        report.ok("schemas", "every known host accepts them")


async def _call(peer: Peer, tools: list[Any], report: Report) -> None:
    # Only a tool that is marked as read-only is called: the doctor must not change anything.
    tool = next((tool for tool in tools if _is_harmless(tool)), None)
    if tool is None:
        report.skip("call", "no tool without required arguments is marked as read-only (annotations.readOnlyHint)")
        return
    name = printable(tool["name"])
    try:
        answer = await peer.request("tools/call", {"name": tool["name"], "arguments": {}})
    except NoAnswer as error:
        report.fail("call", f"{name}: the server {error}", "a host gives up, too: answer in time, or send progress")
        return
    _judge_result(name, answer, report)


def _judge_result(name: str, answer: Answer, report: Report) -> None:
    result = answer.result
    if result is None:
        text = f"{name}: {printable(answer.error) or 'the result is not an object'}"
        report.fail("call", text, "return a result with `isError` when a tool fails")
    elif result.get("resultType") == "input_required":
        report.ok("call", f"{name} requests input first", seconds=answer.seconds, tool=name)
    elif not isinstance(result.get("content"), list):
        report.fail("call", f"{name}: its result has no list `content`", "clients refuse it: return [] if it is empty")
    elif result.get("isError"):
        texts = [each.get("text", "") for each in result["content"] if isinstance(each, dict)]
        said = printable(" ".join(map(str, texts)))
        report.warn("call", f"{name} failed: {said}", "does it need something that is missing here, such as a key?")
    else:
        report.ok("call", f"{name} answered", seconds=answer.seconds, tool=name)


def _is_harmless(tool: Any) -> bool:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return False
    hints, schema = tool.get("annotations"), tool.get("inputSchema")
    # Without the hint, a tool may change something: it is false by default.
    is_read_only = isinstance(hints, dict) and hints.get("readOnlyHint") is True
    return is_read_only and isinstance(schema, dict) and not schema.get("required")


def _split(problem: Problem) -> tuple[str, str]:
    text = printable(str(problem), 500)
    what, sign, advice = text.rpartition("; ")
    return (what, advice) if sign else (text, "")


class ClientPeer:
    """A client as a `Peer`: error responses are answers; after any other failure there are none."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Send a request, and wait for its response. Raises NoAnswer."""
        began = time.monotonic()
        try:
            result = await self._client.request(method, params)
        except RemoteError as error:
            return Answer(time.monotonic() - began, error=f"error {error.code}: {error}", code=error.code)
        except (McpdError, TimeoutError) as error:
            raise NoAnswer(f"did not answer {method}: {printable(error, 300)}") from None
        found = decode(result)
        return Answer(time.monotonic() - began, found if isinstance(found, dict) else None, size=len(result))


def opening_of(client: Client) -> dict[str, Any]:
    """Return the server's answer to the first request of a client."""
    return {
        "capabilities": to_builtins(client.server_capabilities),
        "instructions": client.instructions,
        "serverInfo": None if client.server_info is None else to_builtins(client.server_info),
    }


def capabilities_of(opening: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities in the first result of a server; {} if they are malformed."""
    capabilities = opening.get("capabilities")
    return capabilities if isinstance(capabilities, dict) else {}


async def try_client(target: UrlTarget, report: Report, timeout: float) -> None:
    """Connect with the client of mcpd, and examine the server's tools, resources and prompts."""
    from mcpd.client import Client

    began = time.monotonic()
    client = Client(target, extensions=OFFER, timeout=timeout)
    try:
        await client.open()
    except (McpdError, TimeoutError) as error:
        text = f"no conversation: {printable(error, 500)}"
        advice = "look into the server's log; mcpd ping has more options for a connection"
        if target.url.startswith("ws") and getattr(error, "status", None) in (400, 404, 405, 426, 501):
            advice = f"is it a WebSocket? If the server speaks HTTP there, write http{target.url[2:]}"
        report.fail("conversation", text, advice)
        return
    try:
        report.ok("conversation", f"begun, in version {client.version}", seconds=time.monotonic() - began)
        opening = opening_of(client)
        report_identity(opening, report)
        report_extensions([opening["capabilities"]], report)
        await examine_offers(ClientPeer(client), opening, report, any_output=not has_handshake(client.version))
    finally:
        await client.aclose()
