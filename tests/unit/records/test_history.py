from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from stream_dp.accounting import Cost
from stream_dp.records.history import History, Seen
from stream_dp.records.models import PrivacyCost

Make = Callable[..., Any]
DAY_MS = 86_400_000


def test_higher_revision_replaces_the_one_before_and_keeps_it_for_comparison(release: Make) -> None:
    first, sharper = release({"home": 40}), release({"home": 41, "faq": 9}, level=1, revision=2)
    seen = Seen()
    assert seen.take(first)
    assert seen.take(sharper)
    assert (seen.release, seen.before) == (sharper, first)


def test_records_that_come_again_after_a_crash_change_nothing(release: Make) -> None:
    history = History()
    first, sharper = (
        release({"home": 40}),
        release({"home": 41}, revision=2),
    )
    assert [history.take(record) is not None for record in (first, sharper, first, sharper)] == [
        True,
        True,
        False,
        False,
    ]
    assert history.windows("pages", "public")[0].before == first
    assert history.newest == sharper


def test_refused_revision_leaves_the_release_that_holds_until_a_later_one_is_paid(release: Make, refusal: Make) -> None:
    seen, first, refused = Seen(), release({"home": 40}), refusal(revision=2)
    assert seen.take(first)
    assert seen.take(refused)
    assert not seen.take(refused)
    assert (seen.release, seen.refusal) == (first, refused)
    assert seen.take(release({"home": 41}, level=1, revision=2))
    assert seen.refusal is None


def test_windows_are_in_order_of_time_and_audiences_apart(release: Make) -> None:
    history = History()
    for day, audience in ((2, "public"), (0, "staff"), (1, "public")):
        history.take(release({"home": 40 + day}, day=day, audience=audience))
    assert list(history.windows("pages", "public")) == [DAY_MS, 2 * DAY_MS]
    assert [record.audience for record in history.releases("staff")] == ["staff"]
    assert len(list(history.releases())) == 3
    assert history.windows("pages", "nobody") == {}


def test_cost_is_read_exactly() -> None:
    assert PrivacyCost.spent(_cost("1/3")).cost == _cost("1/3")


def _cost(epsilon: str) -> Cost:
    return Cost(Fraction(epsilon), Fraction(0))
