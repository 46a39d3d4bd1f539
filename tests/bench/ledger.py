"""Microseconds per charge of the ledger, beside OpenDP's privacy filter, in one run: `python -m tests.bench.ledger`.

A charge here is a `reserve` and a `commit`, with every entry of the vector in use and a refund; timed are the last
ones, when so many calls were charged or are open already. A charge of OpenDP's filter is one query to the queryable
that `make_privacy_filter` makes of `make_fully_adaptive_composition`; it also draws one Laplace number, so the same
queries to the composition without the filter are timed beside it, and the ratio is taken both ways. Times are those of
one processor core (its own time: others on the machine count less), the best of a few runs.

OpenDP's filter does more than add: each query may be a mechanism that goes on answering. It recomputes the loss of all
its queries for every new one, and it keeps nothing on a disk; nor do the steps that are timed here.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from rich.table import Table

from stream_dp.accounting import Cost, Ledger, Overdraft, cancel, commit, encode, reserve
from tests.bench.figures import show

PEER_ENTRIES = 4_000
"""More takes OpenDP minutes: its time grows with the square."""
ENTRIES = 100_000
GROUP = 256
TIMED = 500
ROUNDS = 3

WORST = Cost(Fraction(1, 10**6), Fraction(1, 10**7), Fraction(123_456_789, 10**12))
CAME_TO = Cost(Fraction(3, 10**7), WORST.delta, WORST.rho * Fraction(3, 10))
AUDIENCES = dict.fromkeys(("public", "partner", "internal"), CAME_TO)
PLENTY = Cost(*[Fraction(10**9)] * 3)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line: a step when the ledger has so many entries, in microseconds."""

    what: str
    entries: int
    microseconds: float


def charged(entries: int) -> Ledger:
    """A ledger to which so many calls were charged."""
    ledger = Ledger(PLENTY, readers=AUDIENCES)
    for call in range(entries):
        ledger = commit(_admitted(reserve(ledger, f"call {call}", WORST)), f"call {call}", CAME_TO, {}, view="pages")
    return ledger


def opened(entries: int) -> Ledger:
    """A ledger in which so many reservations are open."""
    ledger = Ledger(PLENTY, readers=AUDIENCES)
    for call in range(entries):
        ledger = _admitted(reserve(ledger, f"call {call}", WORST))
    return ledger


def measure(entries: int) -> list[Figure]:
    """Every step of the ledger, when so many calls were charged, and when so many are open."""
    figures = []
    for state, ledger in (("charged", charged(entries)), ("open", opened(entries))):
        names = [f"new {call}" for call in range(TIMED)]
        waiting = ledger
        for name in names:
            waiting = _admitted(reserve(waiting, name, WORST))
        for what, step in _steps(ledger, waiting).items():
            figures.append(Figure(f"{what}, {state}", entries, min(_each(step, names) for _ in range(ROUNDS))))
    return figures


def _steps(ledger: Ledger, waiting: Ledger) -> dict[str, Callable[[str], object]]:
    """Every step by the name of a call: in `ledger` it has no reservation, in `waiting` it has one."""
    broke = Ledger(ledger.budget, ledger.budget)
    group = Ledger(ledger.budget, ledger.spent, readers=AUDIENCES, views=ledger.views)
    for name in range(GROUP):
        group = _admitted(reserve(group, f"call {name}", WORST))
    return {
        "reserve": lambda name: reserve(ledger, name, WORST),
        "refuse": lambda name: reserve(broke, name, WORST),
        "commit": lambda name: commit(waiting, name, CAME_TO, {}, view="pages"),
        "commit, three audiences told": lambda name: commit(waiting, name, CAME_TO, AUDIENCES, view="pages"),
        "cancel": lambda name: cancel(waiting, name),
        "encode, a group open": lambda _: encode(group),
        "reserve and commit": lambda name: _both(ledger, name),
    }


def measure_peer(entries: int) -> list[Figure]:
    """OpenDP's filter, and its composition without the filter; nothing if OpenDP is not installed."""
    try:
        import opendp.prelude as dp  # type: ignore[import-not-found,unused-ignore]  # installed by hand
    except ImportError:
        return []
    dp.enable_features("contrib")
    domain, metric = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    noise = dp.m.make_laplace(domain, metric, scale=1000.0)
    figures = []
    composition = dp.c.make_fully_adaptive_composition(domain, metric, dp.max_divergence())
    limited = dp.c.make_privacy_filter(composition, d_in=1, d_out=float(entries))
    for what, mechanism in (("composition without a filter", composition), ("privacy filter", limited)):
        queryable = mechanism(0)
        for _ in range(entries - TIMED):
            queryable(noise)
        start = time.process_time()
        for _ in range(TIMED):
            queryable(noise)
        figures.append(Figure(f"OpenDP, {what}", entries, (time.process_time() - start) * 1e6 / TIMED))
    return figures


def _both(ledger: Ledger, name: str) -> Ledger:
    return commit(_admitted(reserve(ledger, name, WORST)), name, CAME_TO, {}, view="pages")


def _admitted(outcome: Ledger | Overdraft) -> Ledger:
    assert isinstance(outcome, Ledger)
    return outcome


def _each(step: Callable[[str], object], names: list[str]) -> float:
    start = time.process_time()
    for name in names:
        step(name)
    return (time.process_time() - start) * 1e6 / len(names)


def report(figures: list[Figure]) -> Table:
    """The figures, and how often a charge fits into one of OpenDP's filter."""
    found = {figure.what: figure.microseconds for figure in figures}
    table = Table(title=f"One core of {platform.processor() or platform.machine()}, best of {ROUNDS}")
    for column in ("", "entries", "µs"):
        table.add_column(column, justify="left" if not column else "right")
    for figure in figures:
        table.add_row(figure.what, f"{figure.entries:,}", f"{figure.microseconds:,.1f}")
    peer, bare = found.get("OpenDP, privacy filter"), found.get("OpenDP, composition without a filter")
    if peer is not None and bare is not None:
        own = next(figure.microseconds for figure in figures if figure.what == "reserve and commit, charged")
        table.caption = (
            f"OpenDP's filter / reserve and commit = {peer / own:,.0f}; "
            f"without what its draw takes, {(peer - bare) / own:,.0f}"
        )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The ledger: microseconds per step, beside OpenDP's privacy filter.")
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--peer-entries", type=int, default=PEER_ENTRIES)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    asked = parser.parse_args()
    figures = [*measure(asked.peer_entries), *measure_peer(asked.peer_entries), *measure(asked.entries)]
    show(figures, report(figures), ("rpds-py", "opendp"), as_json=asked.json)


if __name__ == "__main__":
    main()
