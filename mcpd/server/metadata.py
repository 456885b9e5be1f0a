"""Checks the metadata of entries: icons, annotations, `_meta` and texts of tools, resources and prompts.

One item that cannot be encoded would fail its whole list, so it is refused by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, ValidationError, convert
from msgspec.json import decode, encode

from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.protocol.jsonrpc import explain
from mcpd.protocol.state_keys import StateKeys, keys_of_process, read_keys
from mcpd.protocol.types.base import Icon, Implementation, Meta
from mcpd.protocol.types.features import TextContent

if TYPE_CHECKING:
    from mcpd.server.registry.catalog import Catalog
    from mcpd.server.registry.options import DescribedPrompt, DescribedTool, Icons
    from mcpd.server.registry.prompts import FunctionPrompt
    from mcpd.server.registry.resources import FunctionResource, FunctionTemplate
    from mcpd.server.registry.tools import FunctionTool

_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_KEY = rf"(?:{_LABEL}(?:\.{_LABEL})*/)?(?:{_NAME})?"


def is_meta_key(key: str) -> bool:
    """Return whether a key of `_meta` is valid, e.g. `com.example/unit` (S26-027, S26-028). Spec: 2026-07-28
    basic/index.
    """
    prefix, slash, name = key.partition("/")
    if slash and key.isascii() and name.isalnum() and all(map(str.isalpha, prefix.split("."))):
        return True  # most keys; compiling the pattern costs start-up time
    return re.fullmatch(_KEY, key) is not None


S = TypeVar("S", bound=Struct)

_DESCRIBED = ("name", "title", "description", "icons", "meta", "tags", "enabled", "visible", "scopes", "hide",
              "anonymous")  # fmt: skip
# The names of the options in `registry.options`, whose classes would cost start-up time.
OPTIONS = {
    "tool": (*_DESCRIBED, "annotations", "input_schema", "output_schema", "structured_output", "timeout", "process",
             "memory", "calls", "process_start", "search_hint", "always_load", "extensions"),
    "resource": (*_DESCRIBED, "mime_type", "size", "annotations", "cache", "unsafe_paths"),
    "prompt": _DESCRIBED,
}  # fmt: skip


def check_options(what: str, options: Mapping[str, Any], others: Iterable[str] = ()) -> None:
    """Refuse an option that a `what` (tool, resource or prompt) does not have; `others` are options of extensions."""
    known = (*OPTIONS[what], *others)
    for option in options:
        if option not in known:
            raise RegistrationError(f"{what}: unknown option {option!r}; the options are {', '.join(known)}")


def decorate(decorator: str, given: Any, add: Callable[[Any], object]) -> Any:
    """Return the result of `@server.tool` or `@server.tool(…)`: the function, which is added, or a decorator."""

    def register(function: Any) -> Any:
        add(function)
        return function

    if isinstance(given, str):
        raise RegistrationError(f"{decorator}: pass the name as name=, as in @server.{decorator}(name={given!r})")
    return register if given is None else register(given)


def checked(item: S, where: str) -> S:
    """Return the item if it can be encoded. Raises RegistrationError naming the option."""
    try:
        decode(encode(item), type=type(item))
    except ValidationError as error:
        text = explain(error)
        for option, member in zip(item.__struct_fields__, item.__struct_encode_fields__, strict=True):
            if text.startswith(member):
                text = option + text[len(member) :]
                break
        raise RegistrationError(f"{where}, {text}") from None
    except (TypeError, ValueError, RecursionError, OverflowError):
        for option in item.__struct_fields__:
            try:
                encode(getattr(item, option))
            except Exception as error:
                raise RegistrationError(f"{where}, {option}: {error}") from None
        raise
    return item


def identity_of(name: str, instructions: str | None, icons: Icons, **others: str | None) -> Implementation:
    """Return a server's identity. Raises RegistrationError, also for its instructions."""
    where = f"server {name!r}"
    values: dict[str, Any] = {"name": name, **others, "icons": icons_of(icons, where)}
    identity = Implementation(**values)
    if instructions is not None:
        checked(TextContent(instructions), f"{where}, instructions")
    return checked(identity, where)


def icons_of(icons: Icons, where: str) -> list[Icon] | None:
    """Return icons as structs, or None without any."""
    if isinstance(icons, (str, Mapping)) or not isinstance(icons, Iterable):
        raise RegistrationError(f'{where}, icons: expected a list like [{{"src": "https://…"}}], got {icons!r}')
    return [_struct(icon, Icon, f"{where}, icons") for icon in icons] or None


def hints_of(annotations: Any, kind: type[S], where: str) -> S | None:
    """Return the `annotations` of a tool or resource as a struct."""
    return None if annotations is None else _struct(annotations, kind, f"{where}, annotations")


