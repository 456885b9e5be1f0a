"""The browser driver itself: what it reports is what other tests rely on when they find nothing to report."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browser import BrowserError, Chromium, Violation
from support.pages import Pages

STRICT = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-src *"


async def test_speaks_to_frames_of_other_origins(chromium: Chromium, pages: Pages) -> None:
    pages.put("/outer", f"<iframe src='{pages.url('/inner', 'other')}'></iframe>")
    pages.put(
        "/inner", "<p id=here>within</p><script>addEventListener('message', (e) => { window.got = e.data })</script>"
    )
    async with chromium.page() as page:
        outer = await page.goto(pages.url("/outer"))
        inner = await page.frame("/inner")
        assert await inner.evaluate("origin") == pages.url("", "other")
        assert await outer.evaluate("origin") == pages.url("")
        assert await inner.text("#here") == "within"
        await outer.evaluate("frames[0].postMessage({ a: [1] }, '*')")
        assert await inner.until("window.got") == {"a": [1]}


async def test_is_not_misled_by_a_process_that_is_behind(chromium: Chromium, pages: Pages) -> None:
    """The page looks into its frame so late that the frame's document is in another process by then."""
    slow = """<body><script>
      const frame = document.createElement("iframe");
      frame.src = "INNER";
      document.body.append(frame);
      for (const end = performance.now() + 1500; performance.now() < end;);
      window.inner = frame.contentWindow;
    </script>""".replace("INNER", pages.url("/inner", "other"))
    pages.put("/outer", slow)
    pages.put("/inner", "<p id=here>within</p>")
    async with chromium.page() as page:
        await page.goto(pages.url("/outer"))
        inner = await page.frame("/inner", seconds=10)
        assert await inner.text("#here") == "within"
        assert sorted(frame.url for frame in page.frames.values()) == [
            pages.url("/inner", "other"),
            pages.url("/outer"),
        ]


async def test_reports_console_errors_and_policy_violations(chromium: Chromium, pages: Pages) -> None:
    pages.put("/outer", f"<iframe sandbox='allow-scripts' src='{pages.url('/bad', 'other')}'></iframe>")
    body = """<img src='/no.png'><script>
      console.warn('well', 1);
      try { eval('1') } catch (error) { window.caught = error.name }
      setTimeout(() => { throw new Error('thrown') })
    </script>"""
    pages.put("/bad", body, content_security_policy=STRICT)
    async with chromium.page() as page:
        await page.goto(pages.url("/outer"))
        inner = await page.frame("/bad")
        assert await inner.evaluate("window.caught") == "EvalError"
        assert await inner.evaluate("new Promise((done) => setTimeout(done, 50, origin))") == "null"
        assert Violation("img-src", pages.url("/no.png", "other")) in page.violations
        assert any(one.blocked == "kEvalViolation" for one in page.violations)
        assert "warning: well 1" in page.console
        assert any("Content Security Policy" in line for line in page.console)
        assert any("Error: thrown" in line for line in page.errors)


async def test_runs_a_script_before_the_documents_own(chromium: Chromium, pages: Pages) -> None:
    pages.put(
        "/outer", f"<script>window.seen = window.early</script><iframe src='{pages.url('/inner', 'other')}'></iframe>"
    )
    pages.put("/inner", "<script>window.seen = window.early</script>")
    async with chromium.page(script="window.early = 7") as page:
        assert await (await page.goto(pages.url("/outer"))).evaluate("window.seen") == 7
        assert await (await page.frame("/inner")).until("window.seen") == 7


async def test_looks_as_asked_and_takes_pictures(chromium: Chromium, pages: Pages, tmp_path: Path) -> None:
    pages.put("/", "<p>light or dark</p>")
    async with chromium.page(width=321, height=200, scheme="dark") as page:
        frame = await page.goto(pages.url("/"))
        assert await frame.evaluate(
            "[innerWidth, innerHeight, matchMedia('(prefers-color-scheme: dark)').matches]"
        ) == [
            321,
            200,
            True,
        ]
        await page.prefer("light")
        assert await frame.evaluate("matchMedia('(prefers-color-scheme: light)').matches")
        await page.screenshot(tmp_path / "one.png")
        assert (tmp_path / "one.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


async def test_says_what_did_not_happen(chromium: Chromium, pages: Pages) -> None:
    pages.put("/", "<button disabled>no</button>")
    async with chromium.page() as page:
        frame = await page.goto(pages.url("/"))
        with pytest.raises(BrowserError, match=r"not so after 0.05 s \(it is 0\): 1 - 1"):
            await frame.until("1 - 1", seconds=0.05)
        with pytest.raises(BrowserError, match="disabled"):
            await frame.click("button", seconds=0.05)
        with pytest.raises(BrowserError, match="0 elements"):
            await frame.click("a", seconds=0.05)
        with pytest.raises(BrowserError, match="no frame with '/elsewhere'"):
            await page.frame("/elsewhere", seconds=0.05)
        with pytest.raises(BrowserError, match="ReferenceError"):
            await frame.evaluate("nowhere")
