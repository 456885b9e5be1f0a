"""Patterns of sentences that fluent readers stumble over, in documentation, docstrings, comments and messages.

A smoke alarm: a text without a finding can still be bad. A finding that is right goes into tests/english_allowed.txt.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from support.source_code import parsed

RULES: list[tuple[str, str, str]] = [
    # name, pattern, advice
    (
        "is-no",
        r"\b(?:is|are|was|were) no (?!longer\b|more than\b|need\b|such\b|way\b|reason\b|difference\b|"
        r"limit\b|one\b)[a-z]+",
        "write 'is not a …' or 'there is no …'",
    ),
    ("is-none", r"\b(?:is|are) none\b(?! of)", "say what it is instead"),
    (
        "subjectless-who",
        r"(?:^|[.;:] |, |\band |\bor )[Ww]ho (?:is|are|was|has|have|had|may|can|wants?|comes?|asks?|"
        r"takes?|gives?|sends?|reads?|waits?|made|had|dies|needs?|calls?|says?|writes?|knows?)\b",
        "name the subject: 'the client that …', 'whoever …', 'users who …'",
    ),
    (
        "subjectless-what",
        r"(?:^|[.;] )[Ww]hat (?:is|was|are|has|have|cannot|can|does|did|comes?|goes|stands?|waits?|"
        r"fails?|fits|differs|it|they|others|a|an|the)\b(?![^.?!]*\?)",
        "name the thing: 'the message', 'files that changed', …",
    ),
    ("else-at-end", r"\belse[.;](?:\s|$)", "write 'otherwise' at the start of the sentence"),
    ("told", r"\b(?:is|are|was|were|be|being) told\b", "write 'is notified', 'receives', 'the message says'"),
    ("tells", r"\btells? (?:of|whether|it|them|so|all|each|nobody|what)\b", "write 'reports', 'says', 'notifies'"),
    (
        "asked-of",
        r"\b(?:is|are|was) asked (?:of|about|for|once|again|who|what|whether|when)\b",
        "write 'is called', 'is queried', 'is required'",
    ),
    ("says-so", r"\bsays so\b", "say what it says"),
    (
        "hears",
        r"\b(?:hears?|heard) (?:of|from|about|it|that|nothing|nobody|once)\b",
        "write 'receives', 'is notified of'",
    ),
    ("another-one", r"\b(?:is|are) another one\b", "write 'has changed', 'is different'"),
    ("has-to-be", r"\bha(?:s|ve) to be\b", "write 'must be'"),
    ("by-itself", r"\bby (?:itself|themselves)\b", "write 'automatically' or 'on its own'"),
    ("as-ever", r"\bas ever\b", "write 'as usual' or leave out"),
    (
        "those-of",
        r"\b(?:those|that) of (?!the following)(?:the|a|an|all|each|one|it|this|these|other|others|its|their)\b",
        "repeat the noun",
    ),
    (
        "of-fronted",
        r"(?:^|[.;] )Of (?:a|an|the|all|each|what|it|them|this|these|those|such|others?|one)\b",
        "put the subject first",
    ),
    ("so-many", r"\bso (?:many|much|long)\b(?! (?:as|that)\b)", "give the number or the name"),
    (
        "for-who",
        r"\b(?:for|to|of|by|with) who(?:ever)? (?:has|is|are|wants?|needs?|asks?)\b",
        "write 'for anyone who', 'for clients that'",
    ),
    ("in-place-of", r"\bin place of\b", "write 'instead of'"),
    ("gives-what", r"\bgives? (?:what|all that|those that|one that)\b", "write 'returns …'"),
    ("which-have", r"\bof which\b", "split the sentence"),
    ("taken-out", r"\btaken? (?:out of|for what|at its word)\b", "write 'removed from', 'accepted as'"),
    (
        "stands",
        r"\b(?:it|that|what|which|there|they) stands?\b|\bstands? (?:in|at|for|between|before|behind|beside)\b",
        "write 'is', 'appears', 'is stored'",
    ),
    ("mended", r"\bmend(?:ed|s|ing)?\b", "write 'fixed', 'repaired'"),
    (
        "fetched-house",
        r"\b(?:the|this|its|one|own) (?:road|room|house|rooms|roads)\b",
        "write 'path', 'package', 'code base'",
    ),
]
COMPILED = [(name, re.compile(pattern, re.MULTILINE), advice) for name, pattern, advice in RULES]
MOST_WORDS = 35
SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*|]\s")


def _python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of each docstring, comment and longer string of a file."""
    source = path.read_text(encoding="utf-8")
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= 4:
            yield node.lineno, node.value
    block, first = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# noqa", "# fmt:")):
            if block and token.start[0] != first + len(block):
                yield first, " ".join(block)
                block = []
            if not block:
                first = token.start[0]
            block.append(token.string.lstrip("# "))
    if block:
        yield first, " ".join(block)


def _markdown_texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of each paragraph outside code."""
    code, start, block = False, 0, []
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            code = not code
            line = ""
        elif code:
            continue
        if not line.strip():
            if block:
                yield start, re.sub(r"`[^`]*`", "X", "\n".join(block))
            block = []
        else:
            start = start if block else number
            block.append(line)


def findings(path: Path, allowed: set[str]) -> tuple[int, list[str]]:
    """Return the number of words in a file or folder, and the findings that are not allowed."""
    words, found = 0, []
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for line, text in _python_texts(file) if file.suffix == ".py" else _markdown_texts(file):
            words += len(text.split())
            flat = re.sub(r"[ \t]*\n[ \t]*(?=\S)", " ", text) if file.suffix == ".py" else text.replace("\n", " ")
            for name, pattern, advice in COMPILED:
                for match in pattern.finditer(flat):
                    shown = flat[max(0, match.start() - 30) : match.end() + 40].strip()
                    if not any(one and one in f"{file.name}: {shown}" for one in allowed):
                        found.append(f"{file.name}:{line}: {name}: {shown!r}: {advice}")
            found += [
                f"{file.name}:{line}: long: {' '.join(sentence.split()[:12])} …"
                for sentence in SENTENCE.split(flat)
                if len(sentence.split()) > MOST_WORDS and "|" not in sentence and ">>>" not in sentence
            ]
    return words, found
