"""Reads an OpenAPI document, JSON or YAML. References are resolved by the library `referencing`.

A document may have several files. It is not trusted: only files below its folder are read for references, or URLs of
its own origin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias
from urllib.parse import urldefrag, urljoin

import yaml
from msgspec import DecodeError, Struct
from msgspec.json import decode
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

# A resolver of `referencing` for a place in the document.
Resolver: TypeAlias = Any

MAX_BYTES: Final = 64 * 1024 * 1024
_MOST_STEPS: Final = 20
_MOST_PARTS: Final = 1_000_000
_MOST_FILES: Final = 200
_METHODS: Final = ("get", "put", "post", "delete", "patch", "head", "options", "trace", "query")


class Unusable(Exception):
    """A part of a document cannot be used. The text says why."""


class Node(Struct, frozen=True):
    """An object in a document. Members that are references are followed; raises Unusable if that is not possible."""

    content: Mapping[str, Any]
    resolver: Resolver

    def get(self, name: str) -> Node:
        """Return a member that is an object, or {}."""
        found = self.content.get(name)
        return resolved(found if isinstance(found, dict) else {}, self.resolver)

    def items(self, name: str) -> list[Node]:
        """Return the objects in a list, or []."""
        found = self.content.get(name)
        given: list[Any] = found if isinstance(found, list) else []
        return [resolved(each, self.resolver) for each in given if isinstance(each, dict)]

    def text(self, name: str) -> str:
        """Return a member that is text, without control characters, or ""."""
        found = self.content.get(name)
        return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", found).strip() if isinstance(found, str) else ""


def resolved(content: Mapping[str, Any], resolver: Resolver) -> Node:
    """Return an object, or the object to which it refers. Raises Unusable."""
    for _ in range(_MOST_STEPS):
        reference = content.get("$ref")
        if not isinstance(reference, str):
            return Node(content, resolver)
        content, resolver = look_up(reference, resolver)
        if not isinstance(content, dict):
            raise Unusable(f"the reference {printable(reference, 100)} does not lead to an object")
    raise Unusable(f"the reference {printable(reference, 100)} leads in a circle")


def look_up(reference: str, resolver: Resolver) -> tuple[Any, Resolver]:
    """Return the part of a document that a reference names, and its resolver. Raises Unusable."""
    try:
        found = resolver.lookup(reference)
    except (Unresolvable, LookupError, ValueError, TypeError, AttributeError):
        why = "it leads to nothing"
        if not reference.startswith("#"):
            why += " that belongs to the document; bundle its files into one"
        raise Unusable(f"the reference {printable(reference, 100)} cannot be followed: {why}") from None
    return found.contents, found.resolver


def read_others(content: Any, place: str, read: Callable[[str], Any]) -> dict[str, Any]:
    """Return the files that a document at `place` refers to, by their places.

    `read` returns the content of one, and raises ConfigurationError if it cannot be a part of the document.
    """
    found: dict[str, Any] = {place: content}
    seen = {place}
    queue = [place]
    for base in queue:  # grows
        for reference in _references(found[base]):
            there = urldefrag(urljoin(base, reference)).url
            if there in seen or len(seen) > _MOST_FILES:
                continue
            seen.add(there)
            with suppress(ConfigurationError):  # the operation that needs it reports it
                found[there] = read(there)
                queue.append(there)

    del found[place]
    return found


def _references(content: Any) -> Iterator[str]:
    # Yield the references to other files. In YAML one object may be in many places.
    waiting, seen = [content], set[int]()
    while waiting:
        each = waiting.pop()
        if not isinstance(each, (dict, list)) or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, list):
            waiting += each
            continue
        reference = each.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            yield reference
        waiting += each.values()


class Document:
    """An OpenAPI 3 document. `url` is its URL, or "" if it is not from a URL. Raises ConfigurationError.

    `others` are the other files that belong to it, by their places; it is itself at `place`. `files` are the paths of
    all, if they are files of this machine.
    """

    def __init__(
        self,
        content: Any,
        where: str,
        url: str = "",
        *,
        place: str = "",
        others: Mapping[str, Any] = {},
        files: Sequence[str] = (),
    ) -> None:
        if not isinstance(content, dict):
            raise ConfigurationError(f"{where}: an OpenAPI document is an object, not a {type(content).__name__}")
        version = str(content.get("openapi", ""))
        if "swagger" in content:
            text = f"{where} is Swagger {printable(content['swagger'], 20)}, which is not supported"
            raise ConfigurationError(f"{text}: convert it to OpenAPI 3, for example with npx swagger2openapi {where}")
        if not version.startswith(("3.0", "3.1", "3.2")):
            what = f"openapi: {printable(version, 20)}" if version else "no member openapi"
            raise ConfigurationError(f"{where} has {what}: OpenAPI 3.0, 3.1 and 3.2 are supported")
        self.where, self.url, self.files = where, url, files
        self.is_old = version.startswith("3.0")
        parts = {place: content, **others}
        registry = Registry[Any]().with_resources((at, DRAFT202012.create_resource(part)) for at, part in parts.items())
        self.root = Node(content, registry.resolver(place))
        # The number of parts of schemas that may still be converted, however often references repeat them.
        self.parts_left = _MOST_PARTS

    @property
    def info(self) -> Node:
        """The title and version of the API."""
        try:
            return self.root.get("info")
        except Unusable:
            return Node({}, None)

    def operations(self) -> Iterator[tuple[str, str, Node, list[Node] | Unusable]]:
        """Yield the method, path and content of each operation, with the parameters of its path or why not."""
        paths = self.root.content.get("paths")
        for path, given in paths.items() if isinstance(paths, dict) else ():
            item = given if isinstance(given, dict) else {}
            shared: list[Node] | Unusable
            try:
                if not str(path).startswith("/"):  # it would be a part of the host's name
                    raise Unusable("its path does not begin with /")
                node = resolved(item, self.root.resolver)
                node = Node({**node.content, **item}, node.resolver)
                shared = node.items("parameters")
            except Unusable as error:
                node, shared = Node(item, self.root.resolver), error
            for method in _METHODS:
                if isinstance(node.content.get(method), dict):
                    yield method, str(path), Node(node.content[method], node.resolver), shared

    @property
    def security_schemes(self) -> dict[str, Node]:
        """The security schemes by their names, without those whose reference leads nowhere."""
        schemes = {}
        with suppress(Unusable):
            node = self.root.get("components").get("securitySchemes")
            for name in node.content:
                with suppress(Unusable):
                    schemes[str(name)] = node.get(name)
        return schemes

    def server(self, content: Mapping[str, Any] | None = None) -> str:
        """Return the URL of the first server that the document, or an operation in it, names; "" without one."""
        servers = (self.root.content if content is None else content).get("servers")
        first: Any = servers[0] if isinstance(servers, list) and servers else None
        url = first.get("url") if isinstance(first, dict) else None
        if not isinstance(url, str) or not (self.url or "://" in url):
            return ""
        variables = first.get("variables")

        def value(found: re.Match[str]) -> str:
            variable = variables.get(found[1]) if isinstance(variables, dict) else None
            return str(variable.get("default", found[0])) if isinstance(variable, dict) else found[0]

        return urljoin(self.url, re.sub(r"\{([^{}]*)\}", value, url)).rstrip("/")


def parsed(data: bytes, where: str) -> Any:
    """Return the content of a JSON or YAML document. Raises ConfigurationError."""

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    try:
        if data.lstrip()[:1] == b"{":
            return decode(data)
        # As in YAML 1.2, dates are text, and so is `no`, which is Norway in lists of countries.
        Loader.yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":timestamp"))]
            for first, resolvers in Loader.yaml_implicit_resolvers.items()
        }
        Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), ["t", "f"])
        return yaml.load(data, Loader=Loader)
    except (DecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{where} is neither JSON nor YAML: {printable(error, 300)}") from None
