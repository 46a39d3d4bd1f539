"""Freed memory goes back to the system when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from pathlib import Path
from stream_dp.runtime.faust import host


def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:")))


held = [bytes(3_000) for _ in range(60_000)]
kept = bytes(3_000)  # the top of the heap stays in use, so nothing below it goes back by itself
del held
before = resident()
host.give_back_freed()
print(before - resident())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_was_freed_below_what_is_used_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)

    assert int(done.stdout) > 100_000, "of 180 MB, in kB"
