"""Ports for servers that a test starts."""

from __future__ import annotations

from stream_dp.runtime.localkafka.broker import free_port


def free_ports(number: int) -> list[int]:
    """Return some ports that nothing uses, all different: two calls of `free_port` may choose the same one."""
    found: set[int] = set()
    while len(found) < number:
        found.add(free_port())
    return list(found)
