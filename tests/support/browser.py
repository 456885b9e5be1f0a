"""A real Chromium for tests, driven over the Chrome DevTools Protocol with the `websockets` we depend on anyway.

Lives here: starting and ending one headless browser, opening pages in private contexts, reading and steering their
frames (same process or not), the console, policy violations, screenshots, keys. Never here: a page or a server of
ours; `pages.py` serves what a test needs. A conftest takes the fixture: `from support.browser import chromium`.
Protocol: chromedevtools.github.io/devtools-protocol.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

__all__ = ["BrowserError", "Chromium", "Frame", "Page", "Violation", "chromium", "find_chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # the machine of CI runs as root, where Chromium has no sandbox of its own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1",  # at once
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--password-store=basic",
    "--remote-debugging-port=0",
    "--site-per-process",  # each origin in a process of its own, on every machine
)
START_SECONDS = 60.0
KEPT_EVENTS = 80
COMMAND_SECONDS = 80.0  # longer than what is waited for in a page, which says what it is instead


class BrowserError(AssertionError):
    """The browser refused a command, a script threw, or something awaited did not come."""


def find_chromium() -> str | None:
    """The path of a Chromium: `MCPD_TEST_CHROMIUM`, else the first of the usual names on PATH."""
    named = os.environ.get("MCPD_TEST_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """One browser for all tests of a worker; `async with chromium.page() as page` gives each its own context."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("needs Chromium: apt-get install chromium, or name one in MCPD_TEST_CHROMIUM")
    browser = Chromium(executable)
    try:
        yield browser
    finally:
        browser.close()


class Chromium:
    """A headless Chromium process with an empty profile."""

    def __init__(self, executable: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="mcpd-chromium-")
        self._errors = Path(self._profile, "stderr.txt")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [executable, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # so that what it starts can be ended with it, and with nothing else
            )
        try:
            self.endpoint = self._await_endpoint()
        except BaseException:
            self.close()
            raise

    def _await_endpoint(self) -> str:
        told = Path(self._profile, "DevToolsActivePort")
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError):
                port, path = told.read_text().split()
                return f"ws://127.0.0.1:{port}{path}"
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        said = self._errors.read_text(errors="replace")[-2000:]
        raise BrowserError(f"Chromium did not open its debugging port (exit code {self._process.poll()}):\n{said}")

    def close(self) -> None:
        """End the browser and all it started, and remove its profile."""
        group = self._process.pid  # it leads a session of its own
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        shutil.rmtree(self._profile, ignore_errors=True)

    @contextlib.asynccontextmanager
    async def page(
        self, *, width: int = 800, height: int = 600, scheme: str = "light", script: str = ""
    ) -> AsyncIterator[Page]:
        """Open an empty page in a private context; `script` runs first in every document of every frame."""
        async with connect(self.endpoint, max_size=None, proxy=None, compression=None) as socket:
            wire = _Wire(socket)
            reader = asyncio.create_task(wire.read())
            try:
                context = (await wire.send("Target.createBrowserContext", disposeOnDetach=True))["browserContextId"]
                target = await wire.send("Target.createTarget", url="about:blank", browserContextId=context)
                page = Page(wire, target["targetId"], width, height, scheme, script)
                await page.attach()
                yield page
                await wire.send("Target.disposeBrowserContext", browserContextId=context)
            finally:
                reader.cancel()
                wire.end(
                    EOFError("the page is closed")
                )  # a frame that went while it was being attached to never answers
                await asyncio.gather(reader, *wire.tasks, return_exceptions=True)


def _short(session: str | None) -> str:
    return (session or "browser")[:7]


