"""reStructuredText: its text as Markdown. No file is included, nothing raw is let through, no setting is read.

Directives and roles that only Sphinx knows keep their text. This changes tables of docutils: it runs in a process of
its own (`apart.py`).
"""

from __future__ import annotations

from mcpd.docs.page import Page, UnreadablePage
from mcpd.docs.readers.decoding import decoded
from mcpd.docs.readers.markdown import markdown_page

_SETTINGS = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "report_level": 5,
    "halt_level": 5,
    "warning_stream": False,
    "input_encoding": "unicode",
    "line_length_limit": 20_000,
    "smart_quotes": False,
    "doctitle_xform": False,
    "sectsubtitle_xform": False,
    "syntax_highlight": "none",
    "expose_internals": None,
    "traceback": False,
}


def read_rst(path: str, data: bytes, with_links: bool = True) -> Page:
    """The page of a reStructuredText file. Raises UnreadablePage for what cannot be read."""
    try:
        from docutils import core, utils

        from mcpd.docs.readers.rst_directives import accept_all
        from mcpd.docs.readers.rst_writer import written
    except ImportError:
        raise UnreadablePage("reStructuredText needs a library: pip install 'mcpd-server[docs]'") from None

    accept_all()
    try:
        tree = core.publish_doctree(decoded(data), settings_overrides=_SETTINGS)
        text = written(tree)
    except RecursionError:
        raise UnreadablePage("is nested too deep") from None
    except utils.SystemMessage as error:
        raise UnreadablePage(f"cannot be read ({error})") from None
    return markdown_page(path, text, "rst", {}, with_links=with_links)
