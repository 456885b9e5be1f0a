"""What a notebook is made of. Encoded as JSON each cell and output says its `kind`; that is what the page shows."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode, format

from mcpd.errors import McpdError


class UnreadableNotebook(McpdError):
    """A file is no notebook that can be shown; the text says why."""


class _Part(Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """A cell or an output."""


class TextOutput(_Part, frozen=True, tag="text"):
    """What was printed, or a value as text; codes of terminals are in it as they came."""

    text: str
    stream: str = ""
    """`stderr`, or empty."""


class ErrorOutput(_Part, frozen=True, tag="error"):
    """An exception, with its traceback as `text`."""

    name: str
    value: str
    text: str = ""


class HtmlOutput(_Part, frozen=True, tag="html"):
    """HTML of others, as a table of pandas; `text` is the same as text, if there is that."""

    html: str
    text: str = ""


class ImageOutput(_Part, frozen=True, tag="image"):
    """An image as base64. `type` is image/png, image/jpeg, image/gif, image/webp or image/svg+xml."""

    type: str
    data: str
    alt: str = ""
    width: int | None = None
    """In pixels, if its author said so."""


class MarkdownOutput(_Part, frozen=True, tag="markdown"):
    """Markdown, or mathematics in dollars; `html` is what became of it."""

    source: str
    html: str | None = None


class OmittedOutput(_Part, frozen=True, tag="omitted"):
    """Something that is not shown: what it is, or why."""

    reason: str


Output: TypeAlias = TextOutput | ErrorOutput | HtmlOutput | ImageOutput | MarkdownOutput | OmittedOutput


class MarkdownCell(_Part, frozen=True, tag="markdown"):
    """Text. `attachments` are images by the name that the text has for them, as `data:` addresses."""

    source: str
    html: str | None = None
    attachments: dict[str, str] = {}


class CodeCell(_Part, frozen=True, tag="code"):
    """Code, with what it gave when somebody ran it. `count` says when it ran."""

    source: str
    language: str = ""
    """If it is another one than the notebook's."""
    count: int | None = None
    outputs: tuple[Output, ...] = ()


class RawCell(_Part, frozen=True, tag="raw"):
    """Text that is neither."""

    source: str


class BrokenCell(_Part, frozen=True, tag="broken"):
    """A cell that cannot be read, and why."""

    reason: str


Cell: TypeAlias = MarkdownCell | CodeCell | RawCell | BrokenCell


class Notebook(Struct, frozen=True):
    """A notebook."""

    title: str
    """Its first heading; empty without one."""
    language: str
    """Of its code, in lower case; empty if it does not say."""
    cells: tuple[Cell, ...]


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


_MOST_CELLS: Final = 20_000
_MOST_OUTPUTS: Final = 1_000
_HEADING: Final = r"^ {0,3}#{1,6} ([^\n]{1,300})"


def read_notebook(data: bytes) -> Notebook:
    """The notebook that a file holds. Raises UnreadableNotebook."""
    whole = _decoded(data)
    version = whole.get("nbformat")
    if not isinstance(version, int) or isinstance(version, bool):
        raise UnreadableNotebook("it has no nbformat, which every notebook says")
    if not 2 <= version <= 4:
        raise UnreadableNotebook(
            f"it is of nbformat {version}; 2, 3 and 4 can be shown: save it with a Jupyter of today"
        )

    language = _language(whole.get("metadata"))
    cells = tuple(_cells(whole, version))
    if not language:
        language = next((cell.language for cell in cells if isinstance(cell, CodeCell) and cell.language), "")
    return Notebook(_title(whole.get("metadata"), cells), language, cells)


def _decoded(data: bytes) -> Mapping[str, object]:
    try:
        whole = decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (DecodeError, UnicodeDecodeError) as error:
        raise UnreadableNotebook(f"it is no JSON ({error})") from None
    except RecursionError:
        raise UnreadableNotebook("its JSON is nested too deeply") from None
    if not isinstance(whole, dict):
        raise UnreadableNotebook("it is JSON, but no object")
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
            raise UnreadableNotebook("its cells are no list")
        for cell in cells:
            found += 1
            if found > _MOST_CELLS:
                yield BrokenCell(f"cells after the first {_MOST_CELLS:,}")
                return
            yield _cell(cell)


def _cell(cell: object) -> Cell:
    if not isinstance(cell, dict):
        return BrokenCell("a cell that is no object")
    kind = cell.get("cell_type")
    source = text_of(cell.get("input", cell.get("source")) if kind == "code" else cell.get("source"))
    if source is None:
        return BrokenCell("a cell whose source is no text")

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
    return tuple(map(output_of, given[:_MOST_OUTPUTS])) if isinstance(given, list) else (output_of(given),)


def _attachments(given: object) -> dict[str, str]:
    """Images that a cell brings with it."""
    found: dict[str, str] = {}
    for name, bundle in given.items() if isinstance(given, dict) else ():
        for kind, data in bundle.items() if isinstance(bundle, dict) else ():
            encoded = text_of(data)
            if kind in IMAGES and kind != "image/svg+xml" and encoded:
                found[str(name)] = f"data:{kind};base64,{''.join(encoded.split())}"
    return found


def _language(metadata: object) -> str:
    """What the code is written in, as the notebook says somewhere."""
    if not isinstance(metadata, dict):
        return ""
    for member, key in (("language_info", "name"), ("kernelspec", "language")):
        said = metadata.get(member)
        name = said.get(key) if isinstance(said, dict) else None
        if isinstance(name, str) and name:
            return name.lower()[:40]
    name = metadata.get("language")
    return name.lower()[:40] if isinstance(name, str) else ""


def _title(metadata: object, cells: tuple[Cell, ...]) -> str:
    """What its author called it, else its first heading."""
    said = metadata.get("title") if isinstance(metadata, dict) else None
    if isinstance(said, str) and said.strip():
        return said.strip()[:200]
    for cell in cells[:20]:
        found = re.search(_HEADING, cell.source[:4000], re.MULTILINE) if isinstance(cell, MarkdownCell) else None
        if found:
            return re.sub(r"[*_`]|\[([^\]]{0,200})\]\([^)]{0,300}\)", r"\1", found[1]).strip(" #")[:200]
    return ""
