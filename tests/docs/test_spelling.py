"""Words that look like one that is not there: found as by the plain table of edits, in an index of many words."""

from __future__ import annotations

import random
import time

from mcpd.docs.spelling import Vocabulary, _within, distance


def test_the_quick_way_tells_what_the_table_tells() -> None:
    chance = random.Random(3)
    near = 0
    for _ in range(8_000):
        word = "".join(chance.choices("abcé", k=chance.randint(1, 9)))
        other = list(word)
        for _ in range(chance.randint(0, 4)):
            at = chance.randrange(len(other) + 1)
            other[at : at + chance.randint(0, 2)] = chance.choices("abcé", k=chance.randint(0, 2)) or other[at : at + 2]
            other[at : at + 2] = reversed(other[at : at + 2])
        expected = distance(word, "".join(other), 2) <= 2
        assert _within(word, 2)("".join(other)) == expected, (word, other)
        near += expected
    assert 2_000 < near < 7_600


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
