"""The names of tools in the texts of a server that is served together with others, where they have a prefix.

Only what is surely the name of a tool is written anew: a name that is no word of a language, where it stands alone, and
any name between the marks of code. What is an argument of the tool, part of a path or of a longer name stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

_ODD = re.compile(r"[A-Za-z0-9](?:[_.-]+|(?<=[a-z])(?=[A-Z]))[A-Za-z0-9]")


class SiblingNames:
    """The tools of one of the servers, and what each is called where all are served."""

    def __init__(self, names: Iterable[str], named: Callable[[str], str]) -> None:
        self._names = sorted(names, key=len, reverse=True)
        self._named = named
        self._pattern: re.Pattern[str] | None = None

    def in_text(self, text: str, arguments: Collection[str] = ()) -> str:
        """The text with the names that tools have here; those of `arguments` are left as they are."""
        if not any(name in text for name in self._names):
            return text

        if self._pattern is None:
            odd = "|".join(re.escape(name) for name in self._names if _ODD.search(name)) or "(?!)"
            any_name = "|".join(map(re.escape, self._names))
            self._pattern = re.compile(
                rf"(?<![\w./:@#$%&?=+~\\<\[{{-])(?:(?P<alone>{odd})(?![\w/:@=~\\>\]}}-]|\.\w)"
                rf"|(?<=`)(?P<code>{any_name})(?=`|\())"
            )

        def here(found: re.Match[str]) -> str:
            return found[0] if found[0] in arguments else self._named(found[0])

        return self._pattern.sub(here, text)

    def in_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """A schema of a tool with its descriptions written anew."""
        properties = schema.get("properties")
        found = self._within(schema, frozenset(properties) if isinstance(properties, dict) else frozenset())
        assert isinstance(found, dict)
        return found

    def _within(self, value: Any, arguments: frozenset[str], *, are_keys_ours: bool = True) -> Any:
        if isinstance(value, dict):
            return {
                key: self.in_text(part, arguments)
                if are_keys_ours and key == "description" and isinstance(part, str)
                else part
                if key in ("const", "default", "enum", "examples") and are_keys_ours
                else self._within(part, arguments, are_keys_ours=not (are_keys_ours and key in _OF_NAMES))
                for key, part in value.items()
            }
        if isinstance(value, list):
            return [self._within(part, arguments) for part in value]
        return value


_OF_NAMES = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
