"""Every exception of mcpd, and the JSON-RPC code each has on the wire.

    McpdError
      ProtocolError              the peer broke the rules; class attribute `code`
        ParseError               -32700
        InvalidRequest           -32600
          FrameTooLarge          a message over the size limit
        MethodNotFound           -32601
        InvalidParams            -32602
          ResourceNotFound       -32602, and -32002 before 2026-07-28
        InternalError            -32603
          ResultTooLarge         a result over the size limit
        HeaderMismatch           -32020
        MissingCapability        -32021
        UnsupportedVersion       -32022
        UrlElicitationRequired   -32042, 2025-11-25 only
        AccessDenied             -32600, and over HTTP 401 or 403: who asks may not do that
        RateLimited              429; the specification has no code for it, and leaves such numbers free
      LocalProtocolError         we were asked to send what is not legal now
      RemoteError                the peer answered with an error
      ResultMismatch             what a tool gave is not of the type that its caller named
      TransportError
        ConnectionLost
          CannotConnect          the server was not reached: nothing was sent to it
          SessionLost            the server has forgotten an HTTP session
        HttpError                an HTTP server refused a request, or answered what is no MCP
          AuthorizationRequired  nobody is logged in there, and nobody may be asked to
        AuthorizationFailed      a login did not come about, or what it gave is refused
      RequestTimeout             the peer did not answer in time
      RequestCancelled           the peer, or we, gave the request up
      ToolError                  a failed tool: a result with isError, no JSON-RPC error
        ArgumentsError           arguments that do not fit the tool's schema
        ThreadsBusy              no thread became free for a plain function
      RegistrationError          while decorating: duplicate name, bad signature
      ConfigurationError         a target, address or option that cannot be used

Imports nothing of ours. Handlers raise these, `dispatcher` turns them into answers; anything
else that escapes a handler is logged and leaves as InternalError with a fixed text.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

NAMESAKE = (
    "mcpd-server shares its folder with another distribution, mcpd, a different project: "
    f"each overwrites files of the other. Remove both, then install the one that is meant: "
    f"{sys.executable} -m pip uninstall mcpd mcpd-server; {sys.executable} -m pip install mcpd-server"
)
"""What to do where the other distribution called mcpd is, or was, installed over this one."""

# Every module of ours loads this one. Where the top of the package is not ours, nothing that follows could work.
if not hasattr(sys.modules[__package__], "_HOMES"):
    raise ImportError(NAMESAKE)


class McpdError(Exception):
    """The root: whoever catches this catches all that mcpd raises on purpose."""

    def __init__(self, *args: object) -> None:  # an Exception's own has no signature to show
        super().__init__(*args)


class ProtocolError(McpdError):
    """The peer sent what the protocol does not allow; `code`, `message` and `data` go on the wire."""

    code: ClassVar[int] = -32603
    default_message: ClassVar[str] = "Internal error"

    request_id: int | str | None = None
    """The id of the message that was refused, where decoding could still read one."""

    def __init__(self, message: str = "", data: Any = None) -> None:
        self.message = message or self.default_message
        self.data = data
        super().__init__(self.message)

    def without_code(self) -> ProtocolError:
        """The same refusal for protocol versions that do not have this code."""
        return InternalError(self.message)


class ParseError(ProtocolError):
    """Not JSON, or not UTF-8."""

    code = -32700
    default_message = "Parse error"


class InvalidRequest(ProtocolError):
    """JSON, but no JSON-RPC 2.0 message, or one that is not allowed now."""

    code = -32600
    default_message = "Invalid Request"


class FrameTooLarge(InvalidRequest):
    """One message was larger than this end takes; it was skipped and the connection goes on."""

    default_message = "Message too large"

    is_answer: bool | None = None
    """Whether it was an answer; None if that is unknown."""


class MethodNotFound(ProtocolError):
    """No such method in this protocol version, or its capability is not offered."""

    code = -32601
    default_message = "Method not found"


class InvalidParams(ProtocolError):
    """`params` do not fit the method; the message names the field."""

    code = -32602
    default_message = "Invalid params"


_LONG_URI = 200


class ResourceNotFound(InvalidParams):
    """No resource has this URI. Spec: 2026-07-28 server/resources, error handling."""

    def __init__(self, uri: str) -> None:
        named = uri if len(uri) <= _LONG_URI else f"{uri[:_LONG_URI]}…"
        super().__init__(f"Resource not found: {named}", {"uri": uri})


class InternalError(ProtocolError):
    """Our fault; the text never says more than that."""

    code = -32603
    default_message = "Internal error"


class ResultTooLarge(InternalError):
    """A result is larger than a message may be: its request gets this in its place."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            f"The result is too large to be sent: {size} bytes, and a message may have {most}; ask for less at a time"
        )


