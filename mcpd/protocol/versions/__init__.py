"""The protocol versions as data: one module per year with what its revisions changed, combined in `table.py`.

Handlers use the newest vocabulary only. A `Version` decodes params into it and converts results to the shapes of its
own time. Other packages should not branch on the version; `tests/test_house.py` lists the few places that do. Start
reading at `Revision` in `table.py`, then in `v2026.py`.
"""
