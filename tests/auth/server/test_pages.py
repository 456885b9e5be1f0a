"""The login's pages in a real browser: by keyboard alone, in light and dark, on a narrow screen.

Browsers know rules that no page states: Chromium holds every redirect behind a form to the policy of the form's page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support.browser import Chromium, Frame, Page, chromium
from support.login_stage import PASSWORD, Login, Now, Stage, stage, users_file
from support.oidc_provider import free_port, provider

from mcpd.auth.server.settings import read

__all__ = ["chromium"]

pytestmark = pytest.mark.slow

SETTINGS = """
[sign-in.users]
file = "users.toml"

[sign-in.company]
issuer = "{issuer}"
client-id = "garden"
client-secret-file = "secret.txt"
allow = ["ada"]
label = "the company's sign-in"

[scopes]
"garden.read" = "Look at the beds, and at all that grows in them"
"""

# Texts of less than 4.5:1, borders of less than 3:1, what is beyond the edge, what is smaller than 24 pixels or has no
# name, what shows no focus.
LOOKS = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    throw new Error("nothing is behind it");
  };
  const linear = (one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const wrong = [];
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    if (!text.data.trim()) continue;
    texts += 1;
    const got = ratio(rgb(getComputedStyle(text.parentElement).color), behind(text.parentElement));
    if (got < 4.5) wrong.push(`${text.data.slice(0, 40)}: ${got.toFixed(2)}`);
  }
  const controls = [...document.querySelectorAll("input:not([type=hidden]), button, a")];
  for (const control of controls) {
    const name = control.labels?.[0]?.textContent.trim() || control.textContent.trim();
    if (!name) wrong.push(`${control.outerHTML}: no name`);
    const box = control.getBoundingClientRect();
    const isSmall = box.height < 24 || box.width < 24;
    if (control.tagName !== "A" && isSmall) wrong.push(`${name}: ${box.width} x ${box.height}`);
    const edge = ratio(rgb(getComputedStyle(control).borderTopColor), behind(control.parentElement));
    if (control.tagName !== "A" && edge < 3) wrong.push(`border of ${name}: ${edge.toFixed(2)}`);
    control.focus({ focusVisible: true });
    const ring = getComputedStyle(control);
    const seen = ratio(rgb(ring.outlineColor), behind(control.parentElement));
    if (ring.outlineStyle === "none" || parseFloat(ring.outlineWidth) < 2 || seen < 3) wrong.push(`focus of ${name}`);
  }
  for (const node of document.body.querySelectorAll("*")) {
    const { left, right, width } = node.getBoundingClientRect();
    if (width && (right > innerWidth + 1 || left < -1)) wrong.push(`${node.tagName} is too wide`);
  }
  if (document.scrollingElement.scrollWidth > innerWidth) wrong.push("the page is too wide");
  if (document.documentElement.lang !== "en" || !document.title) wrong.push("no language or title");
  if (document.querySelectorAll("main > h1").length !== 1) wrong.push("outline");
  return { wrong, texts, controls: controls.length, paper: light(behind(document.body)) };
}"""


