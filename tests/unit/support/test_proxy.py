"""The proxy between workers and a broker: what it lets through, keeps and loses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.proxy import Proxy


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def proxy(server: socket.socket) -> Iterator[Proxy]:
    made = Proxy(f"127.0.0.1:{server.getsockname()[1]}")
    yield made
    made.close()


def connect(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WITHIN_SECONDS)


def accept(server: socket.socket) -> socket.socket:
    server.settimeout(WITHIN_SECONDS)
    connection, _ = server.accept()
    connection.settimeout(WITHIN_SECONDS)
    return connection


def test_bytes_pass_in_both_directions_and_so_does_the_end(proxy: Proxy, server: socket.socket) -> None:
    with closing(connect(proxy)) as near, closing(accept(server)) as far:
        near.sendall(b"asked")
        assert far.recv(100) == b"asked"
        far.sendall(b"answered")
        assert near.recv(100) == b"answered"
        near.close()
        assert far.recv(100) == b""


def test_what_was_sent_into_a_frozen_network_arrives_after_its_sender_is_gone(
    proxy: Proxy, server: socket.socket
) -> None:
    with closing(connect(proxy)) as near, closing(accept(server)) as far:
        near.sendall(b"before")
        assert far.recv(100) == b"before"
        proxy.freeze()
        near.sendall(b"late")
        near.close()
        far.settimeout(0.3)
        with pytest.raises(TimeoutError):
            far.recv(100)
        proxy.thaw()
        far.settimeout(WITHIN_SECONDS)
        assert far.recv(100) == b"late"
        assert far.recv(100) == b""


def test_a_cut_ends_connections_and_admits_none_until_it_is_mended(proxy: Proxy, server: socket.socket) -> None:
    with closing(connect(proxy)) as near, closing(accept(server)) as far:
        proxy.cut()
        for end in (near, far):
            with suppress(ConnectionError):
                assert end.recv(100) == b""
    with closing(connect(proxy)) as refused, suppress(ConnectionError):
        assert refused.recv(100) == b""
    proxy.mend()
    with closing(connect(proxy)) as near, closing(accept(server)) as far:
        near.sendall(b"again")
        assert far.recv(100) == b"again"


def test_a_proxy_that_is_closed_leaves_no_thread(server: socket.socket) -> None:
    proxy = Proxy(f"127.0.0.1:{server.getsockname()[1]}")
    with closing(connect(proxy)) as near, closing(accept(server)):
        proxy.freeze()
        near.sendall(b"lost")
        proxy.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "proxy"]
