"""References within a schema. Spec: RFC 6901, 5 and 6."""

from __future__ import annotations

from typing import Any

import pytest

from mcpd.protocol.schemas import is_local, target_of

ROOT = {"$defs": {"a/b": 1, "m~n": 2, "c%d": 3, " ": 4, "list": [5, {"six": 6}], "": 7}}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b", 1),
        ("#/$defs/m~0n", 2),
        ("#/$defs/c%25d", 3),
        ("#/%24defs/%20", 4),
        ("#/$defs/list/0", 5),
        ("#/$defs/list/1/six", 6),
        ("#/$defs/", 7),
        ("#/$defs/list/2", None),
        ("#/$defs/list/-1", None),
        ("#/$defs/list/0/x", None),
        ("#/$defs/gone", None),
        ("#anchor", None),
        ("other.json#/a", None),
        (3, None),
    ],
)
def test_a_reference_names_a_part_of_its_document(reference: Any, target: Any) -> None:
    assert target_of(reference, ROOT) == target


def test_anchors_and_other_documents_are_no_paths() -> None:
    assert [is_local(one) for one in ("#", "#/a", "#a", "a#/b", "", None)] == [True, True, False, False, False, False]
