"""Readers that turn the bytes of one file into a `Page`.

There is a module for each format; none of them opens another file. Start at `read_page` in `reading.py`.
"""
