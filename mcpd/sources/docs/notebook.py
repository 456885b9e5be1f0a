"""Jupyter notebooks (nbformat 2 to 4) as structs. No code is run.

The structs are also the JSON that the View receives, in which each cell and output has a `kind`. Many programs write
notebooks, so every member is checked. A broken cell is replaced by a `BrokenCell`; the others are still read.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode, format

from mcpd.errors import McpdError


class UnreadableNotebook(McpdError):
    """The file is not a notebook that can be shown; the message says why."""


class _Part(Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """A cell or an output."""


class TextOutput(_Part, frozen=True, tag="text"):
    """Printed text or a value as text, including terminal escape sequences."""

    text: str
    stream: str = ""
    """`stderr` or empty."""


class ErrorOutput(_Part, frozen=True, tag="error"):
    """An exception with its traceback in `text`."""

    name: str
    value: str
    text: str = ""


class HtmlOutput(_Part, frozen=True, tag="html"):
    """HTML such as a table of pandas. `text` is the plain text version, if there is one."""

    html: str
    text: str = ""


class ImageOutput(_Part, frozen=True, tag="image"):
    """An image in base64. `type` is image/png, image/jpeg, image/gif, image/webp or image/svg+xml."""

    type: str
    data: str
    alt: str = ""
    width: int | None = None
    """In pixels, if the notebook specifies it."""


class MarkdownOutput(_Part, frozen=True, tag="markdown"):
    """Markdown or mathematics between dollar signs; `html` is the rendered version."""

    source: str
    html: str | None = None


class OmittedOutput(_Part, frozen=True, tag="omitted"):
    """An output that is not shown, with the reason."""

    reason: str


Output: TypeAlias = TextOutput | ErrorOutput | HtmlOutput | ImageOutput | MarkdownOutput | OmittedOutput


class MarkdownCell(_Part, frozen=True, tag="markdown"):
    """Markdown. `attachments` maps the names of attached images to `data:` URLs."""

    source: str
    html: str | None = None
    attachments: dict[str, str] = {}


class CodeCell(_Part, frozen=True, tag="code"):
    """Code with its outputs. `count` is the execution count."""

    source: str
    language: str = ""
    """Empty if it is the language of the notebook."""
    count: int | None = None
    outputs: tuple[Output, ...] = ()


class RawCell(_Part, frozen=True, tag="raw"):
    source: str


class BrokenCell(_Part, frozen=True, tag="broken"):
    """A cell that cannot be read, with the reason."""

    reason: str


Cell: TypeAlias = MarkdownCell | CodeCell | RawCell | BrokenCell


class Notebook(Struct, frozen=True):
    title: str
    """Its title or first heading; may be empty."""
    language: str
    """The language of its code in lower case; empty if unknown."""
    cells: tuple[Cell, ...]


IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")

MAX_TEXT: Final = 60_000
MAX_HTML: Final = 400_000
# In base64. The View receives a cell in one message, and hosts limit messages to a few megabytes.
MAX_IMAGE: Final = 2_000_000

# Keys in nbformat 2 and 3.
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


def output_of(given: object) -> Output:
    # An output may have several forms; the most expressive one that can be shown without running code is chosen.
    if not isinstance(given, dict):
        return OmittedOutput("an output that is not an object")
    kind = given.get("output_type")
    if kind == "stream":
        text = text_of(given.get("text"))
        if text is None:
            return OmittedOutput("an output that is not text")
        is_error = given.get("name", given.get("stream")) == "stderr"
        return TextOutput(shortened(_final(text)), "stderr" if is_error else "")

    if kind in ("error", "pyerr"):
        trace = given.get("traceback")
        lines = [line for line in trace if isinstance(line, str)] if isinstance(trace, list) else []
        return ErrorOutput(_word(given.get("ename")), _word(given.get("evalue")), shortened("\n".join(lines)))
    if kind not in ("execute_result", "display_data", "pyout", "update_display_data"):
        return OmittedOutput(f"an output of the unknown type {kind!r:.60}")

    bundle = given.get("data")
    if not isinstance(bundle, dict):
        bundle = {name: given[old] for old, name in _OLD_NAMES.items() if old in given}
    metadata = given.get("metadata")
    return _best(bundle, metadata if isinstance(metadata, dict) else {})


def text_of(given: object) -> str | None:
    """Return a text that is stored as a string or as a list of lines; None for other values."""
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(isinstance(line, str) for line in given):
        return "".join(given)
    return "" if given is None else None


def _best(bundle: Mapping[str, object], metadata: Mapping[str, object]) -> Output:
    texts = {name: text for name, given in bundle.items() if given is not None and (text := text_of(given)) is not None}
    plain = texts.get("text/plain", "")
    html = texts.get("text/html", "")
    for kind in IMAGES if "<table" not in html.lower() else ():
        if texts.get(kind):
            return _image(kind, texts[kind], plain, metadata.get(kind, metadata))

    for kind in ("text/latex", "text/markdown"):
        if texts.get(kind) and not html:
            return MarkdownOutput(shortened(_in_dollars(texts[kind]) if kind == "text/latex" else texts[kind]))
    if html:
        if len(html) <= MAX_HTML:
            return HtmlOutput(html, shortened(plain))
        return TextOutput(shortened(plain)) if plain else OmittedOutput(f"HTML of {len(html):,} characters")
    if "text/plain" in texts:
        return TextOutput(shortened(plain))

    for kind in bundle:
        if kind == "application/json" or kind.endswith("+json"):
            return TextOutput(shortened(format(encode(bundle[kind]), indent=2).decode()))
    return OmittedOutput(" and ".join(sorted(map(str, bundle))[:5])[:200] or "an output without data")


def _image(kind: str, data: str, plain: str, metadata: object) -> Output:
    attributes = metadata if isinstance(metadata, dict) else {}
    width, alt = attributes.get("width"), attributes.get("alt")
    if kind == "image/svg+xml":
        data = base64.b64encode(data.encode(errors="replace")).decode()
    else:
        data = "".join(data.split())

    if len(data) > MAX_IMAGE:
        return OmittedOutput(f"an {kind} of {len(data) * 3 // 4:,} bytes")
    # The plain text describes the image, unless it is only an object's repr.
    words = alt if isinstance(alt, str) else plain if plain and not plain.startswith("<") else ""
    return ImageOutput(kind, data, words[:300], width if isinstance(width, int) and 0 < width < 10_000 else None)


def _in_dollars(text: str) -> str:
    # Return LaTeX as mathematics in Markdown, between dollar signs.
    bare = text.strip()
    if bare.startswith(("$", "\\begin{")):
        return bare
    if bare.startswith("\\[") and bare.endswith("\\]"):
        bare = bare[2:-2].strip()
    return f"$$\n{bare}\n$$"


def _final(text: str) -> str:
    # Return what a terminal shows in the end, after lines such as progress bars were overwritten.
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters are left out …\n{text[-half:]}"


def _word(given: object) -> str:
    return given[:2000] if isinstance(given, str) else ""


_MAX_CELLS: Final = 20_000
_MAX_OUTPUTS: Final = 1_000
_HEADING: Final = r"^ {0,3}#{1,6} ([^\n]{1,300})"


def read_notebook(data: bytes) -> Notebook:
    """Return the notebook in a file. Raises UnreadableNotebook."""
    whole = _decoded(data)
    version = whole.get("nbformat")
    if not isinstance(version, int) or isinstance(version, bool):
        raise UnreadableNotebook("it has no nbformat, which is required")
    if not 2 <= version <= 4:
        raise UnreadableNotebook(f"nbformat {version} is not supported; save it with a current version of Jupyter")

    language = _language(whole.get("metadata"))
    cells = tuple(_cells(whole, version))
    if not language:
        language = next((cell.language for cell in cells if isinstance(cell, CodeCell) and cell.language), "")
    return Notebook(_title(whole.get("metadata"), cells), language, cells)


def _decoded(data: bytes) -> Mapping[str, object]:
    try:
        whole = decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (DecodeError, UnicodeDecodeError) as error:
        raise UnreadableNotebook(f"it is not valid JSON ({error})") from None
    except RecursionError:
        raise UnreadableNotebook("its JSON is nested too deeply") from None
    if not isinstance(whole, dict):
        raise UnreadableNotebook("it is JSON, but not an object")
    return whole


def _cells(whole: Mapping[str, object], version: int) -> Iterator[Cell]:
    if version == 4:
        given = [whole.get("cells")]
    else:
        sheets = whole.get("worksheets")
        given = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)] if isinstance(sheets, list) else [0]
    found = 0
    for cells in given:
        if not isinstance(cells, list):
            raise UnreadableNotebook("its cells are not a list")
        for cell in cells:
            found += 1
            if found > _MAX_CELLS:
                yield BrokenCell(f"cells after the first {_MAX_CELLS:,}")
                return
            yield _cell(cell)


def _cell(cell: object) -> Cell:
    if not isinstance(cell, dict):
        return BrokenCell("a cell that is not an object")
    kind = cell.get("cell_type")
    source = text_of(cell.get("input", cell.get("source")) if kind == "code" else cell.get("source"))
    if source is None:
        return BrokenCell("a cell whose source is not text")

    if kind == "code":
        count = cell.get("execution_count", cell.get("prompt_number"))
        language = cell.get("language")
        return CodeCell(
            source,
            language=language.lower()[:40] if isinstance(language, str) else "",
            count=count if isinstance(count, int) and not isinstance(count, bool) else None,
            outputs=_outputs(cell.get("outputs")),
        )

    if kind == "heading":
        level = cell.get("level")
        return MarkdownCell(f"{'#' * (level if isinstance(level, int) and 1 <= level <= 6 else 1)} {source}")
    if kind in ("markdown", "html"):
        return MarkdownCell(source, attachments=_attachments(cell.get("attachments")))
    return RawCell(source) if kind in ("raw", "plaintext") else BrokenCell(f"a cell of the unknown type {kind!r:.60}")


def _outputs(given: object) -> tuple[Output, ...]:
    if given is None:
        return ()
    return tuple(map(output_of, given[:_MAX_OUTPUTS])) if isinstance(given, list) else (output_of(given),)


def _attachments(given: object) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, bundle in given.items() if isinstance(given, dict) else ():
        for kind, data in bundle.items() if isinstance(bundle, dict) else ():
            encoded = text_of(data)
            if kind in IMAGES and kind != "image/svg+xml" and encoded:
                found[str(name)] = f"data:{kind};base64,{''.join(encoded.split())}"
    return found


def _language(metadata: object) -> str:
    if not isinstance(metadata, dict):
        return ""
    for member, key in ((metadata.get("language_info"), "name"), (metadata.get("kernelspec"), "language"),
                        (metadata, "language")):  # fmt: skip
        name = member.get(key) if isinstance(member, dict) else None
        if isinstance(name, str) and name:
            return name.lower()[:40]
    return ""


def _title(metadata: object, cells: tuple[Cell, ...]) -> str:
    title = metadata.get("title") if isinstance(metadata, dict) else None
    if isinstance(title, str) and title.strip():
        return title.strip()[:200]
    for cell in cells[:20]:
        found = re.search(_HEADING, cell.source[:4000], re.MULTILINE) if isinstance(cell, MarkdownCell) else None
        if found:
            return re.sub(r"[*_`]|\[([^\]]{0,200})\]\([^)]{0,300}\)", r"\1", found[1]).strip(" #")[:200]
    return ""
