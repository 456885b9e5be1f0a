"""Views that flood their host, and documents that ask for too much: what is kept, logged and reached is bounded."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.host_program import make_server
from support.host_stage import Stage

from mcpd import Host, Server
from mcpd.apps.host.document import Profile, grant
from mcpd.apps.host.document_cache import MAX_KEPT
from mcpd.apps.host.shown_view import Conversation, ViewMessage
from mcpd.apps.host.view.events import AppToolsListed, Finding, ModelContextUpdate
from mcpd.apps.host.view.policy import Denied
from mcpd.protocol.types.features import TextContent
from mcpd.server.extensions.ui import csp_sources
from mcpd.server.extensions.ui.assets import load_folder
from mcpd.server.extensions.ui.csp_sources import UiCsp, validate_csp, validate_sources

MB = 1024 * 1024

# ------------------------------------------------------------------------------- the conversation


def message(size: int) -> ViewMessage:
    return ViewMessage("view-1", "tool", [TextContent(text="x" * size)])


def test_messages_are_forgotten_when_they_are_taken() -> None:
    conversation = Conversation()
    for _ in range(50):
        conversation.add_message(message(MB))
        conversation.add_message(message(MB))
        assert len(conversation.messages) == 2
        assert len(conversation.take_messages()) == 2
        assert conversation.messages == conversation.take_messages() == []


@pytest.mark.parametrize(("size", "most"), [(10, 1000), (MB, 15)])
def test_messages_that_nobody_takes_are_bounded(size: int, most: int) -> None:
    conversation = Conversation()
    for _ in range(most):
        conversation.add_message(message(size))
    for _ in range(3):
        with pytest.raises(Denied, match="wait to be taken"):
            conversation.add_message(message(size))
    assert len(conversation.take_messages()) == most
    conversation.add_message(message(size))


def test_context_that_nobody_takes_is_bounded() -> None:
    """A View has one, and is gone some day: there is always another View."""
    conversation = Conversation()
    for number in range(100):
        update = ModelContextUpdate(number, [TextContent(text="x" * MB)], None)
        conversation.set_context(f"view-{number}", "tool", update)
        conversation.set_context(f"view-{number}", "tool", update)
    taken = [context.view for context in conversation.take_context()]
    assert taken == [f"view-{number}" for number in range(85, 100)]
    assert conversation.take_context() == []


async def test_a_view_whose_message_cannot_be_kept_is_told_no() -> None:
    conversation = Conversation(max_messages=2)
    async with Host(make_server(), conversation=conversation) as host:
        told: list[dict[str, Any]] = []
        view = await host.open_view(await host.call_tool("forecast"), lambda text: told.append(json.loads(text)))

        async def asks(method: str, params: dict[str, Any], id: int) -> dict[str, Any]:
            view.receive(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            while (answer := next((one for one in told if one.get("id") == id), None)) is None:
                await asyncio.sleep(0)
            return answer

        app = {"appInfo": {"name": "v", "version": "1"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"}
        await asks("ui/initialize", app, 0)
        view.receive('{"jsonrpc":"2.0","method":"ui/notifications/initialized"}')
        said = {"role": "user", "content": {"type": "text", "text": "hi"}}
        assert ["result" in await asks("ui/message", said, id) for id in (1, 2, 3)] == [True, True, False]
        assert len(conversation.take_messages()) == 2
        assert "result" in await asks("ui/message", said, 4)
        view.lost("the test is over")


# ---------------------------------------------------------------------------------------- floods


def test_findings_about_a_view_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Hours of a View that does nothing right, at the rate it may."""
    caplog.set_level(logging.INFO, "mcpd")
    stage = Stage().to_live()
    caplog.clear()
    for _ in range(3000):
        stage.now += 1
        stage.says(b"rubbish")
        stage.says({"jsonrpc": "2.0", "method": "nothing/known"})
        stage.says({"jsonrpc": "2.0", "id": 1, "method": "ui/open-link", "params": {"url": "javascript:1"}})
        assert len(stage.take(Finding)) == 3
    assert len(caplog.records) < 40
    assert "(1000 of these so far)" in caplog.text


def test_bad_tools_of_a_view_are_reported_up_to_a_limit() -> None:
    stage = Stage().to_live(tools={})
    stage.view.list_app_tools(stage.now)
    (asked,) = (one for one in stage.drain() if one.get("method") == "tools/list")
    stage.says({"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": [0] * 100_000}})
    assert stage.only(AppToolsListed).tools == []
    assert len(stage.take(Finding)) <= 101


async def test_documents_of_ever_other_views_are_not_kept() -> None:
    server = Server("many")
    for number in range(MAX_KEPT + 20):
        server.app(f"ui://many/{number}", f"<!DOCTYPE html><title>{number}</title>", name=str(number))
        server.add_tool(lambda: "x", name=f"t{number}", ui=f"ui://many/{number}")
    async with Host(server) as host:
        assert len(await host.prefetch()) == MAX_KEPT
        for number in range(MAX_KEPT + 20):
            await host._documents.get(host.begin_call(f"t{number}").view_uri or "")
        assert len(host._documents._kept) == MAX_KEPT
        assert not host._documents._locks


