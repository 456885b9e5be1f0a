"""Every exception of mcpd, and its JSON-RPC code.

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
        AccessDenied             -32600, and over HTTP 401 or 403
        RateLimited              429, an application code
      LocalProtocolError         this side tried to send a message that is not allowed now
        NoCompatibleDeliveryMode client and server have no common way to deliver an event
      RemoteError                the peer answered with an error
      ResultMismatch             a tool's result does not have the expected type
      TransportError
        ConnectionLost
          CannotConnect          the server was not reached, so nothing was sent
          SessionLost            the server no longer knows the HTTP session
        HttpError                an HTTP server refused a request or did not answer with MCP
          AuthorizationRequired  a login is required
        AuthorizationFailed      a login failed, or its token is refused
      RequestTimeout             the peer did not answer in time
      RequestCancelled           the request was cancelled
      ToolError                  a failed tool: a result with isError, not a JSON-RPC error
        ArgumentsError           arguments that do not fit the tool's schema
        ThreadsBusy              no thread became free for a plain function
        TaskCancelled            its task was cancelled
      RegistrationError          while decorating: duplicate name, bad signature
      ConfigurationError         a target, address or option that cannot be used

Handlers raise these, and the dispatcher turns them into answers. Any other exception is logged, and the client receives
InternalError with a fixed text. This module imports no other module of mcpd.
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
"""Advice if the other distribution named mcpd is or was installed over this one."""

# Every module loads this one. If the package's `__init__` belongs to the other distribution, nothing can work.
if not hasattr(sys.modules[__package__], "_HOMES"):
    raise ImportError(NAMESAKE)


class McpdError(Exception):
    """The base class of all exceptions that mcpd raises on purpose."""

    def __init__(self, *args: object) -> None:  # the constructor of Exception has no signature to show
        super().__init__(*args)


class ProtocolError(McpdError):
    """The peer broke the rules of the protocol. `code`, `message` and `data` are sent to it."""

    code: ClassVar[int] = -32603
    default_message: ClassVar[str] = "Internal error"

    request_id: int | str | None = None
    """The id of the refused message, if it could be decoded."""

    def __init__(self, message: str = "", data: Any = None) -> None:
        self.message = message or self.default_message
        self.data = data
        super().__init__(self.message)

    def without_code(self) -> ProtocolError:
        """Return the error for protocol versions that do not have this code."""
        return InternalError(self.message)


class ParseError(ProtocolError):
    """The message is not JSON or not UTF-8."""

    code = -32700
    default_message = "Parse error"


class InvalidRequest(ProtocolError):
    """The message is JSON, but not a JSON-RPC 2.0 message, or it is not allowed now."""

    code = -32600
    default_message = "Invalid Request"


class FrameTooLarge(InvalidRequest):
    """A message was larger than the limit. It was skipped, and the connection continues."""

    default_message = "Message too large"

    is_answer: bool | None = None
    """Whether the message was an answer; None if that is unknown."""


class MethodNotFound(ProtocolError):
    """The method does not exist in this protocol version, or its capability is not offered."""

    code = -32601
    default_message = "Method not found"


class InvalidParams(ProtocolError):
    """The params do not match the method. The message names the field."""

    code = -32602
    default_message = "Invalid params"


_LONG_URI = 200


class ResourceNotFound(InvalidParams):
    """No resource has this URI. Spec: 2026-07-28 server/resources, error handling."""

    def __init__(self, uri: str) -> None:
        named = uri if len(uri) <= _LONG_URI else f"{uri[:_LONG_URI]}…"
        super().__init__(f"Resource not found: {named}", {"uri": uri})


class InternalError(ProtocolError):
    """The handler failed. The message does not say why; the log does."""

    code = -32603
    default_message = "Internal error"


class ResultTooLarge(InternalError):
    """A result is larger than a message may be."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            f"The result is too large to be sent: {size} bytes, and a message may have {most}; ask for less at a time"
        )


class HeaderMismatch(ProtocolError):
    """An HTTP header is missing, malformed or different from the body. Spec: 2026-07-28 streamable-http."""

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
        """Return the error for older versions: the method does not exist for such a client."""
        return MethodNotFound(self.message)


class UnsupportedVersion(ProtocolError):
    """The request names a protocol version that is not served."""

    code = -32022
    default_message = "Unsupported protocol version"

    def __init__(self, requested: str, supported: Sequence[str], message: str = "") -> None:
        super().__init__(message, {"supported": list(supported), "requested": requested})


class UrlElicitationRequired(ProtocolError):
    """The user must visit a URL first. Spec: 2025-11-25 client/elicitation; only in that version.

    `Context.require_url` raises it, and does the equivalent in other versions.
    """

    code = -32042
    default_message = "URL elicitation required"

    def __init__(self, elicitations: Sequence[Mapping[str, Any]], message: str = "") -> None:
        super().__init__(message, {"elicitations": [dict(e) for e in elicitations]})


class AccessDenied(InvalidRequest):
    """The user may not do this: the token lacks `scopes`, or must be replaced.

    `error` is the OAuth error: insufficient_scope, invalid_token, or unauthorized without a token. Over HTTP the answer
    is status 403 or 401 with a challenge, unless the response has begun. Otherwise a tool's result has isError and the
    challenge in `_meta`. Spec: 2026-07-28 basic/authorization, insufficient scope.
    """

    default_message = "Access denied"

    def __init__(self, message: str = "", *, scopes: Sequence[str] = (), error: str = "insufficient_scope") -> None:
        self.scopes = tuple(scopes)
        self.error = error
        super().__init__(message, {"error": error, **({"scope": " ".join(self.scopes)} if self.scopes else {})})


