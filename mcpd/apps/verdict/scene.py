"""One View, shown once: every message, event, error and violation, and what may be asked of it.

Messages pass by here on their way between the host's machine and the frame, so that requests can be put to a View that
no host of ours would put. What is answered to those is kept from the machine.
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
from mcpd.apps.preview.views import GUEST_GONE, OPENAI, treatment
from mcpd.apps.preview.violations import explain_stopped
from mcpd.apps.verdict.browser import Theatre, script
from mcpd.errors import ConfigurationError

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, FloatRect, Frame, Page, Request, Response

_NO_QUIRKS = Quirks()
_PREFIX: Final = "mcpd-apps-test-"
_RESERVED: Final = "ui/notifications/sandbox-"
_QUIET: Final = 0.25
_MOST_HEIGHT: Final = 4000
STILL_SECONDS: Final = 20.0
"""A page that does not answer for so long stands still."""
_MOST_MESSAGES: Final = 20_000
_MOST_COMPLAINTS: Final = 500
_NOT_NETWORK: Final = ("net::ERR_ABORTED", "net::ERR_BLOCKED_BY_CSP", "net::ERR_BLOCKED_BY_CLIENT", "csp")
_POLICY_WORDS: Final = ("Content Security Policy", "Content-Security-Policy", "violates the following")

_PLACE: Final = re.compile(r"(blob:)?http://[\w-]+\.mcpd\.localhost:\d+(/guest|/[\da-f-]{36})?")
"""Where this showing of the View is: random, and in many messages of the browser."""


def in_app(text: str) -> str:
    """A text in which the View is called the app, in place of its address."""
    return _PLACE.sub("the app", text)


Violation = dict[str, Any]
"""The body of one report, as the browser sent it: `blocked-uri`, `effective-directive`, …"""


class Scene:
    """A View on the bare page. `messages` are (seconds since its begin, whether the View sent it, message)."""

    def __init__(self, theatre: Theatre, page: Page, view: ShownView, guest_url: str) -> None:
        self.view = view
        self.page = page
        self.events: list[tuple[float, Event]] = []
        self.messages: list[tuple[float, bool, Any]] = []
        self.violations: list[Violation] = []
        self.errors: list[str] = []
        """Exceptions that nobody caught."""
        self.complaints: list[str] = []
        """What it wrote to the console as an error."""
        self.refused = ""
        """The browser's words on the first thing that a policy refused, which may be one of the app's own."""
        self.unloaded: dict[str, tuple[str, str]] = {}
        """What the policy allowed and the network did not give: why, and what kind of resource, by the address."""
        self.refusal = ""
        """The browser's words on code that the policy refused, where the View shows them to its user."""
        self.stopped: list[dict[str, Any]] = []
        """What the sandbox stopped without an error, as `explain_stopped` describes it."""
        self.is_hidden = False
        self.keeps_back: tuple[str, ...] = ()
        """Methods of messages that do not reach the View."""
        self.stands_still = False
        self.follows_size = True
        """Whether its frame gets the height that it asks for."""
        self._guest_url = guest_url
        self._begun = time.monotonic()
        self._ids = count(1)
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._sending: list[Any] = []
        self._wake = asyncio.Event()
        theatre.hearers[view.id] = self._on_event
        self._heard: dict[Any, Callable[[Any], None]] = {
            "pageerror": lambda error: self._complain(self.errors, _brief(error.stack or error.message)),
            "console": self._on_console,
            "requestfailed": lambda request: self._on_unloaded(request, request.failure or ""),
            "response": self._on_response,
        }
        for name, listener in self._heard.items():
            page.on(name, listener)

    def leave(self) -> None:
        """Hear no more of the page, which is the next one's."""
        for name, listener in self._heard.items():
            self.page.remove_listener(name, listener)

    # -------------------------------------------------------------------------------------- its life

    async def is_live(self, seconds: float) -> bool:
        """Whether its handshake is complete within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self.view.live())
        return False

    async def settle(self, most: float = 3.0) -> None:
        """Wait until nothing is said any more, and it has had time to draw."""
        end = time.monotonic() + most
        while time.monotonic() < end:
            said = len(self.messages)
            await asyncio.sleep(_QUIET)
            if len(self.messages) == said:
                break
        await self.drawn()

    async def drawn(self) -> None:
        """Wait until animations that end have ended, at most two seconds, and what was changed is drawn."""
        await self.look("(look) => look.drawn()")

    async def asked_height(self, height: float) -> float:
        """Give the View a frame of this height, whatever it asks for; return the height that it then asks for."""
        self.follows_size = False
        self._steer(f"() => stage.resize({height})")
        await self.page.evaluate("() => new Promise(requestAnimationFrame)")
        await self.drawn()
        await self.settle(1.5)
        self.follows_size = True
        return self.sizes()[-1][1].height or 0

    @property
    def guest_origin(self) -> str:
        """The View's own origin."""
        return self._guest_url.rpartition("/")[0]

    @property
    def failure(self) -> str:
        """Why the View is gone by fault, "" if it is not."""
        return next((event.reason for _, event in self.events if isinstance(event, Failed)), "")

    def sizes(self) -> list[tuple[float, SizeChanged]]:
        """The sizes that it asked for."""
        return [(at, event) for at, event in self.events if isinstance(event, SizeChanged)]

    def sent(self, method: str = "") -> list[Any]:
        """What the View sent: all, or the messages of one method."""
        found = [message for _, is_its, message in self.messages if is_its and isinstance(message, dict)]
        return [message for message in found if not method or message.get("method") == method]

    # --------------------------------------------------------------------------------- asked of the View

    async def ask(self, method: str, params: Any = None, *, seconds: float) -> Any:
        """Put a request to the View past the host's machine: its answer, None if none comes in time."""
        number = f"{_PREFIX}{next(self._ids)}"
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await answer
        return None

    def frame(self) -> Frame | None:
        """The View's own frame."""
        return next((frame for frame in self.page.frames if frame.url.startswith(f"{self.guest_origin}/")), None)

    async def look(self, function: str, argument: Any = None) -> Any:
        """The value of a JavaScript function in the View's frame, which is given look.js; None if there is no frame."""
        from playwright.async_api import Error

        frame = self.frame()
        if frame is None or self.view.is_over:
            return None
        try:
            async with asyncio.timeout(10):
                await self._learn(frame)
                return await frame.evaluate(f"(given) => ({function})(window.__mcpdLook, given)", argument)
        except (Error, TimeoutError):
            return None

    async def picture(self) -> str:
        """The View's frame as it is painted, all of its height: a PNG in base64, "" if there is none to be seen."""
        from playwright.async_api import Error

        with suppress(Error):
            width, height = await self.page.evaluate("() => [innerWidth, stage.frame?.offsetHeight ?? 0]")
            if height:
                clip: FloatRect = {"x": 0, "y": 0, "width": width, "height": height}
                taken = await self.page.screenshot(clip=clip, full_page=True, caret="initial", timeout=10_000)
                return b64encode(taken).decode()
        return ""

    async def _learn(self, frame: Frame) -> None:
        from playwright.async_api import Error

        with suppress(Error):
            if not await frame.evaluate("() => '__mcpdLook' in window"):
                look = script("look.js")
                await frame.evaluate(f"() => {{ Object.defineProperty(window, '__mcpdLook', {{ value: {look} }}); }}")

    # ------------------------------------------------------------------------------------- what happens

    def _on_event(self, event: Event) -> None:
        self.events.append((self._now(), event))
        if isinstance(event, SizeChanged) and event.height is not None and self.follows_size:
            height = max(1, min(_MOST_HEIGHT, round(event.height)))
            self._steer(f"() => stage.resize({height})")

    def _on_console(self, message: ConsoleMessage) -> None:
        # Only what a script wrote has arguments; what the browser says of the policy is reported by the policy.
        is_policy = not message.args and any(words in message.text for words in _POLICY_WORDS)
        if is_policy:
            self.refused = self.refused or _line(in_app(message.text)).partition(". ")[0]
        elif message.type == "error":
            where = str(message.location.get("url") or "")
            # What the page itself or the browser says of a load that failed is not the View's.
            is_own = where.startswith(f"{self.guest_origin}/") and where not in self.unloaded
            if is_own or "Failed to load resource" not in message.text:
                self._complain(self.complaints, message.text)

    def _on_unloaded(self, request: Request, why: str) -> None:
        url = request.url
        is_elsewhere = url.startswith("http") and not url.startswith(self._guest_url)
        is_network = why not in _NOT_NETWORK
        if why and is_elsewhere and is_network and len(self.unloaded) < _MOST_COMPLAINTS:
            self.unloaded.setdefault(url[:500], (why, request.resource_type))

    def _on_response(self, response: Response) -> None:
        # What a script fetched it may expect to be refused, and says so if not; an element only stays empty.
        if response.status >= 400 and response.request.resource_type not in (
            "fetch",
            "xhr",
            "ping",
            "cspviolationreport",
        ):
            self._on_unloaded(response.request, f"{response.status} {response.status_text}".strip())

    def _complain(self, complaints: list[str], text: str) -> None:
        if len(complaints) < _MOST_COMPLAINTS:
            complaints.append(_line(in_app(text)))

    def on_report(self, body: bytes, of_proxy: bool) -> None:
        """A report of what a policy blocked."""
        with suppress(ValueError):
            told = json.loads(body)
            report = told.get("csp-report") if isinstance(told, dict) else None
            if isinstance(report, dict):
                self.violations.append({**report, "ofProxy": of_proxy})

    def receive(self, text: str) -> None:
        """A message from the proxy's frame."""
        message = json.loads(text)
        method = message.get("method") if isinstance(message, dict) else None
        if isinstance(method, str) and method.startswith(_RESERVED) and method != PROXY_READY:
            # The proxy's own words: that the View has left, and what it kept back.
            if method == GUEST_GONE:
                self.view.lost("it has left its place: it loaded something else there")
            elif (stopped := explain_stopped(text.encode())) is not None:
                self.stopped.append(stopped)
            return
        if len(self.messages) < _MOST_MESSAGES:
            self.messages.append((self._now(), True, message))
        number = message.get("id") if isinstance(message, dict) and "method" not in message else None
        if isinstance(number, str) and number.startswith(_PREFIX):
            answer = self._answers.pop(number, None)
            if answer is not None and not answer.done():
                answer.set_result(message)
            return
        if method == INITIALIZED and self.is_hidden:  # before it is told more, which it may measure itself by
            self._steer("() => stage.reveal()")
        self.view.receive(text)

    def send(self, message: bytes) -> None:
        """A message of the machine, for the View."""
        told = json.loads(message)
        if told.get("method") not in self.keeps_back:
            self._send(told)

    def _send(self, message: Any) -> None:
        self.messages.append((self._now(), False, message))
        self._sending.append(message)
        self._wake.set()

    def _steer(self, function: str) -> None:
        self._sending.append(function)
        self._wake.set()

    async def carry(self) -> None:
        """Send what waits, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._sending = self._sending, []
            # What was said in one breath arrives so: a View that sets itself up meanwhile would hear it late.
            for is_function, told in groupby(waiting, lambda item: isinstance(item, str)):
                if is_function:
                    for function in told:
                        await self.page.evaluate(function)
                else:
                    await self.page.evaluate("(messages) => stage.send(messages)", list(told))

    async def watch(self) -> None:
        """Close the page once it stands still, until cancelled.

        An endless loop in a View stops the whole page, and what is asked of that would be waited for without end.
        """
        while True:
            await asyncio.sleep(1)
            try:
                async with asyncio.timeout(STILL_SECONDS):
                    await self.page.evaluate("0")
            except TimeoutError:
                self.stands_still = True
                await self.page.close()
                return

    async def listen(self) -> None:
        """Take what the proxy's frame says, until cancelled."""
        while True:
            for text in await self.page.evaluate("() => stage.receive()"):
                self.receive(text)

    def _now(self) -> float:
        return time.monotonic() - self._begun


