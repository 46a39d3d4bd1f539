"""A process that is told to stop ends in time, even if its event loop hangs, and at once when it is told again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.chosen import ordinarily

WORKER = """
import asyncio, time, uvloop
from stream_dp.runtime.worker import process

process.LEAVE_SECONDS = {seconds}

async def finish(stop):
    await stop.wait()
    print("finished", flush=True)

async def hang(stop):
    print("is at it", flush=True)
    while not stop.given:
        pass
    print("was told", flush=True)
    while True:
        pass

async def sleep(stop):
    print("is at it", flush=True)
    time.sleep(1000)

async def run():
    stop = process.Stop()
    stop.listen()
    print("listens", flush=True)
    await {life}(stop)

uvloop.run(run())
"""


@contextmanager
def process(life: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process that listens to the order to stop."""
    command = [sys.executable, "-c", WORKER.format(life=life, seconds=seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        assert made.stdout.readline() == "listens\n"
        if life != "finish":
            assert made.stdout.readline() == "is at it\n"
        try:
            yield made
        finally:
            made.kill()


@pytest.mark.parametrize("number", ordinarily(1, [signal.SIGTERM, signal.SIGINT]))
def test_who_listens_finishes_in_peace(number: signal.Signals) -> None:
    with process("finish", 100) as worker:
        worker.send_signal(number)
        assert worker.communicate(timeout=WITHIN_SECONDS) == ("finished\n", "")
        assert worker.returncode == 0


@pytest.mark.parametrize("life", ordinarily(1, ["sleep", "hang"]))
def test_event_loop_that_hangs_does_not_keep_the_process(life: str) -> None:
    with process(life, 0.2) as worker:
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=WITHIN_SECONDS)
        assert worker.returncode == 0
        assert said == (
            "not finished 0.2 s after it was told to stop, the worker ends without waiting for the chunk at hand and "
            "the broker; the next start reads it again\n"
        )


def test_second_signal_ends_at_once() -> None:
    with process("hang", 1000) as worker:
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "was told\n"
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=WITHIN_SECONDS)
        assert worker.returncode == 0
        assert said == "told to stop a second time; what was at hand is read again by the next start\n"