def meta_of(meta: Any, where: str) -> Meta:
    """Return a copy of `_meta`. Raises RegistrationError for a key that clients may refuse."""
    if meta is None:
        return None
    if not (isinstance(meta, Mapping) and all(isinstance(key, str) for key in meta)):
        raise RegistrationError(f"{where}, meta: expected a dict with str keys, got {meta!r}")
    for key in meta:
        if not is_meta_key(key):
            raise RegistrationError(
                f"{where}, meta: the key {key!r} must be a name, or prefix/name such as com.example/unit, of letters, "
                "digits, - _ ."
            )
    return dict(meta)


def tagged(meta: Meta, options: DescribedPrompt, where: str) -> Meta:
    """Return `_meta` with the tags where clients look for them: at `fastmcp.tags`, and as groups (SEP-2084)."""
    tags = options.get("tags")
    if not tags:
        return meta
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise RegistrationError(f'{where}, tags: expected a set of strings like {{"admin"}}, got {tags!r}')
    beside = (meta or {}).get("fastmcp")
    more = beside if isinstance(beside, dict) else {}
    names = sorted(set(tags))
    return {**(meta or {}), "fastmcp": {**more, "tags": names}, "io.modelcontextprotocol/groups": names}


def hinted(meta: Meta, options: DescribedTool, where: str) -> Meta:
    """Return a tool's `_meta` with the hints for hosts that search tools. Raises RegistrationError."""
    hint: Any = options.get("search_hint")
    if hint is not None and not (isinstance(hint, str) and hint.strip()):
        raise RegistrationError(f"{where}, search_hint: expected words, not {hint!r}")
    added: dict[str, Any] = {} if hint is None else {"anthropic/searchHint": hint}
    if options.get("always_load"):
        added["anthropic/alwaysLoad"] = True
    return {**(meta or {}), **added} if added else meta


def offer(
    catalog: Catalog,
    entry: FunctionTool | FunctionResource | FunctionTemplate | FunctionPrompt,
    options: DescribedPrompt,
    where: str,
) -> None:
    """Set who sees an entry and may use it, and whether it is enabled. Raises RegistrationError."""
    entry.tags = frozenset(options.get("tags") or ())
    entry.is_enabled = options.get("enabled") is not False
    visible = options.get("visible")
    if visible is not None:
        if not callable(visible):
            raise RegistrationError(f"{where}, visible: expected a function (context) -> bool, not {visible!r}")
        entry.visible = visible
        catalog.use_rules()
    if options.get("scopes") is None and not options.get("anonymous") and not options.get("hide"):
        return

    from mcpd.server.registry.rules import checked_needs, sees  # few servers check scopes

    hide = bool(options.get("hide"))
    entry.needs = checked_needs(options.get("scopes"), bool(options.get("anonymous")), where, hide=hide)
    if entry.needs is None:
        return
    if hide:
        if entry.visible is not None:
            raise RegistrationError(f"{where}: hide= and visible= exclude each other; check scopes in visible")
        entry.visible = sees(entry.needs)
        catalog.use_rules()
    catalog.guard(entry.needs)


def _struct(given: Any, kind: type[S], where: str) -> S:
    if isinstance(given, kind):
        return given
    members = kind.__struct_encode_fields__
    if not isinstance(given, Mapping):
        raise RegistrationError(f"{where}: expected {kind.__name__} or a dict of {', '.join(members)}; got {given!r}")

    unknown = [key for key in given if key not in members]
    if unknown:
        raise RegistrationError(f"{where}: unknown member {unknown[0]!r}; the members are {', '.join(members)}")

    try:
        return convert(given, kind)
    except ValidationError as error:
        raise RegistrationError(f"{where}, {explain(error)}") from None


def checked_seconds(given: Any, where: str) -> float | None:
    """Return a limit in seconds, or None for none or infinity. Raises RegistrationError."""
    if given is None or given == math.inf:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not given > 0:
        raise RegistrationError(f"{where}: expected seconds, more than 0 (math.inf for no limit), got {given!r}")
    return float(given)


def one_authenticator(auth: Any, authenticate: Any) -> Any:
    """Return the authenticator, which may be given as `auth` or as `authenticate`. Raises ConfigurationError."""
    if auth is not None and authenticate is not None:
        raise ConfigurationError("auth= and authenticate= exclude each other")
    return authenticate if auth is None else auth


def state_keys_of(given: bytes | str | None) -> StateKeys:
    """Return the keys that seal clients' states: the given ones, otherwise keys from the environment, or none.

    A text may contain several keys, separated by commas. Raises ValueError for a key that is too short.
    """
    if isinstance(given, bytes) and given:
        return StateKeys([given])
    return read_keys(str(given)) if given else keys_of_process()
