"""Metrics of the gateway for operators, on a port of their own: how it is and how busy, nothing of views or readers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stream_dp.errors import AddressError
from stream_dp.gateway.reader import BoardReader
from stream_dp.gateway.routes import Gateway

PREFIX = "stream_dp_gateway_"


class GatewayMetrics(Collector):
    """The page of a gateway; it is made when somebody asks."""

    def __init__(self, gateway: Gateway, reader: BoardReader) -> None:
        """Set up the page.

        Args:
            gateway: knows requests and streams.
            reader: knows what was read.
        """
        self._gateway, self._reader = gateway, reader

    def collect(self) -> Iterator[Metric]:
        """All metrics, as they are now."""
        boards = self._gateway.boards
        is_ready = boards.ready and not boards.silent
        yield _gauge("ready", "1 if all release topics were read and the broker answers, else 0.", is_ready)
        yield _gauge("broker_silent", "1 if the broker does not answer, else 0.", boards.silent)
        yield _gauge("streams", "Streams of events that are open.", len(self._gateway.hub.streams))
        answers = CounterMetricFamily(f"{PREFIX}requests", "Requests that were answered.", labels=["status"])
        for status, amount in sorted(self._gateway.hub.answers.copy().items()):
            answers.add_metric([str(status)], amount)
        yield answers
        yield CounterMetricFamily(f"{PREFIX}records", "Records of release topics that were read.", self._reader.records)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)


@contextmanager
def publish(address: tuple[str, int], gateway: Gateway, reader: BoardReader) -> Iterator[int]:
    """Answer with the page at an address until the context is left; yields the port.

    Raises:
        AddressError: nobody can listen there.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(GatewayMetrics(gateway, reader))
    host, port = address
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        why = error.strerror if error.errno is None or error.errno < 0 else os.strerror(error.errno)
        raise AddressError(f"metrics: cannot listen on {host}:{port}: {why}; give --metrics another address") from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
