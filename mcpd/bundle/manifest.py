"""manifest.json of a bundle, in version 0.4 of the format: the first with servers that `uv` gets the packages for.

The structs take nothing that the official tool (`mcpb validate`) refuses, and `checked` reads them anew to be sure.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_Url = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9+.-]*://[^\s/]+\S*$")]
_Email = Annotated[str, Meta(pattern=r"^[^@\s]+@[^@\s.]+(\.[^@\s.]+)+$")]
_Text = Annotated[str, Meta(min_length=1)]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An object of the manifest: members that are not set are left out."""


class Author(_Part, frozen=True, kw_only=True):
    """Who made it."""

    name: _Text
    email: _Email | UnsetType = UNSET
    url: _Url | UnsetType = UNSET


class Repository(_Part, frozen=True, kw_only=True, tag_field="type", tag="git"):
    """Where its source is."""

    url: _Url


class Icon(_Part, frozen=True, kw_only=True):
    """A PNG in the bundle."""

    src: _Text
    size: Annotated[str, Meta(pattern=r"^\d+x\d+$")]


class Launch(_Part, frozen=True, kw_only=True):
    """How a host starts it; `${__dirname}` is the folder that it has unpacked the bundle into."""

    command: _Text
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class ServerPart(_Part, frozen=True, kw_only=True):
    """What runs."""

    type: Literal["uv"] | UnsetType = UNSET
    entry_point: _Text
    mcp_config: Launch


class ListedTool(_Part, frozen=True, kw_only=True):
    """A tool, as it is shown before the server was ever started."""

    name: _Text
    description: str = ""


class ListedPrompt(_Part, frozen=True, kw_only=True):
    """A prompt, as it is shown before the server was ever started; `${arguments.NAME}` in its text is an argument."""

    name: _Text
    text: str
    description: str = ""
    arguments: tuple[str, ...] = ()


class Compatibility(_Part, frozen=True, kw_only=True):
    """What it needs."""

    runtimes: dict[Literal["python"], str]


class Question(_Part, frozen=True, kw_only=True):
    """Something that the user is asked for when the bundle is installed."""

    type: Literal["string", "number", "boolean", "directory", "file"]
    title: str
    description: str
    required: bool = False
    sensitive: bool = False
    default: str | float | bool | UnsetType = UNSET


class Manifest(_Part, frozen=True, kw_only=True):
    """The whole file."""

    manifest_version: Literal["0.4"] | UnsetType = UNSET
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    display_name: str = ""
    version: Annotated[str, Meta(pattern=r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$")]
    description: _Text
    long_description: str = ""
    author: Author
    repository: Repository | UnsetType = UNSET
    homepage: _Url | UnsetType = UNSET
    documentation: _Url | UnsetType = UNSET
    support: _Url | UnsetType = UNSET
    icon: str = ""
    icons: tuple[Icon, ...] = ()
    server: ServerPart
    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[ListedPrompt, ...] = ()
    prompts_generated: bool = False
    keywords: tuple[str, ...] = ()
    license: str = ""
    compatibility: Compatibility | UnsetType = UNSET
    user_config: dict[str, Question] = {}


def checked(manifest: Manifest) -> bytes:
    """The file's text. Raises ConfigurationError that names the member which the format does not take."""
    text = msgspec.json.encode(manifest)
    try:
        msgspec.json.decode(text, type=Manifest)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"the manifest would not be valid: {printable(error, 500)}") from None
    return msgspec.json.format(text, indent=2) + b"\n"