class HeaderMismatch(ProtocolError):
    """An HTTP header is missing, malformed or unlike the body. Spec: 2026-07-28 streamable-http."""

    code = -32020
    default_message = "Header mismatch"


class MissingCapability(ProtocolError):
    """The request needs a client capability that it did not declare.

    `required` is shaped like ClientCapabilities, e.g. {"elicitation": {"url": {}}}.
    """

    code = -32021
    default_message = "Missing required client capability"

    def __init__(self, required: Mapping[str, Any], message: str = "") -> None:
        super().__init__(message, {"requiredCapabilities": dict(required)})


class MissingExtension(MissingCapability):
    """The method belongs to an extension that the client does not offer."""

    def __init__(self, extension: str, message: str = "") -> None:
        super().__init__({"extensions": {extension: {}}}, message)

    def without_code(self) -> ProtocolError:
        """To such a client the method does not exist."""
        return MethodNotFound(self.message)


class UnsupportedVersion(ProtocolError):
    """The request names a protocol version that is not served."""

    code = -32022
    default_message = "Unsupported protocol version"

    def __init__(self, requested: str, supported: Sequence[str], message: str = "") -> None:
        super().__init__(message, {"supported": list(supported), "requested": requested})


class UrlElicitationRequired(ProtocolError):
    """The user has to visit a URL first. Spec: 2025-11-25 client/elicitation; no other version.

    `Context.require_url` raises it where that is right, and does in other versions what they have for it.
    """

    code = -32042
    default_message = "URL elicitation required"

    def __init__(self, elicitations: Sequence[Mapping[str, Any]], message: str = "") -> None:
        super().__init__(message, {"elicitations": [dict(e) for e in elicitations]})


class AccessDenied(InvalidRequest):
    """Who asks may not do that: its token lacks `scopes`, or has to be exchanged for another one.

    `error` is OAuth's word for it: insufficient_scope, invalid_token, or unauthorized where no token came. Over HTTP
    that is status 403 or 401 with a challenge, as long as nothing was answered; in a tool else a result with isError,
    whose `_meta` has the challenge. Spec: 2026-07-28 basic/authorization, insufficient scope.
    """

    default_message = "Access denied"

    def __init__(self, message: str = "", *, scopes: Sequence[str] = (), error: str = "insufficient_scope") -> None:
        self.scopes = tuple(scopes)
        self.error = error
        super().__init__(message, {"error": error, **({"scope": " ".join(self.scopes)} if self.scopes else {})})


class RateLimited(ProtocolError):
    """The caller asks too often; `retryAfter` in the data says in how many seconds it may again.

    Spec: 2026-07-28 basic/index, error codes: those of applications are outside of JSON-RPC's reserved range.
    """

    code = 429
    default_message = "Too many requests"

    def __init__(self, retry_after: float, message: str = "") -> None:
        self.retry_after = max(math.ceil(retry_after * 1000) / 1000, 0.001)
        super().__init__(
            message or f"Too many calls: try again in {self.retry_after:g} s", {"retryAfter": self.retry_after}
        )


class LocalProtocolError(McpdError):
    """We were asked to send something that is not legal in this state or version."""


