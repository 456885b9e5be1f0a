"""`mcpd check` on Apps: what a host would stumble over, named before one does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Child
from support.ui_stage import CHART, HTML, make_server

from mcpd import Server
from mcpd.protocol.types.features import Resource, Tool
from mcpd.server.extensions.ui.constants import MIME_TYPE
from mcpd.server.functions.signature import bind
from mcpd.server.registry.entries import Problem
from mcpd.server.registry.resources import FixedResource
from mcpd.server.registry.tools import FunctionTool


def draw() -> str:
    """Draws."""
    return "drawn"


def greet(name: str) -> str:
    """Greets."""
    return name


def said(server: Server) -> list[tuple[bool, str]]:
    return [(problem.is_error, str(problem)) for problem in server.problems()]


def test_a_good_server_has_no_problem() -> None:
    assert make_server().problems() == []


def test_a_view_that_is_not_there() -> None:
    """APP-S-05: with what is there, and what to do."""
    server = Server("x")
    server.add_tool(draw, ui="dashbord")
    ((is_error, text),) = said(server)
    assert is_error
    assert text == (
        "tool draw: its View ui://x/dashbord is not registered: no app is registered; "
        "add it with server.app() or server.add_apps()"
    )
    server.app("dashboard", HTML)
    assert any("did you mean ui://x/dashboard?" in text for _, text in said(server))
    server.add_tool(draw, name="other", ui="ui://elsewhere/z")
    assert any("the registered apps are ui://x/dashboard" in text for _, text in said(server))


def test_a_view_of_a_function_or_a_template_is_there() -> None:
    server = Server("x")
    server.resource("ui://x/now")(draw)
    server.resource("ui://x/user/{name}")(greet)
    server.add_tool(draw, name="a", ui="ui://x/now")
    server.add_tool(draw, name="b", ui="ui://x/user/ada")
    assert server.problems() == []


def test_a_view_that_no_tool_opens() -> None:
    server = Server("x")
    server.app("lonely", HTML)
    assert said(server) == [(False, "app ui://x/lonely: no tool opens it; register one with ui='ui://x/lonely'")]


def test_a_tool_for_apps_without_any_app() -> None:
    server = Server("x")
    server.add_tool(draw, visibility=["app"])
    ((is_error, text),) = said(server)
    assert not is_error
    assert "only an app may call it, but no tool opens an app" in text
    server.add_tool(draw, name="open", ui=server.app("view", HTML))
    assert server.problems() == []


def test_a_domain_is_for_one_host() -> None:
    """APP-S-08: one host refuses to render where the format is not its own."""
    server = Server("x")
    server.add_tool(draw, ui=server.app("view", HTML, domain="a.example.com"))
    ((is_error, text),) = said(server)
    assert not is_error
    assert "domain 'a.example.com': a host that expects another format refuses the app" in text


def test_warnings_about_html_and_csp_are_there_too() -> None:
    """Size, encoding, a source that was corrected: logged at registration, and found again."""
    server = Server("x")
    html = "<!doctype html><title>x</title>" + "x" * 1024 * 1024
    server.add_tool(draw, ui=server.app("view", html, csp={"connectDomains": ["https://a.example/path"]}))
    found = said(server)
    assert [is_error for is_error, _ in found] == [False, False, False]
    for text, (_, problem) in zip(
        ("path and query are cut off", "start slowly", "no <meta charset"), found, strict=True
    ):
        assert text in problem


@pytest.mark.parametrize(
    ("uri", "mime_type", "text"),
    [
        ("ui://x/y", "text/html", f"is under ui://, so its type must be {MIME_TYPE}, not text/html"),
        ("ui://x/y", None, "must be"),
        ("ui://x/y", "text/html; profile=mcp-app", "must be"),
        ("notes://x", MIME_TYPE, "its URI must begin with ui://"),
    ],
)
def test_what_a_source_adds_to_the_catalog_is_checked_too(uri: str, mime_type: str | None, text: str) -> None:
    """APP-S-01, APP-S-02: registration refuses it, but a source need not go through that."""
    server = make_server()
    server.catalog.resources.add(FixedResource(Resource(uri=uri, name="y", mime_type=mime_type), HTML))
    ((is_error, problem),) = said(server)
    assert is_error
    assert problem.startswith(f"resource {uri}: ")
    assert text in problem


def test_meta_that_everybody_would_see() -> None:
    """APP-S-07, APP-S-12: raw `_meta.ui` that came past registration is not gated."""
    server = make_server()
    tool = Tool(
        name="raw",
        description="Draws.",
        input_schema={"type": "object"},
        meta={"ui": {"resourceUri": CHART, "csp": {}}},
    )
    server.catalog.tools.add(FunctionTool(tool, bind(draw)))
    ((is_error, problem),) = said(server)
    assert is_error
    assert "which all clients receive; use ui= and visibility=" in problem


def test_a_resource_that_is_no_view_has_no_use_for_ui() -> None:
    server = make_server()
    server.resource("notes://x", meta={"ui": {"prefersBorder": True}})(draw)
    ((is_error, problem),) = said(server)
    assert not is_error
    assert "under ui:// only" in problem


def test_apps_that_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    ((is_error, problem),) = said(make_server(apps="never"))
    assert not is_error
    assert "are off (apps='never')" in problem
    monkeypatch.setenv("MCP_APPS_ENABLED", "False")
    ((is_error, problem),) = said(make_server())
    assert "are off (MCP_APPS_ENABLED=false)" in problem


def test_the_strict_list_has_its_price() -> None:
    ((is_error, problem),) = said(make_server(strict_model_list=True))
    assert not is_error
    assert "the list leaves out refresh: hosts that look tools up in the list cannot call them" in problem


def test_errors_come_first() -> None:
    server = Server("x")
    server.app("lonely", HTML)
    server.add_tool(draw, ui="nothing")
    assert [problem.is_error for problem in server.problems()] == [True, False]
    assert isinstance(server.problems()[0], Problem)


# -------------------------------------------------------------------------------- the command


BAD = """
from mcpd import Server
server = Server("bad")
server.add_apps("apps")
@server.tool(ui="ui://bad/nowhere")
def show() -> str:
    'Shows.'
    ...
"""


@pytest.fixture
def check(child: Child, tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    def run(source: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "target.py").write_text(source)
        return subprocess.run(
            child.mcpd("check", "target.py"), env=child.env, cwd=tmp_path, capture_output=True, text=True, timeout=100,
            check=False,
        )  # fmt: skip

    return run


def test_check_tells_problems_from_warnings(
    check: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Each thing once, errors first, exit 1."""
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "dash.html").write_text(HTML)
    (tmp_path / "apps" / "dash.json").write_text('{"ui": {"csp": {"connectDomains": ["*"]}}}')
    done = check(BAD)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["problem", "problem", "warning"], lines
    for text in ("'*' dropped", "ui://bad/nowhere is not registered", "no tool opens it"):
        assert sum(text in line for line in lines) == 1, lines
    assert "ui://bad/dash" in done.stdout


def test_warnings_alone_are_no_failure(check: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    done = check(f"from mcpd import Server\nserver = Server('warned')\nserver.app('lonely', {HTML!r})\n")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("mcpd: warning: app ui://warned/lonely: no tool opens it")


def test_what_registration_refuses_is_one_line(check: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    """APP-S-04 through the command line: where, what, and what to do."""
    done = check("from mcpd import Server\nserver = Server('refused')\nserver.app('x', '<p>hi')\n")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "app ui://refused/x: not a complete HTML5 document: no doctype; begin it with <!doctype html>" in line
    assert "line 3" in line
