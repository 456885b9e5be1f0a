"""What several processes of one service share: values, logs, a bus and queues.

`base` has the interfaces; read it first. `opening` returns the `Backplane` of a URL: `memory`, `sqlite`, `redis`, or
the `shared_memory` of `--workers`. `node` is one process on a backplane: it sends sealed messages to other processes,
and passes on changes of lists. Sessions and event streams are built on it in `server/http`.
"""