# ---------------------------------------------------------------------------------------- policy

EVERYBODYS = [
    "https://*.com", "https://*.co.uk", "wss://*.com:*", "http://*.localhost", "https://*.org.au:8443", "https://*.io",
    "https://*.github.io", "https://*.s3.amazonaws.com", "https://*.s3.eu-west-1.amazonaws.com", "https://*.vercel.app",
    "https://*.xn--p1ai", "https://*.COM/path", "https://*.core.windows.net", "https://*.us-east-1.on.aws",
]  # fmt: skip
SOMEBODYS = ["https://*.example.com", "https://*.example.co.uk", "wss://*.a.github.io:*", "https://*.cdn.example.io"]


@pytest.mark.parametrize("has_list", [True, False])
def test_a_wildcard_that_anybody_can_match_is_refused(has_list: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the Public Suffix List and without it."""
    csp_sources._listed.cache_clear()
    if not has_list:
        monkeypatch.setitem(sys.modules, "publicsuffixlist", None)
    try:
        assert (csp_sources._listed() is not None) == has_list
        for kind in ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"):
            accepted, problems = validate_sources([*EVERYBODYS, *SOMEBODYS], kind)  # type: ignore[arg-type]
            assert accepted == SOMEBODYS
            assert len(problems) == len(EVERYBODYS)
            assert all("anybody can have a host under" in problem.reason for problem in problems)
        # As the official example host does.
        assert validate_sources(["https://*.com"], "connectDomains", compat=True)[0] == ["https://*.com"]
        for listed in ("act.edu.au", "linode.com", "platform.sh", "on.amazonwebservices.eu"):
            assert csp_sources.is_public_suffix(listed) == has_list  # the short list is honest about being short
    finally:
        csp_sources._listed.cache_clear()


@pytest.mark.parametrize("profile", ["strict", "opaque", "compat"])
def test_data_and_blob_are_no_sources_of_scripts(profile: Profile) -> None:
    """Images, styles and fonts may come from them; what runs may not, but where the example host lets it."""
    csp, _ = validate_csp(UiCsp(resource_domains=["data:", "blob:", "https://cdn.example.com"]))
    policy = dict(part.split(" ", 1) for part in grant(csp, profile=profile).policy().split("; "))
    assert "https://cdn.example.com" in policy["script-src"]
    assert ("data:" in policy["script-src"]) == ("blob:" in policy["script-src"]) == (profile == "compat")
    assert "worker-src" not in policy or profile == "compat"
    for directive in ("img-src", "style-src", "font-src"):
        assert "data:" in policy[directive]
        assert "blob:" in policy[directive]


# ----------------------------------------------------------------------------------- app folders


def test_a_link_leads_nowhere_out_of_a_folder_of_apps(tmp_path: Path) -> None:
    """Neither to a file nor through a folder, for the HTML and for its metadata; inside it links are fine."""
    outside, folder = tmp_path / "outside", tmp_path / "apps"
    (folder / "..data").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.html").write_text("<title>secret</title>")
    (outside / "secret.json").write_text('{"title": "secret"}')
    (tmp_path / "apps-too").mkdir()
    (tmp_path / "apps-too" / "near.html").write_text("<title>secret</title>")
    (folder / "..data" / "mounted.html").write_text("<title>mounted</title>")
    (folder / "own.html").write_text("<title>own</title>")
    (folder / "own.json").symlink_to(outside / "secret.json")
    (folder / "mounted.html").symlink_to("..data/mounted.html")
    (folder / "absolute.html").symlink_to(outside / "secret.html")
    (folder / "relative.html").symlink_to("../outside/secret.html")
    (folder / "near.html").symlink_to("../apps-too/near.html")
    (folder / "dir").symlink_to(outside)
    (folder / "through.html").symlink_to("dir/secret.html")
    (folder / "chain.html").symlink_to("absolute.html")
    (tmp_path / "link").symlink_to(folder)
    for root in (folder, tmp_path / "link"):
        apps, problems = load_folder(str(root))
        assert [app.name for app in apps] == ["mounted", "own"]
        assert "secret" not in repr([(app.html, app.title) for app in apps])
        assert [problem.where.rpartition("/")[2] for problem in problems] == [
            "absolute.html", "chain.html", "near.html", "relative.html", "through.html"
        ]  # fmt: skip
        assert all("leads out of the folder" in problem.text for problem in problems)
        assert "leads out of the folder" in str(apps[1].problems[0])


def test_a_file_exchanged_while_it_is_opened_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is what was opened, not what stands there by then."""
    folder, secret = tmp_path / "apps", tmp_path / "secret.html"
    folder.mkdir()
    app = folder / "app.html"
    secret.write_text("<title>secret</title>")
    app.symlink_to(secret)
    real = os.path.realpath

    def exchange(path: Any, **options: Any) -> str:
        if os.path.islink(app):
            app.unlink()
            app.write_text("<title>harmless</title>")
        return real(path, **options)

    monkeypatch.setattr(os.path, "realpath", exchange)
    apps, problems = load_folder(str(folder))
    assert apps == []
    assert "leads out of the folder" in problems[0].text