@asynccontextmanager
async def show(
    theatre: Theatre,
    host: Host,
    call: ToolCall,
    *,
    quirks: Quirks = _NO_QUIRKS,
    context: HostContext,
    size: tuple[int, int] = (1280, 800),
    spied: bool = False,
) -> AsyncIterator[Scene]:
    """Show a call's View on a page of its own. With `spied`, spy.js runs in it, and it is not told of the call.

    Raises what `Host.prepare_view` raises, and ConfigurationError if the View makes the page stand still.
    """
    from playwright.async_api import Error

    scheme = context.theme or "light"
    async with theatre.page(*size, scheme=scheme, spied=spied) as page:
        treated = treatment(quirks, host.options.profile, host.options.permissions)
        view = await host.prepare_view(call, proxy=True, context=context, treatment=treated)
        place = theatre.origins.new_place(theatre.page_origin)
        scene = Scene(theatre, page, view, place.guest_url)
        scene.is_hidden = quirks.hidden_until_initialized
        scene.follows_size = not scene.is_hidden  # what it measured while it was hidden is no height to show it in
        scene.keeps_back = (TOOL_INPUT, TOOL_RESULT) if spied else ()
        openai = OPENAI if quirks.openai_global else None
        theatre.sandbox.put(place, view.grant, scene.on_report, title=call.name, openai=openai)
        tasks = [asyncio.create_task(work) for work in (scene.carry(), scene.listen(), scene.watch())]
        try:
            view.begin(scene.send)
            await page.evaluate("(told) => stage.open(told)", {
                "url": place.proxy_url, "origin": place.proxy_origin, "sandbox": " ".join(OUTER_TOKENS),
                "allow": view.grant.allow, "title": call.name, "isHidden": scene.is_hidden,
            })  # fmt: skip
            yield scene
        except Error:
            if not scene.stands_still:
                raise
        finally:
            view.lost("the test is over")
            theatre.sandbox.remove(place)
            theatre.hearers.pop(view.id, None)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            scene.leave()

        if scene.stands_still:
            raise ConfigurationError(f"its page stood still for {STILL_SECONDS:g} s: a script of the app does not end")


def _brief(stack: str) -> str:
    """The message of an exception and the place that threw it, without the way to it."""
    lines = stack.splitlines()
    end = next((at for at, line in enumerate(lines) if line.lstrip().startswith("at ")), len(lines))
    return "\n".join(lines[: end + 1])


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
