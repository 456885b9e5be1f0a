"""Stands between a client and a stdio server, and writes down every line that passes.

    python tap.py FOLDER -- command arguments…

Each run writes one file FOLDER/<process id>.jsonl: `> ` and the line for what the client sent, `< ` for
what the server sent, in the order in which they passed. Ends with the server, and as the server did.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any

from mcpd.transports.stdio import unread


def main(folder: str, command: list[str]) -> int:
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: server.send_signal(received))
    lock = threading.Lock()
    with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "wb", buffering=0) as record:

        def pump(mark: bytes, source: IO[Any], target: IO[Any]) -> None:
            for line in source:
                with lock:
                    record.write(mark + line)
                # What the server sends in two pieces, because the clients need it so, does not become one here.
                while unread(target.fileno()):
                    time.sleep(0.001)
                try:
                    target.write(line)
                    target.flush()
                except BrokenPipeError:
                    break

        def send() -> None:
            pump(b"> ", sys.stdin.buffer, server.stdin)
            server.stdin.close()

        threading.Thread(target=send, daemon=True).start()
        pump(b"< ", server.stdout, sys.stdout.buffer)
        return server.wait()


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[3:])
    # The other thread may hold stdin's lock for ever: leave without asking for it.
    os._exit(code if code >= 0 else 128 - code)
