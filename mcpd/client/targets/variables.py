"""Variables in the values of hosts' configurations, replaced as each host does it.

braces   ${NAME}, ${NAME:-default}; one that is not set and has no default stays as text, with a line in the log
shell    $NAME, ${NAME}, %NAME% on Windows; one that is not set becomes ""
env      ${env:NAME}, ${userHome}, ${workspaceFolder}, ${pathSeparator}; one that is not set becomes ""
file     both `braces` and `env`: a file whose host is not known
curly    {env:NAME}; one that is not set becomes ""
secrets  ${{ secrets.NAME }}, looked for in the environment
none     a value is a value
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd.client")

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_BRACES = rf"\$\{{(?P<braces>{_NAME})(?::-(?P<default>[^}}]*))?\}}"
_ENV = rf"\$\{{(?:env:(?P<env>{_NAME})|input:(?P<input>[^}}]*)|(?P<place>userHome|workspaceFolder|pathSeparator|/))\}}"
_PATTERNS = {
    "braces": re.compile(_BRACES),
    "shell": re.compile(rf"\$\{{(?P<shell>{_NAME})\}}|\$(?P<bare>{_NAME})"),
    "env": re.compile(_ENV),
    "file": re.compile(f"{_ENV}|{_BRACES}"),
    "curly": re.compile(rf"\{{env:(?P<env>{_NAME})\}}"),
    "secrets": re.compile(rf"\$\{{\{{\s*(?:secrets|inputs)\.(?P<env>{_NAME})\s*\}}\}}"),
}
_PERCENT = re.compile(rf"{_PATTERNS['shell'].pattern}|%(?P<percent>{_NAME})%")


class Variables:
    """Replaces variables in the values of one entry; `where` names the entry in errors and in the log."""

    def __init__(self, dialect: str, environment: Mapping[str, str], where: str, *, is_windows: bool = False) -> None:
        self._pattern = _PERCENT if dialect == "shell" and is_windows else _PATTERNS.get(dialect)
        self._environment = environment
        self._where = where
        self._missing: set[str] = set()

    def expand(self, text: str) -> str:
        """The value as the host uses it. Raises ConfigurationError for what only a host could ask its user for."""
        return text if self._pattern is None else self._pattern.sub(self._replace, text)

    def get(self, name: str) -> str | None:
        """A variable that the entry names without any signs, None if it is not set."""
        return self._environment.get(name)

    def _replace(self, match: re.Match[str]) -> str:
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        if "input" in found:
            raise ConfigurationError(
                f"{self._where}: the host asks its user for {match[0]}; put the value into a file of your own, "
                "or give the server as a command or URL"
            )
        if "place" in found:
            return self._place(found["place"])

        default = found.pop("default", None)
        ((kind, name),) = found.items()
        value = self._environment.get(name)
        if value is not None and (value or default is None):
            return value
        if default is not None:
            return default
        if kind != "braces":
            return ""
        if name not in self._missing:
            self._missing.add(name)
            log.warning(
                "%s: the variable %s is not set, and ${%s} stays as it is",
                printable(self._where),
                printable(name),
                printable(name),
            )
        return match[0]

    def _place(self, name: str) -> str:
        if name == "userHome":
            return self._environment.get("HOME") or self._environment.get("USERPROFILE") or os.path.expanduser("~")
        return os.getcwd() if name == "workspaceFolder" else os.sep
