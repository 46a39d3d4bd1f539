"""Milliseconds per top-k selection, beside OpenDP, in one run: `python -m tests.bench.select`.

A selection goes from the table, a mapping of items to counts, to the items selected; "draws alone" leaves out finding
the candidates in the table. Times are those of the wall on one core: half of the calls take at most p50, 99 of 100 at
most p99. OpenDP (`pip install opendp`) is given the counts as it wants them, a list, and for an unknown domain the
mapping itself; its Gumbel noise comes under the measure that it offers it for, zero-concentrated divergence. All
select 10 of the same keys under the same noise scale.
"""

from __future__ import annotations

import argparse
import gc
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from rich.table import Table

from stream_dp.exact.bits import SystemBits, system_entropy
from stream_dp.select.candidates import Candidates, candidates
from stream_dp.select.gumbel import TopKParameters, limited_domain_top_k
from tests.bench.figures import show
from tests.support.releasing import plan
from tests.support.sealing import seal_window

EPSILON, DELTA = Fraction(1, 10), Fraction(1, 10**6)
KEYS = (100_000, 1_000_000)
SHAPES: dict[str, Callable[[int, int], int]] = {
    "zipf": lambda place, _: 10**7 // (place + 1) + 1,
    "flat": lambda _place, _: 50,
    "distinct": lambda place, keys: keys - place,
}
CALLS = {100_000: 300, 1_000_000: 60}
OPENDP_KEYS = 100_000
OPENDP_CALLS = 3
OURS = "stream-dp, zipf, k=10, kbar=all"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line, in milliseconds."""

    what: str
    keys: int
    p50: float
    p99: float


def table_of(shape: str, keys: int) -> dict[bytes, int]:
    """Counts of a shape; the items are in no order of their counts, and sorted as a release hands them over."""
    count = SHAPES[shape]
    return {b"item-%07d" % i: count(i * 7_654_321 % keys, keys) for i in range(keys)}


def measure(keys: tuple[int, ...]) -> list[Figure]:
    """Run everything, OpenDP between our calls of the same size."""
    figures = []
    for size in keys:
        for shape in SHAPES:
            counts = table_of(shape, size)
            for what, run in _ours(shape, counts):
                figures.append(_timed(what, size, run, CALLS.get(size, 100)))
        for what, run in _window(table_of("zipf", size)):
            figures.append(_timed(what, size, run, CALLS.get(size, 100)))
        if size == OPENDP_KEYS:
            figures += [_timed(what, size, run, OPENDP_CALLS) for what, run in _opendp(table_of("zipf", size))]
    return figures


Task = tuple[str, Callable[[], object]]


def _window(counts: dict[bytes, int]) -> Iterator[Task]:
    """What the release engine does with a closed window: choose, and seal the counts of what was chosen."""
    view = plan(("kbar: 3", "kbar: 1000000"), ("k: 2", "k: 10")).views["tops"]
    named = {item.decode(): count for item, count in counts.items()}
    yield (
        "stream-dp, zipf, k=10, kbar=all, window chosen and sealed",
        lambda: seal_window(view, 0, named, prf_key=bytes(32), entropy=system_entropy),
    )


def _ours(shape: str, counts: dict[bytes, int]) -> Iterator[Task]:
    for k in (10, 100):
        for kbar, name in ((1000, "1000"), (len(counts), "all")):
            p = TopKParameters(k, kbar, EPSILON, DELTA)

            def whole(p: TopKParameters = p) -> object:
                rows, h_next = candidates(counts, p.kbar)
                return limited_domain_top_k(rows, h_next, p, SystemBits())

            yield f"stream-dp, {shape}, k={k}, kbar={name}", whole
        rows, h_next = candidates(counts, p.kbar)

        def alone(p: TopKParameters = p, rows: Candidates = rows, h_next: int = h_next) -> object:
            return limited_domain_top_k(rows, h_next, p, SystemBits())

        yield f"stream-dp, {shape}, k={k}, kbar=all, draws alone", alone


def _opendp(counts: dict[bytes, int]) -> Iterator[Task]:
    try:
        import opendp.prelude as dp  # type: ignore[import-not-found,unused-ignore]  # installed by hand
    except ImportError:
        return
    dp.enable_features("contrib")
    scale = float(1 / EPSILON)
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int, monotonic=True)
    scores = list(counts.values())
    for name, measure in (
        ("Gumbel", dp.zero_concentrated_divergence()),
        ("exponential", dp.max_divergence()),
    ):
        top = dp.m.make_noisy_top_k(*space, measure, k=10, scale=scale)
        yield f"OpenDP, noisy top 10, {name} noise, known domain", partial(top, scores)
    named = {item.decode(): count for item, count in counts.items()}
    keyed = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int))
    distance = dp.l01inf_distance(dp.absolute_distance(T=int))
    above = dp.m.make_laplace_threshold(keyed, distance, scale=scale, threshold=200)
    yield "OpenDP, Laplace threshold, unknown domain", lambda: above(named)


def _timed(what: str, keys: int, run: Callable[[], object], calls: int) -> Figure:
    run()
    gc.collect()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return Figure(what, keys, times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)])


def report(figures: list[Figure]) -> Table:
    """The figures, and how often our selection of the same size, from table to items, fits into OpenDP's."""
    ours = {figure.keys: figure.p50 for figure in figures if figure.what == OURS}
    alone = {figure.keys: figure.p50 for figure in figures if figure.what == f"{OURS}, draws alone"}
    table = Table(title=f"One core of {platform.processor() or platform.machine()}")
    for column in ("", "keys", "p50 ms", "p99 ms", f"times {OURS}", "times its draws alone"):
        table.add_column(column, justify="left" if not column else "right")
    for figure in figures:
        peer = figure.what.startswith("OpenDP")
        ratios = (f"{figure.p50 / base[figure.keys]:,.0f}" if peer else "" for base in (ours, alone))
        table.add_row(figure.what, f"{figure.keys:,}", f"{figure.p50:,.2f}", f"{figure.p99:,.2f}", *ratios)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Top-k selection: milliseconds per call.")
    parser.add_argument("--keys", type=int, nargs="+", default=list(KEYS))
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    asked = parser.parse_args()
    figures = measure(tuple(asked.keys))
    show(figures, report(figures), ("numpy", "cryptography", "opendp"), as_json=asked.json)


if __name__ == "__main__":
    main()
