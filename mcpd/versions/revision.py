"""What a revision module declares. No logic here.

`back` walks one step: how a value that this revision allows looks in the revision before it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

Back = Callable[[Any], Any]


class Revision(Struct, kw_only=True, frozen=True):
    """One revision against the one before it (the oldest against nothing).

    A client's traffic: `requests` (method -> params struct) and `notifications` (method -> params struct).
    Ours: `server_requests`, `server_notifications`. `removed` names methods of any of these that are gone.
    `fields` are the members a struct gained, `fields_gone` those it lost. `error_codes` gives the code that an
    exception class had *before* this revision, where it is not the class's own.

    The classes of what only servers ask (`types.elicitation`, `types.sampling`), and of what few clients do
    (`types.completion`, `types.rounds`), stand there by their names: a process that needs none does not load them.
    """

    version: str
    modern: bool = False
    """The version travels in each request's `_meta`; there is no handshake."""
    null_id: bool = False
    """An error answer to an unreadable message says `"id": null` in this revision."""
    batches: bool = False
    """A frame may be a JSON array, in this revision only."""
    polling: bool = False
    """Event streams of HTTP begin with an event to resume after, and may let go of their connection; only here."""

    requests: Mapping[str, type | str] = {}
    notifications: Mapping[str, type] = {}
    server_requests: tuple[str, ...] = ()
    server_notifications: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    fields: Mapping[type | str, tuple[str, ...]] = {}
    fields_gone: Mapping[type | str, tuple[str, ...]] = {}
    back: Mapping[type | str, Back] = {}
    error_codes: Mapping[type, int] = {}
    errors: tuple[type, ...] = ()
    """Exception classes whose code exists from this revision on."""
    errors_gone: tuple[type, ...] = ()
