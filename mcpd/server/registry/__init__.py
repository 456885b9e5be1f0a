"""The registry of a server: tools, resources, templates and prompts, their lists, and rules of who may use them.

Functions themselves are read in `functions/`, requests are answered in `handlers/`. Start reading in `catalog.py`, then
`entries.py` (entries and their lists, in pages). `tools`, `resources` and `prompts` run functions, `content` converts
what these return, and `visibility` applies the `rules`.
"""
