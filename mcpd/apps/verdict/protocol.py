"""Checks of how a View keeps to the protocol: handshake, answers, forged messages, teardown.

Rules APP-V-01 to -06 of docs/rules.toml.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from mcpd.apps.host.view import events
from mcpd.apps.host.view.events import Connected
from mcpd.apps.host.view.messages import HANDSHAKE_VERSION, INITIALIZE, INITIALIZED, RESOURCE_TEARDOWN
from .policy import start_failure
from .report import Check, Finding, Severity, checked, failure, skipped, warning
from .trial import Trial

HANDSHAKE: Final = ("handshake", "It answers in time")
_LISTENS_FIRST: Final = ("listens-first", "It listens before it sends")
_OWN_TOOLS: Final = ("own-tools", "The tools that it declares are there")
_TEARDOWN: Final = ("teardown", "It answers its teardown", ["APP-V-06"])

_METHOD_NOT_FOUND: Final = -32601
_UNKNOWN_METHOD: Final = "mcpd/no-such-method"
_MARK: Final = "mcpd-forged-text"
_FORGED_SECONDS: Final = 0.3

_FORGE = """(look, mark) => {
  const answers = window.__mcpdForged = [];
  addEventListener("message", ({ data }) => { if (data?.id === mark && !("method" in data)) answers.push(data); });
  const result = { content: [{ type: "text", text: mark }], structuredContent: { [mark]: mark, result: mark } };
  for (const message of [
    { jsonrpc: "2.0", id: mark, method: "ping" },
    { jsonrpc: "2.0", id: mark, method: "tools/list" },
    { jsonrpc: "2.0", method: "ui/notifications/tool-input", params: { arguments: { [mark]: mark } } },
    { jsonrpc: "2.0", method: "ui/notifications/tool-result", params: result },
  ]) postMessage(message, "*");
}"""


def handshake_check(trial: Trial, *, is_live: bool, seconds: float) -> Check:
    """Check that the handshake completed within this time, and its messages."""
    findings = _initialize_findings(trial) if is_live else [_handshake_failure(trial, seconds)]
    completed = next((at for at, sent, message in trial.messages if sent and _method(message) == INITIALIZED), 0.0)
    return checked(*HANDSHAKE, findings, f"after {completed * 1000:.0f} ms", ["APP-V-01", "APP-V-03"])


def _handshake_failure(trial: Trial, seconds: float) -> Finding:
    cause = None if trial.failure else start_failure(trial)
    if cause is not None:
        return replace(cause, severity="failure", text=f"it does not start: {cause.text}", rule="APP-V-03")
    missing = INITIALIZED if trial.sent(INITIALIZE) else INITIALIZE
    text = trial.failure or f"the view did not send {missing} within {seconds:g} seconds"
    advice = f"send {INITIALIZE}, and {INITIALIZED} after its answer; hosts may show nothing before"
    return failure(text, advice, "APP-V-03")


def _initialize_findings(trial: Trial) -> Iterator[Finding]:
    params = next((message.get("params") or {} for message in trial.sent(INITIALIZE)), {})
    if not isinstance(params.get("appCapabilities"), dict):
        text = f"{INITIALIZE} has no appCapabilities"
        yield failure(text, "send them, if only as {}", "APP-V-01")

    if params.get("protocolVersion") != HANDSHAKE_VERSION:
        text = f"{INITIALIZE} asks for protocol version {params.get('protocolVersion')!r}"
        yield warning(text, f"the stable version is {HANDSHAKE_VERSION}")
    connected = sum(isinstance(event, Connected) for _, event in trial.events)
    if connected > 1:
        advice = "connect once, even if a framework mounts components twice"
        yield warning(f"it connected {connected} times", advice, "APP-V-03")


def spy_check(log: Any, *, is_live: bool) -> Check:
    """Check that the View listened when it sent `ui/initialize`; `log` is the one of spy.js."""
    if not is_live or not isinstance(log, list):
        return skipped(*_LISTENS_FIRST, "it could not be observed", ["APP-V-03"])
    # Before the View, the bootstrap of the guest listens and posts. It stops listening when it has the document.
    start = next((at + 1 for at, entry in enumerate(log) if entry["does"] == "unlisten"), 0)
    has_listener = False
    for entry in log[start:]:
        if entry["does"] == "listen":
            has_listener = True
        elif entry["does"] == "post":
            break

    finding = failure(
        "it sends before it listens for messages: an answer that comes at once is lost",
        "add the listener for message events before the first postMessage",
        "APP-V-03",
    )
    return checked(*_LISTENS_FIRST, [] if has_listener else [finding], "its listener is there first", ["APP-V-03"])


async def protocol_checks(trial: Trial, seconds: float) -> list[Check]:
    """Send requests and forged messages to a live View, and check its answers. Each answer has this many seconds."""
    ping = await trial.request("ping", seconds=seconds)
    unknown = await trial.request(_UNKNOWN_METHOD, seconds=seconds)
    tools = await trial.request("tools/list", seconds=seconds)
    await trial.evaluate(_FORGE, _MARK)
    await asyncio.sleep(_FORGED_SECONDS)
    text = await trial.evaluate("(look) => look.text()") or ""
    answered = await trial.evaluate("() => window.__mcpdForged?.length ?? 0") or 0
    return [
        checked("ping", "It answers ping", _ping_findings(ping), "answered", ["APP-V-06"]),
        checked("unknown-request", "It refuses unknown requests", _unknown_findings(unknown), "-32601", ["APP-V-06"]),
        _own_tools_check(trial, tools),
        checked("forged-messages", "It accepts messages of its parent only", _forged_findings(trial, text, answered),
                "others are ignored", ["APP-V-04"]),
        checked("rules", "It keeps the order and form of messages", _refused_findings(trial), "nothing was refused",
                ["APP-V-01", "APP-V-03"]),
    ]  # fmt: skip


def _ping_findings(answer: Any) -> Iterator[Finding]:
    if answer is None or "result" not in answer:
        text = "ping is not answered" if answer is None else f"ping is answered with {answer.get('error')}"
        advice = "answer {}: a host takes an app that does not answer for lost"
        yield failure(text, advice, "APP-V-06")


def _unknown_findings(answer: Any) -> Iterator[Finding]:
    severity: Severity = "failure"
    if answer is None:
        text = "an unknown request is not answered"
    elif "error" not in answer:
        text = "an unknown request is answered with a result"
    elif answer["error"].get("code") != _METHOD_NOT_FOUND:
        text, severity = f"an unknown request gives error {answer['error'].get('code')}", "warning"
    else:
        return

    advice = f"answer with error {_METHOD_NOT_FOUND}, so that hosts know what the app does not support"
    yield Finding(severity=severity, text=text, advice=advice, rule="APP-V-06")


def _own_tools_check(trial: Trial, answer: Any) -> Check:
    connected = next((event for _, event in trial.events if isinstance(event, Connected)), None)
    if connected is None or connected.capabilities.tools is None:
        return skipped(*_OWN_TOOLS, "it declares none", ["APP-V-06"])
    tools = answer.get("result", {}).get("tools") if isinstance(answer, dict) and "result" in answer else None
    findings = []
    if not isinstance(tools, list):
        text = "it declares tools and does not answer tools/list"
        advice = "answer it, or leave tools out of appCapabilities"
        findings.append(failure(text, advice, "APP-V-06"))

    return checked(*_OWN_TOOLS, findings, f"{len(tools or ())} tools", ["APP-V-06"])


def _forged_findings(trial: Trial, text: str, answered: int) -> Iterator[Finding]:
    if answered or any(message.get("id") == _MARK for message in trial.sent()):
        problem = "it answers a message that did not come from its parent"
    elif _MARK in text:
        problem = "it shows the content of a message that did not come from its parent"
    else:
        return
    advice = "ignore message events unless event.source === window.parent"
    yield failure(problem, advice, "APP-V-04")


def _refused_findings(trial: Trial) -> Iterator[Finding]:
    found: dict[str, Finding] = {}
    for _, event in trial.events:
        if isinstance(event, events.Finding):
            text = f"{event.method}: {event.text}" if event.method else event.text
            found[text] = Finding(
                severity="failure" if event.refused else "warning",
                text=f"{'refused' if event.refused else 'noted'}: {text}",
                advice=f"the rule is {event.rule}",
            )
    yield from found.values()


async def teardown_check(trial: Trial) -> Check:
    """Tear the View down, as the last thing in a trial, and check its answer."""
    name, title, rules = _TEARDOWN
    if trial.view.is_over:
        return skipped(name, title, "it is gone already", rules)
    ended = await trial.view.close("the test is over")
    findings = []
    if not getattr(ended, "clean", False):
        text = f"{RESOURCE_TEARDOWN} is not answered"
        advice = "answer {} once everything is stored: the host waits for a while, and then removes the app"
        findings.append(failure(text, advice, "APP-V-06"))
    elif (error := _teardown_error(trial)) is not None:
        text = f"{RESOURCE_TEARDOWN} is answered with error {error.get('code')}"
        findings.append(warning(text, "answer {}", "APP-V-06"))

    return checked(name, title, findings, "answered", rules)


def _teardown_error(trial: Trial) -> Any:
    ids = [m["id"] for _, sent, m in trial.messages if not sent and _method(m) == RESOURCE_TEARDOWN and "id" in m]
    return next((m["error"] for m in trial.sent() if m.get("id") in ids and "error" in m), None)


def _method(message: Any) -> str:
    method = message.get("method") if isinstance(message, dict) else None
    return method if isinstance(method, str) else ""