class RemoteError(McpdError):
    """The peer answered one of our requests with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"{message} ({code})")


class ResultMismatch(McpdError):
    """What a tool gave is not of the type that its caller named, or not what the tool's output schema says.

    The text says where, and what was expected there. `result` is the CallToolResult that does not fit the schema.
    """

    def __init__(self, tool: str, problem: str, result: Any = None) -> None:
        self.tool = tool
        self.problem = problem
        self.result = result
        super().__init__(f"tool {tool}: {problem}")


class TransportError(McpdError):
    """The connection below the protocol failed."""


class ConnectionLost(TransportError):
    """The peer is gone; what was asked of it will not be answered."""


class CannotConnect(ConnectionLost):
    """The server was not reached, so that nothing was sent to it: to ask again repeats nothing."""


class SessionLost(ConnectionLost):
    """The server knows the session no more; a new one has to be opened. Spec: 2025-11-25 basic/transports, sessions."""


class HttpError(TransportError):
    """An HTTP server refused a request, or answered it by what is no MCP; other requests may go through.

    `status` is that of its answer. `is_challenge` says that the server asked for a token (`WWW-Authenticate`), or that
    the program was asked for one and it was refused.
    """

    def __init__(self, message: str, status: int, *, is_challenge: bool = False) -> None:
        self.status = status
        self.is_challenge = is_challenge
        super().__init__(message)


class AuthorizationRequired(HttpError):
    """The server wants a login, and there is none that is good enough; nobody may be asked for one here.

    `url` is the server's, `scopes` what it asks for, as far as it says. `mcpd login URL` logs in.
    """

    def __init__(self, url: str, scopes: Sequence[str] = (), message: str = "", status: int = 401) -> None:
        self.url = url
        self.scopes = tuple(scopes)
        named = f" (scopes: {' '.join(self.scopes)})" if self.scopes else ""
        super().__init__(message or f"{url} wants a login{named}: run mcpd login {url}", status)


class AuthorizationFailed(TransportError):
    """A login that did not come about, or a token that was just issued and is refused all the same.

    The text names what was wrong and at whom. It never has a token, a code or a secret in it.
    """


class RequestTimeout(McpdError):
    """The peer did not answer within the time allowed; a cancellation was sent."""


class RequestCancelled(McpdError):
    """The request was given up before it was answered."""


class ToolError(McpdError):
    """A failed tool call with a text for the model: a result with isError, not a JSON-RPC error."""


class ThreadsBusy(ToolError):
    """Other plain functions hold all threads, and none became free in time."""


class ArgumentsError(ToolError):
    """Arguments that do not fit the tool's input schema. Spec: 2025-11-25 server/tools, SEP-1303."""


class RegistrationError(McpdError):
    """A tool, resource, prompt or app that cannot be registered as written."""


class ConfigurationError(McpdError):
    """A target, address, file or option that cannot be used; the text says what to do."""


def missing_extra(error: ModuleNotFoundError, what: str, extra: str) -> ConfigurationError:
    """Return an error that says how to install `extra`, which `what` (a verb with -ing) needs.

    Raises `error` itself if the missing module is one of mcpd: no installation mends that.
    """
    if (error.name or "").startswith("mcpd"):
        raise error
    return ConfigurationError(f"{what} needs the package {error.name}: pip install 'mcpd-server[{extra}]'")


def forget_frames(error: BaseException) -> None:
    """Let go of the frames that an exception has come through, and those it was caused by; for when it was answered.

    A frame that holds the exception which came through it, as that of a task group does, is a cycle: all that a
    failed call had, its arguments too, would stay until the garbage collector looks.
    """
    left, seen = [error], {id(error)}
    while left:
        one = left.pop()
        one.__traceback__ = None
        others = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        for other in (one.__context__, one.__cause__, *others):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                left.append(other)


def as_told(error: BaseException) -> tuple[type[BaseException], BaseException, Any]:
    """What a log record takes as `exc_info`: the traceback begins at the first frame that is not of ours.

    The frames of ours below the author's function are the same each time, and say nothing to the author. Where all
    frames are ours all are shown.
    """
    place = error.__traceback__
    while place is not None and place.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _CALLERS:
        place = place.tb_next
    return type(error), error, place or error.__traceback__


# Through whose frames a call comes to an author's function.
_CALLERS = {"mcpd", "anyio", "asyncio", "concurrent"}


_take: Callable[[Exception], object] | None = None
"""What is given the errors of decorators, while somebody collects them."""


@contextmanager
def collecting(take: Callable[[Exception], object]) -> Iterator[None]:
    """Give each error of a decorator to `take`, and leave the function unregistered, instead of raising the error."""
    global _take
    before, _take = _take, take
    try:
        yield
    finally:
        _take = before


def collects(decorator: Callable[P, T]) -> Callable[P, T]:
    """Let `collecting` have the errors of a method that authors use as a decorator, as `@server.tool` is."""

    @wraps(decorator)
    def method(*args: P.args, **kwargs: P.kwargs) -> T:
        if _take is None:
            return decorator(*args, **kwargs)
        given = args[1] if len(args) > 1 else None
        made: Any = _attempt(lambda: decorator(*args, **kwargs), given if callable(given) else _itself)
        if made is not given and callable(made):
            return wraps(made)(lambda function: _attempt(lambda: made(function), function))  # type: ignore[return-value]
        return made  # type: ignore[no-any-return]

    return method


def _attempt(step: Callable[[], Any], instead: Any) -> Any:
    try:
        return step()
    except Exception as error:
        if _take is None:
            raise
        _take(error)
        return instead


def _itself(function: Any) -> Any:
    return function
