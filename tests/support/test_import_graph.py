"""Which circles the house tests find."""

from __future__ import annotations

from pathlib import Path

from support.import_graph import circles, import_graph


def test_a_circle_is_found_however_it_is_closed(tmp_path: Path) -> None:
    """By an import inside a function, of a module by its package, and over a third one; not one for types."""
    package = tmp_path / "ring"
    (package / "inner").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "a.py": "def f():\n    from . import b\n",
        "b.py": "from .inner.c import x\n",
        "inner/__init__.py": "",
        "inner/c.py": "import ring.a\nx = 1\n",
        "d.py": "from typing import TYPE_CHECKING\nfrom . import a\nif TYPE_CHECKING:\n    from .e import y\n",
        "e.py": "from .d import z\n",
    }.items():
        (package / name).write_text(text)
    ring = ["ring.a", "ring.b", "ring.inner.c"]
    assert circles(import_graph(package)) == [ring]
    assert circles(import_graph(package, for_types=True)) == [ring, ["ring.d", "ring.e"]]
