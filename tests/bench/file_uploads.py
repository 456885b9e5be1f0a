"""FIL-15: the upload of a large file, beside a bare upload to uvicorn that writes it to disk; in turn, from one client.

The target is 1.3 times the time, and 16 MiB more memory than before the upload. The time of the wall and the time of
the processor are both printed; only the ratios of one run may be compared.

    tests/bench/file_uploads.py [MiB] [rounds]
"""

from __future__ import annotations

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OURS = """
from mcpd import File, FileSettings, Server
most = 4 << 30
limits = FileSettings(max_bytes=most, max_bytes_each=most, max_bytes_all=most)
server = Server("files", files="FOLDER", file_limits=limits)

@server.tool
async def size(report: File) -> int:
    return report.size
"""
BARE = """
import uvicorn

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    with open("FOLDER/bare", "wb", buffering=0) as file:
        while True:
            message = await receive()
            file.write(message.get("body", b""))
            if not message.get("more_body"):
                break
    await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})

uvicorn.run(app, host="127.0.0.1", port=0, lifespan="off")
"""
PART = b"x" * (1 << 20)


class Served:
    """One server in a process of its own."""

    def __init__(self, source: str, folder: str) -> None:
        program = Path(folder, "bare.py" if source is BARE else "server.py")
        program.write_text(source.replace("FOLDER", folder), encoding="utf-8")
        command = [program] if source is BARE else ["-m", "mcpd", "serve", "--http", "127.0.0.1:0", program]
        self.process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise SystemExit("the server has ended")

    def ask(self, method: str, path: str, size: int, body: bytes | None = None) -> bytes:
        """Send one request, with `body` or with `size` bytes of a file."""
        with socket.create_connection(("127.0.0.1", self.port)) as at:
            at.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode())
            for _ in range(size // len(PART)) if body is None else ():
                at.sendall(PART)
            at.sendall(body or b"")
            answer = at.recv(65536)
        assert answer.split(b" ")[1] == b"201", answer
        return answer.partition(b"\r\n\r\n")[2]

    def upload(self, size: int, *, is_bare: bool) -> tuple[float, float]:
        """The seconds of the wall and of the processor of one upload."""
        path = "/"
        if not is_bare:
            wanted = json.dumps({"size": size}).encode()
            path = json.loads(self.ask("POST", "/mcp/files", len(wanted), wanted))["url"].partition("/mcp/")[2]
            path = f"/mcp/{path}"
        began, used = time.perf_counter(), self.seconds
        self.ask("PUT", path, size)
        return time.perf_counter() - began, self.seconds - used

    @property
    def seconds(self) -> float:
        """The time of the processor, in all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def most_memory(self) -> int:
        """The largest size in memory until now, in KiB."""
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found[1])


def main() -> None:
    """Print a row."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 1024) << 20
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as folder:
        ours, bare = Served(OURS, folder), Served(BARE, folder)
        try:
            ours.upload(0, is_bare=False)
            before = ours.most_memory
            times = []
            for _ in range(rounds):
                times.append((ours.upload(size, is_bare=False), bare.upload(size, is_bare=True)))
                for path in Path(folder).glob("file-*"):
                    path.unlink()
            wall = statistics.median(one[0] / other[0] for one, other in times)
            processor = statistics.median(one[1] / other[1] for one, other in times)
            memory = (ours.most_memory - before) / 1024
            print(f"{size >> 20} MiB: {wall:.2f} times the time of uvicorn, {processor:.2f} of its processor time, "
                  f"{memory:.1f} MiB more memory")  # fmt: skip
            print(times)
        finally:
            for each in (ours, bare):
                each.process.kill()
                each.process.communicate()


if __name__ == "__main__":
    main()
