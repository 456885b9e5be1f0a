"""What other libraries have and `mcpd.compat` has not: it fails when it is used, and not when it is imported."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from compat.theirs import ask, call, served, texts
from conftest import Child

LATEST = "2025-11-25"

pytestmark = pytest.mark.usefixtures("libraries")

TOOL = """
@mcp.tool()
def a() -> str:
    "A."
    return "a"
"""
SDK = "from mcp.server.fastmcp import FastMCP\nmcp = FastMCP('x')\n"


def check(child: Child, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "theirs.py").write_text(text)
    return subprocess.run(
        child.mcpd("check", "theirs.py"),
        env=child.env, cwd=folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "head",
    [
        "from mcp.server.sse import SseServerTransport",
        "from mcp.server.streamable_http_manager import (\n    StreamableHTTPSessionManager,\n)",
        "import mcp.client.stdio as client",
        "from mcp.server import NotYetWritten\nclass Mine(NotYetWritten):\n    ...",
        "from mcp_types.later import Thing\ndef f(a: Thing[int] | None) -> 'list[Thing]': ...",
        "def main():\n    try:\n        from mcp.server.sse import SseServerTransport\n        return\n"
        "    except Exception:\n        raise SystemExit(1)\nmain()",
    ],
)
def test_what_is_imported_and_not_used_is_no_error(child: Child, tmp_path: Path, head: str) -> None:
    done = check(child, tmp_path, f"{head}\n{SDK}{TOOL}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("head", "name", "line"),
    [
        ("from mcp.server.sse import SseServerTransport\nSseServerTransport('/')", "SseServerTransport", 2),
        ("from mcp.server.sse import A\nclass B(A): ...\n\nB()", "A", 4),
        ("from mcp.server.sse import A\nA.create(1)", "A", 2),
    ],
)
def test_what_is_used_is_named_with_its_line(child: Child, tmp_path: Path, head: str, name: str, line: int) -> None:
    done = check(child, tmp_path, f"{head}\n{SDK}{TOOL}")
    assert done.returncode == 1
    assert done.stderr == (
        f"mcpd: theirs.py cannot be imported (line {line}): mcp.server.sse.{name} is not supported by mcpd.compat; "
        "to run the server with the official SDK itself: --library always\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        "try:\n    from mcp.server.sse import A\nexcept ImportError:\n    A = None",
        "try:\n    import mcp.server.sse\n    A = 1\nexcept (ValueError, ModuleNotFoundError):\n    A = None",
        "try:\n    from mcp.server.sse import A\nexcept Exception:\n    A = None",
        "A = None\nfrom contextlib import suppress\nwith suppress(ImportError):\n    from mcp.server.sse import A",
        "A = None\ntry:\n    from other import A\nexcept ImportError:\n    pass",
    ],
)
def test_a_guarded_import_fails_at_once(child: Child, tmp_path: Path, head: str) -> None:
    (tmp_path / "other.py").write_text("from mcp.server.sse import A\n")
    done = check(child, tmp_path, f"{head}\nassert A is None\n{SDK}{TOOL}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_a_module_has_from_its_neighbour_is_found() -> None:
    from fastmcp.tools.tool import TextContent  # type: ignore[import-not-found]
    from mcp.types import TextContent as Theirs  # type: ignore[import-not-found]
    from mcp_types.version import LATEST_PROTOCOL_VERSION  # type: ignore[import-not-found]

    assert TextContent is Theirs
    assert LATEST_PROTOCOL_VERSION


def test_the_version_of_a_library_can_be_imported() -> None:
    from fastmcp import __version__  # type: ignore[import-not-found]

    assert __version__.split(".")[0] == "4"


def test_private_methods_that_list_less_are_refused(child: Child, tmp_path: Path) -> None:
    done = check(child, tmp_path, """
from fastmcp import FastMCP

class Fewer(FastMCP):
    async def _list_resources_mcp(self, *given):
        return []

