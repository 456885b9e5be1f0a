"""Words that look like one that is not there: found as by the plain table of edits, in an index of many words."""

from __future__ import annotations

import random
import sys
import time

import pytest

from mcpd.sources.docs.words import Vocabulary


def edits(one: str, other: str) -> int:
    """How many letters are to be changed, added, left out or exchanged with the next."""
    rows = [list(range(len(other) + 1))]
    for at, letter in enumerate(one, 1):
        row = [at]
        for place, another in enumerate(other, 1):
            cost = min(rows[-1][place] + 1, row[-1] + 1, rows[-1][place - 1] + (letter != another))
            if at > 1 and place > 1 and letter == other[place - 2] and one[at - 2] == another:
                cost = min(cost, rows[-2][place - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]


def test_it_finds_what_the_table_of_edits_tells() -> None:
    """One edit for any word, else two for one of six letters that begins with the same one."""
    chance = random.Random(3)
    words = sorted({"".join(chance.choices("abcé", k=chance.randint(3, 9))) for _ in range(60)})
    vocabulary = Vocabulary((word, 1) for word in words)
    found = 0
    for _ in range(200):
        typed = "".join(chance.choices("abcé", k=chance.randint(3, 9)))
        away = {word: edits(typed, word) for word in words}
        wanted = [word for word in words if away[word] == 1]
        if not wanted and len(typed) >= 6:
            wanted = [word for word in words if away[word] == 2 and word[0] == typed[0]]
        assert vocabulary.corrected(typed) == sorted(wanted, key=lambda word: (word[0] != typed[0], word))[:3], typed
        found += bool(wanted)
    assert 50 < found < 190


def test_a_frequent_word_is_more_often_meant() -> None:
    vocabulary = Vocabulary([("port", 3), ("part", 9), ("sort", 99), ("ab", 5)])
    assert vocabulary.corrected("PRT") == ["part", "port"]
    assert vocabulary.corrected("xort") == ["sort", "port"]
    assert vocabulary.corrected("a") == vocabulary.corrected("x" * 50) == []


def test_without_the_library_nothing_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    assert Vocabulary([("port", 3)]).corrected("prot") == []


@pytest.mark.medium
def test_two_edits_in_very_many_words() -> None:
    """It is asked within a search, that has milliseconds."""
    chance = random.Random(4)
    words = {"".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 12))) for _ in range(100_000)}
    vocabulary = Vocabulary((word, 1) for word in words | {"configuration"})
    assert vocabulary.corrected("cnofigurtaion") == ["configuration"]
    began = time.process_time()
    for _ in range(50):
        vocabulary.corrected("cnofigurtaion")
    assert (time.process_time() - began) / 50 < 0.1
