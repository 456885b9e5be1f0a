"""What several processes of one service share: values, logs and a bus.

`base` has the interfaces; read it first. `memory`, `sqlite`, `redis`, and the `shared_memory` of `--workers` are
backplanes. `node` opens the backplane of a URL, and is one process on it: it sends sealed messages to other processes,
and passes on changes of lists. Sessions and event streams are built on it in `server/http`.
"""
