"""Every log line of mcpd: what a peer sent stands in it as `printable` writes it, and no record leaves its line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
from support.source_code import parsed

PACKAGE = Path(__file__).resolve().parent.parent / "mcpd"

METHODS = {"say", "debug", "info", "warning", "error", "exception", "critical", "log"}
LOGGERS = {"faults", "_faults", "log", "_log", "logger", "_logger"}

# What no peer can write, by the text of the expression. Anything else goes through `printable`.
OURS = {
    "ANNOTATION": "a constant",
    "*args": "handed on by the output of a View, and looked at where it is called",
    "asked.method": "has a row in a table of ours",
    "bad": "a number",
    "bad + len(found)": "a number",
    "callee.tool": "what the author registered",
    "call.method": "has a handler, so is a name of the specification",
    "(self.id or '')[:8]": "made by us",
    "document.digest": "a sha256 in hex",
    "_names((*self._running, *self._without_slot))": "made printable there",
    "event": "a word of ours",
    "self._callee.tool": "a tool's name",
    "how": "a word of ours",
    "kind.__qualname__": "a class of the author's",
    "kind": "a word of ours, such as tool",
    "new": "a sha256 in hex",
    "old": "a sha256 in hex",
    "shown": "a kind of outcome, and a number",
    "record.id[:8]": "made by us",
    "record.owner[:8] or 'nobody'": "a sha256 in hex",
    "record.tool": "what the author registered",
    "self._output.name": "printable, where the output is made",
    "self.state.value": "an enum of ours",
    "self._view.id": "made by us",
    "self.id": "made by us",
    "self.kind.title()": "a word of ours",
    "subject": "printable, where it is made",
    "self.key": "what the author registered",
    "self.name": "printable, where the output is made",
    "self.what": "what the author registered",
    "text": "a text of ours",
    "tool": "what the author registered",
    "state.value": "an enum of ours",
    "view.id": "made by us",
    "request.status or 'gone'": "a number",
}


# What no line of text shows: the JSON log reads it, and escapes it once more.
FIELDS = {
    "{'mcpd_fields': fields}": "printable, where they are made",
    "_ONCE": "a mark that all are to be written: no text",
}

_CONVERSION = re.compile(r"%[-#0 +]*[\d.]*([a-zA-Z])")
_NUMBERS = set("dgfeixo")


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """All calls of a logger."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            whose = node.func.value
            name = whose.id if isinstance(whose, ast.Name) else whose.attr if isinstance(whose, ast.Attribute) else ""
            is_made = isinstance(whose, ast.Call) and ast.unparse(whose.func).endswith("getLogger")
            is_view_log = name == "_output" and node.func.attr == "log"
            if name in LOGGERS or is_made or is_view_log:
                yield node


def faults(source: str) -> list[str]:
    """The log calls in a module that may write what a peer sent."""
    found = []
    for call in calls(parsed(source)):
        template, *arguments = call.args[1:] if ast.unparse(call.func).endswith((".log", ".say")) else call.args
        # A text too long for its line is named in the one before; the output of a View puts its name before the text.
        if not isinstance(template, ast.Constant) and ast.unparse(template) not in {"text", "f'%s: {text}'"}:
            found.append(f"{call.lineno}: the text is no constant")
        kinds = _CONVERSION.findall(str(template.value)) if isinstance(template, ast.Constant) else []
        for argument, kind in zip_longest(arguments, kinds, fillvalue=""):
            if not isinstance(argument, ast.expr) or kind in _NUMBERS:
                continue
            shown = ast.unparse(argument)
            is_printable = isinstance(argument, ast.Call) and ast.unparse(argument.func) == "printable"
            if not (is_printable or isinstance(argument, ast.Constant) or shown in OURS):
                found.append(f"{call.lineno}: {shown}")
        found += [
            f"{call.lineno}: extra"
            for keyword in call.keywords
            if keyword.arg == "extra" and ast.unparse(keyword.value) not in FIELDS
        ]
    return found


# What is handed on by `Faults` is looked at where it is said.
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parts[-2:] != ("client", "limits.py"))


def test_what_peers_send_is_printable_in_every_log_line() -> None:
    wrong = [f"{path.relative_to(PACKAGE)}:{fault}" for path in MODULES for fault in faults(path.read_text("utf-8"))]
    assert not wrong, "wrap it in printable(…), or say here why no peer can write it:\n" + "\n".join(wrong)


def test_the_exceptions_are_all_in_use() -> None:
    used = {ast.unparse(argument) for path in MODULES for call in calls(parsed(path)) for argument in call.args[1:]}
    assert set(OURS) <= used, sorted(set(OURS) - used)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ('log.info("%s", name)', 1),
        ('log.info("%s", printable(name))', 0),
        ('log.info("%s %s", printable(name), other)', 1),
        ('log.info(f"{name}")', 1),
        ('log.info("%d %.1f %s", status, took, name)', 1),
        ('log.info("%s", a, b)', 2),
        ('log.log(10, "%s", name)', 1),
        ('self.log.error("x", exc_info=error)', 0),
        ('logging.getLogger("mcpd").error("%s", error)', 1),
        ('ctx.info("%s", name)', 0),
    ],
)
def test_the_look_at_log_lines_sees(line: str, count: int) -> None:
    assert len(faults(line)) == count
