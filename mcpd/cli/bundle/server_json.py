"""server.json, the entry of a server in the registry, in the schema of 2025-12-11 and by the registry's own rules.

Beyond the schema, the registry refuses version ranges, addresses of one machine, bundles that are not released on
GitHub or GitLab, and packages whose page does not name the server.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from mcpd.cli.install.launch import is_hidden
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from .manifest import split_variables

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
MAX_DESCRIPTION = 100

_FORGES = {"github.com": "github", "gitlab.com": "gitlab"}
_Url = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9+.-]*://[^\s/]+\S*$")]
_UrlOrNone = Annotated[str, Meta(pattern=r"^([a-z][a-z0-9+.-]*://[^\s/]+\S*)?$")]
_RANGE = re.compile(r"^[\^~<>=!]|[,*| ]|(^|\.)x($|\.)|^latest$", re.IGNORECASE)


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """An object of the file. Empty members are left out."""


class Input(_Part, frozen=True, kw_only=True):
    """A variable that a user sets."""

    name: Annotated[str, Meta(min_length=1)]
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    default: str = ""


class Transport(_Part, frozen=True, kw_only=True):
    """The transport of a package once it is started."""

    type: Literal["stdio", "streamable-http", "sse"]


_STDIO = Transport(type="stdio")


class Package(_Part, frozen=True, kw_only=True):
    """A package of an index, or a bundle behind a URL."""

    registry_type: Annotated[str, Meta(pattern="^(pypi|mcpb)$")]
    identifier: Annotated[str, Meta(min_length=1)]
    version: str = ""
    runtime_hint: str = ""
    file_sha256: Annotated[str, Meta(pattern="^([a-f0-9]{64})?$")] = field(default="", name="fileSha256")
    transport: Transport
    environment_variables: tuple[Input, ...] = ()


class Remote(_Part, frozen=True, kw_only=True):
    type: Annotated[str, Meta(pattern="^(streamable-http|sse)$")]
    url: _Url


class Repository(_Part, frozen=True, kw_only=True):
    url: _Url
    source: Annotated[str, Meta(min_length=1)]


class ServerJson(_Part, frozen=True, kw_only=True):
    schema: _Url = field(name="$schema")
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", min_length=3, max_length=200)]
    title: Annotated[str, Meta(max_length=100)] = ""
    description: Annotated[str, Meta(min_length=1, max_length=MAX_DESCRIPTION)]
    version: Annotated[str, Meta(min_length=1, max_length=255)]
    website_url: _UrlOrNone = ""
    repository: Repository | None = None
    packages: tuple[Package, ...] = ()
    remotes: tuple[Remote, ...] = ()


def checked(found: ServerJson) -> bytes:
    """Return the text of the file. Raises ConfigurationError if the schema or the registry refuses it."""
    # Only decoding checks the patterns and lengths of strings.
    data = msgspec.json.encode(found)
    try:
        msgspec.json.decode(data, type=ServerJson)
    except msgspec.ValidationError as error:
        text = printable(error, 500)
        if "$.name" in text:
            text = f"the name {printable(found.name)!r} must be NAMESPACE/NAME, as io.github.you/weather: use --name"
        elif "$.description" in text:
            count = len(found.description)
            text = f"its description has {count} characters, but needs 1 to {MAX_DESCRIPTION}: use --description"
        raise ConfigurationError(f"server.json would not be valid: {text}") from None

    for version in (found.version, *(package.version for package in found.packages)):
        if _RANGE.search(version):
            raise ConfigurationError(f"the version {version!r} is a range: the registry accepts one exact version")
    if not found.packages and not found.remotes:
        raise ConfigurationError(
            "server.json needs a package or a URL: --pypi PACKAGE, --bundle-url URL or --remote URL; a "
            "pyproject.toml with a name is enough, too"
        )
    return msgspec.json.format(data, indent=2) + b"\n"


def remote(url: str) -> Remote:
    """Return the entry of a server behind a URL. Raises ConfigurationError if others cannot reach it."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    is_here = host in ("localhost", "::1") or host.startswith("127.") or host.endswith((".localhost", ".local"))
    if parts.scheme != "https" or not host or is_here:
        raise ConfigurationError(
            f"--remote {url.partition('?')[0]}: the registry accepts only https URLs that everybody can reach"
        )
    if parts.username or parts.password:
        raise ConfigurationError("--remote: remove the password from the URL, because server.json is public")
    return Remote(type="streamable-http", url=url)


def bundle_package(url: str, digest: str) -> Package:
    """Return the entry of a released bundle. Raises ConfigurationError for a URL that the registry refuses."""
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.hostname not in _FORGES or "/releases/" not in parts.path:
        text = "the registry accepts bundles of releases on GitHub and GitLab"
        raise ConfigurationError(
            f"--bundle-url {url.partition('?')[0]}: {text}, such as https://github.com/…/releases/…"
        )
    if "mcp" not in url.lower():
        raise ConfigurationError("--bundle-url: the registry requires `mcp` somewhere in it: name the file NAME.mcpb")
    return Package(registry_type="mcpb", identifier=url, file_sha256=digest, transport=_STDIO)


def pypi_package(text: str, version: str) -> Package:
    """Return the entry of a package of the Python index: NAME, or NAME==VERSION. The default version is `version`."""
    name, _, own = text.partition("==")
    return Package(registry_type="pypi", identifier=name, version=own or version, runtime_hint="uvx", transport=_STDIO)


def repository(url: str) -> Repository | None:
    """Return the repository of a URL, if the registry knows its forge."""
    parts = urlsplit(url)
    source = _FORGES.get((parts.hostname or "").removeprefix("www."))
    return Repository(url=url.removesuffix(".git"), source=source) if source and parts.scheme == "https" else None


def variables(words: tuple[str, ...]) -> tuple[Input, ...]:
    """Return the variables of NAME, or NAME=VALUE with a default."""
    return tuple(
        Input(
            name=name,
            description=f"The variable {name} of the server.",
            is_required=value is None,
            is_secret=is_hidden(name),
            default=value or "",
        )
        for name, value in split_variables(words).items()
    )


def shortened(text: str) -> str:
    """Return the first sentence, or as many whole words as fit into a description."""
    text = " ".join(text.split())
    if len(text) <= MAX_DESCRIPTION:
        return text
    sentence = re.match(r".+?[.!?](?= )", text)
    if sentence and len(sentence[0]) <= MAX_DESCRIPTION:
        return sentence[0]
    cut = text[: MAX_DESCRIPTION - 1]
    return f"{cut.rpartition(' ')[0] or cut}…"
