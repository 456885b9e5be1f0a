"""What is said of tools, resources, prompts and the server is checked when it is said, not when it is listed."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from support.wires import MODERN, memory_wire

from mcpd import Server
from mcpd.errors import RegistrationError
from mcpd.protocol.types.base import Icon
from mcpd.protocol.types.features import ToolAnnotations

HALF = "a\ud800"


def plain() -> str:
    return "x"


# What everything that is listed takes, and what the error says of it.
DESCRIBED: list[tuple[dict[str, Any], str]] = [
    ({"title": 5}, "title: expected str"),
    ({"description": 5}, "description: expected str"),
    ({"description": HALF}, "description: .*surrogates"),
    ({"icons": ["https://x.example/i.png"]}, "icons: expected Icon or a dict of src.*got 'https"),
    ({"icons": "https://x.example/i.png"}, "icons: expected a list"),
    ({"icons": 5}, "icons: expected a list"),
    ({"icons": [{"source": "https://x.example"}]}, "icons: unknown member 'source'; the members are src"),
    ({"icons": [{"mimeType": "image/png"}]}, "icons, .*missing required field src"),
    ({"icons": [Icon(src=5)]}, r"icons\[0\]\.src: expected str"),  # type: ignore[arg-type]
    ({"meta": {"a": pathlib.Path("x")}}, "meta: .*PosixPath"),
    ({"meta": {"a": object()}}, "meta: .*object"),
    ({"meta": {"a": HALF}}, "meta: .*surrogates"),
    ({"meta": {5: 1}}, "meta: expected a dict with str keys"),
    ({"meta": [1]}, "meta: expected a dict"),
    ({"meta": {"a b": 1}}, "meta: the key 'a b'"),
]
HINTS: list[tuple[dict[str, Any], str]] = [
    ({"annotations": True}, "annotations: expected .*Annotations or a dict"),
    ({"annotations": ["readOnlyHint"]}, "annotations: expected"),
]
TOOL: list[tuple[dict[str, Any], str]] = [
    (
        {"annotations": {"readonlyHint": True}},
        "annotations: unknown member 'readonlyHint'; the members are title, readOnlyHint",
    ),
    ({"annotations": {"readOnlyHint": "yes"}}, "annotations, readOnlyHint: expected bool"),
    ({"annotations": ToolAnnotations(title=5)}, "annotations.title: expected str"),  # type: ignore[arg-type]
]
RESOURCE: list[tuple[dict[str, Any], str]] = [
    ({"mime_type": 5}, "mime_type: expected str"),
    ({"name": 5}, "name: expected str"),
    ({"annotations": {"priority": "high"}}, "annotations, priority: expected float"),
]


@pytest.mark.parametrize(("options", "said"), [*DESCRIBED, *HINTS, *TOOL])
def test_what_a_tool_says_of_itself(options: dict[str, Any], said: str) -> None:
    server = Server("t")
    with pytest.raises(RegistrationError, match=f"^tool 'plain', {said}"):
        server.add_tool(plain, **options)
    assert "plain" not in server.catalog.tools


@pytest.mark.parametrize("uri", ["x://y", "x://{plain}"])
@pytest.mark.parametrize(("options", "said"), [*DESCRIBED, *HINTS, *RESOURCE])
def test_what_a_resource_says_of_itself(uri: str, options: dict[str, Any], said: str) -> None:
    def read(plain: str = "") -> str:
        return plain

    with pytest.raises(RegistrationError, match=f"^resource '{uri}', {said}"):
        Server("t").resource(uri, **options)(read)


def test_the_size_of_a_resource_is_a_number() -> None:
    server: Any = Server("t")
    with pytest.raises(RegistrationError, match="^resource 'x://y', size: expected int"):
        server.resource("x://y", size="5")(plain)


@pytest.mark.parametrize(("options", "said"), DESCRIBED)
def test_what_a_prompt_says_of_itself(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RegistrationError, match=f"^prompt 'plain', {said}"):
        Server("t").add_prompt(plain, **options)


@pytest.mark.parametrize("name", [5, HALF])
def test_a_name_is_text(name: Any) -> None:
    server = Server("t")
    with pytest.raises(RegistrationError, match="tool name"):
        server.add_tool(plain, name=name)
    with pytest.raises(RegistrationError, match=", name: "):
        server.add_prompt(plain, name=name)
    with pytest.raises(RegistrationError, match=", name: "):
        Server(name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": 1}, "version: expected str"),
        ({"version": None}, "version: expected str"),
        ({"title": 5}, "title: expected str"),
        ({"website_url": 5}, "website_url: expected str"),
        ({"instructions": 5}, "instructions, .*expected str"),
        ({"instructions": HALF}, "instructions, .*surrogates"),
        ({"icons": ["https://x.example/i.png"]}, "icons: expected Icon"),
    ],
)
def test_what_a_server_says_of_itself(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RegistrationError, match=f"^server 't', {said}"):
        Server("t", **options)


def test_a_text_that_is_none() -> None:
    server: Any = Server("t")
    for options, said in (
        ({"text": 5}, "its content must be str or bytes, not int"),
        ({"text": HALF}, "its text cannot be sent"),
        ({"text": "x", "mime_type": 5}, "mime_type: expected str"),
    ):
        with pytest.raises(RegistrationError, match=f"resource 'x://y'.*{said}"):
            server.add_text("x://y", **{"name": "n", **options})


def test_a_completion_of_what_is_not_there_is_a_problem() -> None:
    server = Server("t")

    def greet(name: str) -> str:
        return name

    server.add_prompt(greet)
    server.resource("x://{name}")(greet)
    for argument, known in (
        ("zz", {"prompt": "unknown"}),
        ("zz", {"prompt": "greet"}),
        ("zz", {"template": "x://{name}"}),
        ("name", {"prompt": "greet"}),
        ("name", {"template": "x://{name}"}),
    ):
        server.completion(argument, **known)(lambda typed: [])
    assert [str(problem) for problem in server.problems() if problem.is_error] == [
        "completion of 'zz': unknown prompt or resource template 'unknown'",
        "completion of 'zz': 'greet' has no such argument; its arguments are name",
        "completion of 'zz': 'x://{name}' has no such argument; its arguments are name",
    ]


def test_what_cannot_be_listed_is_a_problem() -> None:
    """Set past every check, as an extension might: one such tool fails the list of all."""
    server = Server("t")
    server.add_tool(plain)
    entry = server.catalog.tools.find("plain")
    assert entry is not None
    entry.tool.meta = {"a": object()}
    problem, *_ = server.problems()
    assert str(problem).startswith("tool plain: ")
    assert problem.is_error


async def test_a_tool_that_tells_its_data_as_text_alone() -> None:
    server = Server("t")

    @server.tool(structured_output=False)
    def numbers() -> dict[str, int]:
        return {"one": 1}

    async with memory_wire(server, MODERN) as wire:
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert "outputSchema" not in tool
        result = await wire.call("numbers")
    assert "structuredContent" not in result
    assert result["content"][0]["text"] == '{"one":1}'
