"""Reads Markdown by its structural lines: headings, fenced code and comments. MDX becomes Markdown first.

Regular expressions find these lines in a fraction of the time of a full parser. The tests compare the result with a
CommonMark parser.

MDX is Markdown with components. No code runs: imports, exports and comments are removed, and a component is replaced by
its content and its readable properties (title, label, description, link, version and code).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from mcpd.sources.docs.page import NO_ORDER, CodeBlock, Heading, Kind, Page, order_of, section_of, title_of
from mcpd.sources.front_matter import number_in, split_page, text_in
from .text import decoded

# Each match begins with the newline before the line, which is fastest. The possessive quantifiers prevent backtracking.
_MARK = re.compile(
    r"\n(?P<indent>[ \t]*+)(?:"
    r"(?P<hashes>#{1,6}+)(?P<title>[ \t][^\n]*+|(?=\n|\Z))"
    r"|(?P<item>(?:[-*+]|\d{1,9}+[.)])[ \t]++)?+(?P<fence>`{3,}+(?=[^`\n]*+(?:\n|\Z))|~{3,}+)(?P<info>[^\n]*+)"
    r"|(?P<line>=++|-++)[ \t]*+(?=\n|\Z)"
    r"|(?P<comment><!--)"
    r")"
)
_CLOSING = re.compile(r"\n[ \t>]*+(`{3,}+|~{3,}+)[ \t]*+(?=\n|\Z)")
_NO_PARAGRAPH = re.compile(
    r"[ ]{0,3}(?:[>|]|#{1,6}(?:[ \t]|$)|[-*+][ \t]|\d{1,9}[.)][ \t]|([-*_])[ \t]*(?:\1[ \t]*){2,}$"
    r"|<(?:[!?]|/?(?:article|aside|blockquote|body|center|details|div|d[ldt]|figure|footer|form|h[1-6r]|header|html|li"
    r"|main|nav|[ou]l|p|pre|section|style|script|summary|table|t(?:body|d|h|r))\b))|[ ]{4}|\t"
)
_CODE_OR_RULE = re.compile(r"[ ]{4}|[ ]{0,3}\t|[ ]{0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_ID = re.compile(r"[ \t]*\{[ \t]*#([\w:.-]+)[^}\n]*\}[ \t]*$")
_MAX_MARKS = 20_000

_MARKUP = re.compile(r"[`*_\[<\\!&]")
_IMAGE_OR_LINK = re.compile(
    r"!?\[((?:[^\[\]\n]|\[[^\[\]\n]*\]){0,500})\](?:\([^()\n]{0,1000}(?:\([^()\n]*\)[^()\n]*)?\)|\[[^\]\n]{0,200}\])"
)
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,500}>")
_EMPHASIS = re.compile(r"(?<![\w\\])(\*{1,3}|_{1,3})(?=\S)(.{1,300}?)(?<=\S)\1(?!\w)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


class Title(Struct):
    """A heading from the offset `start` to the offset `end`, after its last line."""

    level: int
    text: str
    start: int
    end: int
    anchor: str = ""


class Fence(Struct):
    """A fenced code block from `start` to `end`, with its content from `inner_start` to `inner_end`."""

    info: str
    start: int
    end: int
    inner_start: int
    inner_end: int
    indent: int


class Lines(Struct):
    titles: list[Title]
    fences: list[Fence]
    comments: list[tuple[int, int]]


def scan_lines(text: str, *, is_mdx: bool = False) -> Lines:
    # MDX has no indented code.
    found = Lines([], [], [])
    whole = "\n" + text
    at = floor = marks = 0
    while (mark := _MARK.search(whole, at)) is not None:
        marks += 1
        if marks > _MAX_MARKS:
            break
        at = mark.end()
        indent = mark["indent"]
        is_deep = not is_mdx and (len(indent) > 3 or "\t" in indent)
        if mark["fence"]:
            at = _read_fence(whole, mark, found)
        elif mark["comment"]:
            end = whole.find("-->", at)
            at = len(whole) if end < 0 else end + 3
            found.comments.append((mark.start() + len(indent), at - 1))
        elif is_deep:
            continue
        elif mark["hashes"]:
            title = (mark["title"] or "").strip()
            stripped = title.rstrip("#")
            if stripped != title and (not stripped or stripped[-1] in " \t"):
                title = stripped.rstrip()
            found.titles.append(Title(len(mark["hashes"]), title, mark.start(), at - 1))
        elif not _read_underline(whole, mark, floor, found) and mark["line"][0] == "=":
            continue  # part of the text
        floor = at

    return found


def _read_fence(whole: str, mark: re.Match[str], found: Lines) -> int:
    # Add a fence and return its end in `whole`, which has one more character than the text.
    fence = mark["fence"]
    inner = min(mark.end() + 1, len(whole))
    at = mark.end()
    while (closing := _CLOSING.search(whole, at)) is not None:
        at = closing.end()
        if closing[1][0] == fence[0] and len(closing[1]) >= len(fence):
            break

    inner_end, end = (len(whole), len(whole)) if closing is None else (max(closing.start(), inner - 1), closing.end())
    indent = len(mark["indent"]) + len(mark["item"] or "")
    found.fences.append(
        Fence(
            mark["info"].strip(),
            mark.start() + len(mark["indent"]),
            end - 1,
            inner - 1,
            max(inner_end - 1, inner - 1),
            indent,
        )
    )
    return end


def _read_underline(whole: str, mark: re.Match[str], floor: int, found: Lines) -> bool:
    # Add a heading if there is a paragraph above a line of `=` or `-`. Returns whether there is one.
    lines: list[str] = []
    start = mark.start()  # the newline before the underline
    while start > floor and len(lines) < 10:
        before = whole.rfind("\n", floor, start)
        if before < 0:
            break
        line = whole[before + 1 : start]
        if not line.strip():
            break
        lines.append(line)
        start = before

    while lines and _CODE_OR_RULE.match(lines[-1]):  # above the paragraph, but not part of it
        start += len(lines.pop()) + 1
    if not lines or _NO_PARAGRAPH.match(lines[-1]):
        return False
    lines.reverse()
    title = " ".join(line.strip() for line in lines)
    found.titles.append(Title(1 if mark["line"][0] == "=" else 2, title, start, mark.end() - 1))
    return True


def plain_text(markup: str) -> str:
    if not _MARKUP.search(markup):
        return markup
    text = _IMAGE_OR_LINK.sub(r"\1", markup)
    text = _TAG.sub("", text) if "<" in text else text
    parts = text.split("`")
    if len(parts) > 2:  # code spans are left alone
        last = len(parts) - 1
        text = "".join(part if at % 2 and at < last else _without_emphasis(part) for at, part in enumerate(parts))
    else:
        text = _without_emphasis(text)

    return " ".join(text.split())


def _without_emphasis(text: str) -> str:
    if "*" in text or "_" in text:
        text = _EMPHASIS.sub(r"\2", text)
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def fenced(text: str, info: str) -> str:
    # The fence is longer than any run of backquotes in the text.
    longest = max(map(len, re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{info}\n{text}\n{fence}"


def slug(title: str) -> str:
    # As on GitHub and in most site generators.
    return _NOT_IN_SLUG.sub("", title.strip().lower()).replace(" ", "-")


def titled(titles: list[Title]) -> Iterator[Title]:
    taken: dict[str, int] = {}
    for title in titles:
        anchor = ""
        if title.text.endswith("}") and (own := _ID.search(title.text)):
            anchor = own[1]
            title.text = title.text[: own.start()]
        title.text = plain_text(title.text)
        anchor = anchor or slug(title.text)
        number = taken.get(anchor)
        taken[anchor] = 0 if number is None else number + 1
        title.anchor = anchor if number is None else f"{anchor}-{number + 1}"
        yield title


MAX_DESCRIPTION = 300
_NO_PROSE = ("#", "|", "<", "```", "~~~", "![", "import ", "export ", "{", "---", "***", "===", ":::", "[![")
_LANGUAGE = re.compile(r"\{?\.?([A-Za-z0-9_+#.-]+)")


def read_markdown(path: str, data: bytes) -> Page:
    front, text = split_page(decoded(data))
    return markdown_page(path, text, "markdown", front)


def markdown_page(path: str, text: str, kind: Kind, front: dict[str, object], title: str = "") -> Page:
    """Return the page for a Markdown text. `title` is used if the front matter and the headings have none."""
    lines = scan_lines(text, is_mdx=kind == "mdx")
    if lines.comments:
        text = _cut(text, lines.comments)
        lines = scan_lines(text, is_mdx=kind == "mdx")

    text = text.strip("\n") if not lines.titles and not lines.fences else text.rstrip()
    headings = _headings(lines, len(text))
    first = next((one.title for one in headings if one.level == 1 and one.title), "")
    order = number_in(front, "order", "sidebar_position", "nav_order", "weight", "position")
    sidebar = front.get("sidebar")
    if order is None and isinstance(sidebar, dict):
        order = number_in(sidebar, "order", "position")
    return Page(
        path,
        text_in(front, "title") or first or title or title_of(path),
        section_of(path),
        (text_in(front, "description", "summary", "excerpt") or _introduction(text))[:MAX_DESCRIPTION],
        min(order_of(path), NO_ORDER) if order is None else order,
        text,
        "text/markdown",
        kind,
        headings,
        tuple(_code_block(text, fence) for fence in lines.fences),
    )


def _cut(text: str, ranges: list[tuple[int, int]]) -> str:
    kept: list[str] = []
    at = 0
    for start, end in ranges:
        kept.append(text[at:start])
        at = end
    return "".join([*kept, text[at:]])


def _headings(lines: Lines, length: int) -> tuple[Heading, ...]:
    # Return the headings, each with the end of its section.
    found: list[Heading] = []
    titles = list(titled(lines.titles))
    open_at: list[int] = []
    ends = [length] * len(titles)
    for at, title in enumerate(titles):
        while open_at and titles[open_at[-1]].level >= title.level:
            ends[open_at.pop()] = title.start
        open_at.append(at)

    for title, end in zip(titles, ends, strict=True):
        found.append(Heading(title.level, title.text, title.anchor, title.start, min(end, length)))
    return tuple(found)


def _code_block(text: str, fence: Fence) -> CodeBlock:
    language = _LANGUAGE.match(fence.info)
    inner = text[fence.inner_start : fence.inner_end]
    if fence.indent:
        inner = _dedented(inner, fence.indent)
    return CodeBlock(language[1].lower() if language else "", inner, _line_before(text, fence.start), fence.start)


def _dedented(text: str, indent: int) -> str:
    pad = " " * indent
    return "\n".join(line[indent:] if line.startswith(pad) else line.lstrip(" \t") for line in text.split("\n"))


def _line_before(text: str, at: int) -> str:
    # Return the line above a position.
    lines = text[max(0, at - 600) : at].rstrip().rsplit("\n", 1)
    line = lines[-1].strip()
    if not line or line[0] == "#" or line.startswith(("```", "~~~")):
        return ""
    return plain_text(line.lstrip("-*> "))[-300:]


def _introduction(text: str) -> str:
    # Return the first paragraph.
    for paragraph in text[:4000].split("\n\n", 12)[:12]:
        line = paragraph.strip()
        if line and not line.startswith(_NO_PROSE):
            return plain_text(" ".join(line.split()))
    return ""


_MAX_TAG = 20_000
_MAX_TAGS = 20_000
_MAX_SIGNS = 100_000
_MAX_CODE = 2000
_SIGN = re.compile(r"[{}>\"'`]")
_MODULE = re.compile(r"(?m)^(?:import|export)\b(?=[ \t]*[\w{*'\"(])")
_COMMENT = re.compile(r"\{\s*/\*.*?(?:\*/\s*\}|\Z)", re.DOTALL)
_MDX_MARK = re.compile(r"(`+)|(?<!\\)<(?=[A-Z/>])|(?<!\\)\{")
_NAME = re.compile(r"<(/?)\s*([A-Za-z][\w.:-]*)?")
_PROP = re.compile(
    r"""(?<![\w:-])([A-Za-z_][\w:-]*+)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|\{\s*`([^`]*)`\s*\}|\{\s*"([^"]*)"\s*\}|\{\s*'([^']*)'\s*\}|\{([^{}]*)\})"""
)
_BLANKS = re.compile(r"\n[ \t]*(?:\n[ \t]*){2,}")
_TITLES = ("title", "label", "heading", "name", "summary", "alt")


def read_mdx(path: str, data: bytes) -> Page:
    front, text = split_page(decoded(data))
    return markdown_page(path, readable(text), "mdx", front)


def readable(text: str) -> str:
    if not any(sign in text for sign in ("<", "{", "import ", "export ")):
        return text
    kept: list[str] = []
    brackets = _Brackets()
    at = 0
    for fence in scan_lines(text, is_mdx=True).fences:
        kept.append(_prose(text[at : fence.start], brackets))
        kept.append(text[fence.start : fence.end])
        at = fence.end
    kept.append(_prose(text[at:], brackets))
    return _BLANKS.sub("\n\n", "".join(kept)).lstrip("\n")


def _prose(text: str, brackets: _Brackets) -> str:
    # Convert the text between two fences.
    text = _COMMENT.sub("", text)
    if "import" in text or "export" in text:
        text = _without_modules(text, brackets)
    kept: list[str] = []
    at = tags = 0
    while (mark := _MDX_MARK.search(text, at)) is not None and tags < _MAX_TAGS:
        tags += 1
        start = mark.start()
        if mark[1]:  # a code span
            end = text.find(mark[1], mark.end(), mark.end() + _MAX_CODE)
            end = mark.end() if end < 0 or "\n\n" in text[mark.end() : end] else end + len(mark[1])
            kept.append(text[at:end])
        elif mark[0] == "{":
            end = brackets.closed(text, start)
            kept += text[at:start], _expression(text[start + 1 : end - 1])
        else:
            end = brackets.tag_end(text, start)
            kept += text[at:start], _component(text[start:end])
        at = end

    kept.append(text[at:])
    return "".join(kept)


def _without_modules(text: str, brackets: _Brackets) -> str:
    # Remove import and export statements. A statement ends with the line on which its brackets are closed.
    kept: list[str] = []
    at = 0
    while (found := _MODULE.search(text, at)) is not None:
        kept.append(text[at : found.start()])
        at = found.end()
        while True:
            line = text.find("\n", at)
            brace = text.find("{", at, line if line >= 0 else len(text))
            if brace >= 0:
                at = brackets.closed(text, brace)
                continue
            at = len(text) if line < 0 else line + 1
            break
    kept.append(text[at:])
    return "".join(kept)


class _Brackets:
    """Finds the ends of brackets and tags, with a limit on the total work for a text."""

    def __init__(self) -> None:
        self._left = _MAX_SIGNS

    def closed(self, text: str, start: int) -> int:
        # Without a closing bracket nearby, the position after the opening one is returned.
        depth = 0
        at, limit = start, min(len(text), start + _MAX_TAG)
        while self._left > 0 and (found := _SIGN.search(text, at, limit)) is not None:
            self._left -= 1
            sign, at = found[0], found.end()
            if sign == "{":
                depth += 1
            elif sign == "}":
                depth -= 1
                if not depth:
                    return at
            elif sign != ">" and (sign == "`" or text[found.start() - 1] in " ={([,:\n"):
                at = self._quoted(text, found.start(), limit)

        return start + 1

    def tag_end(self, text: str, start: int) -> int:
        """Return the position after the `>` of a tag, which may contain expressions."""
        at, limit = start + 1, min(len(text), start + _MAX_TAG)
        while self._left > 0 and (found := _SIGN.search(text, at, limit)) is not None:
            self._left -= 1
            sign, at = found[0], found.end()
            if sign == ">":
                return at
            if sign == "{":
                at = self.closed(text, found.start())
            elif sign in "\"'":
                at = self._quoted(text, found.start(), limit)

        return start + 1

    @staticmethod
    def _quoted(text: str, start: int, limit: int) -> int:
        # Return the position after the closing quote, or after `start` without one.
        at = start
        while (at := text.find(text[start], at + 1, limit)) >= 0:
            if text[at - 1] != "\\":
                return at + 1
        return start + 1


def _expression(text: str) -> str:
    # Return an expression as text: a string's value, otherwise its source as code.
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`":
        return text[1:-1]
    if not text or text.startswith("...") or len(text) > 200 or "\n" in text or "=>" in text or "<" in text:
        return ""
    return f"`{text}`"


def _component(tag: str) -> str:
    # Return the readable properties of a tag.
    named = _NAME.match(tag)
    name = (named[2] or "") if named else ""
    if not named or named[1] or not name:
        return ""
    props = {
        found[1]: next((part for part in found.groups()[1:] if part is not None), "") for found in _PROP.finditer(tag)
    }
    if "code" in props and "{" not in props["code"][:1]:
        title = f"**{props['title']}**\n\n" if props.get("title") else ""
        return f"\n\n{title}```{props.get('lang', '')}\n{props['code'].strip()}\n```\n\n"

    title = next((props[one] for one in _TITLES if props.get(one)), "")
    target = props.get("href", "")
    if title and target:
        description = props.get("description", "")
        return f"- [{title}]({target}){': ' + description if description else ''}"

    if version := props.get("version", ""):
        return f"*{name} {version}* "
    kind = props.get("type", "")
    said = ": ".join(part for part in (kind[:1].upper() + kind[1:] if kind.isalpha() else "", title) if part)
    parts = [f"**{said}**" if said else "", props.get("description", "")]
    return "\n".join(part for part in parts if part)
