"""Checks of how a View speaks: its handshake, what it answers, what it ignores, how it ends.

Rules: APP-V-01 to -06 of docs/rules.toml.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from mcpd.apps.host.view import events
from mcpd.apps.host.view.events import Connected
from mcpd.apps.host.view.messages import HANDSHAKE_VERSION, INITIALIZE, INITIALIZED, RESOURCE_TEARDOWN
from mcpd.apps.verdict.policy import start_failure
from mcpd.apps.verdict.report import Check, Finding, checked, skipped
from mcpd.apps.verdict.scene import Scene

HANDSHAKE: Final = ("handshake", "It answers in time")
_METHOD_NOT_FOUND: Final = -32601
_MARK: Final = "mcpd-forged-text"
_ORDER: Final = ("listens-first", "It listens before it speaks")

_FORGE = """(look, mark) => {
  const heard = window.__mcpdForged = [];
  addEventListener("message", ({ data }) => { if (data?.id === mark && !("method" in data)) heard.push(data); });
  const text = { content: [{ type: "text", text: mark }], structuredContent: { [mark]: mark, result: mark } };
  for (const message of [
    { jsonrpc: "2.0", id: mark, method: "ping" },
    { jsonrpc: "2.0", id: mark, method: "tools/list" },
    { jsonrpc: "2.0", method: "ui/notifications/tool-input", params: { arguments: { [mark]: mark } } },
    { jsonrpc: "2.0", method: "ui/notifications/tool-result", params: text },
  ]) postMessage(message, "*");
}"""


def handshake_check(scene: Scene, *, is_live: bool, seconds: float) -> Check:
    """Whether the handshake came to its end, and what it was."""

    def found() -> Iterator[Finding]:
        if not is_live:
            cause = None if scene.failure else start_failure(scene)
            if cause is not None:
                yield replace(cause, severity="failure", text=f"it does not start: {cause.text}", rule="APP-V-03")
                return
            advice = f"send {INITIALIZE}, and {INITIALIZED} when it is answered; hosts may show nothing before"
            missing = INITIALIZED if scene.sent(INITIALIZE) else INITIALIZE
            text = scene.failure or f"the view did not send {missing} within {seconds:g} seconds"
            yield Finding(severity="failure", text=text, advice=advice, rule="APP-V-03")
            return
        yield from _of_initialize(scene)

    at = next((at for at, is_its, message in scene.messages if is_its and _method(message) == INITIALIZED), 0.0)
    return checked(*HANDSHAKE, found(), f"after {at * 1000:.0f} ms", ["APP-V-01", "APP-V-03"])


def _of_initialize(scene: Scene) -> Iterator[Finding]:
    params = next((message.get("params") or {} for message in scene.sent(INITIALIZE)), {})
    if not isinstance(params.get("appCapabilities"), dict):
        text = f"{INITIALIZE} has no appCapabilities"
        yield Finding(severity="failure", text=text, advice="send them, if only as {}", rule="APP-V-01")
    if params.get("protocolVersion") != HANDSHAKE_VERSION:
        text = f"{INITIALIZE} asks for protocol version {params.get('protocolVersion')!r}"
        yield Finding(severity="warning", text=text, advice=f"the stable one is {HANDSHAKE_VERSION}")
    connected = [event for _, event in scene.events if isinstance(event, Connected)]
    if len(connected) > 1:
        text = f"it connected {len(connected)} times"
        advice = "connect once, also where a framework mounts components twice"
        yield Finding(severity="warning", text=text, advice=advice, rule="APP-V-03")


def spy_check(log: Any, *, is_live: bool) -> Check:
    """Whether a listener was there when `ui/initialize` was sent, from what spy.js wrote down."""
    if not is_live or not isinstance(log, list):
        return skipped(*_ORDER, "it could not be watched", ["APP-V-03"])
    # The bootstrap listens and posts before the View is there; it stops to listen when it has the document.
    begin = next((at + 1 for at, entry in enumerate(log) if entry["does"] == "unlisten"), 0)
    listened = False
    for entry in log[begin:]:
        if entry["does"] == "listen":
            listened = True
        elif entry["does"] == "post":
            break
    finding = Finding(
        severity="failure",
        text="it sends before it listens for messages: an answer that comes at once is lost",
        advice="add the listener for message events before the first postMessage",
        rule="APP-V-03",
    )
    return checked(*_ORDER, [] if listened else [finding], "its listener is there first", ["APP-V-03"])


async def protocol_checks(scene: Scene, seconds: float) -> list[Check]:
    """What a View that is live answers and ignores."""
    answers: dict[str, Any] = {}
    for method in ("ping", "mcpd/no-such-method", "tools/list"):
        answers[method] = await scene.ask(method, seconds=seconds)
    await scene.look(_FORGE, _MARK)
    await asyncio.sleep(0.3)
    shown = await scene.look("(look) => look.text()") or ""
    heard = await scene.look("() => window.__mcpdForged?.length ?? 0") or 0
    return [
        checked("ping", "It answers ping", _of_ping(answers["ping"]), "answered", ["APP-V-06"]),
        checked("unknown-request", "It refuses what it does not know", _of_unknown(answers["mcpd/no-such-method"]),
                "-32601", ["APP-V-06"]),
        _tools(scene, answers["tools/list"]),
        checked("forged-messages", "It hears its parent only", _of_forged(scene, shown, heard), "others are ignored",
                ["APP-V-04"]),
        checked("rules", "It keeps the order and form of messages", _of_findings(scene), "nothing was refused",
                ["APP-V-01", "APP-V-03"]),
    ]  # fmt: skip


def _of_ping(answer: Any) -> Iterator[Finding]:
    if answer is None or "result" not in answer:
        text = "ping is not answered" if answer is None else f"ping is answered with {answer.get('error')}"
        advice = "answer {}: a host that hears nothing takes the app for gone"
        yield Finding(severity="failure", text=text, advice=advice, rule="APP-V-06")


def _of_unknown(answer: Any) -> Iterator[Finding]:
    if answer is None:
        text, severity = "an unknown request is not answered", "failure"
    elif "error" not in answer:
        text, severity = "an unknown request is answered with a result", "failure"
    elif answer["error"].get("code") != _METHOD_NOT_FOUND:
        text, severity = f"an unknown request gives error {answer['error'].get('code')}", "warning"
    else:
        return
    advice = f"answer with error {_METHOD_NOT_FOUND}, so that hosts can tell what is not there"
    yield Finding(severity="failure" if severity == "failure" else "warning", text=text, advice=advice, rule="APP-V-06")


def _tools(scene: Scene, answer: Any) -> Check:
    name, title = "own-tools", "The tools that it declares are there"
    connected = next((event for _, event in scene.events if isinstance(event, Connected)), None)
    if connected is None or connected.capabilities.tools is None:
        return skipped(name, title, "it declares none", ["APP-V-06"])
    tools = answer.get("result", {}).get("tools") if isinstance(answer, dict) and "result" in answer else None
    findings = []
    if not isinstance(tools, list):
        text = "it declares tools and does not answer tools/list"
        advice = "answer it, or leave tools out of appCapabilities"
        findings.append(Finding(severity="failure", text=text, advice=advice, rule="APP-V-06"))
    return checked(name, title, findings, f"{len(tools or ())} tools", ["APP-V-06"])


def _of_forged(scene: Scene, shown: str, heard: int) -> Iterator[Finding]:
    crossed = [message for message in scene.sent() if message.get("id") == _MARK]
    if crossed or heard:
        text = "it answers a message that did not come from its parent"
    elif _MARK in shown:
        text = "it shows what a message said that did not come from its parent"
    else:
        return
    advice = "ignore message events unless event.source === window.parent"
    yield Finding(severity="failure", text=text, advice=advice, rule="APP-V-04")


def _of_findings(scene: Scene) -> Iterator[Finding]:
    told: dict[str, Finding] = {}
    for _, event in scene.events:
        if isinstance(event, events.Finding):
            what = f"{event.method}: {event.text}" if event.method else event.text
            severity = "failure" if event.refused else "warning"
            told[what] = Finding(
                severity="failure" if severity == "failure" else "warning",
                text=f"{'refused' if event.refused else 'noted'}: {what}",
                advice=f"the rule is {event.rule}",
            )
    yield from told.values()


async def ending_checks(scene: Scene) -> list[Check]:
    """Tear the View down: the last that is done with it."""
    name, title, rules = "teardown", "It takes leave", ["APP-V-06"]
    if scene.view.is_over:
        return [skipped(name, title, "it is gone already", rules)]
    ended = await scene.view.close("the test is over")
    findings = []
    if not getattr(ended, "clean", False):
        text = f"{RESOURCE_TEARDOWN} is not answered"
        advice = "answer {} once what has to be kept is kept: a host waits, and then goes on without"
        findings.append(Finding(severity="failure", text=text, advice=advice, rule="APP-V-06"))
    else:
        findings += _of_teardown(scene)
    return [checked(name, title, findings, "answered", rules)]


def _of_teardown(scene: Scene) -> list[Finding]:
    asked = [m["id"] for _, is_its, m in scene.messages if not is_its and _method(m) == RESOURCE_TEARDOWN and "id" in m]
    answer = next((m for m in scene.sent() if m.get("id") in asked and "error" in m), None)
    if answer is None:
        return []
    text = f"{RESOURCE_TEARDOWN} is answered with error {answer['error'].get('code')}"
    return [Finding(severity="warning", text=text, advice="answer {}", rule="APP-V-06")]


def _method(message: Any) -> str:
    method = message.get("method") if isinstance(message, dict) else None
    return method if isinstance(method, str) else ""
