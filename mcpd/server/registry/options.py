"""The options of the decorators `tool`, `resource` and `prompt`: each once, with its type.

From here come the keywords that type checkers know (`Unpack`). Their names alone, for which others are refused at run
time, are in `server/metadata.py` too; a test holds them together. An option that is not given is None, or empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias, TypedDict

from mcpd.protocol.types.base import Icon
from mcpd.protocol.types.content import Annotations
from mcpd.protocol.types.tools import ToolAnnotations
from mcpd.server.registry.caching import CacheHint
from mcpd.server.registry.rules import EntryRule, ScopesOf

Icons: TypeAlias = Iterable[Icon | Mapping[str, Any]]


class Described(TypedDict, total=False):
    """What everything that is listed may say of itself."""

    name: str | None
    """By default the function's."""
    title: str | None
    description: str | None
    """By default from the function's docstring."""
    icons: Icons
    meta: Mapping[str, Any] | None
    """Its `_meta`."""


class DescribedPrompt(Described, total=False):
    """What a prompt, and every tool and resource, may say beside its function."""

    tags: Iterable[str]
    """What groups entries: for `Server.enable` and `disable`, for rules, and for clients in `_meta.fastmcp.tags`."""
    enabled: bool
    """False: it is not there until `Server.enable` says so."""
    visible: EntryRule | None
    """A function of the Context that says whether whoever sends a request sees it; None: everybody does."""
    scopes: Collection[str] | ScopesOf | None
    """The scopes that a caller's token needs, or a function of the arguments, as they came, that gives them."""
    hide: bool
    """True: those whose token lacks its `scopes` do not see it either."""
    anonymous: bool
    """True: it is for callers without a token too, where all others need one."""


class DescribedTool(DescribedPrompt, total=False):
    """What a tool may say beside its function."""

    annotations: ToolAnnotations | Mapping[str, Any] | None
    """Hints for clients, like {"readOnlyHint": True}."""
    input_schema: Mapping[str, Any] | None
    """A JSON Schema; the function then takes one dict that fits it."""
    output_schema: Mapping[str, Any] | None
    """A JSON Schema that what the function returns has to fit."""
    structured_output: bool
    """False: what the function returns is told as text alone, without an output schema, whatever it is annotated."""
    timeout: float | None
    """How many seconds a call may take, without the time in which the client is asked; by default the server's
    `tool_timeout`, math.inf for no limit."""
    extensions: Mapping[str, Mapping[str, Any]]
    """The options of extensions, by the extension's id."""


class DescribedResource(DescribedPrompt, total=False):
    """What a resource may say beside its function."""

    mime_type: str | None
    size: int | None
    """In bytes; for a resource with a fixed URI."""
    annotations: Annotations | Mapping[str, Any] | None
    cache: CacheHint | None
    """How long clients may keep what it holds, and who; by default not at all."""
    unsafe_paths: bool | Collection[str]
    """The variables of a template that may hold any text: True for all, or their names. Those of others are no
    absolute paths and have no `..`, backslash, drive letter or NUL, in any encoding."""
