"""Windows with noise that ends, on the engine: what is charged, published and stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.exact.bits import system_entropy
from stream_dp.kinds.noise_levels import TruncatedLevel
from stream_dp.lossless.levels import noise_parameter, threshold_for
from stream_dp.records.by_kind import HistogramRelease
from tests.support.chance import pooled_p_value
from tests.support.given import there
from tests.support.releasing import DELTA, KEY, ONLY_PAGES, Desk, keyed, plan
from tests.support.sealing import read_window, seal_window
from tests.support.truncated_laws import HIDDEN, noise_of, seen
from tests.unit.config.test_truncated_noise import ALL, ONE, TRUNCATED

F = Fraction
EPSILON = F(1, 2)
FALSE_ALARM = 1e-7
"""Of one p-value, were the keyed bits drawn anew; three are compared with it."""
WINDOWS = 4000


def one_level(*changes: tuple[str, str]) -> Plan:
    return plan(TRUNCATED, ONE, ALL, ONLY_PAGES, *changes)


def test_a_window_is_published_once_to_all_and_paid_once() -> None:
    desk = Desk(one_level())
    (level,) = desk.plan.views["pages"].levels
    assert isinstance(level, TruncatedLevel)
    desk.give("pages", 0, {"home": 400, "cart": 12, "rare": 1})
    assert desk.ledger().spent == Cost(EPSILON, DELTA)
    records = [desk.record("pages", audience, 0) for audience in ("partner", "public", "staff")]
    assert records[0].items == records[1].items == records[2].items
    record = records[0]
    assert isinstance(record, HistogramRelease)
    assert record.privacy.window.cost == Cost(EPSILON, DELTA)
    assert (there(record.level.epsilon).value, record.level.rho) == (EPSILON, None)
    assert (record.noise.distribution, record.noise.largest) == ("truncated discrete laplace", level.law.largest)
    assert record.minimum_count == level.law.largest + 1 < record.two_sided_from
    home = there(record.entry("home"))
    assert abs(home.count - 400) <= level.law.largest
    assert record.interval(home) == (home.count - level.noise_interval, home.count + level.noise_interval)
    least = home.model_copy(update={"count": record.minimum_count})
    assert record.interval(least) == (1, record.minimum_count + level.noise_interval)
    desk.auditor.settled()


def test_nothing_is_stored_of_a_key_that_is_hidden() -> None:
    """Half of the keys of t users are hidden: their rows are gone, and what is stored is what is published."""
    desk = Desk(one_level(), entropy=system_entropy)
    (level,) = desk.plan.views["pages"].levels
    assert isinstance(level, TruncatedLevel)
    counts = {f"page {n}": level.law.largest for n in range(200)}
    desk.give("pages", 0, counts)
    table, record = desk.table("pages", 0), desk.record("pages", "public", 0)
    assert dict(zip(table.items, table.values, strict=True)) == {entry.item: entry.count for entry in record.items}
    assert 0 < len(table.items) < len(counts)
    assert min(table.values) == level.law.largest + 1
    stored = b"".join(value for value in desk.machine.rows.values() if isinstance(value, bytes))
    assert [item for item in counts if item not in table.items and item.encode() + b'"' in stored] == []


def test_records_follow_the_law_and_no_other() -> None:
    """Of three keys, of which one is nearly always hidden; an end that is one earlier or later is rejected."""
    view = one_level().views["pages"]
    (level,) = view.levels
    assert isinstance(level, TruncatedLevel)
    a, t = noise_parameter(level.threshold), level.law.largest
    counts = {"few": 1, "some": t, "many": 3 * t}
    found: dict[str, list[Hashable]] = {item: [] for item in counts}
    for start in range(WINDOWS):
        table = seal_window(view, start, counts, prf_key=KEY, entropy=keyed)
        (reading,) = read_window(view, start, table, [0], KEY)
        for item, values in found.items():
            values.append(dict(reading.items).get(item, HIDDEN))
    for item, count in counts.items():
        law = {what: float(p) for what, p in seen(count, noise_of(a, t), t + 1).items()}
        assert pooled_p_value(Counter(found[item]), law) > FALSE_ALARM
    ends = {value for value in found["many"] if isinstance(value, int)}
    assert (min(ends), max(ends)) == (2 * t, 4 * t)
    wider = {what: float(p) for what, p in seen(t, noise_of(noise_parameter(threshold_for(F(1, 3))), t), t + 1).items()}
    assert pooled_p_value(Counter(found["some"]), wider) < FALSE_ALARM
