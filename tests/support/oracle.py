"""Oracle of a plan's releases, computed by plain loops over a script: no state, no crash, no partition.

The counting is written anew, on dictionaries; the noise is the package's own pure functions on the oracle's counts,
with the same keyed bits as the worker under test.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from types import MappingProxyType

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.exact.bits import Entropy
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import SealedTable, Sealing, own_secret
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.codec import AnyRecord, decode, encode
from stream_dp.releases.publication import Denial, Revision, account
from stream_dp.testing import Event, Raw, Script, Watermark
from stream_dp.windows.encoding import bucket_of
from stream_dp.windows.merging import summed


@dataclass(frozen=True, slots=True)
class Expected:
    """Result of a script in one view.

    Attributes:
        counts: by window start, the number of users that had each item, bounded.
        refused: by reason, how many contributions of events were not counted.
    """

    counts: Mapping[int, Mapping[str, int]]
    refused: Mapping[str, int]

    def between(self, view: ViewPlan, first_ms: int, end_ms: int) -> dict[int, Mapping[str, int]]:
        """The counts of every window from the one that starts at `first_ms`, empty ones too."""
        starts = view.window.shape.starts(first_ms, end_ms)
        return {start: self.counts.get(start, {}) for start in starts if view.windows.has(start)}


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
    entered: defaultdict[tuple[int, int, str], set[int]] = defaultdict(set)
    refused: Counter[str] = Counter()
    clock = start_ms
    domain = None if view.kind.topics else view.kind.domain({})

    def take(user: str, item: str, time_ms: int) -> str | None:
        """Count a contribution, or say why not."""
        if time_ms < start_ms:
            return "before_start"
        if now_ms is not None and time_ms > now_ms + window.max_ahead_ms:
            return "future"
        reasons = set[str | None]()
        for start in windows_of(view, start_ms, time_ms):
            items = had[window.charged(start).start_ms, user]
            if window.clock == "event" and window.shape.end(start) + window.grace_ms <= clock:
                reasons.add("late")
            elif domain is not None and item not in domain:
                reasons.add("unlisted")
            elif item in items:
                reasons.add("duplicate")
            elif items and len(items) == view.items_per_user:
                reasons.add("clipped")
            elif not items and not enters(user, start, time_ms):
                reasons.add("participation")
            else:
                items.add(item)
                counts[start][item] += 1
                reasons.add(None)
        # Taken in a window; else why it was not, the heaviest reason of one that took events first.
        heaviest = (None, "unlisted", "participation", "clipped", "duplicate", "late")
        return next(one for one in heaviest if one in reasons)

    def enters(user: str, start: int, time_ms: int) -> bool:
        """Let a user enter what is charged together with a window, if they may."""
        unit, periods, most = window.charged(start), view.ledger.periods, view.windows_per_user
        period = periods.interval(unit.start_ms)
        if most is None or unit.end_ms > period.end_ms:
            return True
        tilings = view.windows.shape.tilings
        tiling = next(at for at, one in enumerate(tilings) if one.start_of(start) == start)
        before, most = entered[period.start_ms, tiling, user], most // len(tilings)
        if view.pacing == "even":
            most = min(most, ceil(period.share(max(0, time_ms - period.start_ms)) * most) + -(-most // 10))
        if len(before) >= most:
            return False
        before.add(unit.start_ms)
        return True

    for act in script:
        match act:
            case Watermark(time_ms):
                clock = max(clock, time_ms if now_ms is None else min(time_ms, now_ms))
            case Event(user, _, time_ms):
                for item in act.items(view):
                    reason = take(user, item, time_ms)
                    if reason is not None:
                        refused[reason] += 1
            case Raw():
                pass
    return Expected({start: dict(table) for start, table in counts.items()}, dict(refused))


def windows_of(view: ViewPlan, start_ms: int, time_ms: int) -> list[int]:
    """The starts of the windows that a time is in, from that at `start_ms` on, oldest first.

    They are walked, not computed: what is checked by it is how time is cut.
    """
    found, start, shape = [], start_ms, view.window.shape
    while start <= time_ms:
        if time_ms < shape.end(start):
            found.append(start)
        start = shape.next(start)
    return found


def expected_records(
    view: ViewPlan,
    windows: Mapping[int, Mapping[str, int]],
    *,
    prf_key: bytes,
    entropy: Entropy,
    lists: Mapping[str, KeyList] = MappingProxyType({}),
) -> dict[str, list[AnyRecord]]:
    """The records of a view that alone uses its ledger, without any grant: one per window and audience.

    Args:
        view: the view; every window is made for the audiences of its edition.
        windows: exact counts by window start, from the view's first window on, empty windows too; of windows that are
            made of panes, by the starts of these.
        prf_key: the secret of the application's key file.
        entropy: the worker's.
        lists: the public lists that stand in topics, by topic.

    Returns:
        By audience, in order of the windows.
    """
    asked = view
    records: dict[str, list[AnyRecord]] = {audience: [] for audience in asked.readers}
    paid: defaultdict[tuple[int, str], list[Cost]] = defaultdict(list)
    sealed: dict[int, tuple[SealedTable, WindowNoise] | None] = {}
    for start, counts in sorted(windows.items()):
        view = asked.at(start)
        finest = view.start_level
        period = view.ledger.periods.start_of(start)
        budget, before = view.ledger.budget * (view.share or 1), paid[period, ""]
        sealed[start] = None
        pays, first = view.window.pays(start), view.window.charged(start).start_ms
        affords = dearest_of(view, [*before, view.cost(finest)]) <= budget
        if affords if pays else sealed.get(first) is not None:
            name = view.noise_name(start)
            noise = WindowNoise.of(name, prf_key, own_secret(name, entropy))
            block = summed([counts, *(windows[pane] for pane in panes_before(view, start))])
            table = view.kind.seal(handed_on(view, block), Sealing(noise, entropy, lists))
            sealed[start] = table, noise
            before += [view.spent(table, finest)] if pays else []
            for audience, level in view.audiences.items():
                paid[period, audience] += [view.spent(table, level)] if pays else []
        for audience in view.audiences:
            told = dearest_of(view, paid[period, audience])
            records[audience] += _released(view, start, sealed, audience, told)
    return records


def dearest_of(view: ViewPlan, costs: Sequence[Cost]) -> Cost:
    """What windows of a view cost a user: of each entry, the largest of as many as a user is in; else all."""
    if view.windows_per_user is None or not costs:
        return sum(costs, Cost.ZERO)
    return Cost(*(sum(sorted(some)[-view.windows_per_user :], Fraction(0)) for some in zip(*costs, strict=True)))


def _released(
    view: ViewPlan,
    last: int,
    sealed: Mapping[int, tuple[SealedTable, WindowNoise] | None],
    audience: str,
    told: Cost,
) -> list[AnyRecord]:
    """The record of the window that is released with a window or pane, if one is."""
    level, ledger = view.audiences[audience], account(view.ledger, last)
    starts: Sequence[int] = [last]
    panes = None
    shape = view.window.shape
    if shape.is_sum:
        starts, panes = shape.of_window(last), shape.panes
    elif shape.tells_totals:
        starts = [start for _, start in blocks_of(view, last)]
    if not starts or not sealed.keys() >= set(starts):
        return []
    found = [one for start in starts if (one := sealed[start]) is not None]
    named = last if panes is None else starts[0]
    made = Revision(
        view, audience=audience, level=level, start_ms=named, number=1, period_loss=told, ledger=ledger, panes=panes
    )
    if len(found) < len(starts):
        return [made.refusal(Denial(view.cost(view.start_level) * (panes or 1)))]
    if len(found) == 1 and panes is None:
        table, noise = found[0]
        (fields,) = view.kind.read(table, [level], noise)
    else:
        columns = [view.kind.summand(table, level, noise) for table, noise in found]
        fields = view.kind.total(found[0][0], [*map(sum, zip(*columns, strict=True))])
    loss = sum((view.spent(table, level) for table, _ in found[: panes or 1]), Cost.ZERO)
    return [decode(encode(made.release(fields=fields, window_loss=loss)))]


def blocks_of(view: ViewPlan, last_ms: int) -> list[tuple[int, int]]:
    """The blocks of panes that a total is the sum of, oldest first: the starts of the first and last pane of each."""
    shape, first = view.window.shape, view.window.charged(last_ms).start_ms
    panes = 1 + shape.begun(first, last_ms)
    blocks, begin = [], 0
    for size in (1 << power for power in reversed(range(panes.bit_length())) if panes >> power & 1):
        blocks.append((shape.next(first, begin), shape.next(first, begin + size - 1)))
        begin += size
    return blocks


def panes_before(view: ViewPlan, start_ms: int) -> Sequence[int]:
    """The other panes of the block that is sealed with one; none where windows have no panes."""
    if not view.window.shape.tells_totals:
        return ()
    begin, _ = blocks_of(view, start_ms)[-1]
    return view.window.shape.starts(begin, start_ms)


def handed_on(view: ViewPlan, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the part of a window's counts that the view's kind needs of every bucket."""
    buckets: list[dict[str, int]] = [{} for _ in range(view.buckets)]
    for item, count in counts.items():
        buckets[bucket_of(item, view.buckets)][item] = count
    return {item: count for bucket in buckets for item, count in view.kind.needed(bucket).items()}
