"""From the plan of a view and what was read at a level to the record that is published."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stream_dp.accounting import Cost
from stream_dp.accounting.cost import PART_ENTRIES
from stream_dp.config.plan import LedgerPlan, ViewPlan
from stream_dp.errors import StateError
from stream_dp.records.models import (
    NEIGHBOURS,
    SCHEMA_VERSION,
    Account,
    AccountPart,
    AccountParts,
    Amount,
    HistogramRelease,
    Interval,
    ItemCount,
    Level,
    Price,
    RankedCount,
    Refusal,
    TopKRelease,
)
from stream_dp.version import __version__


def account(view: ViewPlan, period_start_ms: int, left: Cost) -> Account:
    """The public face of a view's ledger in the period that starts at `period_start_ms`."""
    ledger = view.ledger
    return Account(
        name=ledger.name,
        population=ledger.population,
        period=Interval.of(period_start_ms, period_start_ms + ledger.period_ms),
        budget=Price.spent(ledger.total),
        left=Price.left(left),
        parts=_parts(ledger, left),
    )


def _parts(ledger: LedgerPlan, left: Cost) -> AccountParts | None:
    found = {
        name: AccountPart(
            epsilon=Amount.up(part.epsilon),
            slack=Amount.up(part.slack),
            budget=Amount.up(part.cap),
            left=Amount.down(getattr(left, PART_ENTRIES[name])),
        )
        for name, part in ledger.parts.items()
    }
    return AccountParts(**found) if found else None


def release_record(
    view: ViewPlan,
    *,
    audience: str,
    level: int,
    start_ms: int,
    revision: int,
    items: Iterable[tuple[str, int]],
    charged: Cost,
    held: Cost,
    ledger: Account,
    complete: bool = True,
) -> HistogramRelease | TopKRelease:
    """The record of one window for one audience.

    Args:
        view: the view's plan.
        audience: who it is for.
        level: index of the audience's level in `view.levels`.
        start_ms: start of the window.
        revision: 1 for the first release of the window to this audience.
        items: keys and their noisy counts. A histogram's in any order, those of at least the level's minimum count
            and no other; a top-k's in the order of the selection.
        charged: what the ledger paid when this record was made.
        held: what the audience alone has been told about the window.
        ledger: the account, from `account`.
        complete: whether a top-k found k keys. Not looked at for a histogram.
    """
    at = view.levels[level]
    common: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "code_version": __version__,
        "type": "release",
        "view": view.name,
        "audience": audience,
        "window": Interval.of(start_ms, start_ms + view.window.size_ms),
        "revision": revision,
        "level": Level(name=at.name, epsilon=Amount.up(at.epsilon)),
        "noise_interval_95": at.noise_interval,
        "charged": Price.spent(charged),
        "held": Price.spent(held),
        "ledger": ledger,
        "neighbours": NEIGHBOURS,
    }
    if view.topk is not None:
        ranked = [RankedCount(rank=rank, item=item, count=count) for rank, (item, count) in enumerate(items, start=1)]
        how = None if view.topk.mechanism == "gumbel" else view.topk.mechanism
        return TopKRelease(**common, kind="topk", k=view.topk.k, complete=complete, selection=how, items=ranked)
    if at.minimum_count is None:
        raise StateError(f"level {at.name!r} of histogram {view.name!r} has no minimum count")
    counts = [ItemCount(item=item, count=count) for item, count in sorted(items, key=lambda row: (-row[1], row[0]))]
    return HistogramRelease(**common, kind="histogram", minimum_count=at.minimum_count, items=counts)


def refusal_record(
    view: ViewPlan, *, audience: str, level: int, start_ms: int, revision: int, asked: Cost, ledger: Account
) -> Refusal:
    """The record of a window, or of a sharper revision of it, that the ledger could not pay for.

    Args:
        view: the view's plan.
        audience: who it is for.
        level: index of the level that was asked for.
        start_ms: start of the window.
        revision: the number the release would have had.
        asked: what it would have cost at worst.
        ledger: the account, from `account`.
    """
    at = view.levels[level]
    return Refusal(
        schema_version=SCHEMA_VERSION,
        code_version=__version__,
        type="refusal",
        kind=view.kind,
        view=view.name,
        audience=audience,
        window=Interval.of(start_ms, start_ms + view.window.size_ms),
        revision=revision,
        level=Level(name=at.name, epsilon=Amount.up(at.epsilon)),
        reason="budget",
        asked=Price.spent(asked),
        ledger=ledger,
        neighbours=NEIGHBOURS,
    )
