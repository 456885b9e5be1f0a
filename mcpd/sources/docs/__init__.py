"""Documents of a folder: pages that can be listed, read and searched.

`readers/` turn files into a `Page`, `indexer.py` keeps the SQLite index in `index.py` up to date, `search.py` searches
it, and `library.py` is the interface of all this. These modules know nothing of MCP.

`source.py` offers a library as resources and tools, `answers.py` computes the results of the tools, and `reader_app.py`
adds a View. Start reading at `Library`, then at `Tree` in `source.py`.
"""
