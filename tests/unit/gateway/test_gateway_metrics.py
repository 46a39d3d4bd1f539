"""The metrics of the gateway: how it is and how busy, and nothing of views or readers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import AddressError
from stream_dp.gateway.metrics import GatewayMetrics, publish
from stream_dp.gateway.reader import BoardReader
from stream_dp.gateway.routes import Gateway
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import connect
from tests.support.gateway import ask, gateway_of
from tests.support.probes import get, parsed

DOCUMENT = (Path(__file__).parents[3] / "docs" / "gateway.md").read_text(encoding="utf-8")
ADDRESS = ("127.0.0.1", 0)


@pytest.fixture
def gateway(tmp_path: Path, release: Callable[..., Any]) -> Gateway:
    return gateway_of(tmp_path, {("pages", "public"): [release({"home": 900})]})


@pytest.fixture
def reader(visits: Plan, gateway: Gateway) -> BoardReader:
    return BoardReader(visits, gateway.boards, lambda: connect(visits.broker, MemoryClient(MemoryLog())))


async def test_the_page_says_how_the_gateway_is_and_counts_answers_by_status(
    gateway: Gateway, reader: BoardReader
) -> None:
    app, reader.records = gateway.app(), 7
    for target in ("/v1/views", "/v1/views", "/v1/nothing"):
        await ask(app, target)
    with publish(ADDRESS, gateway, reader) as port:
        status, page = await get(port, "/metrics")
        found = parsed(page)
        gateway.boards.silent = True
        silent = parsed((await get(port, "/metrics"))[1])

    assert status == 200
    assert found == {
        ("stream_dp_gateway_ready", ()): 1,
        ("stream_dp_gateway_broker_silent", ()): 0,
        ("stream_dp_gateway_streams", ()): 0,
        ("stream_dp_gateway_requests_total", (("status", "200"),)): 2,
        ("stream_dp_gateway_requests_total", (("status", "404"),)): 1,
        ("stream_dp_gateway_records_total", ()): 7,
    }
    assert silent["stream_dp_gateway_ready", ()] == 0
    assert silent["stream_dp_gateway_broker_silent", ()] == 1


async def test_the_port_is_closed_at_the_end_and_one_that_is_taken_is_named(
    gateway: Gateway, reader: BoardReader
) -> None:
    with publish(ADDRESS, gateway, reader) as port:
        with pytest.raises(AddressError, match=f"127.0.0.1:{port}: Address already in use; give --metrics another"):
            publish((ADDRESS[0], port), gateway, reader).__enter__()
        assert (await get(port, "/metrics"))[0] == 200
    assert (await get(port, "/metrics"))[0] == 0


def test_every_metric_is_described_and_no_other(gateway: Gateway, reader: BoardReader) -> None:
    families = GatewayMetrics(gateway, reader).collect()
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}

    assert set(re.findall(r"^\| `(stream_dp_gateway_\w+)", DOCUMENT, re.MULTILINE)) == names
