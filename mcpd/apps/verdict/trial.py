"""One showing of a View in the browser: it records the behaviour of the View, and sends it requests of its own.

All messages between the state machine of the host and the frame pass through a `Trial`. It can therefore send requests
that the host would not send, and hide their answers from the state machine.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count, groupby
from typing import TYPE_CHECKING, Any, Final

from mcpd.apps.host.document import OUTER_TOKENS
from mcpd.apps.host.host import Host
from mcpd.apps.host.shown_view import ShownView
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view.context import HostContext
from mcpd.apps.host.view.events import Event, Failed, SizeChanged
from mcpd.apps.host.view.messages import INITIALIZED, PROXY_READY, TOOL_INPUT, TOOL_RESULT
from mcpd.apps.preview.messages import Quirks
from mcpd.apps.preview.views import GUEST_GONE, OPENAI, RESERVED, treatment
from mcpd.apps.preview.violations import Violation, explain_stopped, read_report
from mcpd.errors import ConfigurationError
from .browser import AppBrowser, read_asset

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, FloatRect, Page, Request, Response

UNRESPONSIVE_SECONDS: Final = 20.0
"""A page that does not answer for this long is closed."""

_ID_PREFIX: Final = "mcpd-apps-test-"
_QUIET_SECONDS: Final = 0.25
_MAX_HEIGHT: Final = 4000
_MAX_MESSAGES: Final = 20_000
_MAX_ERRORS: Final = 500
_NOT_NETWORK: Final = ("net::ERR_ABORTED", "net::ERR_BLOCKED_BY_CSP", "net::ERR_BLOCKED_BY_CLIENT", "csp")
_POLICY_WORDS: Final = ("Content Security Policy", "Content-Security-Policy", "violates the following")
# Types of requests whose error status the script that made them sees.
_ANSWERED_TYPES: Final = ("fetch", "xhr", "ping", "cspviolationreport")

# The address of a View, which is random.
_ADDRESS: Final = re.compile(r"(blob:)?http://[\w-]+\.mcpd\.localhost:\d+(/guest|/[\da-f-]{36})?")


def without_address(text: str) -> str:
    """Replace the address of the View in a text by "the app"."""
    return _ADDRESS.sub("the app", text)


class Trial:
    def __init__(self, browser: AppBrowser, page: Page, view: ShownView, guest_url: str) -> None:
        self.view = view
        self.page = page
        self.events: list[tuple[float, Event]] = []
        """The events of the View, each with the seconds since the start."""
        self.messages: list[tuple[float, bool, Any]] = []
        """All messages: seconds since the start, whether the View sent it, and the message."""
        self.violations: list[Violation] = []
        self.exceptions: list[str] = []
        """Exceptions that the View did not catch."""
        self.console_errors: list[str] = []
        self.own_policy_refusal = ""
        """The browser's message about the first thing that a policy refused, which may be one of the app's own."""
        self.unloaded: dict[str, tuple[str, str]] = {}
        """Allowed addresses that the network did not deliver: the reason and the type of the resource."""
        self.stopped: list[dict[str, Any]] = []
        """Actions that the sandbox stopped without an error, as `explain_stopped` describes it."""
        self.shown_refusal = ""
        """The browser's message about refused code, if the View shows it to the user."""
        self.is_hidden = False
        self.withheld: tuple[str, ...] = ()
        """Methods of messages that do not reach the View."""
        self.is_unresponsive = False
        self.follows_size = True
        """Whether the frame gets the height that the View requests."""
        self._guest_url = guest_url
        self._started = time.monotonic()
        self._ids = count(1)
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._outgoing: list[Any] = []
        self._wake = asyncio.Event()
        browser.listeners[view.id] = self._on_event
        self._page_listeners: dict[Any, Callable[[Any], None]] = {
            "pageerror": lambda error: self._add_error(self.exceptions, _brief(error.stack or error.message)),
            "console": self._on_console,
            "requestfailed": lambda request: self._on_unloaded(request, request.failure or ""),
            "response": self._on_response,
        }
        for name, listener in self._page_listeners.items():
            page.on(name, listener)

    def leave_page(self) -> None:
        # The page is reused for the next trial.
        for name, listener in self._page_listeners.items():
            self.page.remove_listener(name, listener)

    # -------------------------------------------------------------------------------------- state

    async def is_live(self, seconds: float) -> bool:
        """Wait until the handshake is complete, and return whether it is within this time."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self.view.live(), seconds)
        return False

    async def settle(self, seconds: float = 3.0) -> None:
        """Wait until no more messages pass, at most this long, and until the View has been drawn."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            before = len(self.messages)
            await asyncio.sleep(_QUIET_SECONDS)
            if len(self.messages) == before:
                break
        await self.drawn()

    async def drawn(self) -> None:
        """Wait until finite animations have ended, at most two seconds, and until all changes have been drawn."""
        await self.evaluate("(look) => look.drawn()")

    async def requested_height(self, height: float) -> float:
        """Give the View a frame of this height and return the height that it then requests."""
        self.follows_size = False
        self._run_on_page(f"() => stage.resize({height})")
        await self.page.evaluate("() => new Promise(requestAnimationFrame)")
        await self.drawn()
        await self.settle(1.5)
        self.follows_size = True
        return self.sizes()[-1].height or 0

    @property
    def guest_origin(self) -> str:
        return self._guest_url.rpartition("/")[0]

    @property
    def failure(self) -> str:
        """Why the host ended the View; empty if it did not."""
        return next((event.reason for _, event in self.events if isinstance(event, Failed)), "")

    def sizes(self) -> list[SizeChanged]:
        return [event for _, event in self.events if isinstance(event, SizeChanged)]

    def sent(self, method: str = "") -> list[Any]:
        """Return the messages of the View: all, or only one method."""
        found = [message for _, is_sent, message in self.messages if is_sent and isinstance(message, dict)]
        return [message for message in found if not method or message.get("method") == method]

    # --------------------------------------------------------------------------- requests to the View

    async def request(self, method: str, params: Any = None, *, seconds: float) -> Any:
        """Send a request to the View past the state machine. Return the answer, or None without one in time."""
        request_id = f"{_ID_PREFIX}{next(self._ids)}"
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}})
        with suppress(TimeoutError):
            return await asyncio.wait_for(answer, seconds)
        return None

    async def evaluate(self, function: str, argument: Any = None) -> Any:
        """Call a JavaScript function in the frame with look.js and an argument. Returns None if that fails."""
        from playwright.async_api import Error

        frame = next((frame for frame in self.page.frames if frame.url.startswith(f"{self.guest_origin}/")), None)
        if frame is None or self.view.is_over:
            return None
        try:
            async with asyncio.timeout(10):
                if not await frame.evaluate("() => '__mcpdLook' in window"):
                    look = read_asset("look.js")
                    define = f"Object.defineProperty(window, '__mcpdLook', {{ value: {look} }});"
                    await frame.evaluate(f"() => {{ {define} }}")
                return await frame.evaluate(f"(given) => ({function})(window.__mcpdLook, given)", argument)
        except (Error, TimeoutError):
            return None

    async def picture(self) -> str:
        """Return a picture of the whole frame as a PNG in base64, or an empty string if it has no height."""
        from playwright.async_api import Error

        with suppress(Error):
            width, height = await self.page.evaluate("() => [innerWidth, stage.frame?.offsetHeight ?? 0]")
            if height:
                clip: FloatRect = {"x": 0, "y": 0, "width": width, "height": height}
                taken = await self.page.screenshot(clip=clip, full_page=True, caret="initial", timeout=10_000)
                return b64encode(taken).decode()

        return ""

    # --------------------------------------------------------------------------- events of the browser

    def _on_event(self, event: Event) -> None:
        self.events.append((self._seconds(), event))
        if isinstance(event, SizeChanged) and event.height is not None and self.follows_size:
            height = max(1, min(_MAX_HEIGHT, round(event.height)))
            self._run_on_page(f"() => stage.resize({height})")

    def _on_console(self, message: ConsoleMessage) -> None:
        # A message of a script has arguments. The policy reports what it blocks, so its messages are not needed.
        is_policy = not message.args and any(words in message.text for words in _POLICY_WORDS)
        if is_policy:
            self.own_policy_refusal = self.own_policy_refusal or _line(without_address(message.text)).partition(". ")[0]
        elif message.type == "error":
            source = str(message.location.get("url") or "")
            # The page and the browser also log loads that failed.
            is_own = source.startswith(f"{self.guest_origin}/") and source not in self.unloaded
            if is_own or "Failed to load resource" not in message.text:
                self._add_error(self.console_errors, message.text)

    def _on_unloaded(self, request: Request, why: str) -> None:
        url = request.url
        is_external = url.startswith("http") and not url.startswith(self._guest_url)
        if why and is_external and why not in _NOT_NETWORK and len(self.unloaded) < _MAX_ERRORS:
            self.unloaded.setdefault(url[:500], (why, request.resource_type))

    def _on_response(self, response: Response) -> None:
        # A script may expect that its request is refused. An element only stays empty.
        if response.status >= 400 and response.request.resource_type not in _ANSWERED_TYPES:
            self._on_unloaded(response.request, f"{response.status} {response.status_text}".strip())

    def _add_error(self, errors: list[str], text: str) -> None:
        if len(errors) < _MAX_ERRORS:
            errors.append(_line(without_address(text)))

    def on_report(self, body: bytes, of_proxy: bool) -> None:
        if (violation := read_report(body, of_proxy=of_proxy)) is not None:
            self.violations.append(violation)

    # ---------------------------------------------------------------------------------------- messages

    def receive(self, text: str) -> None:
        message = json.loads(text)
        method = message.get("method") if isinstance(message, dict) else None
        if isinstance(method, str) and method.startswith(RESERVED) and method != PROXY_READY:
            # The proxy itself reports that the View has left, and what the sandbox stopped.
            if method == GUEST_GONE:
                self.view.lost("it has left its place: it loaded something else there")
            elif (stopped := explain_stopped(text.encode())) is not None:
                self.stopped.append(stopped)
            return

        if len(self.messages) < _MAX_MESSAGES:
            self.messages.append((self._seconds(), True, message))
        answer_id = message.get("id") if isinstance(message, dict) and "method" not in message else None
        if isinstance(answer_id, str) and answer_id.startswith(_ID_PREFIX):
            answer = self._answers.pop(answer_id, None)
            if answer is not None and not answer.done():
                answer.set_result(message)
            return

        # The View may measure itself when it receives the next message, so it must be visible before that.
        if method == INITIALIZED and self.is_hidden:
            self._run_on_page("() => stage.reveal()")
        self.view.receive(text)

    def send(self, message: bytes) -> None:
        decoded = json.loads(message)
        if decoded.get("method") not in self.withheld:
            self._send(decoded)

    def _send(self, message: Any) -> None:
        self.messages.append((self._seconds(), False, message))
        self._outgoing.append(message)
        self._wake.set()

    def _run_on_page(self, function: str) -> None:
        self._outgoing.append(function)
        self._wake.set()

    async def send_all(self) -> None:
        """Send waiting messages and functions to the page until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._outgoing = self._outgoing, []
            # Messages that were sent together arrive together. A View that adds its listener late would miss one.
            for is_function, group in groupby(waiting, lambda item: isinstance(item, str)):
                if is_function:
                    for function in group:
                        await self.page.evaluate(function)
                else:
                    await self.page.evaluate("(messages) => stage.send(messages)", list(group))

    async def receive_all(self) -> None:
        while True:
            for text in await self.page.evaluate("() => stage.receive()"):
                self.receive(text)

    async def close_if_unresponsive(self) -> None:
        # An endless loop in a View stops the whole page, and a request to the page would then never end.
        while True:
            await asyncio.sleep(1)
            try:
                async with asyncio.timeout(UNRESPONSIVE_SECONDS):
                    await self.page.evaluate("0")
            except TimeoutError:
                self.is_unresponsive = True
                await self.page.close()
                return

    def _seconds(self) -> float:
        return time.monotonic() - self._started


@asynccontextmanager
async def open_trial(
    browser: AppBrowser,
    host: Host,
    call: ToolCall,
    *,
    quirks: Quirks,
    context: HostContext,
    size: tuple[int, int],
    spied: bool,
) -> AsyncIterator[Trial]:
    """Show the View of a call on a page. With `spied`, spy.js runs in it and it receives neither input nor result."""
    from playwright.async_api import Error

    async with browser.page(*size, scheme=context.theme or "light", spied=spied) as page:
        treated = treatment(quirks, host.options.profile, host.options.permissions)
        view = await host.prepare_view(call, proxy=True, context=context, treatment=treated)
        place = browser.origins.new_place(browser.page_origin)
        trial = Trial(browser, page, view, place.guest_url)
        trial.is_hidden = quirks.hidden_until_initialized
        # A View measures no useful height while it is hidden.
        trial.follows_size = not trial.is_hidden
        trial.withheld = (TOOL_INPUT, TOOL_RESULT) if spied else ()
        openai = OPENAI if quirks.openai_global else None
        browser.sandbox.put(place, view.grant, trial.on_report, title=call.name, openai=openai)
        work = (trial.send_all(), trial.receive_all(), trial.close_if_unresponsive())
        tasks = [asyncio.create_task(each) for each in work]

        try:
            view.begin(trial.send)
            await page.evaluate("(about) => stage.open(about)", {
                "url": place.proxy_url, "origin": place.proxy_origin, "sandbox": " ".join(OUTER_TOKENS),
                "allow": view.grant.allow, "title": call.name, "isHidden": trial.is_hidden,
            })  # fmt: skip
            yield trial
        except Error:
            if not trial.is_unresponsive:
                raise
        finally:
            view.lost("the test is over")
            browser.sandbox.remove(place)
            browser.listeners.pop(view.id, None)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            trial.leave_page()

        if trial.is_unresponsive:
            text = f"its page stood still for {UNRESPONSIVE_SECONDS:g} s: a script of the app does not end"
            raise ConfigurationError(text)


def _brief(stack: str) -> str:
    # Return the message of an exception and the first line of its stack.
    lines = stack.splitlines()
    end = next((at for at, line in enumerate(lines) if line.lstrip().startswith("at ")), len(lines))
    return "\n".join(lines[: end + 1])


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