class RateLimited(ProtocolError):
    """The caller asks too often; `retryAfter` in the data says after how many seconds it may try again.

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
    """This side tried to send a message that is not allowed in this state or version."""


class NoCompatibleDeliveryMode(LocalProtocolError):
    """The client and the server have no common way to deliver this type of event."""


class RemoteError(McpdError):
    """The peer answered a request with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"{message} ({code})")


class ResultMismatch(McpdError):
    """A tool's result does not have the type that the caller asked for, or does not match its output schema.

    The message says where, and what was expected. `result` is the CallToolResult that does not match the schema.
    """

    def __init__(self, tool: str, problem: str, result: Any = None) -> None:
        self.tool = tool
        self.problem = problem
        self.result = result
        super().__init__(f"tool {tool}: {problem}")


class TransportError(McpdError):
    """The connection below the protocol failed."""


class ConnectionLost(TransportError):
    """The connection is lost. Requests that wait will not be answered."""


class CannotConnect(ConnectionLost):
    """The server was not reached. Nothing was sent, so it is safe to try again."""


class SessionLost(ConnectionLost):
    """The server no longer knows the session; open a new one. Spec: 2025-11-25 basic/transports, sessions."""


class HttpError(TransportError):
    """An HTTP server refused a request or did not answer with MCP. Other requests may succeed.

    `status` is the status of the response. `is_challenge` means that the server requires a token
    (`WWW-Authenticate`), or that the given token was refused.
    """

    def __init__(self, message: str, status: int, *, is_challenge: bool = False) -> None:
        self.status = status
        self.is_challenge = is_challenge
        super().__init__(message)


class AuthorizationRequired(HttpError):
    """The server requires a login, and no stored login is sufficient.

    `url` is the URL of the server, `scopes` the scopes that it requires, if it names them. `mcpd login URL` logs in.
    """

    def __init__(self, url: str, scopes: Sequence[str] = (), message: str = "", status: int = 401) -> None:
        self.url = url
        self.scopes = tuple(scopes)
        named = f" (scopes: {' '.join(self.scopes)})" if self.scopes else ""
        super().__init__(message or f"{url} requires a login{named}: run mcpd login {url}", status)


class AuthorizationFailed(TransportError):
    """A login failed, or the server refuses a token that was just issued.

    The message says what went wrong, and at which server. It never contains a token, a code or a secret.
    """


class RequestTimeout(McpdError):
    """The peer did not answer in time. A cancellation was sent."""


class RequestCancelled(McpdError):
    """The request was cancelled before it was answered."""


class ToolError(McpdError):
    """Raise this in a tool to fail with a message for the model: a result with isError, not a JSON-RPC error."""


class TaskCancelled(ToolError):
    """The task of a call was cancelled at the server, so the call has no result."""


class ThreadsBusy(ToolError):
    """No thread became free in time for a plain function."""


class ArgumentsError(ToolError):
    """The arguments do not match the tool's input schema. Spec: 2025-11-25 server/tools, SEP-1303."""


class RegistrationError(McpdError):
    """A tool, resource, prompt or app cannot be registered as written."""


class ConfigurationError(McpdError):
    """A target, address, file or option cannot be used. The message says what to do."""


def missing_extra(error: ModuleNotFoundError, what: str, extra: str) -> ConfigurationError:
    """Return an error that says how to install `extra`, which `what` needs (such as "serving HTTP").

    Raises `error` itself if the missing module belongs to mcpd.
    """
    if (error.name or "").startswith("mcpd"):
        raise error
    return ConfigurationError(f"{what} needs the package {error.name}: pip install 'mcpd-server[{extra}]'")


def forget_frames(error: BaseException) -> None:
    """Remove the tracebacks of an exception and of its causes, after it was answered.

    A frame that holds the exception which passed through it is a reference cycle. It would keep the arguments of a
    failed call alive until the garbage collector runs.
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
    """Return `exc_info` for a log record, with a traceback that begins at the first frame outside of mcpd.

    The frames of mcpd are always the same and do not help the author. Without any others, all are shown.
    """
    place = error.__traceback__
    while place is not None and place.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _CALLERS:
        place = place.tb_next
    if place is None and not hasattr(error, "__notes__"):  # an exception of another process has its traceback there
        place = error.__traceback__
    return type(error), error, place


# The packages through whose frames a call reaches an author's function.
_CALLERS = {"mcpd", "anyio", "asyncio", "concurrent"}


# Receives the errors of decorators inside `collecting`.
_take: Callable[[Exception], object] | None = None


@contextmanager
def collecting(take: Callable[[Exception], object]) -> Iterator[None]:
    """Pass each error of a decorator to `take` instead of raising it, and leave the function unregistered."""
    global _take
    before, _take = _take, take
    try:
        yield
    finally:
        _take = before


def collects(decorator: Callable[P, T]) -> Callable[P, T]:
    """Let `collecting` receive the errors of a decorator method such as `@server.tool`."""

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
