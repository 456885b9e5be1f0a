"""The protocol versions as data: one module per year with what its revisions changed, and `table.py`,
which combines them.

Handlers use the newest vocabulary only. A `Version` decodes params into it and converts results to the shapes of its
own time. Other packages should not branch on the version; `tests/test_house.py` lists the few places that do.
"""
