"""The options of the decorators `tool`, `resource` and `prompt`, for type checkers (`Unpack`).

Their names alone, by which others are refused at run time, are in `server/metadata.py` too; a test compares them. A
missing option is None or empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict

from mcpd.protocol.types.base import Icon
from mcpd.protocol.types.features import Annotations, ToolAnnotations
from .caching import CacheHint
from .rules import EntryRule, ScopesOf

Icons: TypeAlias = Iterable[Icon | Mapping[str, Any]]


class Described(TypedDict, total=False):
    """Options of everything that is listed."""

    name: str | None
    """By default the function's name."""
    title: str | None
    description: str | None
    """By default from the function's docstring."""
    icons: Icons
    meta: Mapping[str, Any] | None
    """Its `_meta`."""


class DescribedPrompt(Described, total=False):
    """Options of prompts, tools and resources."""

    tags: Iterable[str]
    """Groups entries, for `Server.enable` and `disable`, visibility rules, and clients (groups in `_meta`)."""
    enabled: bool
    """False hides the entry until `Server.enable`."""
    visible: EntryRule | None
    """A function of the Context that returns whether the caller sees the entry; None shows it to everybody."""
    scopes: Collection[str] | ScopesOf | None
    """The scopes that a caller's token needs, or a function that returns them for the arguments as received."""
    hide: bool
    """True hides the entry from callers without its `scopes`."""
    anonymous: bool
    """True admits callers without a token."""


class DescribedTool(DescribedPrompt, total=False):
    """Options of tools."""

    annotations: ToolAnnotations | Mapping[str, Any] | None
    """Hints for clients, such as {"readOnlyHint": True}."""
    input_schema: Mapping[str, Any] | None
    """A JSON Schema; the function then takes one dict that fits it."""
    output_schema: Mapping[str, Any] | None
    """A JSON Schema for the function's result."""
    structured_output: bool
    """False sends the result as text only, without an output schema, whatever the annotation."""
    timeout: float | None
    """The time limit of a call in seconds, not counting questions to the client. The default is the server's
    `tool_timeout`; math.inf means no limit.
    """
    process: bool
    """True runs the function in a process of its own, which can be ended at any time."""
    memory: int | str | None
    """The most memory that the process may use, in bytes or as "512M" or "1G"."""
    calls: int
    """How many calls one process may run, such as 1; 0 for any number."""
    process_start: Literal["fork", "spawn"] | None
    """`spawn` starts each process as a new interpreter, `fork` copies one that has imported the target. The default is
    `fork` on Linux, unless importing the target starts threads.
    """
    search_hint: str | None
    """Words by which hosts that search tools find it, beside its name and description."""
    always_load: bool
    """True asks hosts that search tools to show it to the model always."""
    extensions: Mapping[str, Mapping[str, Any]]
    """The options of extensions, by the extension's id."""


class DescribedResource(DescribedPrompt, total=False):
    """Options of resources."""

    mime_type: str | None
    size: int | None
    """In bytes; for a resource with a fixed URI."""
    annotations: Annotations | Mapping[str, Any] | None
    cache: CacheHint | None
    """How long clients may keep the content, and who; by default not at all."""
    unsafe_paths: bool | Collection[str]
    """The variables of a template that may hold any text: True for all, or their names. Values of other variables
    cannot be absolute paths or contain `..`, a backslash, a drive letter or NUL, in any encoding.
    """
