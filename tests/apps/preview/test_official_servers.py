"""Official servers with apps, from npm, in the preview: each is rendered under the strict policy, and its buttons work.

Their HTML contains the official App class, which checks our answers and every result against its own schemas.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.browser import Chromium, Frame
from support.preview_page_stage import opened as opened_page
from support.preview_stage import Stage, staged

from mcpd.client.targets.named import CommandTarget

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parent.parent.parent.parent
SERVERS = Path(__file__).parent / "node_modules" / "@modelcontextprotocol"


def target(name: str) -> CommandTarget:
    """One of them, over stdio."""
    entry = SERVERS / f"server-{name}" / "dist" / "index.js"
    if not entry.is_file():
        pytest.skip("needs the official servers: npm ci in tests/apps/preview")
    tools = str(REPOSITORY / ".tools" / "bin")
    node = shutil.which("node", path=os.pathsep.join((tools, os.environ.get("PATH", ""))))
    assert node is not None
    return CommandTarget((node, str(entry), "--stdio"), name=name)


async def opened(stage: Stage) -> tuple[Any, Frame]:
    """Its app, for a call without arguments, once it is live."""
    tools = (await stage.request("tools/list"))["tools"]
    tool = next(tool for tool in tools if tool["app"] and "model" in tool["visibility"])
    assert tool["problems"] == []
    info, guest = await stage.show(await stage.call(tool["name"]))
    await stage.until_event(info["viewId"], "live")
    return info, guest


async def faultless(stage: Stage, view_id: str) -> None:
    """Nothing was blocked but the one look of its schema library whether it may compile code."""
    assert {one["blockedUri"] for one in await stage.events(view_id, "violation")} <= {"eval"}
    # The debug app sends its log by calls of a tool: on a busy machine it has more of them open than a View may have.
    refused = [one for one in await stage.events(view_id, "finding") if one["refused"]]
    assert {one["rule"] for one in refused} <= {"limit"}, refused
    assert not stage.page.errors


@pytest.mark.parametrize(
    ("name", "button"),
    [("basic-vanillajs", "#get-time-btn"), ("basic-react", "main button"), ("budget-allocator", ""), ("debug", "")],
)
async def test_an_official_server_is_shown(chromium: Chromium, name: str, button: str) -> None:
    """APP-X-01 to -08: handshake, input and result in the official class, a call of its own, and its end."""
    async with staged(chromium, target(name)) as stage:
        info, guest = await opened(stage)
        view = info["viewId"]
        assert info["profile"] == "strict"
        if name == "budget-allocator":
            await guest.until("document.body.innerText.includes('Marketing')")
        elif name == "debug":
            await guest.until("document.body.innerText.includes('ontoolresult')")
            await guest.click("#call-debug-refresh-btn")
            await guest.click("#send-message-text-btn")
            await guest.click("#update-context-structured-btn")
            await guest.click("#log-warning-btn")
            await stage.until_event(view, "logged")
            await stage.bare.until("bare.asked.some(({kind}) => kind === 'message')")
            await guest.click("#display-fullscreen-btn")
            await stage.bare.until("bare.asked.some(({kind}) => kind === 'displayMode')")
        else:
            await guest.until("/20\\d\\d-\\d\\d/.test(document.body.innerText)")
            await guest.call("(at) => [...document.querySelectorAll(at)][0].click()", button)

        if name != "budget-allocator":
            await stage.bare.until(_ANSWERED)
        await faultless(stage, view)
        assert (await stage.request("view/close", viewId=view))["clean"] is True


# The View's own tools/call has come back to it.
_ANSWERED = """bare.told.some(({ method, params }) => method === 'view/message' && params.message.result
  && Array.isArray(params.message.result.content))"""


async def test_the_page_shows_them_all(chromium: Chromium) -> None:
    """In the page that users have: found among the tools, called by its button, live in its frame."""
    in_page = "[...document.querySelectorAll('[data-key^=tool]')].find((row) => row.innerText.includes('app'))"
    shown = {"basic-vanillajs": "Server Time", "basic-react": "Server Time", "budget-allocator": "Marketing",
             "debug": "ontoolresult"}  # fmt: skip
    for name, text in shown.items():
        async with opened_page(chromium, target(name)) as stage:
            await stage.pick(await stage.until(f"{in_page}?.dataset.key"))
            await stage.press("Call")
            await stage.until("document.querySelector('.view')?.dataset.state === 'live'")
            guest = await stage.guest()
            await guest.until(f"document.body.innerText.includes('{text}')")
            assert await stage.main.evaluate("document.querySelector('.view h3').textContent !== ''")
            assert not stage.page.errors
