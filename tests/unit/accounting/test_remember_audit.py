"""Two windows of a histogram that remembers keys, at two levels, with a grant in between: exact laws, and mutants.

Sealing, reading and the rule of the list are those of the package; only the noise is enumerated in place of drawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from math import exp
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.exact.bits import system_entropy
from stream_dp.kinds import sealing
from stream_dp.kinds.histogram import HISTOGRAM, HistogramPlan
from stream_dp.kinds.kind import ViewBasis
from stream_dp.kinds.noise_levels import LAPLACE, TRUNCATED, Ladder, TruncatedLevel
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import SealedTable, Sealing
from stream_dp.lossless.levels import WORD
from stream_dp.lossless.sealed import Excess, WindowNoise
from stream_dp.runtime.kafka.list_topics import _KeysOfRelease
from tests.support.given import there

COARSE, FINE = range(2)
EPSILONS = Fraction(1), Fraction(4)
DELTA = Fraction(1, 100)
KEY, NOISE = "home", WindowNoise(b"window", bytes(32))
UNKNOWN, KNOWN = KeyList.of(["another"]), KeyList.of(["another", KEY])

Seen = int | str
Window = Mapping[tuple[Seen, Seen], float]
"""The chances of what the records of a window say of the key, at the coarse and at the fine level."""
Law = Mapping[tuple[Any, ...], float]


def plan(ladder: Ladder, noise: str = LAPLACE) -> HistogramPlan:
    settings = HISTOGRAM.settings.model_validate(
        {"kind": "histogram", "delta": str(DELTA), "remember": {"audience": "public", "keep": 1}}
    )
    made = HISTOGRAM.plan(settings, ViewBasis(ladder, 1, Path(), noise=noise, application="shop", view="pages"))
    assert isinstance(made, HistogramPlan)
    return made


PLAN = plan([("coarse", EPSILONS[COARSE]), ("fine", EPSILONS[FINE])])
TOPIC = PLAN.topics[0]


def ratio(level: int) -> float:
    return PLAN.levels[level].threshold / WORD


def noise() -> Iterator[tuple[int, int, float]]:
    """Fine noise, what the coarse level adds to that, and the chance of both; together the coarse law."""
    fine, coarse = ratio(FINE), ratio(COARSE)
    spread = (1 - fine / coarse) / (1 - fine)  # geometric(coarse) is geometric(fine) + geometric(coarse) or + 0

    def added(n: int) -> float:
        return (1 - spread) * (n == 0) + spread * (1 - coarse) * coarse**n

    behind: dict[int, float] = defaultdict(float)
    for plus in range(26):
        for minus in range(26):
            behind[plus - minus] += added(plus) * added(minus)
    for z in range(-7, 8):
        for e, p in behind.items():
            yield z, e, (1 - fine) / (1 + fine) * fine ** abs(z) * p


@contextmanager
def enumerated(z: int, e: int) -> Iterator[None]:
    """All keys get this noise."""

    def seal_counts(_: object, exact: Sequence[int], *__: object) -> tuple[bytes, NDArray[np.int64], Excess]:
        return bytes(32), np.array(exact, np.int64) + z, np.full((len(exact), 1), e)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "seal_counts", seal_counts)
        yield


Seal = Callable[[Mapping[str, int], Sealing], SealedTable]


def window(count: int, listed: KeyList, seal: Seal = PLAN.seal) -> Window:
    """The law of a window with an exact count of the key, and other keys that are as they are."""
    found: dict[tuple[Seen, Seen], float] = defaultdict(float)
    counts = {"another": 9, **({KEY: count} if count else {})}
    for z, e, p in noise():
        with enumerated(z, e):
            table = seal(counts, Sealing(NOISE, system_entropy, {TOPIC: listed}))
            coarse, fine = map(seen, PLAN.read(table, [COARSE, FINE], NOISE))
        found[coarse, fine] += p
    return found


def seen(fields: Mapping[str, object]) -> Seen:
    items = [one for one in fields["items"] if one.item == KEY]  # type: ignore[attr-defined]
    assert all((one.new is None) == (fields["catalogue"] == LISTED_AS[KEY]) for one in items)
    return items[0].count if items else "hidden"


def listed_as(listed: KeyList) -> object:
    with enumerated(0, 0):
        table = PLAN.seal({}, Sealing(NOISE, system_entropy, {TOPIC: listed}))
        return PLAN.read(table, [FINE], NOISE)[0]["catalogue"]


LISTED_AS = {KEY: listed_as(KNOWN), "": listed_as(UNKNOWN)}


def stays(level: int, shown: Seen) -> bool:
    """The rule by which a worker reads the list from a record."""
    items = [] if isinstance(shown, str) else [{"item": KEY, "count": shown}]
    record = {"window": {"start_ms": 0, "end_ms": 1}, "revision": 1, "items": items, **PLAN.limits(level)}
    return KEY in msgspec.convert(record, _KeysOfRelease).listed()


def asks(shown: Seen) -> bool:
    """Readers who react: they ask for the fine level where the coarse one left them in doubt."""
    return shown == "hidden" or (isinstance(shown, int) and shown % 2 == 0)


Rule = Callable[[int, Seen, Seen, int], bool]
"""From the level of the audience, what both levels show, and the next exact count: whether the key is known next."""


def released(level: int, coarse: Seen, fine: Seen, _next: int) -> bool:
    """The product's rule: what the audience was shown."""
    return stays(level, fine if level == FINE else coarse)


