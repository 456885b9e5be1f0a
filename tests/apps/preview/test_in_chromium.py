"""The preview's backend in a real Chromium, behind a page that does the least (tests/apps/preview/page)."""

from __future__ import annotations

from support.browser import Chromium
from support.preview_stage import Stage, previewing, staged

from mcpd.sources.demo import make_server


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


async def test_where_the_names_are_not_found(chromium: Chromium) -> None:
    """APP-X-01: the page on `localhost`, its sandbox at 127.0.0.1, and Views without an origin, which still work."""
    async with previewing(make_server()) as preview, chromium.page(width=900, height=800) as page:
        bare = await page.goto(preview.plain_url)
        await bare.until("bare.hello")
        stage = Stage(preview, page, bare)
        assert await bare.evaluate("[bare.hello.profile, bare.hello.profiles]") == ["opaque", ["opaque"]]
        assert (await stage.attempt("profile/set", profile="strict"))["error"]["code"] == -32602
        info, guest = await stage.show(await stage.call("apps_diagnostics"))
        assert info["proxyOrigin"] == f"http://127.0.0.1:{preview.origins.sandbox_port}"
        await stage.until_event(info["viewId"], "live")
        assert await guest.evaluate("self.origin") == "null"
        await guest.until("document.documentElement.dataset.verdict === 'pass'")


async def test_cookies_are_none(chromium: Chromium) -> None:
    async with staged(chromium, make_server()) as stage:
        _, guest = await stage.show(await stage.call("apps_diagnostics"))
        await guest.call("() => { document.cookie = 'x=1; domain=mcpd.localhost'; }")
        assert await guest.evaluate("[document.cookie, typeof cookieStore]") == ["", "undefined"]
