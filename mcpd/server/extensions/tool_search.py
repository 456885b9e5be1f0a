"""A search over the tools of a server: BM25 over the words of names, texts and parameters.

Names count four times. A name that is searched for as a whole comes first.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nlargest
from math import log
from typing import Any, Final

from msgspec import Raw
from msgspec.json import decode

from mcpd.protocol.types.features import Tool

_K: Final = 1.2
_B: Final = 0.5
_MOST_WORDS: Final = 300
_LEAST_PREFIX: Final = 3
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\dA-Za-z_]+")


class ToolIndex:
    """The index of some tools. `by_name` has the tools."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.by_name = {tool.name: tool for tool in tools}
        self._tools = list(tools)
        counts = [_counted(tool) for tool in tools]
        lengths = [sum(count.values()) for count in counts]
        average = sum(lengths) / max(1, len(lengths)) or 1.0
        tools_with = Counter(word for count in counts for word in count)
        # For each word, the numbers of its tools and their scores.
        self._postings: dict[str, tuple[array[int], array[float]]] = {
            word: (array("I"), array("f")) for word in tools_with
        }
        for number, count in enumerate(counts):
            share = _K * (1 - _B + _B * lengths[number] / average)
            for word, times in count.items():
                rarity = log(1 + (len(tools) - tools_with[word] + 0.5) / (tools_with[word] + 0.5))
                numbers, scores = self._postings[word]
                numbers.append(number)
                scores.append(rarity * times * (_K + 1) / (times + share))

    def search(self, query: str, limit: int) -> list[Tool]:
        """Return up to `limit` tools, the best first."""
        totals: dict[int, float] = {}
        for word in dict.fromkeys(_words(query[:1000])):
            for known in (word,) if word in self._postings else self._beginning_with(word):
                numbers, scores = self._postings[known]
                for number, score in zip(numbers, scores, strict=True):
                    totals[number] = totals.get(number, 0.0) + score
        exact = self.by_name.get(query.strip())
        best = nlargest(limit, totals, key=lambda number: (totals[number], -number))
        found = [self._tools[number] for number in best if self._tools[number] is not exact]
        return found[:limit] if exact is None else [exact, *found][:limit]

    def _beginning_with(self, word: str) -> list[str]:
        return [each for each in self._postings if each.startswith(word)] if len(word) >= _LEAST_PREFIX else []


def _counted(tool: Tool) -> Counter[str]:
    schema: Any = decode(tool.input_schema) if isinstance(tool.input_schema, Raw) else tool.input_schema
    properties = schema.get("properties") if isinstance(schema, dict) else None
    meta = tool.meta or {}
    texts = (tool.title, tool.description, meta.get("anthropic/searchHint"), *(properties or ()))
    count = Counter(word for text in texts if isinstance(text, str) for word in _words(text[:4000]))
    kept = Counter(dict(count.most_common(_MOST_WORDS)))
    for word in _words(tool.name):
        kept[word] += 4
    return kept


def _words(text: str) -> Iterator[str]:
    for found in _WORD.findall(text):
        word = found.lower()
        yield word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
