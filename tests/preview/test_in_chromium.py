"""The preview's backend in a real Chromium, behind a page that does the least (tests/preview/page)."""

from __future__ import annotations

from support.browser import Chromium
from support.preview_stage import staged

from mcpd.sources.starter import make_server


async def test_the_bundled_app_is_shown_through_proxy_and_guest(chromium: Chromium) -> None:
    """APP-X-01 to -06, APP-X-08: the diagnostics app, three origins, and every line of its check list that can pass."""
    async with staged(chromium, make_server()) as stage:
        listed = await stage.request("tools/list")
        (tool,) = [one for one in listed["tools"] if one["name"] == "apps_diagnostics"]
        assert tool["app"].startswith("ui://mcpd/apps_diagnostics")
        info, guest = await stage.show(await stage.call("apps_diagnostics", {"note": "hello"}))
        assert (await stage.until_event(info["viewId"], "live"))["again"] is False
        assert await guest.evaluate("location.origin") == guest.url.rpartition("/")[0]
        await guest.until("document.documentElement.dataset.verdict === 'pass'")
        assert (await stage.request("view/close", viewId=info["viewId"]))["clean"] is True
        assert not stage.page.errors
        assert not stage.page.violations
