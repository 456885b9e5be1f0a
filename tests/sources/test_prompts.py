"""Prompts that are Markdown files: arguments, several messages, what is filled in; and each mistake with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.folders import opened, problems
from support.wires import LEGACY, MODERN, memory_wire

BOTH = pytest.mark.parametrize("version", [LEGACY[-1], MODERN])

PLAN = """---
title: Plan a bed
description: Plans what to grow.
arguments:
  bed:
    description: Which bed
    choices: [north, south]
  season:
    title: Season
    default: spring
  note: Anything else
  shade:
    required: false
---
Plan the {{ bed }} bed for {{season}}. {{note}}{{shade}}

<!-- assistant -->
Which plants do you like?

# No role

<!--user-->
Beans. { {bed}} {{{bed}}}
"""


@BOTH
async def test_arguments_and_messages(tmp_path: Path, version: str) -> None:
    files = {"prompts/plan.md": PLAN, "prompts/shed/clean.md": "Clean {{what}}.", "prompts/note.txt": "no prompt"}
    server = opened(tmp_path, files)
    assert problems(server) == []
    async with memory_wire(server, version) as wire:
        plan, clean = (await wire.result("prompts/list"))["prompts"]
        assert (plan["name"], plan["title"], plan["description"]) == ("plan", "Plan a bed", "Plans what to grow.")
        assert plan["arguments"] == [
            {"name": "bed", "description": "Which bed", "required": True},
            {"name": "season", "title": "Season", "required": False},
            {"name": "note", "description": "Anything else", "required": True},
            {"name": "shade", "required": False},
        ]
        assert (clean["name"], clean["arguments"]) == ("shed_clean", [{"name": "what", "required": True}])

        async def messages(**arguments: str) -> list[tuple[str, str]]:
            got = await wire.result("prompts/get", {"name": "plan", "arguments": arguments})
            return [(one["role"], one["content"]["text"]) for one in got["messages"]]

        assert await messages(bed="north", note="{{season}}") == [
            ("user", "Plan the north bed for spring. {{season}}"),
            ("assistant", "Which plants do you like?\n\n# No role"),
            ("user", "Beans. { {bed}} {north}"),
        ]
        ref = {"type": "ref/prompt", "name": "plan"}
        asked: dict[str, Any] = {"ref": ref, "argument": {"name": "bed", "value": "so"}}
        assert (await wire.result("completion/complete", asked))["completion"]["values"] == ["south"]

        for arguments, said in (
            ({"bed": "north"}, "note: is required"),
            ({"bed": "west", "note": ""}, "bed: expected one of north, south, not west"),
            ({"bed": "north", "note": "", "x": ""}, "x: unknown argument; known arguments: bed, season, note, shade"),
        ):
            error = await wire.error("prompts/get", {"name": "plan", "arguments": arguments})
            assert (error["code"], error["message"].removeprefix("Invalid params: ")) == (-32602, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "prompts/x.md, line 1: has no text"),
        ("---\ntitle: X\n---\n\n", "prompts/x.md, line 4: has no text"),
        ("---\ntitle: X\n", "prompts/x.md, line 1: its front matter begins with --- and never ends"),
        ("---\ntitel: X\n---\nx", "prompts/x.md: its front matter has the unknown key titel; did you mean title?"),
        ("---\n\ntitle: [X]\n---\nx", "prompts/x.md, line 3: title: expected a string"),
        ("---\narguments: 3\n---\nx", "prompts/x.md, line 2: arguments: expected a list of names, a list of `name: …`"),
        (
            "---\narguments:\n  a:\n    requird: true\n---\n{{a}}",
            "prompts/x.md, line 4: unknown key requird of an argument; known keys: title, description, required",
        ),
        (
            "---\narguments:\n  - name: a\n    required: perhaps\n---\n{{a}}",
            "prompts/x.md, line 4: required: expected true or false",
        ),
        (
            "---\narguments:\n  - title: a\n---\n{{a}}",
            "prompts/x.md, line 1: its front matter has an argument without a name",
        ),
        ("---\narguments: [a, a]\n---\n{{a}}", "prompts/x.md, line 1: its front matter has the argument a twice"),
        (
            "---\narguments: [a]\n---\nx\n{{a}} {{b}}",
            "prompts/x.md, line 5: {{b}} is not an argument; its front matter has a",
        ),
        ("---\narguments: [a]\n---\nx", "prompts/x.md: its argument a is not used in its text; write {{a}} where it"),
        ("---\nname: a b\n---\nx", "prompts/x.md, line 1: 'a b' is not a valid prompt name"),
        (b"\xff", "prompts/x.md, line 1: is not UTF-8 (byte 0); save it as UTF-8"),
        (b"x" * (1024 * 1024 + 1), "prompts/x.md, line 1: is larger than 1048576 bytes"),
        ("---\nname: other\n---\nx", "prompts/x.md: other.md already has the prompt name other; it is left out"),
    ],
)
def test_mistakes(tmp_path: Path, text: str | bytes, said: str) -> None:
    server = opened(tmp_path, {"prompts/x.md": text, "prompts/other.md": "Other"})
    (found,) = problems(server)
    assert found.startswith(said)
    assert "other" in [entry.key for entry in server.catalog.prompts]


@pytest.mark.parametrize(
    "arguments",
    [
        "\n  - name: season\n    description: When\n  - name: bed\n    required: false",
        "\n  season: When\n  bed: {required: false}",
        " [{name: season, description: When}, {name: bed, required: false}]",
    ],
)
async def test_arguments_are_a_list_as_in_mcp_or_a_table(tmp_path: Path, arguments: str) -> None:
    server = opened(tmp_path, {"prompts/plan.md": f"---\narguments:{arguments}\n---\n{{{{season}}}} {{{{bed}}}}"})
    assert problems(server) == []
    async with memory_wire(server, MODERN) as wire:
        (plan,) = (await wire.result("prompts/list"))["prompts"]
    assert plan["arguments"] == [
        {"name": "season", "description": "When", "required": True},
        {"name": "bed", "required": False},
    ]


async def test_files_of_other_hosts_are_prompts(tmp_path: Path) -> None:
    """Claude Code and Copilot have keys of their own, and take values that YAML does not."""
    head = "allowed-tools: Bash(git add:*), Read\nargument-hint: [pr] [priority]\nmode: agent\nmodel: x\ntools: ['a']"
    text = f"---\n{head}\ndescription: Reviews code: carefully\n---\nReview it."
    server = opened(tmp_path, {"prompts/review.md": text})
    assert problems(server) == []
    async with memory_wire(server, MODERN) as wire:
        (review,) = (await wire.result("prompts/list"))["prompts"]
    assert review["description"] == "Reviews code: carefully"
