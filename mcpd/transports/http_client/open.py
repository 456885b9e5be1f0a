"""From a URL to a channel."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ..authorization import Authorization
from ..stdio import MAX_FRAME_BYTES
from .channel import HttpChannel
from .link import Link
from .options import HttpOptions

__all__ = ["open_http"]

_DEFAULTS = HttpOptions()


async def open_http(
    url: str,
    options: HttpOptions | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    socket: str | None = None,
    ca_file: str | None = None,
    name: str = "",
    max_frame_bytes: int = MAX_FRAME_BYTES,
    authorization: Authorization | None = None,
) -> HttpChannel:
    """The channel to the server at an http or https URL; it connects when something is sent.

    `headers`, `socket` and `ca_file` are what a target says itself: `options` come first. `name` is what errors call
    the server, beside its URL. `authorization` lets the requests in. Raises ConfigurationError for what cannot be used.
    """
    options = options or _DEFAULTS
    if options.socket is None and socket is not None:
        options = replace(options, socket=socket)
    if options.verify is True and ca_file is not None:
        options = replace(options, verify=ca_file)

    link = Link(url, options, headers or {}, name)
    if authorization is not None:
        link.may_follow = authorization.covers
    channel = HttpChannel(link, max_frame_bytes, authorization)
    await link.open()
    return channel
