"""Notebooks of Jupyter, read and shown; nothing in them is run.

cells     what a notebook is made of
reading   from a file of nbformat 2, 3 or 4 to that
outputs   what a cell gave, in the best of the forms that it gave it in
shown     cells as the page shows them: Markdown and HTML made safe, mathematics as MathML
plain     the whole as text, for those who see no page
"""

from __future__ import annotations

__all__: list[str] = []
