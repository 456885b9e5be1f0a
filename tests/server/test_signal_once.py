"""A signal that Python does not get to see ends the process the second time."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from conftest import Child

PROGRAM = """
import os, signal
from mcpd.server.shutdown import leave_once

seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
leave_once(signal.SIGTERM)
os.kill(os.getpid(), signal.SIGTERM)
print(len(seen), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("still here", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library has sysv_signal")
def test_the_handler_is_left_in_place_for_one_time(child: Child) -> None:
    done = subprocess.run([child.python, "-c", PROGRAM], env=child.env, capture_output=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, b"1\n", b"")
