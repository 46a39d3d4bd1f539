"""A small application, and records as its topics would have them."""

from __future__ import annotations

from functools import partial

import pytest

from stream_dp.runtime.capacity import measure
from tests.support.published import call, log, refusal, release, visits, visits_file  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` takes no time to measure the machine; how long it took is in no test."""
    monkeypatch.setattr("stream_dp.operations.check.measure", partial(measure, seconds=0))