class _Wire:
    """Commands and events of one DevTools connection; sessions of pages and frames share it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last = 0
        self._ended: BaseException | None = None
        self._heard: deque[str] = deque(maxlen=KEPT_EVENTS)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.on_event: Callable[[str | None, str, dict[str, Any]], None] = lambda *_: None
        self.tasks: set[asyncio.Task[None]] = set()

    def history(self) -> str:
        """The last things that were asked and heard, for the message of who waited in vain."""
        return "\n  ".join(["", *self._heard])

    async def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask the browser something. Commands are written in the order of their calls, whoever awaits them."""
        if self._ended is not None:
            raise BrowserError(f"{method}: the browser is not heard any more: {self._ended!r}")
        self._last += 1
        number = self._last
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._heard.append(f"> {_short(session)} {method} {str(params)[:100]}")
        try:
            await self._socket.send(json.dumps(message))
            async with asyncio.timeout(COMMAND_SECONDS):
                return await answer
        except TimeoutError as error:
            raise BrowserError(f"{method}: no answer in {COMMAND_SECONDS:g} s{self.history()}") from error
        finally:
            self._waiting.pop(number, None)

    async def read(self) -> None:
        """Take what the browser says until it says no more; what breaks this is told to all who wait."""
        try:
            async for frame in self._socket:
                self._take(json.loads(frame))
            self.end(EOFError("it closed the connection"))
        except Exception as error:
            self.end(error)

    def end(self, reason: BaseException) -> None:
        """Nothing is heard any more: who waits is told, and who asks."""
        self._ended = reason
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(BrowserError(f"the browser is not heard any more: {self._ended!r}"))

    def _take(self, message: dict[str, Any]) -> None:
        session = message.get("sessionId")
        if "id" not in message:
            self._heard.append(f"* {_short(session)} {message['method']} {str(message['params'])[:300]}")
            self.on_event(session, message["method"], message["params"])
        elif (answer := self._waiting.get(message["id"])) and not answer.done():
            if "error" in message:
                self._heard.append(f"! {_short(session)} {message['error']['message']}")
                answer.set_exception(BrowserError(message["error"]["message"]))
            else:
                answer.set_result(message["result"])

    def later(self, task: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside the reader; a session that is gone by then is no failure."""

        async def guarded() -> None:
            with contextlib.suppress(BrowserError, ConnectionClosed):
                await task

        running = asyncio.create_task(guarded())
        self.tasks.add(running)
        running.add_done_callback(self.tasks.discard)


@dataclass(frozen=True)
class Violation:
    """One thing that a content security policy blocked."""

    directive: str
    blocked: str


@dataclass
class Frame:
    """One frame of a page, the top one or any inside, wherever its process is."""

    wire: _Wire
    id: str
    session: str
    url: str = ""
    context: int | None = None

    async def call(self, function: str, *arguments: Any) -> Any:
        """Call a JavaScript function with JSON arguments; a promise is awaited, the result comes as JSON."""
        if self.context is None:
            raise BrowserError(f"the frame {self.url!r} has no document to run in")
        told = await self.wire.send(
            "Runtime.callFunctionOn",
            self.session,
            functionDeclaration=function,
            executionContextId=self.context,
            arguments=[{"value": argument} for argument in arguments],
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if failed := told.get("exceptionDetails"):
            thrown = failed.get("exception", {}).get("description") or failed["text"]
            raise BrowserError(f"{thrown}\n  in {function}")
        return told["result"].get("value")

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        return await self.call(f"() => ({expression})")

    async def until(self, expression: str, *, seconds: float = 60.0) -> Any:
        """Await the moment the expression is truthy, and give its value; what it throws counts as not yet."""
        wait = f"""async (limit) => {{
          const look = () => ({expression});
          for (const end = performance.now() + limit; ;) {{
            let last;
            try {{ last = look(); if (last) return {{ value: last }}; }} catch (error) {{ last = error; }}
            if (performance.now() > end) return {{ last: String(last) }};
            await new Promise((resume) => setTimeout(resume, 10));
          }}
        }}"""
        told = await self.call(wait, seconds * 1000)
        if "value" not in told:
            raise BrowserError(f"not so after {seconds:g} s (it is {told['last']}): {expression}")
        return told["value"]

    async def click(self, selector: str, *, seconds: float = 60.0) -> None:
        """Click the one element, as soon as it is there, shown and not disabled."""
        press = """async (selector, limit) => {
          for (const end = performance.now() + limit; ;) {
            const all = document.querySelectorAll(selector);
            const why = all.length !== 1 ? `${all.length} elements` : all[0].disabled ? "disabled"
              : all[0].checkVisibility() ? "" : "hidden";
            if (!why) {
              all[0].scrollIntoView({ block: "center" });
              all[0].click();
            }
            if (!why || performance.now() > end) return why;
            await new Promise((resume) => setTimeout(resume, 10));
          }
        }"""
        if why := await self.call(press, selector, seconds * 1000):
            raise BrowserError(f"cannot click {selector}: {why}")

    async def text(self, selector: str) -> str:
        """The text of the first element that fits."""
        value = await self.call("(selector) => document.querySelector(selector)?.textContent ?? null", selector)
        if value is None:
            raise BrowserError(f"no element {selector} in {self.url}")
        return str(value)


@dataclass
class Page:
    """A page in its own browser context, with everything its frames said and were refused."""

    wire: _Wire
    target: str
    width: int
    height: int
    scheme: str
    script: str
    session: str = ""
    has_forced_colors: bool = False
    frames: dict[tuple[str, str], Frame] = field(default_factory=dict)
    """By session and number. While a frame moves to another process, both have it, and each tells of its own document:
    what the old process says may arrive after what the new one says, and is not about the same thing."""
    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def attach(self) -> None:
        """Take hold of the target and make it look like the screen that was asked for."""
        self.wire.on_event = self._on_event
        told = await self.wire.send("Target.attachToTarget", targetId=self.target, flatten=True)
        self.session = told["sessionId"]
        await self._prepare(self.session)
        await self.resize(self.width, self.height)
        await self.wire.send("Emulation.setFocusEmulationEnabled", self.session, enabled=True)

    async def _prepare(self, session: str) -> None:
        """Hear of all that happens in one process of the page, and then of what it has already."""
        send = self.wire.send
        commands = [send(f"{domain}.enable", session) for domain in ("Page", "Runtime", "Log", "Audits")]
        # What is attached from now on waits until it was prepared too: nothing that its document does is missed.
        commands.append(
            send("Target.setAutoAttach", session, autoAttach=True, waitForDebuggerOnStart=True, flatten=True)
        )
        if self.script:
            commands.append(send("Page.addScriptToEvaluateOnNewDocument", session, source=self.script))
        commands.append(self._media(session))
        commands.append(send("Page.getFrameTree", session))
        *_, told = await asyncio.gather(*commands)
        self._learn(session, told["frameTree"])

    async def _adopt(self, session: str) -> None:
        try:
            await self._prepare(session)
        finally:
            await self.wire.send("Runtime.runIfWaitingForDebugger", session)

    async def _media(self, session: str) -> dict[str, Any]:
        features = [{"name": "prefers-color-scheme", "value": self.scheme}]
        if self.has_forced_colors:
            features.append({"name": "forced-colors", "value": "active"})
        return await self.wire.send("Emulation.setEmulatedMedia", session, features=features)

    def _learn(self, session: str, tree: dict[str, Any]) -> None:
        frame = self._frame(session, tree["frame"]["id"])
        # A navigation that was reported since the tree was drawn knows better.
        frame.url = frame.url or tree["frame"]["url"]
        for child in tree.get("childFrames", ()):
            self._learn(session, child)

    def _frame(self, session: str, number: str) -> Frame:
        frame = self.frames.get((session, number))
        if frame is None:
            frame = self.frames[session, number] = Frame(self.wire, number, session)
        return frame

    def _on_event(self, session: str | None, method: str, params: dict[str, Any]) -> None:
        if session is None:
            return
        if method == "Target.attachedToTarget":
            self.wire.later(self._adopt(params["sessionId"]))
        elif method == "Target.detachedFromTarget":
            self.frames = {key: frame for key, frame in self.frames.items() if frame.session != params["sessionId"]}
        elif method == "Page.frameNavigated":
            self._frame(session, params["frame"]["id"]).url = params["frame"]["url"]
        elif method == "Page.frameDetached":
            # Removed, or swapped: what is there instead is told by the session of its new process.
            self.frames.pop((session, params["frameId"]), None)
        elif method == "Runtime.executionContextCreated":
            about = params["context"].get("auxData", {})
            if about.get("isDefault") and "frameId" in about:  # a worker has none
                self._frame(session, about["frameId"]).context = params["context"]["id"]
        elif method == "Runtime.executionContextDestroyed":
            for frame in self.frames.values():
                if frame.session == session and frame.context == params["executionContextId"]:
                    frame.context = None
        elif method == "Runtime.executionContextsCleared":
            for frame in self.frames.values():
                if frame.session == session:
                    frame.context = None
        else:
            self._on_report(method, params)
            return
        self._changed.set()

    def _on_report(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled":
            words = [str(one.get("value", one.get("description", one["type"]))) for one in params["args"]]
            self.console.append(f"{params['type']}: {' '.join(words)}")
        elif method == "Runtime.exceptionThrown":
            about = params["exceptionDetails"]
            self.errors.append(about.get("exception", {}).get("description") or about["text"])
        elif method == "Log.entryAdded":
            entry = params["entry"]
            self.console.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}".rstrip())
        elif method == "Audits.issueAdded":
            about = params["issue"]["details"].get("contentSecurityPolicyIssueDetails")
            if about:
                blocked = about.get("blockedURL") or about["contentSecurityPolicyViolationType"]
                self.violations.append(Violation(about["violatedDirective"], blocked))

    @property
    def main(self) -> Frame:
        """The page's own frame."""
        return self.frames[self.session, self.target]

    async def frame(self, part: str, *, known: Collection[str] = (), seconds: float = 60.0) -> Frame:
        """Await a frame with a document whose URL contains `part` and is not among the `known` ones."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self._changed.clear()
                    for frame in self.frames.values():
                        if part in frame.url and frame.url not in known and frame.context is not None:
                            return frame
                    await self._changed.wait()
        there = [(frame.url, frame.context) for frame in self.frames.values()]
        raise BrowserError(f"no frame with {part!r} among {there}{self.wire.history()}")

    async def goto(self, url: str) -> Frame:
        """Load a page and await its load event."""
        told = await self.wire.send("Page.navigate", self.session, url=url)
        if failed := told.get("errorText"):
            raise BrowserError(f"cannot open {url}: {failed}")
        frame = await self.frame(url.partition("#")[0])
        await frame.until("document.readyState === 'complete'")
        return frame

    async def resize(self, width: int, height: int) -> None:
        """Give the page a viewport of this size."""
        self.width, self.height = width, height
        await self.wire.send(
            "Emulation.setDeviceMetricsOverride",
            self.session,
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def prefer(self, scheme: str, *, forced_colors: bool = False) -> None:
        """Let the user's preference be `light` or `dark`, in every frame; the system's few colours, if forced."""
        self.scheme, self.has_forced_colors = scheme, forced_colors
        for session in {frame.session for frame in self.frames.values()}:
            await self._media(session)

    async def press(self, key: str, code: int, *, text: str = "", shift: bool = False, ctrl: bool = False) -> None:
        """Press and release one key where the focus is; `code` is its Windows virtual key code."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 * shift | 2 * ctrl}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        await self.wire.send("Input.dispatchKeyEvent", self.session, **down, **about)
        await self.wire.send("Input.dispatchKeyEvent", self.session, type="keyUp", **about)

    async def screenshot(self, path: Path) -> None:
        """Write what the viewport shows as PNG."""
        told = await self.wire.send("Page.captureScreenshot", self.session, format="png")
        path.write_bytes(base64.b64decode(told["data"]))
