"""The newest official clients drive what a server asks, tells and keeps: over stdio, in both eras, behind a tap.

The server is conformance/everything.py; its messages are held against the schema of the version that was
agreed on, and what the clients made of them is in their reports. A client takes a second to start: what needs
the same client is one run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import REPOSITORY

pytestmark = pytest.mark.slow

LEGACY, MODERN = "2025-11-25", "2026-07-28"
EVERYTHING = str(REPOSITORY / "conformance" / "everything.py")
LEVEL = "io.modelcontextprotocol/logLevel"
CLIENTS = [
    ("mcp 2", "legacy", LEGACY),
    ("mcp 2", "auto", MODERN),
    ("client", "legacy", LEGACY),
    ("client", "auto", MODERN),
    ("sdk", "legacy", LEGACY),
    ("mcp 1", "legacy", LEGACY),
]


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}


def text(step: dict[str, Any]) -> str:
    assert "result" in step, step
    assert not step["result"].get("isError"), step
    return str(step["result"]["content"][0]["text"])


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@pytest.fixture
def drive(run: Any, tapped: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """drive(client, era, protocol, steps, answers): the report, after every message was held against its schema."""

    def drive_client(client: str, era: str, protocol: str, steps: list[Any], **more: Any) -> dict[str, Any]:
        server = tapped("serve", "--stdio", EVERYTHING)
        report: dict[str, Any] = run(client, server.target, era=era, steps=steps, **more)
        assert report["protocol"] == protocol
        for talk in server.conversations():
            assert talk.version in (protocol, None)
        return report

    return drive_client


@pytest.mark.parametrize(("client", "era", "protocol"), CLIENTS)
def test_being_asked(drive: Any, client: str, era: str, protocol: str) -> None:
    """Forms with every kind of field, samples and roots; in 2026-07-28 as rounds of one call, prompt or resource."""
    steps = {
        "accepted": call("test_elicitation", message="Who are you?"),
        "declined": call("test_elicitation", message="Really?"),
        "cancelled": call("test_elicitation", message="Sure?"),
        "defaults": call("test_elicitation_sep1034_defaults"),
        "choices": call("test_elicitation_sep1330_enums"),
        "two rounds": call("test_input_required_result_multi_round"),
        "prompt": {"method": "prompts/get", "params": {"name": "test_input_required_result_prompt"}},
        "resource": {"method": "resources/read", "params": {"uri": "test://asks-first"}},
        "sample": call("test_sampling", prompt="Capital of France?"),
        "roots": call("test_input_required_result_list_roots"),
        "all three": call("test_input_required_result_multiple_inputs"),
    }
    enums = {
        "untitledSingle": "option1",
        "titledSingle": "value2",
        "legacyEnum": "opt3",
        "untitledMulti": ["option1", "option3"],
        "titledMulti": ["value1"],
    }
    forms = [
        accept(username="ada", email="ada@example.com"),
        {"action": "decline"},
        {"action": "cancel"},
        accept(name="Ada", age=36, score=1.5, status="pending", verified=False),
        accept(**enums),
        accept(name="Ada"),
        accept(color="green"),
        accept(context="a review"),
        accept(name="Ada"),
        accept(name="Ada"),
    ]
    answers = {
        "elicitation/create": forms,
        "sampling/createMessage": {
            "role": "assistant",
            "content": {"type": "text", "text": "Paris"},
            "model": "m",
            "stopReason": "endTurn",
        },
        "roots/list": {"roots": [{"uri": "file:///work", "name": "Work"}]},
    }
    report = drive(client, era, protocol, list(steps.values()), answers=answers)
    told = dict(zip(steps, report["steps"], strict=True))
    assert "ada@example.com" in text(told["accepted"])
    assert "action decline" in text(told["declined"])
    assert "action cancel" in text(told["cancelled"])
    assert "status='pending'" in text(told["defaults"])
    assert "titled_multi=['value1']" in text(told["choices"])
    assert text(told["two rounds"]) == "Ada likes green"
    assert "a review" in str(told["prompt"]["result"])
    assert "For Ada" in str(told["resource"]["result"])
    assert text(told["sample"]) == "LLM response: Paris"
    assert text(told["roots"]) == "The client has 1 roots: file:///work"
    assert text(told["all three"]) == "Paris, Ada! You have 1 roots."

    asked: dict[str, list[Any]] = {}
    for question in report["asked"]:
        asked.setdefault(question["method"], []).append(question["params"])
    assert {method: len(questions) for method, questions in asked.items()} == {
        "elicitation/create": len(forms),
        "sampling/createMessage": 2,
        "roots/list": 2,
    }
    assert asked["elicitation/create"][3]["requestedSchema"]["properties"]["age"] == {"type": "integer", "default": 30}
    assert asked["elicitation/create"][6]["message"] == "Step 2: Ada, what is your favorite color?"
    assert asked["sampling/createMessage"][0]["messages"][0]["content"]["text"] == "Capital of France?"


def complete(ref: dict[str, str], name: str, value: str, **others: str) -> dict[str, Any]:
    params: dict[str, Any] = {"ref": ref, "argument": {"name": name, "value": value}}
    if others:
        params["context"] = {"arguments": others}
    return {"method": "completion/complete", "params": params}


PROMPT = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
TEMPLATE = {"type": "ref/resource", "uri": "test://template/{id}/data"}
WATCHED = {"uri": "test://watched-resource"}


@pytest.mark.parametrize(("client", "era", "protocol"), CLIENTS)
def test_being_told(drive: Any, client: str, era: str, protocol: str) -> None:
    """A client that offers nothing: progress, log messages, completion, subscriptions, and what it cannot be asked."""
    steps = {
        "missing capability": call("test_missing_capability"),
        "progress": {**call("test_tool_with_progress"), "progress": True},
        "level": {"method": "logging/setLevel", "params": {"level": "error"}},
        "log": call("log_every_level"),
        "no log": call("log_every_level"),
        "complete": complete(PROMPT, "arg1", "p"),
        "complete with context": complete(PROMPT, "arg1", "", arg2="Germany"),
        "complete a variable": complete(TEMPLATE, "id", "12"),
        **(subscribed() if protocol == LEGACY else listening()),
    }
    if protocol == MODERN:
        del steps["level"]
        steps["log"]["params"]["_meta"] = {LEVEL: "error"}
    report = drive(client, era, protocol, list(steps.values()))
    told = dict(zip(steps, report["steps"], strict=True))
    heard = report["heard"]

    missing = told.pop("missing capability")
    if protocol == MODERN:
        assert missing["error"]["code"] == -32021
        assert missing["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}
    else:
        assert missing["result"]["isError"] is True
        assert "sampling" in missing["result"]["content"][0]["text"]
    assert not {name: step["error"] for name, step in told.items() if "error" in step}

    # The TypeScript clients would drop a progress notification that came in one read with the result, and say so.
    assert [message["error"] for message in heard if "error" in message] == []
    progress = told["progress"]["progress"]
    assert progress == [[done, 100, f"Completed step {done} of 100"] for done in (0, 50, 100)]

    levels = [message["params"]["level"] for message in heard if message.get("method") == "notifications/message"]
    assert levels == ["error", "critical", "alert", "emergency"] * (1 if protocol == MODERN else 2)
    completions = ("complete", "complete with context", "complete a variable")
    assert [told[name]["result"]["completion"]["values"] for name in completions] == [
        ["Paris", "Potsdam"],
        ["Berlin", "Potsdam"],
        ["12", "123"],
    ]

    if protocol == LEGACY:
        changes = [
            (message["method"], message.get("params", {}).get("uri"))
            for message in heard
            if message.get("method") not in (None, "notifications/message", "notifications/progress")
        ]
        assert sorted(changes, key=str) == [
            ("notifications/prompts/list_changed", None),
            ("notifications/resources/list_changed", None),
            ("notifications/resources/updated", WATCHED["uri"]),
            ("notifications/tools/list_changed", None),
        ]
        assert "test_dynamic_tool" in [tool["name"] for tool in told["tools"]["result"]["tools"]]
    else:
        subscription = told["listen"]["result"]
        assert subscription["honored"] == steps["listen"]["params"]
        assert subscription["events"] == (
            ["ToolsListChanged", "ResourceUpdated"]
            if client == "mcp 2"
            else ["notifications/tools/list_changed", "notifications/resources/updated"]
        )


def subscribed() -> dict[str, Any]:
    """What a session hears of unasked: one update of four, and each list once."""
    return {
        "subscribe": {"method": "resources/subscribe", "params": WATCHED},
        "update": call("test_trigger_resource_update", **WATCHED),
        "update another": call("test_trigger_resource_update", uri="test://static-text"),
        "unsubscribe": {"method": "resources/unsubscribe", "params": WATCHED},
        "update unheard": call("test_trigger_resource_update", **WATCHED),
        "change tools": call("test_trigger_tool_change"),
        "change prompts": call("test_trigger_prompt_change"),
        "change resources": call("test_trigger_resource_change"),
        "tools": {"method": "tools/list"},
        "ping": {"method": "ping"},
    }


def listening() -> dict[str, Any]:
    """A subscription to two of the four things that happen."""
    return {
        "listen": {
            "method": "subscriptions/listen",
            "params": {"toolsListChanged": True, "resourceSubscriptions": [WATCHED["uri"]]},
            "steps": [
                call("test_trigger_tool_change"),
                call("test_trigger_prompt_change"),
                call("test_trigger_resource_update", uri="test://static-text"),
                call("test_trigger_resource_update", **WATCHED),
            ],
            "events": 2,
        },
        "afterwards": call("test_simple_text"),
    }