class Site:
    """A login server, and a program that waits for its user to come back, whom it sends on to another origin."""

    def __init__(self, here: Stage, program: int) -> None:
        self.here = here
        self.callback = f"http://localhost:{program}/callback"
        self.there = f"http://on.localhost:{program}/there"

    async def login(self, **changes: str | None) -> str:
        """The page that a client sends its user to."""
        client = (await self.here.register(redirect_uris=[self.callback]))["client_id"]
        said = {"redirect_uri": self.callback, "scope": "garden.read tools.use", **changes}
        return f"{self.here.issuer}/oauth/authorize?{urlencode(Login(self.here, client, **said).asked)}"


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    """Where users of a file log in, and those of a certified provider of others."""
    users_file(folder)
    (folder / "secret.txt").write_text("s" * 32, encoding="utf-8")
    (folder / "secret.txt").chmod(0o600)
    home = free_port()
    (folder / "auth.toml").write_text(SETTINGS.format(issuer=f"http://127.0.0.1:{home}"), encoding="utf-8")
    now = Now()
    now.time = time.time()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
        body = b"<title>There</title>You are back."
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/html"
        if path.startswith(b"/callback?"):
            head, body = f"HTTP/1.1 302 Found\r\nLocation: {there.there}", b""
        writer.write(f"{head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    program = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with program, stage(read(str(folder / "auth.toml")), now=now) as here:
        there = Site(here, program.sockets[0].getsockname()[1])
        known = {
            "client_id": "garden", "client_secret": "s" * 32, "id_token_signed_response_alg": "ES256",
            "redirect_uris": [f"{here.issuer}/oauth/sign-in/company/callback"],
        }  # fmt: skip
        with provider("http://127.0.0.1:1/api", ["email"], port=home, clients=[known]):
            yield there


async def shown(page: Page, part: str, title: str) -> Frame:
    """The page whose address has this part, when it is there."""
    frame = await page.frame(part)
    await frame.until(f"document.readyState === 'complete' && document.title.startsWith({title!r})")
    return frame


async def write(page: Page, text: str) -> None:
    """Type it."""
    for one in text:
        await page.press(one, ord(one.upper()), text=one)


async def tab(page: Page) -> str:
    """Go to the next control: its name."""
    await page.press("Tab", 9)
    return str(
        await page.main.evaluate(
            "document.activeElement.labels?.[0]?.textContent ?? document.activeElement.textContent.trim()"
        )
    )


async def enter(page: Page) -> None:
    """Press the button, or send the form."""
    await page.press("Enter", 13, text="\r")


async def test_a_whole_login_by_keyboard(chromium: Chromium, tmp_path: Path) -> None:
    """AUTH-136 … AUTH-139: a wrong password first; the program sends its user on; nothing is blocked."""
    async with site(tmp_path) as there, chromium.page() as page:
        await page.goto(await there.login())
        order = [await tab(page) for _ in range(5)]
        assert order == ["Name", "Password", "Sign in", "Allow and continue with the company's sign-in", "Deny"]
        for _ in range(4):
            await page.press("Tab", 9, shift=True)
        await write(page, "ana")
        assert await tab(page) == "Password"
        await write(page, "wrong")
        await enter(page)

        refused = await shown(page, "/oauth/sign-in", "Log in")
        assert await refused.text("[role=alert]") == "The name or the password is wrong."
        assert await tab(page) == "Name"
        await write(page, "ana")
        await tab(page)
        await write(page, PASSWORD)
        await enter(page)

        question = await shown(page, "/oauth/consent", "Let A client use")
        assert "Look at the beds" in await question.text("main")
        assert await tab(page) == "Allow"
        asked = question.url
        await enter(page)
        await shown(page, there.there, "There")

        # The way back leads to a question that was answered, and to no second code.
        assert "cannot continue" in await (await page.goto(asked)).text("h1")
        assert page.violations == []
        assert [line for line in page.console if "status of 403" not in line and "status of 400" not in line] == []


async def test_a_login_at_the_company(chromium: Chromium, tmp_path: Path) -> None:
    """AUTH-141, AUTH-142: by a provider, which sends its user straight back; then the question, and the answer."""
    async with site(tmp_path) as there, chromium.page() as page:
        for choice in ("Allow", "Deny"):
            await page.goto(await there.login())
            await page.main.click("form[action$=company] button")
            question = await shown(page, "/oauth/consent", "Let A client use")
            assert "ada" in await question.text("dl")
            await question.click(f"button[value={choice.lower()}]")
            await shown(page, there.there, "There")
        assert page.violations == []
        assert page.console == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_how_the_pages_look(scheme: str, chromium: Chromium, tmp_path: Path) -> None:
    """Contrast, names, focus and size of all that is on each page, on a screen of 400 pixels."""
    async with site(tmp_path) as there, chromium.page(width=400, height=800, scheme=scheme) as page:

        async def look(controls: int) -> None:
            found = await page.main.call(LOOKS)
            assert found["wrong"] == [], page.main.url
            assert found["texts"] >= 2
            assert found["controls"] == controls
            assert (found["paper"] > 0.5) == (scheme == "light")

        await page.goto(await there.login())
        await look(5)
        await page.main.call("() => { user.value = 'ana'; password.value = 'wrong'; user.form.requestSubmit(); }")
        await shown(page, "/oauth/sign-in", "Log in")
        await look(5)
        await page.main.call(
            "(secret) => { user.value = 'ana'; password.value = secret; user.form.requestSubmit(); }", PASSWORD
        )
        await shown(page, "/oauth/consent", "Let")
        await look(2)
        await page.goto(f"{there.here.issuer}/oauth/authorize?client_id=nobody")
        await look(0)
        assert page.violations == []


async def test_no_other_page_frames_them(chromium: Chromium, tmp_path: Path) -> None:
    """AUTH-138 (H31): a browser shows nothing of them there."""
    async with site(tmp_path) as there, chromium.page() as page:
        await page.goto(there.there)
        url = await there.login()
        await page.main.call(
            """async (url) => {
              const frame = document.body.appendChild(document.createElement("iframe"));
              const loaded = new Promise((done) => { frame.onload = done; });
              frame.src = url;
              await loaded;
            }""",
            url,
        )
        assert any("frame-ancestors" in line or "X-Frame-Options" in line for line in page.console), page.console
