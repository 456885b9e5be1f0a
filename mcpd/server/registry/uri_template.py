"""URIs, and URI templates of RFC 6570 levels 1 to 3: reads the values of variables from a URI.

`{var}` matches one path segment, `{+var}` and `{#var}` may contain "/" and everything else, `{.var}`, `{/var}`,
`{;var}`, `{?var}` and `{&var}` bring their own separator; each may name several variables. Level 4 (`{var:3}`,
`{var*}`) is refused, because a match cannot reconstruct values that were cut off or joined.

The RFC defines expansion only. Matching follows these rules:

- Values are percent-decoded exactly once, also for `+` and `#`, which copy the triplets of a value when they
  expand. A URI with a broken percent-encoding, or one whose decoded value is not UTF-8, matches nothing.
- `{var}` and `{+var}` need a value. The others may be absent, like undefined variables; their variables are then
  absent from the result. Parameters (`?`, `&`, `;`) come in any order, each at most once, and without others.
- Characters that expansion would have encoded are accepted where that is unambiguous, because hosts fill in
  templates by hand. If a URI can be cut in several ways, earlier variables get more.

**A value is the peer's text.** `{+path}` may contain "../..", and so may `{name}` as "%2E%2E%2F". `problem_of` refuses
values that could lead a path out of its folder, for code that joins them to a folder, or passes them to a program that
decodes them again: `..`, absolute paths, drive letters, backslashes and NULs in any number of encodings. Links in file
systems are not checked.

Matching takes time proportional to the URI's length. It goes forward once, with all positions where a part may end, and
back once to choose. It never tries the same thing twice, as a regular expression would.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from mcpd.errors import RegistrationError

# `re` compiles these patterns when they are first used.
# The characters that may appear anywhere in a URI, except "%".
PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;="

# A pattern of characters that a URI must not contain.
NOT_URI = r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]"

_IP_LITERAL = r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\[\]]*\[[0-9A-Fa-f:.v]+\]"


def as_uri(text: str) -> str:
    """Return a URI as people type it with invalid characters percent-encoded (RFC 3986; RFC 3987 section 3.1)."""
    uri = re.sub(NOT_URI, percent, text) if text.strip(PLAIN) else text
    if "[" not in uri and "]" not in uri:
        return uri
    # Brackets are only valid around an IP address.
    host = re.match(_IP_LITERAL, uri)
    end = host.end() if host else 0
    return uri[:end] + uri[end:].replace("[", "%5B").replace("]", "%5D")


def percent(found: re.Match[str]) -> str:
    """Return a match percent-encoded."""
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


# The maximum number of percent-encodings of a value; each is checked.
MOST_ENCODINGS = 8

_ANY_ENCODED_RUN = r"(?:%[0-9A-Fa-f]{2})+"
# Overlong forms of ASCII characters: UTF-8 forbids them, some decoders accept them (RFC 3629 section 3).
_OVERLONG = rb"[\xc0\xc1]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]"


def problem_of(variables: Mapping[str, str], exempt: frozenset[str]) -> tuple[str, str] | None:
    """Return the first variable whose value is not a safe path, and the reason; None if all are. `exempt` are not
    checked.
    """
    for name, value in variables.items():
        if name not in exempt:
            problem = path_problem(value)
            if problem:
                return name, problem
    return None


def path_problem(value: str) -> str:
    """Return what is wrong with a value, as a phrase that follows "it"; "" if nothing is."""
    problem = _plain_problem(value)
    for _ in range(MOST_ENCODINGS):
        if problem or "%" not in value:
            return problem
        try:
            decoded = re.sub(_ANY_ENCODED_RUN, _decode, value)
        except _Overlong:
            return "has characters in a form that UTF-8 forbids"
        if decoded == value:
            return ""
        value = decoded
        problem = _plain_problem(value)
        if problem:
            problem += ", percent-encoded twice or more"
    return problem or ("is percent-encoded too often" if re.search(_ANY_ENCODED_RUN, value) else "")


class _Overlong(Exception):
    """Bytes that some decoders read as an ASCII character."""


def _decode(run: re.Match[str]) -> str:
    data = bytes.fromhex(run[0].replace("%", ""))
    if re.search(_OVERLONG, data):
        raise _Overlong
    return data.decode("utf-8", "replace")


def _plain_problem(value: str) -> str:
    if "\0" in value:
        return "has a NUL"
    if "\\" in value:
        return "has a backslash"
    if value.startswith("/"):
        return "is an absolute path"
    if value[1:2] == ":" and value[0].isascii() and value[0].isalpha():
        return "begins with a drive letter"
    # Windows ignores spaces around a name.
    if ".." in value and any(segment.strip() == ".." for segment in value.split("/")):
        return "has a segment '..'"
    return ""


# Longer URIs match no template.
MAX_URI_CHARS: Final = 65_536

# `re` compiles these patterns when they are first used.
_NAME = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*\Z"
_TRIPLET = r"%[0-9A-Fa-f]{2}"
_BROKEN_PERCENT = r"%(?![0-9A-Fa-f]{2})"
_ENCODED_RUN = r"(?:%[0-9A-F]{2})+"
# RFC 6570 section 2.1, without "'", which its erratum 6937 allows.
_NOT_LITERAL = r'[\x00-\x20"<>\\^`|}\x7f]|%(?![0-9A-Fa-f]{2})'
_NOT_ASCII = r"[^\x00-\x7f]+"


class _Operator(Struct, frozen=True, gc=False):
    # A row of the table in RFC 6570 appendix A, as far as matching needs it, and the characters that end a value.
    first: str
    separator: str
    is_named: bool
    ends: str


_OPERATORS: Final = {
    "": _Operator("", ",", False, "/?#"),
    "+": _Operator("", ",", False, ""),
    "#": _Operator("#", ",", False, ""),
    ".": _Operator(".", ".", False, "/?#"),
    "/": _Operator("/", "/", False, "/?#"),
    ";": _Operator(";", ";", True, "/?#;"),
    "?": _Operator("?", "&", True, "#&"),
    "&": _Operator("&", "&", True, "#&"),
}


class _Literal(Struct, frozen=True, gc=False):
    # Literal text of the URI; "" skips a part that may be absent.
    source: int
    text: str


class _Value(Struct, frozen=True, gc=False):
    # A variable's value: at least `least` characters, up to one that ends it.
    source: int
    name: str
    run: re.Pattern[str]
    least: int


class _Parameters(Struct, frozen=True, gc=False):
    # Named parameters in any order: `name` matches a name and its "=", `bound` the end of its value.
    source: int
    operator: _Operator
    name: re.Pattern[str]
    bound: re.Pattern[str]


_Edge = _Literal | _Value | _Parameters


class UriTemplate:
    """A compiled template. Raises RegistrationError, with the position, for invalid text.

    Compiled to a row of states: `_edges[n]` are the ways to reach state n from earlier ones, the preferred first.
    """

    def __init__(self, text: str) -> None:
        self.text = text

        parts = tuple(_parsed(text))
        names = [name for part in parts if not isinstance(part, str) for name in part[1]]
        self.variables: tuple[str, ...] = tuple(dict.fromkeys(names))

        self._edges: list[tuple[_Edge, ...]] = [()]
        for part in parts:
            if isinstance(part, str):
                self._add(_Literal(len(self._edges) - 1, _upper_triplets(part)))
            else:
                self._add_expression(*part)

        first = parts[0] if parts else ""
        # A quick check first; triplets may be written in two ways.
        self._prefix = first.partition("%")[0] if isinstance(first, str) else ""

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def _add(self, *edges: _Edge) -> int:
        self._edges.append(edges)
        return len(self._edges) - 1

    def _add_expression(self, sign: str, names: tuple[str, ...]) -> None:
        operator = _OPERATORS[sign]
        state = start = len(self._edges) - 1
        if operator.is_named:
            bound = f"[{re.escape(operator.ends)}]"
            name = f"({'|'.join(re.escape(name) for name in names)})(?:=|(?={bound})|\\Z)"
            self._add(_Parameters(start, operator, re.compile(name), re.compile(bound)), _Literal(start, ""))
            return

        ends = operator.ends + ("," if not sign and len(names) > 1 else "")
        run = re.compile(f"[^{re.escape(ends)}]*" if ends else r"[\s\S]*")
        least = 0 if operator.first else 1

        complete = []
        for index, name in enumerate(names):
            state = self._add(_Literal(state, operator.separator if index else operator.first))
            state = self._add(_Value(state, name, run, least))
            complete.append(state)

        if operator.first:
            # The last variables may be absent: values go to the first names.
            self._add(*(_Literal(state, "") for state in (*reversed(complete), start)))

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the variables' decoded values if the URI matches, otherwise None."""
        if len(uri) > MAX_URI_CHARS or not uri.startswith(self._prefix):
            return None
        if "%" in uri and re.search(_BROKEN_PERCENT, uri):
            return None
        if not uri.isascii():
            try:
                uri = re.sub(_NOT_ASCII, percent, uri)
            except UnicodeEncodeError:  # a lone surrogate
                return None
        values = _Match(self._edges, _upper_triplets(uri)).values()
        return None if values is None else _decoded(values)