def law(counts: tuple[int, int], begins: KeyList, rule: Rule = released, then: Then | None = None) -> Law:
    """What readers see of both windows, who grant themselves the fine level, for both windows, by what they saw."""
    found: dict[tuple[object, ...], float] = defaultdict(float)
    for (coarse, fine), p in windows(counts[0], begins).items():
        level = FINE if asks(coarse) else COARSE
        first = (coarse, fine) if level == FINE else (coarse,)
        known = rule(level, coarse, fine, counts[1])
        for reading, q in (then or again)(counts[1], known, level).items():
            found[(level, *first, reading)] += p * q
    return found


Then = Callable[[int, bool, int], Mapping[Seen, float]]
"""From the exact count of the second window and whether the key is known, what it shows at a level."""


@cache
def windows(count: int, listed: KeyList) -> Window:
    return window(count, listed)


@cache
def again(count: int, known: bool, level: int) -> Mapping[Seen, float]:
    found: dict[Seen, float] = defaultdict(float)
    for reading, p in windows(count, KNOWN if known else UNKNOWN).items():
        found[reading[level]] += p
    return found


def excess(one: Law, other: Law) -> float:
    """The least delta, in the worse direction, where both windows cost the epsilon of the level that was asked for."""

    def beyond(p: Law, q: Law) -> float:
        factors = [exp(2 * float(epsilon) + 1e-9) for epsilon in EPSILONS]
        return sum(max(0.0, chance - factors[out[0]] * q.get(out, 0.0)) for out, chance in p.items())

    return max(beyond(one, other), beyond(other, one))


LEAST = PLAN.minimum_counts[COARSE]
INPUTS = [
    ((1, 1), (0, 0)),
    ((1, 1), (0, 1)),
    ((0, 1), (0, 0)),
    ((5, 1), (4, 0)),
    ((LEAST, LEAST), (LEAST - 1, LEAST - 1)),
    ((PLAN.stays_from[COARSE], 1), (PLAN.stays_from[COARSE] - 1, 0)),
]
BEGINS = [pytest.param(UNKNOWN, id="unknown"), pytest.param(KNOWN, id="known")]
ROUNDING = 1e-6
"""Noise that was left out."""


def test_the_levels_have_the_laws_that_they_say() -> None:
    laws: dict[int, float] = defaultdict(float)
    for z, e, p in noise():
        laws[z + e] += p
    a = ratio(COARSE)
    assert all(abs(laws[n] - (1 - a) / (1 + a) * a ** abs(n)) < ROUNDING for n in range(-9, 10))
    assert sum(laws.values()) > 1 - ROUNDING


