"""What a server says of its apps, as it comes over the wire: a server that gets each thing wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpd.apps.verdict.report import AppReport, AppsReport, TryOptions
from mcpd.apps.verdict.run import try_apps
from mcpd.errors import ConfigurationError

PAGE = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A</title></head><body>x</body></html>'
MIME = "text/html;profile=mcp-app"

# A server in plain Python: says whatever it is told, by method, or by method and the URI or name that is asked for.
SERVER = """
import json, sys
answers = json.load(open(sys.argv[1]))
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    params = asked.get("params", {})
    key = asked["method"] + " " + str(params.get("uri") or params.get("name"))
    answer = answers.get(key, answers.get(asked["method"]))
    if asked["method"] == "server/discover" or answer is None:
        answer = {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def answers(tools: list[Any], resources: Any = None, extensions: Any = None, **read: Any) -> dict[str, Any]:
    capabilities = {"tools": {}, "resources": {}, "extensions": extensions or {"io.modelcontextprotocol/ui": {}}}
    about = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "odd", "version": "1"}}
    return {
        "initialize": {"result": {**about, "capabilities": capabilities}},
        "tools/list": {"result": {"tools": tools}},
        "resources/list": resources if resources is not None else {"result": {"resources": []}},
        "tools/call": {"result": {"content": [{"type": "text", "text": "words"}]}},
        **{f"resources/read ui://odd/{name}": answer for name, answer in read.items()},
    }


def tool(name: str, ui: Any = None, **more: Any) -> dict[str, Any]:
    meta = {"ui": {"resourceUri": f"ui://odd/{name}"} if ui is None else ui, **more}
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": meta}


def content(name: str, **more: Any) -> dict[str, Any]:
    item = {"uri": f"ui://odd/{name}", "mimeType": MIME, "text": PAGE, **more}
    return {"result": {"contents": [{key: value for key, value in item.items() if value is not None}]}}


async def tried(tmp_path: Path, said: dict[str, Any], **options: Any) -> AppsReport:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "answers.json").write_text(json.dumps(said))
    command = [sys.executable, str(tmp_path / "server.py"), str(tmp_path / "answers.json")]
    return await try_apps(command, TryOptions(static=True, **options))


def texts(report: AppReport, name: str) -> str:
    return "\n".join(finding.text for finding in report.check(name).findings)


async def test_each_mistake_is_named(tmp_path: Path) -> None:
    """APP-S-01, APP-S-02, APP-S-03, APP-S-05, APP-S-08, APP-S-10, APP-S-11, APP-S-12, APP-S-13."""
    ui = {"csp": {"resourceDomains": ["https://a.example", "x y"], "scriptDomains": []}, "domain": "d", "border": 1,
          "prefersBorder": "yes", "permissions": {"camera": {}, "usb": {}}}  # fmt: skip
    report = await tried(
        tmp_path,
        answers(
            [
                tool("good"),
                tool("gone"),
                tool("flat", {}, **{"ui/resourceUri": "ui://odd/flat"}),
                tool("two", **{"ui/resourceUri": "ui://odd/other"}),
                tool("csp", {"resourceUri": "ui://odd/meta", "csp": {}, "colour": 1}),
                tool("who", {"resourceUri": "ui://odd/who", "visibility": ["model", "user"]}),
                tool("nobody", {"resourceUri": "ui://odd/who", "visibility": []}),
                tool("web", {"resourceUri": "https://odd.example/app"}),
                tool("blob"),
            ],
            {"result": {"resources": [{"uri": "ui://odd/meta", "name": "meta", "mimeType": MIME, "_meta": {"ui": {}}},
                                      {"uri": "ui://odd/alone", "name": "a", "mimeType": "text/html"}]}},
            good=content("good"), flat=content("flat", mimeType="text/html"), two=content("two"),
            meta=content("meta", _meta={"ui": ui}), who=content("who"), alone=content("alone"),
            blob=content("blob", text=None, blob="PCFkb2N0eXBlIGh0bWw+"),
        ),
    )  # fmt: skip
    assert not report.passed
    assert report.app("good").passed
    assert "cannot be read" in texts(report.app("gone"), "link")
    assert "older form" in texts(report.app("flat"), "link")
    assert "nothing is text/html;profile=mcp-app" in texts(report.app("flat"), "type")
    assert "names two apps" in texts(report.app("two"), "link")
    assert "csp means nothing on a tool" in texts(report.app("csp"), "link")
    assert "hosts do not know _meta.ui.colour" in texts(report.app("csp"), "link")
    assert "visibility names ['user']" in texts(report.app("who"), "visibility")
    assert "visibility is []" in texts(report.app("who"), "visibility")
    assert "does not begin with ui://" in texts(report.app("web"), "link")
    assert "comes as a blob" in texts(report.app("blob"), "type")
    said = texts(report.app("csp"), "metadata")
    for words in (
        "no member 'scriptDomains'",
        "'x y'",
        "domain is 'd'",
        "do not know _meta.ui.border",
        "prefersBorder",
    ):
        assert words in said
    assert "camera" in texts(report.app("csp"), "permissions")
    assert "unknown permission 'usb'" in texts(report.app("csp"), "permissions")
    assert "listed as 'text/html'" in texts(report.app("ui://odd/alone"), "type")
    assert "no tool opens ui://odd/alone" in str(report.warnings)