def _parsed(text: str) -> Iterator[str | tuple[str, tuple[str, ...]]]:
    # Yield the parts of a template: literal text as it appears in a URI, and (operator, names) of an expression.
    at = 0
    while at < len(text):
        start = text.find("{", at)
        literal = text[at:] if start < 0 else text[at:start]
        if literal.strip(PLAIN):  # it contains other characters
            if wrong := re.search(_NOT_LITERAL, literal):
                raise _error(text, at + wrong.start(), f"{wrong[0]!r} is not valid in a URI; write it percent-encoded")
            literal = re.sub(NOT_URI, percent, literal)
        if literal:
            yield literal
        if start < 0:
            return
        end = text.find("}", start)
        if end < 0:
            raise _error(text, start, "'{' without '}'")
        yield _expression(text, start, text[start + 1 : end])
        at = end + 1


def _expression(text: str, start: int, inner: str) -> tuple[str, tuple[str, ...]]:
    sign = inner[:1] if inner[:1] in _OPERATORS else ""
    at = start + 1 + len(sign)
    if inner[:1] and inner[:1] in "=,!@|":
        raise _error(text, at, f"the operator {inner[0]!r} is reserved and has no meaning")

    names = _upper_triplets(inner[len(sign) :]).split(",")
    for name in names:
        if name.endswith("*") or ":" in name:
            hint = "{+" + name[:-1] + "}" if name.endswith("*") and len(names) == 1 and sign in ("", "/") else ""
            hint = f"; for the rest of a path, with its slashes, write {hint}" if hint else ""
            raise _error(
                text, at, f"{name!r} has a modifier of RFC 6570 level 4 (':3' or '*'), which is not supported{hint}"
            )

        if not (name.isascii() and name.isidentifier()) and not re.match(_NAME, name):
            raise _error(text, at, f"{name!r} is not a variable name; use letters, digits, '_' and inner '.'")
        at += len(name) + 1
    return sign, tuple(names)