@pytest.mark.parametrize("begins", BEGINS)
@pytest.mark.parametrize(("with_user", "without"), INPUTS)
def test_both_windows_cost_their_levels_and_one_delta_each(
    with_user: tuple[int, int], without: tuple[int, int], begins: KeyList
) -> None:
    assert excess(law(with_user, begins), law(without, begins)) <= 2 * float(DELTA) + ROUNDING


@pytest.mark.parametrize("level", [COARSE, FINE])
def test_a_known_key_costs_no_delta(level: int) -> None:
    factor = exp(float(EPSILONS[level]) + 1e-9)
    for count in range(4):
        laws = [again(with_user, known=True, level=level) for with_user in (count, count + 1)]
        for p, q in (laws, laws[::-1]):
            assert sum(max(0.0, chance - factor * q.get(out, 0.0)) for out, chance in p.items()) < ROUNDING


def test_a_known_key_costs_one_delta_where_noise_ends() -> None:
    """It is always shown, so its largest and its smallest count say where its noise ends."""
    made = plan([("all", EPSILONS[COARSE])], noise=TRUNCATED)
    (level,) = made.levels
    assert isinstance(level, TruncatedLevel)
    a, t = Fraction(level.threshold, WORD), level.law.largest
    whole = sum(a ** abs(k) for k in range(-t, t + 1))

    def shown(count: int) -> Mapping[int, Fraction]:
        return {count + k: a ** abs(k) / whole for k in range(-t, t + 1)}

    for count in (0, 1, t):
        for one, other in ((shown(count), shown(count + 1)), (shown(count + 1), shown(count))):
            beyond = sum(max(Fraction(0), p - q / a) for n, p in one.items() for q in [other.get(n, Fraction(0))])
            assert DELTA / 10 < beyond <= made.keys_at_worst(pooled=False).delta == DELTA


def worst(rule: Rule = released, then: Then | None = None) -> float:
    return max(
        excess(*(law(counts, begins, rule, then) for counts in pair)) for pair in INPUTS for begins in (UNKNOWN, KNOWN)
    )


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(lambda _level, _coarse, fine, _next: stays(FINE, fine), id="a level that nobody was charged for"),
        pytest.param(lambda level, c, f, count: released(level, c, f, count) or count > 0, id="fixed after the draw"),
    ],
)
def test_a_list_of_something_else_than_the_records_is_found_out(rule: Rule) -> None:
    assert worst(rule) > 5 * float(DELTA)


def test_a_key_that_counts_as_known_and_as_new_is_found_out() -> None:
    """Two counts of one key, each with noise of its own: twice the epsilon."""

    def twice(count: int, known: bool, level: int) -> Mapping[Seen, float]:
        new = again(count, known=False, level=level)
        if not known:
            return new
        once = again(count, known=True, level=level)
        return {f"{a}, {b}": p * q for a, p in once.items() for b, q in new.items()}

    one, other = (law(counts, KNOWN, then=twice) for counts in ((LEAST, LEAST), (LEAST - 1, LEAST - 1)))
    assert excess(one, other) > 5 * float(DELTA)


def test_a_known_key_that_is_left_out_if_nobody_had_it_is_found_out() -> None:
    assert worst(then=lambda count, known, level: again(count, known and count > 0, level)) > 5 * float(DELTA)


def test_the_table_has_a_known_key_once_whoever_had_it() -> None:
    for count in (0, 1, 50):
        for z in (-7, 0, 7):
            with enumerated(z, -20):
                counts = {"another": 9, KEY: count} if count else {"another": 9}
                table = PLAN.seal(counts, Sealing(NOISE, system_entropy, {TOPIC: KNOWN}))
            assert table.items == ["another", KEY]
    assert there(PLAN.made_of).audience == "public"
