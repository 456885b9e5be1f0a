"""The context as plain functions see it: the same calls, whose results are there when they return.

At run time `SyncContext` is a `Context`: in a thread each of its methods does its work before it returns. What type
checkers are told of it is written out here, as the return types are all that differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

from mcpd.context.context import Context, RequestInfo

if TYPE_CHECKING:
    from msgspec import Struct

    from mcpd.context.questions import Answer, Question, SamplingOptions
    from mcpd.errors import AccessDenied
    from mcpd.protocol.types.base import LogLevel
    from mcpd.protocol.types.interaction import CreateMessageResult, Root, SamplingMessage

T = TypeVar("T")

if TYPE_CHECKING:

    class SyncContext(RequestInfo):
        """`Context` for a plain function: nothing is awaited."""

        def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...

        def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None: ...

        def debug(self, data: Any) -> None: ...

        def info(self, data: Any) -> None: ...

        def warning(self, data: Any) -> None: ...

        def error(self, data: Any) -> None: ...

        def notify(self, method: str, params: Mapping[str, Any] | Struct | None = None) -> None: ...

        def close_stream(self) -> None: ...

        def require_scopes(self, *scopes: str) -> None: ...

        def reauthorize(self, message: str = "") -> AccessDenied: ...

        def upstream_token(self) -> str: ...

        @property
        def state(self) -> dict[str, Any]: ...

        @overload
        def elicit(
            self, message: str, form: type[T], *, key: str | None = None, timeout: float | None = 300
        ) -> Answer[T]: ...

        @overload
        def elicit(
            self, message: str, form: Mapping[str, Any], *, key: str | None = None, timeout: float | None = 300
        ) -> Answer[dict[str, Any]]: ...

        def elicit(
            self, message: str, form: Any, *, key: str | None = None, timeout: float | None = 300
        ) -> Answer[Any]: ...

        def elicit_url(
            self,
            message: str,
            url: str,
            *,
            elicitation_id: str | None = None,
            key: str | None = None,
            timeout: float | None = 300,
        ) -> Answer[dict[str, Any]]: ...

        def sample(
            self,
            messages: str | list[SamplingMessage],
            *,
            max_tokens: int = 1000,
            key: str | None = None,
            timeout: float | None = 300,
            **options: Unpack[SamplingOptions],
        ) -> CreateMessageResult: ...

        def list_roots(self, *, key: str | None = None, timeout: float | None = 60) -> list[Root]: ...

        def ask(self, timeout: float | None = 300, /, **questions: Question) -> dict[str, Any]: ...

        def can_ask(self, question: Question) -> bool: ...

        def require_url(
            self, message: str, url: str, *, elicitation_id: str | None = None, key: str | None = None
        ) -> NoReturn: ...

        def elicitation_complete(self, elicitation_id: str) -> None: ...

else:

    class SyncContext(Context):
        """`Context` for a plain function: nothing is awaited, each call has done its work when it returns."""

        __slots__ = ()

        is_for_threads = True
