"""The methods of the specification, one row each: what other packages need to know about a method.

Params and results are in `types/`, the versions that have a method are in `versions/`, and its handler is in
`mcpd/server/handlers/methods.py`. A method without a row, such as an extension's, has the defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct


class Method(Struct, frozen=True, kw_only=True):
    """The properties of one method."""

    # The server capability that the method belongs to. Only lists are served without it.
    capability: str = ""
    # Whether it lists entries in pages.
    is_list: bool = False
    # The kind of entry that a request names, if it names one.
    entry: Literal["", "tool", "resource", "prompt"] = ""
    # The member of the params that names the entry. The header `Mcp-Name` repeats it.
    #
    # A server may answer such a request with questions (`input_required`).
    subject: Literal["", "name", "uri"] = ""
    # Whether clients may call it without a token, to find out what is open to everybody.
    is_open: bool = False
    # Whether its results say how long clients may keep them.
    is_cacheable: bool = False
    # Whether a client may send it again when it does not know whether the server has received it.
    is_repeatable: bool = True


METHODS: dict[str, Method] = {
    "initialize": Method(is_open=True),
    "server/discover": Method(is_open=True, is_cacheable=True),
    "ping": Method(is_open=True),
    "tools/list": Method(capability="tools", is_list=True, is_open=True, is_cacheable=True),
    "tools/call": Method(capability="tools", entry="tool", subject="name", is_repeatable=False),
    "resources/list": Method(capability="resources", is_list=True, is_open=True, is_cacheable=True),
    "resources/read": Method(capability="resources", entry="resource", subject="uri", is_cacheable=True),
    "resources/templates/list": Method(capability="resources", is_list=True, is_open=True, is_cacheable=True),
    "resources/subscribe": Method(capability="resources"),
    "resources/unsubscribe": Method(capability="resources", is_open=True),
    "prompts/list": Method(capability="prompts", is_list=True, is_open=True, is_cacheable=True),
    "prompts/get": Method(capability="prompts", entry="prompt", subject="name"),
    "completion/complete": Method(capability="completions"),
    "logging/setLevel": Method(is_open=True),
    "subscriptions/listen": Method(),
}

DEFAULT = Method()

# The methods whose requests name an entry, with the member of the params that does.
SUBJECTS: dict[str, str] = {method: row.subject for method, row in METHODS.items() if row.subject}

REPEATABLE = frozenset(method for method, row in METHODS.items() if row.is_repeatable)


def subject_of(params: object) -> str:
    """Return the name or URI that a request is about, or "" if its params have neither."""
    subject = getattr(params, "name", None) or getattr(params, "uri", None)
    return subject if isinstance(subject, str) else ""


def entries_named(method: str, params: Any) -> tuple[str, Sequence[str]]:
    """Return the list that holds the entries of a request, and their names or URIs in it; none for other methods.

    A resource is read by a template if there is no resource with its URI.
    """
    if method in ("tools/call", "prompts/get"):
        return METHODS[method].capability, [params.name]
    if method == "completion/complete":
        name = getattr(params.ref, "name", "")
        return ("prompts", [name]) if name else ("templates", [params.ref.uri])
    if method == "subscriptions/listen":
        return "resources", params.notifications.resource_subscriptions or ()
    return ("resources", [params.uri]) if METHODS.get(method, DEFAULT).capability == "resources" else ("", ())
