"""What a plan should release, computed the plain way: loops over a script, no state, no crash, no partition.

The counting is written anew, on dictionaries; the noise is the package's own pure functions on the oracle's counts,
with the same keyed bits as the worker under test.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.exact.bits import BitSource, Entropy, KeyedBits
from stream_dp.kinds.sealing import SealedTable, read_window, seal_window
from stream_dp.records.codec import AnyRecord
from stream_dp.releases.publication import account, refusal_record, release_record
from stream_dp.testing.scripts import Event, Raw, Script, Watermark
from stream_dp.windows.keys import bucket_of
from stream_dp.windows.merging import largest


@dataclass(frozen=True, slots=True)
class Expected:
    """What a script comes to in one view.

    Attributes:
        counts: by window start, the number of users that had each item, bounded.
        refused: by reason, how many events were not counted.
    """

    counts: Mapping[int, Mapping[str, int]]
    refused: Mapping[str, int]

    def between(self, view: ViewPlan, first_ms: int, end_ms: int) -> dict[int, Mapping[str, int]]:
        """The counts of every window from the one that starts at `first_ms`, empty ones too."""
        return {start: self.counts.get(start, {}) for start in range(first_ms, end_ms, view.window.size_ms)}


def count_script(view: ViewPlan, start_ms: int, script: Script, *, now_ms: int | None = None) -> Expected:
    """Count a script's events as the view's bounds say; what is `Raw` is not looked at.

    Args:
        view: the view.
        start_ms: start of its first window.
        script: everything that was published to its source, in order. Watermarks move an event clock and judge later
            events; under a wall clock every event counts as on time.
        now_ms: where the worker's wall clock stood all the while; None if that was later than all of the script.
    """
    window = view.window
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    had: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    refused: Counter[str] = Counter()
    clock = start_ms
    for act in script:
        match act:
            case Watermark(time_ms):
                clock = max(clock, time_ms if now_ms is None else min(time_ms, now_ms))
            case Event(user, item, time_ms):
                start = time_ms - (time_ms - start_ms) % window.size_ms
                end = start + window.size_ms
                items = had[start, user]
                if start < start_ms:
                    refused["before_start"] += 1
                elif window.clock == "event" and end + window.grace_ms <= clock:
                    refused["late"] += 1
                elif now_ms is not None and time_ms > now_ms + window.max_ahead_ms:
                    refused["future"] += 1
                elif item in items:
                    refused["duplicate"] += 1
                elif len(items) == view.items_per_user:
                    refused["clipped"] += 1
                else:
                    items.add(item)
                    counts[start][item] += 1
            case Raw():
                pass
    return Expected({start: dict(table) for start, table in counts.items()}, dict(refused))


def keyed_entropy(key: bytes) -> Entropy:
    """Noise that a second run draws again: bits fixed by the key and the draw's context. Not private."""

    def source(context: bytes) -> BitSource:
        return KeyedBits(key, context)

    return source


def expected_records(
    view: ViewPlan,
    windows: Mapping[int, Mapping[str, int]],
    *,
    prf_key: bytes,
    entropy: Entropy,
) -> dict[str, list[AnyRecord]]:
    """The records of a view that alone uses its ledger, without any grant: one per window and audience.

    Args:
        view: the view.
        windows: exact counts by window start, from the view's first window on, empty windows too.
        prf_key: the secret of the application's key file.
        entropy: the worker's.

    Returns:
        By audience, in order of the windows.
    """
    records: dict[str, list[AnyRecord]] = {audience: [] for audience in view.audiences}
    audiences = sorted(view.audiences, key=lambda audience: (view.audiences[audience], audience))
    finest = max(view.audiences.values())
    left: dict[int, Cost] = {}
    for start, counts in sorted(windows.items()):
        period = view.ledger.period_of(start)
        before = left.setdefault(period, view.ledger.budget)
        if not view.cost(finest) <= before:
            for audience in audiences:
                refusal = refusal_record(
                    view,
                    audience=audience,
                    level=view.audiences[audience],
                    start_ms=start,
                    revision=1,
                    asked=view.cost(finest),
                    ledger=account(view, period, before),
                )
                records[audience].append(refusal)
            continue
        table = seal_window(view, start, handed_on(view, counts), prf_key=prf_key, entropy=entropy)
        left[period] = before - cost_of(view, table, finest)
        charged = Cost.ZERO
        for audience in audiences:
            level = view.audiences[audience]
            (reading,) = read_window(view, start, table, [level], prf_key)
            held = cost_of(view, table, level)
            release = release_record(
                view,
                audience=audience,
                level=level,
                start_ms=start,
                revision=1,
                items=reading.items,
                charged=held - charged,
                held=held,
                ledger=account(view, period, left[period]),
                complete=reading.complete,
            )
            charged = held
            records[audience].append(release)
    return records


def handed_on(view: ViewPlan, counts: Mapping[str, int]) -> dict[str, int]:
    """What of a window's counts reaches the release: all of a histogram's, the largest of each bucket for a top-k."""
    if view.topk is None or view.topk.kbar is None:
        return dict(counts)
    most = view.topk.kbar + 1
    buckets: list[dict[str, int]] = [{} for _ in range(view.buckets)]
    for item, count in counts.items():
        buckets[bucket_of(item, view.buckets)][item] = count
    return {item: count for bucket in buckets for item, count in largest(bucket, most).items()}


def cost_of(view: ViewPlan, table: SealedTable, level: int) -> Cost:
    """What a window's releases cost a user if this is the finest level among them: its counts, and the draws made."""
    at, parts = view.levels[level], view.ledger.parts
    cost = Cost(Fraction(0), view.delta, rho=at.rho) if "zcdp" in parts else Cost(at.epsilon, view.delta)
    if view.topk is None:
        return cost
    drawn = view.topk.cost(table.draws, squared="selection" in parts)
    return cost + Cost(drawn.epsilon, Fraction(0), drawn.squares)
