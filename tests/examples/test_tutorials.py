"""The servers of `examples/tutorials/`: `mcpd check` finds nothing, and every tool does what its tutorial says.

They are what the first pages of the tutorials of other libraries teach, written for this one.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.wires import MODERN

from mcpd import (
    Callbacks,
    CallToolResult,
    Client,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    Root,
    Server,
    TextContent,
    TextResourceContents,
)  # fmt: skip
from mcpd.protocol.types.interaction import PromptReference, ResourceTemplateReference

FOLDER = REPOSITORY / "examples" / "tutorials"
FILES = sorted(FOLDER.glob("*.py"))
VERSIONS = ("2025-11-25", MODERN)

Expected = dict[str, list[tuple[dict[str, Any], Any]]]
"""Tool -> calls of it: arguments, and the text of the answer, its data, or the kinds of its content."""

WEATHER = {"temperature": 16.2, "humidity": 0.83, "conditions": "Overcast"}

CALLS: dict[str, Expected] = {
    "quickstart": {"add": [({"a": 1, "b": 2}, 3)]},
    "tools": {
        "search_books": [
            ({"query": "Dune"}, "Found 3 books matching 'Dune' (showing up to 10)."),
            ({"query": "a", "limit": "5", "genre": "poetry"},
             "Found 3 books matching 'a' in poetry (showing up to 5)."),
            ({"query": "a", "limit": 51}, ValueError("limit: Expected `int` <= 50")),
        ],
        "add_book": [({"book": {"title": "Emma", "author": "Jane Austen", "year": 1815}},
                      "Added 'Emma' by Jane Austen (1815).")],
        "list_books": [({"page": {"start": 1}}, ["Neuromancer"])],
        "search_database": [({"query": "a"}, [{"query": "a", "limit": 10}]), ({}, ValueError("query: Missing"))],
        "process_image": [({"image_url": "x", "resize": True}, {"url": "x", "width": 800, "format": "jpeg"})],
        "analyze_text": [({"text": "a b"}, {"words": 2, "max_tokens": 100, "language": None})],
        "find_products": [({"query": "Lamp"}, [{"id": 2, "name": "Lamp (all)"}])],
        "delete_user": [({"user_id": "1"}, {"deleted": "1"})],
        "multiply": [({"x": 4}, 12)],
        "divide": [({"a": 1, "b": 4}, 0.25), ({"a": 1, "b": 0}, ValueError("Division by zero is not allowed."))],
        "get_author": [({"title": "Dune"}, "Frank Herbert"), ({"title": "x"}, ValueError("No book titled 'x'"))],
        "read_config": [({"path": "/nowhere"}, ValueError("internal error, details are in the server's log"))],
        "validate_input": [({"data": "abc"}, "Validation passed"), ({"data": "a"}, ValueError("at least 3"))],
    },
    "structured_output": {
        "get_weather": [({"city": "London"}, WEATHER)],
        "get_upstream_weather": [({"city": "London"}, WEATHER)],
        "get_forecast": [({"city": "London", "days": 1}, [WEATHER])],
        "get_location": [({"address": "a"}, {"latitude": 51.5074, "longitude": -0.1278, "name": "a"})],
        "get_temperatures": [({"cities": ["Cairo"]}, {"Cairo": 34.1})],
        "get_temperature": [({"city": "Cairo"}, 34.1)],
        "list_cities": [({}, ["London", "Cairo", "Reykjavik"])],
        "get_person": [({"user_id": "Ann"}, {"name": "Ann", "age": 30, "email": "alice@example.com"})],
        "get_user": [({"user_id": "Ann"}, {"name": "Ann", "age": 30, "email": None})],
        "get_station": [({"name": "North"}, "North: online")],
        "calculate_sum": [({"a": 1, "b": 2}, "3")],
        "custom_schema": [({}, WEATHER)],
        "hidden_data": [({}, "Response visible to the model")],
        "weather_report": [({"city": "London"}, '{"temperature":16.2,"humidity":0.83,"conditions":"Overcast"}')],
        "anything": [({"kind": "x"}, {"kind": "x", "mean": 42.5})],
    },
    "resources": {},
    "prompts": {"save_template": [({"name": "x", "instruction": "Say"}, "Saved 'x' to the prompt menu.")]},
    "completions": {},
    "context": {
        "search_books": [({"query": "a"}, "[tools/call of mcpd] Found 3 books for 'a'.")],
        "describe_catalog": [({}, "The catalog is organised into: fiction, non-fiction, poetry")],
        "import_catalog": [({"urls": ["a", "b"]}, "Imported 2 records.")],
        "import_feed": [({"feed_url": "f"}, "Imported 3 records.")],
        "long_running_task": [({"task_name": "t", "steps": 2}, "Task 't' completed")],
        "process_data": [({"data": "d"}, "Processed: d")],
        "enable_recommendations": [({}, "Recommendations are now available.")],
    },
    "elicitation": {
        "book_table": [
            ({"date": "2025-12-24", "party_size": 2}, "Booked a table for 2 on 2025-12-24."),
            ({"date": "2025-12-25", "party_size": 2}, "Booked a table for 2 on 2025-12-26."),
        ],
        "collect_user_info": [({}, "Hello Ann, you are 7 years old")],
        "plan_meeting": [({}, "Meeting 'Ann' for 7 minutes (urgent: True)")],
        "set_priority": [({}, "Priority set to: low")],
        "set_priority_by_enum": [({}, "Priority set to: low")],
        "set_priority_by_title": [({}, "Priority set to: low")],
        "select_tags": [({}, "Selected tags: bug")],
        "approve_action": [({}, "Done")],
        "pay_deposit": [({"booking_id": "1"}, "Complete the payment in your browser.")],
        "confirm_deposit": [({"booking_id": "1"}, "Deposit received for booking 1.")],
    },
    "sampling": {
        "generate_poem": [({"topic": "bees"}, "Write a short poem about bees, said the model")],
        "blurb": [({"title": "Dune"}, "Write a one-sentence blurb for the book 'Dune'., said the model")],
        "catalog_folder": [({}, "file:///work")],
    },
    "media": {
        "logo": [({}, ("image",))],
        "logo_from_file": [({}, ("image",))],
        "chime": [({}, ("audio",))],
        "brand_kit": [({}, ("text", "image", "audio", "resource_link"))],
        "mixed": [({}, ("image", "text", "text"))],
        "palette": [({}, ["#1d4ed8", "#f59e0b", "#10b981"])],
        "brand_guidelines": [({}, ("resource",))],
        "brand_archive": [({}, ("resource",))],
        "where": [({}, ("resource_link",))],
    },
    "lifespan": {
        "count_books": [({"genre": "poetry"}, "3 books in 'poetry'.")],
        "database_status": [({}, "connected")],
    },
    "dependencies": {
        "order_book": [
            ({"title": "Dune"}, "Ordered 'Dune'; it arrives tomorrow."),
            ({"title": "Neuromancer"}, "'Neuromancer' is on backorder; it would arrive in 2-3 weeks."),
        ],
        "reserve_book": [({"title": "Dune"}, "Reserved 'Dune'."), ({"title": "Emma"}, "Reserved 'Emma'.")],
        "fetch_data": [({"query": "q"}, "guest fetching 'q' from https://api.example.com")],
        "query_users": [({"sql": "select"}, ["begin", "select"])],
    },
    "middleware": {
        "search_books": [({"query": "a"}, "Found 3 books matching 'a'.")],
        "forbidden": [({}, ValueError("Not today."))],
    },
    "visibility": {
        "get_data": [({}, "data")],
        "set_data": [({"value": "1"}, "Set: 1")],
        "unlock": [({"feature": "nothing"}, "nothing unlocked")],
    },
    "http": {"forecast": [({"city": "Cairo"}, "Cairo: Sun.")]},
    "subscriptions": {
        "complete_task": [({"board": "sprint", "task": "design"}, "design: done")],
        "enable_reports": [({}, "reporting is live")],
    },
}  # fmt: skip

RESOURCES: dict[str, dict[str, str]] = {
    "quickstart": {"greeting://World": "Hello, World!"},
    "resources": {
        "config://app": "theme=dark\nlanguage=en",
        "docs://readme": "# Bookshop\n\nSearch the catalog with the `search_books` tool.",
        "stats://catalog": '{"books":1204,"authors":391}',
        "covers://placeholder": "GIF89a",
        "data://app-status": '{"status": "ok"',
        "data://users": '[{"id": 1}]',
        "resource://notice": "System maintenance scheduled for Sunday.",
        "users://7/profile": "User 7: 12 orders since 2021.",
        "books://978-0441172719": '{"title":"Dune","author":"Frank Herbert"}',
        "orders://41": '{"order_id":41,"next_order":42,"status":"shipped"}',
        "manuals://printing/setup.md": "# Printer setup",
        "reviews://978-0553293357?limit=3": "3 newest reviews of Foundation",
        "shelves://browse/fiction/new": "catalog > fiction > new",
        "imports://preview//etc/books.csv": "Would import from /etc/books.csv",
        "users://email/a@b.c": '{"name":null,"email":"a@b.c"}',
        "users://name/Ann": '{"name":"Ann","email":null}',
    },
    "prompts": {"style://python": "# Style\n\nShort functions."},
    "completions": {"github://repos/a/b": "Repository: a/b"},
    "context": {"catalog://genres": "fiction, non-fiction, poetry"},
    "media": {"brand://guidelines": "# Brand guidelines"},
    "dependencies": {"data://config": "https://api.example.com"},
    "visibility": {"data://public": "public"},
    "subscriptions": {"board://sprint": "[x] design"},
}

PROMPTS: dict[str, dict[str, tuple[dict[str, str], list[str]]]] = {
    "quickstart": {"greet_user": ({"name": "Ann", "style": "formal"}, ["user text"])},
    "prompts": {
        "review_code": ({"code": "x"}, ["user text"]),
        "debug_error": ({"error": "x"}, ["user text", "user text", "assistant text"]),
        "roleplay_scenario": ({"character": "a", "situation": "b"}, ["user text", "assistant text"]),
        "analyze_data_request": ({"data_uri": "x", "include_charts": "true"}, ["user text"]),
        "analyze_numbers": ({"numbers": "[1, 2]", "labels": '{"source": "api"}', "threshold": "1.2"}, ["user text"]),
        "review_with_guide": ({"code": "x"}, ["user resource", "user text"]),
        "explain_component": ({"component": "x"}, ["user image", "user text"]),
        "generate_report_request": ({"report_type": "x"}, ["user text"]),
        "x": ({"code": "x"}, ["user text"]),
    },
    "completions": {"review_code": ({"language": "go", "code": "x"}, ["user text"])},
    "dependencies": {"analyze": ({"topic": "x"}, ["user text"])},
}


def load(path: Path) -> ModuleType:
    """The module of an example, made anew."""
    spec = importlib.util.spec_from_file_location(f"tutorial_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for whoever resolves annotations
    spec.loader.exec_module(module)
    return module


async def fill_in(params: ElicitFormParams) -> ElicitResult:
    """Yes, seven, Ann, and the first of what there is to choose from."""
    content = {name: _first(member) for name, member in params.requested_schema["properties"].items()}
    return ElicitResult(action="accept", content=content)


def _first(member: dict[str, Any]) -> Any:
    if "default" in member:
        return member["default"]
    values = member.get("enum") or [one["const"] for one in member.get("oneOf", member.get("anyOf", ()))]
    if values:
        return values[0]
    plain = {"boolean": True, "integer": 7, "number": 7, "string": "Ann"}
    return [_first(member["items"])] if member["type"] == "array" else plain[member["type"]]


async def think(params: Any) -> CreateMessageResult:
    (message,) = params.messages
    return CreateMessageResult(
        role="assistant", content=TextContent(f"{message.content.text}, said the model"), model="a model"
    )


def client_of(server: Server, version: str) -> Client:
    callbacks = Callbacks(
        elicit_form=fill_in,
        elicit_url=lambda params: ElicitResult(action="accept"),
        sample=think,
        roots=lambda: [Root(uri="file:///work")],
    )
    return Client(server, callbacks, version=version)


def check(result: CallToolResult, expected: Any, where: str) -> None:
    said = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    if isinstance(expected, ValueError):
        assert result.is_error, where
        assert str(expected) in said, where
        return
    assert not result.is_error, f"{where}: {said}"
    if isinstance(expected, str):
        assert said == expected, where
    elif isinstance(expected, tuple):
        assert tuple(block.type for block in result.content) == expected, where
    else:
        data = result.structured_content
        # Up to 2025-11-25 data that is no object comes in one.
        assert data == expected or data == {"result": expected}, where


each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_all_have_calls() -> None:
    assert [path.stem for path in FILES] == sorted(CALLS)


@each_file
@pytest.mark.parametrize("version", VERSIONS)
async def test_every_tool_resource_and_prompt(path: Path, version: str) -> None:
    server: Server = load(path).server
    calls = CALLS[path.stem]
    async with client_of(server, version) as client:
        assert sorted(tool.name for tool in await client.list_tools()) == sorted(calls)
        for tool, given in calls.items():
            for arguments, expected in given:
                check(await client.call_tool(tool, arguments), expected, f"{tool} {arguments}")

        for uri, text in RESOURCES.get(path.stem, {}).items():
            first = (await client.read_resource(uri)).contents[0]
            found = first.text if isinstance(first, TextResourceContents) else first.blob.decode("latin-1")
            assert text in found, uri
        uris = {resource.uri for resource in await client.list_resources()} if RESOURCES.get(path.stem) else set()
        assert uris <= set(RESOURCES.get(path.stem, ()))

        prompts = PROMPTS.get(path.stem, {})
        listed = {prompt.name for prompt in await client.list_prompts()} if prompts else set()
        assert listed == set(prompts)
        for name, (given, expected) in prompts.items():
            got = await client.get_prompt(name, given)
            assert [f"{message.role} {message.content.type}" for message in got.messages] == expected, name


async def test_completions() -> None:
    server: Server = load(FOLDER / "completions.py").server
    prompt = PromptReference(name="review_code")
    template = ResourceTemplateReference(uri="github://repos/{owner}/{repo}")
    async with Client(server) as client:
        assert (await client.complete(prompt, "language", "py")).completion.values == ["python"]
        assert (await client.complete(prompt, "depth", "")).completion.values == ["quick", "thorough"]
        found = await client.complete(template, "repo", "pydantic-", {"owner": "pydantic"})
        assert found.completion.values == ["pydantic-ai"]


async def test_what_is_hidden_is_unlocked() -> None:
    server: Server = load(FOLDER / "visibility.py").server
    async with Client(server) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert "experiment" not in names
        assert "delete_data" not in names
        await client.call_tool("unlock", {"feature": "experiment"})
        assert "experiment" in [tool.name for tool in await client.list_tools()]


@each_file
def test_mcpd_check_finds_nothing(path: Path) -> None:
    assert load(path).server.problems() == []


def test_the_command_says_so_too(child: Child) -> None:
    done = subprocess.run(
        [child.python, "-m", "mcpd", "check", "--strict", str(FOLDER / "tools.py")],
        env=child.env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
