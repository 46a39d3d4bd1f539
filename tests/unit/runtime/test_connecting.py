"""A broker that takes a connection and says nothing."""

from __future__ import annotations

import asyncio

import pytest

from stream_dp.config.access import Broker
from stream_dp.errors import OutageError
from stream_dp.runtime.kafka import client as connecting
from stream_dp.runtime.kafka import outages as refusals
from stream_dp.runtime.kafka.client import connect
from stream_dp.testing.application import WITHIN_SECONDS


async def test_a_command_does_not_wait_long_for_a_broker_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(refusals, "PROBE_SECONDS", 0.2)
    over = asyncio.Event()

    async def mute(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                with pytest.raises(OutageError, match=rf"no Kafka answers at {host}:{port}: nothing came for 0\.5 s;"):
                    async with connect(Broker(f"kafka://{host}:{port}")):
                        pytest.fail("there is no client of a mute broker")
        finally:
            over.set()