async def test_the_server_is_looked_at_too(tmp_path: Path) -> None:
    """APP-S-06, APP-S-07, APP-S-09."""
    said = answers([tool("page"), tool("risky")], {"error": {"code": -32603, "message": "broken"}}, {"x/y": {}},
                   page=content("page"), risky=content("risky"))  # fmt: skip
    said["tools/list"]["result"]["tools"][1]["annotations"] = {"destructiveHint": True}
    said["tools/call page"] = {"result": {"content": []}}
    report = await tried(tmp_path, said)
    (check,) = report.checks
    assert check.status == "failure"
    assert "resources/list fails" in str(report.failures)
    assert [finding.severity for finding in check.findings if "does not say that it has" in finding.text] == ["note"]
    assert report.app("page").check("text-fallback").status == "failure"
    assert report.app("risky").check("call").status == "skipped"

    report = await tried(tmp_path, said, app=("risky",), calls={"risky": {}})
    assert [app.uri for app in report.apps] == ["ui://odd/risky"]
    assert report.app("risky").check("call").status == "ok"


async def test_made_up_arguments_that_are_refused_are_no_failure(tmp_path: Path) -> None:
    said = answers([tool("page"), tool("sick")], page=content("page"), sick=content("sick"))
    said["tools/call page"] = {"error": {"code": -32602, "message": "there is no such bed"}}
    said["tools/call sick"] = {"result": {"isError": True, "content": [{"type": "text", "text": "ouch"}]}}
    report = await tried(tmp_path, said)
    assert report.passed
    assert "no such bed" in str(report.warnings)
    assert "--call 'page={…}'" in str(report.warnings)
    assert "ouch" in str(report.warnings)

    report = await tried(tmp_path, said, calls={"page": {"bed": "x"}})
    assert "page gave an error" in str(report.failures)


@pytest.mark.parametrize("name", ["ui://odd/page", "ui://odd/page?v=1", "ui://odd/page?v=2", "page", "open"])
async def test_an_app_is_named_with_and_without_its_hash(tmp_path: Path, name: str) -> None:
    shown = tool("open", {"resourceUri": "ui://odd/page?v=1"})
    said = answers([shown, tool("other")], **{"page?v=1": content("page?v=1"), "other": content("other")})
    report = await tried(tmp_path, said, app=(name,))
    assert [app.uri for app in report.apps] == ["ui://odd/page?v=1"]


async def test_a_server_without_apps_cannot_be_tried(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no apps"):
        await tried(tmp_path, answers([{"name": "plain", "inputSchema": {"type": "object"}}]))
    with pytest.raises(ConfigurationError, match="no app is named 'x'"):
        await tried(tmp_path, answers([tool("page")], page=content("page")), app=("x",))