def _error(text: str, at: int, problem: str) -> RegistrationError:
    return RegistrationError(f"URI template {text!r}, position {at}: {problem}")


class _Match:
    def __init__(self, states: list[tuple[_Edge, ...]], uri: str) -> None:
        self._states = states
        self._uri = uri
        self._inside: frozenset[int] = frozenset()
        if "%" in uri:
            # No value ends inside a percent-encoding.
            triplets = [found.start() for found in re.finditer(_TRIPLET, uri)]
            self._inside = frozenset(at + digit for at in triplets for digit in (1, 2))
        # For each state the positions it can be in, ascending; for each of these after parameters, how it came about.
        self._reached: list[list[int]] = [[0]]
        self._chosen: dict[int, dict[int, _Choice]] = {}

    def values(self) -> dict[str, str] | None:
        # Return each variable's text, still encoded, if the last state can be at the URI's end.
        for edges in self._states[1:]:
            found = [self._ends(edge, self._reached[edge.source]) for edge in edges]
            self._reached.append(found[0] if len(found) == 1 else sorted({at for ends in found for at in ends}))

        if not _has(self._reached[-1], len(self._uri)):
            return None
        values: dict[str, str] = {}
        state, end = len(self._states) - 1, len(self._uri)

        while state:
            for edge in self._states[state]:
                start, found_here = self._back(edge, end)
                if start is not None:
                    break
            else:
                raise AssertionError("every position was reached from one before it")

            for name, value in found_here.items():
                if values.setdefault(name, value) != value:
                    return None  # named twice in the template, and not the same
            state, end = edge.source, start
        return values

    def _ends(self, edge: _Edge, starts: list[int]) -> list[int]:
        # Return the positions that an edge leads to from any of `starts`, ascending.
        uri = self._uri

        if isinstance(edge, _Literal):
            length = len(edge.text)
            return [at + length for at in starts if uri.startswith(edge.text, at)]
        if isinstance(edge, _Parameters):
            choices = self._chosen[edge.source] = _parameters(edge, uri, starts)
            return sorted(choices)

        ends: list[int] = []
        done = -1
        for at in starts:
            # From a later start in the same run nothing is reached that was not reached before.
            if at > done:
                done = _run_end(edge, uri, at)
                ends.extend(range(at + edge.least, done + 1))
        return [end for end in ends if end not in self._inside] if self._inside else ends

    def _back(self, edge: _Edge, end: int) -> tuple[int | None, dict[str, str]]:
        # Return where an edge that leads to `end` begins, and its values. The last such place, so that earlier edges
        # get more.
        starts = self._reached[edge.source]
        if isinstance(edge, _Literal):
            at = end - len(edge.text)
            return (at if _has(starts, at) and self._uri.startswith(edge.text, at) else None), {}
        if isinstance(edge, _Parameters):
            choice = self._chosen[edge.source].get(end)
            if choice is None:
                return None, {}
            return choice.start, {name: self._uri[begin:stop] for name, (begin, stop) in choice.spans.items()}
        index = bisect_right(starts, end - edge.least)
        at = starts[index - 1] if index else end
        return (at if index and _run_end(edge, self._uri, at) >= end else None), {edge.name: self._uri[at:end]}


