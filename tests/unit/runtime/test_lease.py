"""A worker that stood still must not write: another one may have its partitions."""

from __future__ import annotations

import pytest

from stream_dp.errors import StateError
from stream_dp.runtime.lease import Lease


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_lease_that_was_never_renewed_does_not_run_out() -> None:
    clock = Clock()
    lease = Lease(30, clock)
    clock.now += 1e6

    lease.check()
    lease.renew()


def test_lease_lasts_as_long_as_it_says_and_not_longer() -> None:
    clock = Clock()
    lease = Lease(30, clock)
    lease.renew()
    clock.now += 30

    lease.check()
    clock.now += 0.001

    with pytest.raises(StateError, match="stood still for more than 30 s"):
        lease.check()


def test_lease_that_ran_out_cannot_be_renewed() -> None:
    clock = Clock()
    lease = Lease(30, clock)
    lease.renew()
    clock.now += 31

    for _ in range(2):
        with pytest.raises(StateError, match="stood still"):
            lease.renew()
    with pytest.raises(StateError, match="stood still"):
        lease.check()


def test_lease_that_is_renewed_in_time_goes_on() -> None:
    clock = Clock()
    lease = Lease(30, clock)
    for _ in range(100):
        lease.renew()
        clock.now += 29
        lease.check()
