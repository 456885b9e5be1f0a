"""Files as arguments and results of tools: clients send the bytes beside the call, not through the model's context.

Start reading in `file.py`, what authors see, then in `callee.py`, which replaces the function of a tool with files.
`arriving.py` has the ways in, `store.py` the files on disk, `uploads.py` the HTTP routes, and `wire.py` the draft of
the extension `io.modelcontextprotocol/files`, which may still change. Loaded with the first `File` of a program; a
server without files loads nothing of it.
"""