mcp = Fewer("x")
""" + TOOL)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(
        "mcpd: Fewer._list_resources_mcp, an override of a private method, is not supported by mcpd.compat"
    )


async def test_models_take_the_names_of_version_2_when_they_are_changed() -> None:
    server = served("""
        from mcp.server.mcpserver import MCPServer
        from mcp_types import CallToolResult, TextContent
        App = MCPServer[dict]
        mcp = App("x")
        mcp._lowlevel_server.instructions = "new"

        @mcp.tool()
        def fails() -> CallToolResult:
            result = CallToolResult(content=[TextContent(type="text", text="no")])
            result.is_error = True
            result.structured_content = {"why": "x"}
            return result

        @mcp.tool()
        def copied() -> CallToolResult:
            return CallToolResult.model_construct(content=[]).model_copy(update={"is_error": True})
    """)
    failed = await call(server, LATEST, "fails")
    assert (failed["isError"], failed["structuredContent"]) == (True, {"why": "x"})
    assert (await call(server, LATEST, "copied"))["isError"] is True
    assert (await ask(server, LATEST, "tools/list"))["tools"][0]["name"] == "fails"


async def test_the_text_of_an_annotation_is_its_description() -> None:
    server = served("""
        from typing import Annotated
        from fastmcp import FastMCP
        mcp = FastMCP("x")
        @mcp.tool
        def find(query: Annotated[str, "what to look for"]) -> str: return query
        @mcp.prompt
        def ask(topic: Annotated[str, "the topic"]) -> str: return topic
    """)
    (tool,) = (await ask(server, LATEST, "tools/list"))["tools"]
    assert tool["inputSchema"]["properties"]["query"] == {"type": "string", "description": "what to look for"}
    (prompt,) = (await ask(server, LATEST, "prompts/list"))["prompts"]
    text = 'the topic\n\nProvide a value matching the following JSON schema: {"type":"string"}.'
    assert prompt["arguments"][0]["description"].startswith(text)


@pytest.mark.parametrize(
    ("given", "said"), [(3, "paid 3"), ("3", "Input validation error: '3' is not of type 'integer'")]
)
async def test_strict_input_validation_changes_no_argument(given: Any, said: str) -> None:
    server = served("""
        from fastmcp import FastMCP
        mcp = FastMCP("x", strict_input_validation=True)
        @mcp.tool
        def pay(amount: int) -> str: return f"paid {amount}"
    """)
    assert texts(await call(server, LATEST, "pay", amount=given)) == [said], json.dumps(given)


def test_options_that_do_nothing_are_named(caplog: pytest.LogCaptureFixture) -> None:
    from fastmcp import FastMCP  # type: ignore[import-not-found]
    from mcp.server.mcpserver import MCPServer  # type: ignore[import-not-found]

    FastMCP("x", session_state_store=None, tasks=False, dereference_schemas=True, port=3)
    assert caplog.messages == []
    FastMCP("x", tasks=True, dereference_schemas=False)
    MCPServer("x", cache_hints={"tools/list": 3})
    assert [text.partition(" ")[0] for text in caplog.messages] == [
        "FastMCP(tasks=…)", "FastMCP(dereference_schemas=…)", "MCPServer(cache_hints=…)",
    ]  # fmt: skip


async def test_a_serializer_of_the_server_writes_what_tools_give() -> None:
    server = served("""
        from fastmcp import FastMCP
        mcp = FastMCP("x", tool_serializer=lambda value: f"<{value}>")
        @mcp.tool(output_schema=None)
        def count(): return 3
    """)
    assert texts(await call(server, LATEST, "count")) == ["<3>"]


def test_the_tables_of_methods_say_what_each_version_has() -> None:
    from mcp_types.methods import CLIENT_REQUESTS, SERVER_RESULTS  # type: ignore[import-not-found]

    assert CLIENT_REQUESTS["tools/list", "2024-11-05"].__name__ == "ListToolsRequest"
    assert SERVER_RESULTS["ping", "2025-11-25"].__name__ == "EmptyResult"
    assert ("ping", "2026-07-28") not in CLIENT_REQUESTS
    assert CLIENT_REQUESTS.keys() == SERVER_RESULTS.keys()
