"""manifest.json of a bundle, in version 0.4 of the format, the first with servers whose packages `uv` installs.

The structs accept nothing that the official tool (`mcpb validate`) refuses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mcpd.cli.install.launch import is_hidden
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_Url = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9+.-]*://[^\s/]+\S*$")]
_Email = Annotated[str, Meta(pattern=r"^[^@\s]+@[^@\s.]+(\.[^@\s.]+)+$")]
_Text = Annotated[str, Meta(min_length=1)]
Kind: TypeAlias = Literal["string", "number", "boolean", "directory", "file"]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An object of the manifest. Members that are not set are left out."""


class Author(_Part, frozen=True, kw_only=True):
    name: _Text
    email: _Email | UnsetType = UNSET
    url: _Url | UnsetType = UNSET


class Repository(_Part, frozen=True, kw_only=True, tag_field="type", tag="git"):
    url: _Url


class Icon(_Part, frozen=True, kw_only=True):
    """A PNG in the bundle."""

    src: _Text
    size: Annotated[str, Meta(pattern=r"^\d+x\d+$")]


class Launch(_Part, frozen=True, kw_only=True):
    """The command by which a host starts the server; `${__dirname}` is the folder of the unpacked bundle."""

    command: _Text
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class ServerPart(_Part, frozen=True, kw_only=True):
    type: Literal["uv"] | UnsetType = UNSET
    entry_point: _Text
    mcp_config: Launch


class ListedTool(_Part, frozen=True, kw_only=True):
    """A tool, as it is shown before the server is first started."""

    name: _Text
    description: str = ""


class ListedPrompt(_Part, frozen=True, kw_only=True):
    """A prompt, as it is shown before the server is first started; `${arguments.NAME}` in its text is an argument."""

    name: _Text
    text: str
    description: str = ""
    arguments: tuple[str, ...] = ()


class Compatibility(_Part, frozen=True, kw_only=True):
    runtimes: dict[Literal["python"], str]


class Question(_Part, frozen=True, kw_only=True):
    """A value that the user enters when the bundle is installed."""

    type: Kind
    title: str
    description: str
    required: bool = False
    sensitive: bool = False
    default: str | float | bool | UnsetType = UNSET


class Manifest(_Part, frozen=True, kw_only=True):
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
    """Return the text of the file. Raises ConfigurationError that names the invalid member."""
    # Only decoding checks the patterns and lengths of strings.
    text = msgspec.json.encode(manifest)
    try:
        msgspec.json.decode(text, type=Manifest)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"the manifest would not be valid: {printable(error, 500)}") from None
    return msgspec.json.format(text, indent=2) + b"\n"


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def split_variables(words: Iterable[str]) -> dict[str, str | None]:
    """Split NAME and NAME=VALUE; the value is None for NAME. Raises ConfigurationError for a value that is a secret."""
    variables: dict[str, str | None] = {}
    for word in words:
        name, has_value, value = word.partition("=")
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"--env {name}: write --env NAME, or --env NAME=VALUE with a default value")
        if has_value and is_hidden(name):
            raise ConfigurationError(
                f"--env {name}=…: do not put a secret into a file for others; write --env {name}, so that each user "
                "enters it"
            )
        variables[name] = value if has_value else None
    return variables


def make_question(name: str, default: str | None, here: str) -> Question:
    """Return the question for a variable, which the user must enter unless it has a default."""
    # `here`, its value on this machine, determines the kind of the question. It does not go into the bundle.
    example = here if default is None else default
    kind: Kind = "string"
    value: str | bool | None = default
    if example.lower() in ("true", "false"):
        kind, value = "boolean", None if default is None else default.lower() == "true"
    elif os.path.isabs(example) and not is_hidden(name):
        kind = "directory" if os.path.isdir(example) else "file" if os.path.isfile(example) else "string"

    return Question(
        type=kind,
        title=" ".join(name.replace("_", " ").split()).capitalize(),
        description=f"The variable {name} of the server.",
        required=default is None,
        sensitive=kind != "boolean" and is_hidden(name),
        default=UNSET if value is None else value,
    )
