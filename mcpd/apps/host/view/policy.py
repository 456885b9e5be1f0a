"""The rules of a host for Views: settings, limits, links, downloads, and the errors with which it refuses.

The user cannot override these rules. An allowed request becomes an event, and the program asks the user or decides.

    -32700 parse    -32600 shape, size, state    -32601 method, capability    -32602 params, visibility
    -32603 internal    -32000 denied, limit (MCP Apps: "Implementation-defined error")

Spec: MCP Apps 2026-01-26, "Requests (View -> Host)"; the later draft for `ui/download-file`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Literal
from unicodedata import category, normalize
from urllib.parse import unquote, urlsplit

from msgspec import Raw, Struct, ValidationError, convert, field

from mcpd.errors import (
    FrameTooLarge,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    ProtocolError,
)
from mcpd.protocol.types.base import Implementation, ListChanged
from mcpd.protocol.types.features import BlobResourceContents, EmbeddedResource, ResourceLink, TextResourceContents
from .events import DownloadItem
from .messages import Empty, HostCapabilities, Modalities


class WrongState(InvalidRequest):
    """A message that is allowed in another state of the View."""


class NotOffered(MethodNotFound):
    """A method whose capability this host does not offer."""


class NotVisible(InvalidParams):
    """A tool that does not exist or is not for Views."""


class Denied(ProtocolError):
    """The host or its user denied a request, or could not carry it out."""

    code: ClassVar[int] = -32000
    default_message: ClassVar[str] = "Denied by the host"


class TooMuch(Denied):
    """A limit is reached; the request may succeed later."""


_RULES: Final[tuple[tuple[type[ProtocolError], str], ...]] = (
    (ParseError, "parse"),
    (FrameTooLarge, "size"),
    (WrongState, "state"),
    (InvalidRequest, "shape"),
    (NotOffered, "capability"),
    (MethodNotFound, "method"),
    (NotVisible, "visibility"),
    (InvalidParams, "params"),
    (TooMuch, "limit"),
    (Denied, "denied"),
)


def rule_of(error: ProtocolError) -> str:
    """Return the word for the broken rule, for `Finding.rule`."""
    return next((rule for kind, rule in _RULES if isinstance(error, kind)), "internal")


# ------------------------------------------------------------------------------------------ settings

MAX_LINK_CHARS: Final = 8192
MAX_NAME_CHARS: Final = 120
# File systems allow 255. The rest is for the numbers of files with the same name.
MAX_NAME_BYTES: Final = 240


class ViewLimits(Struct, frozen=True, kw_only=True):
    """The resources that a View may use, in bytes and seconds: docs/reference/limits.md describes each."""

    message_bytes: int = 4 * 1024 * 1024
    messages_per_second: int = 200
    calls_in_flight: int = 8
    step_seconds: float = 10.0
    teardown_seconds: float = 2.0
    download_items: int = 20
    app_tools: int = 50
    app_tool_seconds: float = 30.0
    max_pixels: float = 16384.0


_EVERY_MODALITY: Final = Modalities(
    text=Empty(),
    image=Empty(),
    audio=Empty(),
    resource=Empty(),
    resource_link=Empty(),
    structured_content=Empty(),
)

# All but `sampling`, which needs a model, and `sandbox`, which differs for each View.
DEFAULT_CAPABILITIES: Final = HostCapabilities(
    open_links=Empty(),
    download_file=Empty(),
    server_tools=ListChanged(list_changed=True),
    server_resources=ListChanged(list_changed=True),
    logging=Empty(),
    update_model_context=_EVERY_MODALITY,
    message=Modalities(text=Empty(), image=Empty(), audio=Empty(), resource=Empty(), resource_link=Empty()),
)


class ViewSettings(Struct, frozen=True, kw_only=True):
    """Settings for every View of a host.

    `denials` is the answer to a denied link, message or download: "error" is -32000, as the stable specification says,
    and "result" is `{isError: true}`, as most hosts answer. `has_proxy` means that a sandbox proxy loads the document
    and passes on messages. `has_prompts` means that the server has prompts, which a View may list. `rewrite` and
    `sends_early` are described in `Treatment`.
    """

    host_info: Implementation
    capabilities: HostCapabilities = field(default_factory=lambda: DEFAULT_CAPABILITIES)
    denials: Literal["error", "result"] = "error"
    limits: ViewLimits = ViewLimits()
    has_proxy: bool = True
    has_prompts: bool = False
    rewrite: Callable[[str, Raw], Raw | None] | None = None
    sends_early: bool = False


class RateLimit:
    """A bucket with the messages of one second, which fills at that rate."""

    def __init__(self, per_second: int) -> None:
        self._rate = float(per_second)
        self._left = self._rate
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Return whether one more message may come. A time before the last one counts as the same time."""
        if self._at is not None and now > self._at:
            self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now if self._at is None else max(self._at, now)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


# -------------------------------------------------------------------------------------------- links

_LINK = re.compile(r"https?://([^/?#\\@\s]+)(?:[/?#].*)?", re.IGNORECASE | re.DOTALL)
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+\]")
_ESCAPED: Final = str.maketrans({char: f"%{ord(char):02X}" for char in ' "<>'})


