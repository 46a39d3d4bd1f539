"""Workers as processes of their own, and networks between them and their broker, none of which outlives a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stream_dp.testing import Application
from tests.support.processes import WorkerProcess
from tests.support.proxy import Proxy
from tests.support.published import call  # noqa: F401 - a fixture

Spawn = Callable[..., WorkerProcess]


@pytest.fixture
def proxied(kafka: str) -> Iterator[Callable[[], Proxy]]:
    """Makes networks to the cluster."""
    made: list[Proxy] = []

    def make() -> Proxy:
        made.append(Proxy(kafka))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Makes worker processes of an application, with the arguments of `WorkerProcess`. None outlives the test."""
    made: list[WorkerProcess] = []

    def make(app: Application, name: str, *options: str, **more: Any) -> WorkerProcess:
        made.append(WorkerProcess(app, name, *options, **more))
        return made[-1]

    yield make
    for worker in made:
        worker.end()
