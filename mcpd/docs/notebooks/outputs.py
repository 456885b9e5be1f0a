"""What a cell gave: of the forms that an output comes in, the one that says most and can be shown without its code."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from msgspec.json import encode, format

from mcpd.docs.notebooks.cells import (
    ErrorOutput,
    HtmlOutput,
    ImageOutput,
    MarkdownOutput,
    OmittedOutput,
    Output,
    TextOutput,
)

IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")

MOST_TEXT: Final = 60_000
MOST_HTML: Final = 400_000
MOST_IMAGE: Final = 2_000_000
"""Of base64. A page gets a cell in one message, and hosts take no more than some megabytes of that."""

_OLD_NAMES: Final = {
    "text": "text/plain",
    "html": "text/html",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
}
"""nbformat 2 and 3."""


def output_of(given: object) -> Output:
    """One output of a code cell."""
    if not isinstance(given, dict):
        return OmittedOutput("an output that is no object")
    kind = given.get("output_type")
    if kind == "stream":
        text = text_of(given.get("text"))
        is_error = given.get("name", given.get("stream")) == "stderr"
        return (
            _without("an output that is no text") if text is None else TextOutput(_cut(_final(text)), _stream(is_error))
        )
    if kind in ("error", "pyerr"):
        trace = given.get("traceback")
        lines = [line for line in trace if isinstance(line, str)] if isinstance(trace, list) else []
        return ErrorOutput(_word(given.get("ename")), _word(given.get("evalue")), _cut("\n".join(lines)))
    if kind not in ("execute_result", "display_data", "pyout", "update_display_data"):
        return _without(f"an output of the unknown type {kind!r:.60}")

    bundle = given.get("data")
    if not isinstance(bundle, dict):
        bundle = {name: given[old] for old, name in _OLD_NAMES.items() if old in given}
    metadata = given.get("metadata")
    return _best(bundle, metadata if isinstance(metadata, dict) else {})


def text_of(given: object) -> str | None:
    """A text, which notebooks keep whole or as lines; None if it is neither."""
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(isinstance(line, str) for line in given):
        return "".join(given)
    return "" if given is None else None


def _best(bundle: Mapping[str, object], metadata: Mapping[str, object]) -> Output:
    texts = {name: text for name, given in bundle.items() if given is not None and (text := text_of(given)) is not None}
    plain = texts.get("text/plain", "")
    html = texts.get("text/html", "")
    has_table = "<table" in html.lower()
    if not has_table:
        for kind in IMAGES:
            if texts.get(kind):
                return _image(kind, texts[kind], plain, metadata.get(kind, metadata))

    for kind in ("text/latex", "text/markdown"):
        if texts.get(kind) and not html:
            return MarkdownOutput(_cut(_in_dollars(texts[kind]) if kind == "text/latex" else texts[kind]))
    if html:
        if len(html) <= MOST_HTML:
            return HtmlOutput(html, _cut(plain))
        return TextOutput(_cut(plain)) if plain else _without(f"HTML of {len(html):,} characters")
    if "text/plain" in texts:
        return TextOutput(_cut(plain))

    for kind in bundle:
        if kind == "application/json" or kind.endswith("+json"):
            return TextOutput(_cut(format(encode(bundle[kind]), indent=2).decode()))
    return _without(" and ".join(sorted(map(str, bundle))[:5])[:200] or "an output without data")


def _image(kind: str, data: str, plain: str, said: object) -> Output:
    width = said.get("width") if isinstance(said, dict) else None
    alt = said.get("alt") if isinstance(said, dict) else None
    if kind == "image/svg+xml":
        data = base64.b64encode(data.encode(errors="replace")).decode()
    else:
        data = "".join(data.split())
    if len(data) > MOST_IMAGE:
        return _without(f"an {kind} of {len(data) * 3 // 4:,} bytes")
    # What stands for the image as text is its words, unless it is only the name of an object.
    words = alt if isinstance(alt, str) else plain if plain and not plain.startswith("<") else ""
    return ImageOutput(kind, data, words[:300], width if isinstance(width, int) and 0 < width < 10_000 else None)


def _in_dollars(text: str) -> str:
    """LaTeX as Markdown has it: mathematics between dollars, whatever stood around it."""
    bare = text.strip()
    if bare.startswith(("$", "\\begin{")):
        return bare
    if bare.startswith("\\[") and bare.endswith("\\]"):
        bare = bare[2:-2].strip()
    return f"$$\n{bare}\n$$"


def _final(text: str) -> str:
    """What a terminal shows in the end of lines that were written over, as those of progress bars."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _cut(text: str) -> str:
    """The beginning and the end of what is too long."""
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters are left out …\n{text[-half:]}"


def _stream(is_error: bool) -> str:
    return "stderr" if is_error else ""


def _word(given: object) -> str:
    return given[:2000] if isinstance(given, str) else ""


def _without(what: str) -> OmittedOutput:
    return OmittedOutput(what)