def check_link(url: str) -> str:
    # Only http and https with a plain host are allowed. `javascript:` would run in the page of the host, and a user
    # name imitates another host. Characters that a browser removes or reorders (tabs, backslashes, bidirectional marks)
    # hide the target from the user. Escapes and look-alikes of a dot in the host do so, too. Characters of the path
    # that a browser would escape are escaped in the returned link.
    if len(url) > MAX_LINK_CHARS:
        raise Denied(f"Invalid URL: longer than {MAX_LINK_CHARS} characters")
    if any(char == "\\" or category(char) in ("Cc", "Cf") for char in url):
        raise Denied("Invalid URL: control and direction characters and backslashes are not opened")

    link = _LINK.fullmatch(url)
    if link is None or not _is_plain_host(link[1]):
        raise Denied("Policy violation: only http and https links to a plain host are opened")

    try:
        urlsplit(url).port  # noqa: B018 - reading it is the check
    except ValueError as error:
        raise Denied(f"Invalid URL: {error}") from None

    return url.translate(_ESCAPED)


def _is_plain_host(authority: str) -> bool:
    # Return whether a host with or without a port is an IPv6 address, or letters, digits, hyphens and dots of any
    # script.
    host = re.sub(r":[0-9]*$", "", authority)
    if _IPV6.fullmatch(host):
        return True
    # A host that NFKC changes would be shown as one host and opened as another, because UTS 46 maps it the same way.
    is_stable = normalize("NFKC", host) == normalize("NFC", host)
    return host != "" and is_stable and all(char in "-._" or category(char)[0] in "LMN" for char in host)


# ---------------------------------------------------------------------------------------- downloads

_RESERVED_NAMES: Final = frozenset(
    ["CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in "123456789¹²³")]
)
_INVISIBLE: Final = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
_UNSAFE_CHARS = re.compile(r'[<>:"/\\|?*]')


def check_downloads(contents: Sequence[EmbeddedResource | ResourceLink], limits: ViewLimits) -> list[DownloadItem]:
    """Return the files that a View offers, each with a safe name of its own. Raises InvalidParams or Denied."""
    if not contents:
        raise InvalidParams("contents: there is nothing to download")
    if len(contents) > limits.download_items:
        raise Denied(f"At most {limits.download_items} files in one download")
    taken: set[str] = set()
    items: list[DownloadItem] = []
    for index, block in enumerate(contents):
        item = _linked(block) if isinstance(block, ResourceLink) else _embedded(block, index)
        items.append(DownloadItem(_once(item.name, taken), item.mime_type, item.data, item.url))

    return items


def safe_file_name(name: str) -> str:
    """Return a plain file name: no folders, no control or direction characters, no name that a system reserves."""
    name = "".join(char for char in normalize("NFC", name) if category(char) not in _INVISIBLE)
    name = re.split(r"[/\\]", name)[-1]
    name = _UNSAFE_CHARS.sub("_", name).strip(" .\t")

    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem:
        stem, suffix = name, ""
    if stem.split(".")[0].rstrip().upper() in _RESERVED_NAMES:
        stem = f"_{stem}"

    # The suffix must remain, because it decides which program opens the file.
    suffix = suffix[:20].rstrip()
    suffix = f".{suffix}" if suffix else ""
    stem = (
        stem[: MAX_NAME_CHARS - len(suffix)].encode()[: MAX_NAME_BYTES - len(suffix.encode())].decode(errors="ignore")
    )
    return f"{stem.rstrip(' .')}{suffix}" if stem else "download"


def _linked(link: ResourceLink) -> DownloadItem:
    return DownloadItem(safe_file_name(link.name or _last_segment(link.uri)), link.mime_type, url=check_link(link.uri))


def _embedded(block: EmbeddedResource, index: int) -> DownloadItem:
    resource = block.resource
    contents: TextResourceContents | BlobResourceContents
    try:
        if isinstance(resource, dict) and "blob" in resource:
            contents = convert(resource, BlobResourceContents)
            data = contents.blob
        else:
            contents = convert(resource, TextResourceContents)
            data = contents.text.encode("utf-8", "replace")
    except ValidationError as error:
        raise InvalidParams(f"contents[{index}].resource: {error}") from None

    return DownloadItem(safe_file_name(_last_segment(contents.uri)), contents.mime_type, data=data)


def _last_segment(uri: str) -> str:
    path = re.split(r"[?#]", uri, maxsplit=1)[0]
    return unquote(path.rstrip("/").rpartition("/")[2])


def _once(name: str, taken: set[str]) -> str:
    # Return a name that is not taken: `a.txt`, then `a (2).txt`. Case is ignored, as many file systems do.
    stem, dot, suffix = name.rpartition(".") if "." in name else (name, "", "")
    candidate, number = name, 1
    while candidate.casefold() in taken:
        number += 1
        candidate = f"{stem} ({number}){dot}{suffix}"
    taken.add(candidate.casefold())
    return candidate