def _has(positions: list[int], at: int) -> bool:
    index = bisect_left(positions, at)
    return index < len(positions) and positions[index] == at


def _run_end(edge: _Value, uri: str, at: int) -> int:
    match = edge.run.match(uri, at)
    return match.end() if match else at


class _Choice(Struct, frozen=True, gc=False):
    # Parameters from `start` on: where the value of each begins and ends.
    start: int
    spans: dict[str, tuple[int, int]]


def _parameters(edge: _Parameters, uri: str, starts: list[int]) -> dict[int, _Choice]:
    # Return each position where parameters may end that begin at one of `starts`, with the last such choice.
    choices: dict[int, _Choice] = {}
    starts = [at for at in starts if uri.startswith(edge.operator.first, at)]
    # Found once, because values may overlap, as in "?q=?q=?q=…".
    bounds = [match.start() for match in edge.bound.finditer(uri)] if starts else []
    bounds.append(len(uri))

    for start in starts:
        at, mark = start, edge.operator.first
        spans: dict[str, tuple[int, int]] = {}
        while uri.startswith(mark, at) and (match := edge.name.match(uri, at + 1)):
            name = match[1]
            if name in spans:
                break
            end = bounds[bisect_left(bounds, match.end(1))]
            spans = {**spans, name: (match.end(), end)}
            choices[end] = _Choice(start, spans)
            at, mark = end, edge.operator.separator
    return choices


def _upper_triplets(uri: str) -> str:
    if "%" not in uri:
        return uri
    return re.sub(_TRIPLET, lambda found: found[0].upper(), uri)


def _decoded(values: dict[str, str]) -> dict[str, str] | None:
    try:
        return {
            name: re.sub(_ENCODED_RUN, lambda run: bytes.fromhex(run[0].replace("%", "")).decode(), value)
            if "%" in value
            else value
            for name, value in values.items()
        }
    except UnicodeDecodeError:
        return None
