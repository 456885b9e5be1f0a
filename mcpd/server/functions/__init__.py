"""Python functions as callables with JSON arguments: signatures, schemas, coercion, dependencies and threads.

Start reading in `signature.py`, whose `bind` reads a function once and returns its `Callee`. `annotations`, `hints` and
`type_hooks` read types, `schema` and `plain_schema` describe them, `arguments` repairs or refuses arguments, `results`
converts values, and `threads` runs plain functions. Only `dependencies` knows requests (`Context`); tools, resources
and prompts belong in `registry/`.
"""
