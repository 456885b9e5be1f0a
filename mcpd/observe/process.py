"""What the system says of this process, under the names that every Prometheus client library gives it."""

from __future__ import annotations

import os
import time

from mcpd.observe.families import Family, Sample

STARTED = time.time()
"""When this process began to be watched, in seconds since 1970. Only the system knows more; see `_start`."""


def process_families() -> list[Family]:
    """CPU time, memory, descriptors and start; without /proc those that there are."""
    found = [
        _one("process_cpu_seconds", "counter", "User and system CPU time.", time.process_time()),
        _one("process_start_time_seconds", "gauge", "When the process began, since 1970.", _start(), most=True),
    ]
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual, resident = map(int, file.read().split()[:2])
        page = os.sysconf("SC_PAGE_SIZE")
        found += [
            _one("process_virtual_memory_bytes", "gauge", "Virtual memory.", virtual * page),
            _one("process_resident_memory_bytes", "gauge", "Resident memory.", resident * page),
            _one("process_open_fds", "gauge", "Open descriptors.", len(os.listdir("/proc/self/fd")) - 1),
            _one("process_max_fds", "gauge", "Descriptors that may be open.", os.sysconf("SC_OPEN_MAX")),
        ]
    except (OSError, ValueError):
        pass
    return found


def _one(name: str, kind: str, help: str, value: float, *, most: bool = False) -> Family:
    return Family(name, "counter" if kind == "counter" else "gauge", help, (Sample(value=value),), most)


def _start() -> float:
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/stat", "rb") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
        return booted + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, StopIteration, IndexError):
        return STARTED
