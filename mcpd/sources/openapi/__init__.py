"""OpenAPI documents as a source of tools: each operation of an HTTP API becomes a tool.

`document.py` reads a document, `schemas.py` and `operations.py` make tools of it. `requests.py` writes the request of a
call, `responses.py` makes the result; both do no I/O. `api.py` sends. Start reading at `add` in `source.py`.
"""
