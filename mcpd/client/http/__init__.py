"""The client's end of Streamable HTTP in both eras, and of HTTP+SSE from 2024-11-05, as one channel.

`channel` decides what is sent when; `exchange` is one request and its answer, and hears what a legacy server says by
itself; `http_sse` speaks the old transport. `requester` adds the header fields that every request has, `inbound` reads
bodies and streams, `link` is HTTP alone. `options` can be had without the library that does it.
"""
