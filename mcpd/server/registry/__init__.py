"""The registry of a server: tools, resources, templates and prompts, their lists, and rules of who may use them.

Functions themselves are read in `functions/`, requests are answered in `handlers/`. Start reading in `catalog.py`, then
`entries.py` (lists, their pages and what they hold).
"""
