"""From the plan of a view and what was read at a level to the records that are published, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from stream_dp.accounting import Cost, Ledger
from stream_dp.config.plan import LedgerPlan, ViewPlan
from stream_dp.kinds.registry import KINDS
from stream_dp.kinds.sealing import SealedTable, WindowNoise
from stream_dp.records.codec import AnyRecord, encode, encode_parts, entry_key
from stream_dp.records.models import (
    NEIGHBOURS,
    SCHEMA_VERSION,
    Account,
    AccountPart,
    AccountParts,
    Amount,
    AudienceCharge,
    LedgerEntry,
    Level,
    PeriodPrivacyLoss,
    PrivacyCost,
    PrivacyLoss,
    Reason,
    Refusal,
    Release,
    TimeRange,
    ViewShare,
)
from stream_dp.releases.accounts import Balance, difference
from stream_dp.releases.pieces import RECORD_BYTES, Addressed
from stream_dp.releases.rows import AudienceState
from stream_dp.version import __version__
from stream_dp.windows.shapes import base as shapes

Outcome = Literal["charge", "refusal"]


@dataclass(frozen=True, slots=True)
class Booking:
    """Outcome of a call of a ledger.

    Attributes:
        ledger: the ledger after the step.
        balance: what its period has left after it, and for whom.
        requested: the call's cost at worst.
        shares: privacy loss of each audience, alone, by the call; none where it was refused.
    """

    ledger: Ledger
    balance: Balance
    requested: Cost
    shares: Mapping[str, Cost] = field(default_factory=dict)

    def period_loss(self, audience: str) -> Cost:
        """Return the cumulative privacy loss of an audience, alone, in the period."""
        return self.ledger.readers.get(audience, Cost.ZERO)


class RecordBuilder:
    """Makes the records of windows and the entries of their accounts, ready to be sent."""

    def __init__(self, topic: Callable[[str, str], str], accounts: str) -> None:
        """Set up the builder.

        Args:
            topic: the public topic of a view and an audience.
            accounts: the operators' topic of the accounts.
        """
        self._topic = topic
        self._accounts = accounts

    def releases(
        self,
        view: ViewPlan,
        start_ms: int,
        parts: Sequence[tuple[SealedTable, WindowNoise]],
        states: Mapping[str, AudienceState],
        levels: Mapping[str, int],
        booking: Booking,
    ) -> list[Addressed]:
        """One record per audience, coarse to fine, in parts if it is large.

        Args:
            view: the view.
            start_ms: start of the window, or of the pane that a running total ends with.
            parts: its sealed table, and what that was sealed with; of a total those of all its blocks.
            states: what every audience has of it now, its revision among it; in how many parts that is, is noted here.
            levels: the level to be published to each audience.
            booking: what was charged.
        """
        audiences, (table, noise) = coarse_to_fine(levels), parts[-1]
        if not audiences:
            return []
        if len(parts) == 1:
            readings = view.kind.read(table, [levels[audience] for audience in audiences], noise)
        else:
            readings = [_total(view, parts, levels[audience]) for audience in audiences]
        summary, records = account(booking.balance.plan, start_ms), list[Addressed]()
        for audience, fields in zip(audiences, readings, strict=True):
            record = release_record(
                view,
                audience=audience,
                level=levels[audience],
                start_ms=start_ms,
                revision=states[audience].revision,
                fields=fields,
                window_loss=view.spent(table, levels[audience]),
                period_loss=booking.period_loss(audience),
                ledger=summary,
            )
            published = self.addressed(record)
            states[audience].parts = max(states[audience].parts, len(published))
            records += published
        return records

    def charge(
        self,
        view: ViewPlan,
        start_ms: int,
        table: SealedTable,
        states: Mapping[str, AudienceState],
        levels: Mapping[str, int],
        finest: int,
        booking: Booking,
    ) -> Addressed:
        """The entry of what was charged.

        Args:
            view: the view.
            start_ms: start of the window.
            table: its sealed table.
            states: what every audience has of it now, its revision among it.
            levels: the level that is published to each audience.
            finest: the finest level that anyone had before, -1 for none.
            booking: the charge.
        """
        charges = []
        for audience in coarse_to_fine(levels):
            level, revision = levels[audience], states[audience].revision
            charged = difference(view, table, finest, max(finest, level))
            charges.append(audience_charge(view, audience, level, revision, charged, booking.shares[audience]))
            finest = max(finest, level)
        return self._entry(view, start_ms, "charge", charges, booking)

    def refusals(
        self,
        view: ViewPlan,
        start_ms: int,
        levels: Mapping[str, int],
        revision: int,
        requested: Cost,
        booking: Booking,
        reason: Reason = "budget",
    ) -> list[Addressed]:
        """One record per audience that says why there is no release.

        Args:
            view: the view.
            start_ms: start of the window.
            levels: the level that was asked for, for each audience.
            revision: the number their releases would have had.
            requested: cost that the records name, at least that of `booking`.
            booking: the refusal.
            reason: why.
        """
        summary, records = account(booking.balance.plan, start_ms), list[Addressed]()
        for audience in coarse_to_fine(levels):
            record = refusal_record(
                view,
                audience=audience,
                level=levels[audience],
                start_ms=start_ms,
                revision=revision,
                requested=requested,
                period_loss=booking.period_loss(audience),
                ledger=summary,
                reason=reason,
            )
            records += self.addressed(record)
        return records

    def refusal(
        self, view: ViewPlan, start_ms: int, levels: Mapping[str, int], revision: int, booking: Booking
    ) -> Addressed:
        """The entry of what was refused; arguments as for `refusals`."""
        audiences = coarse_to_fine(levels)
        charges = [audience_charge(view, name, levels[name], revision, Cost.ZERO, Cost.ZERO) for name in audiences]
        return self._entry(view, start_ms, "refusal", charges, booking)

    def addressed(self, record: AnyRecord) -> list[Addressed]:
        """A record as it is published, in parts if it is large."""
        topic = self._topic(record.view, record.audience)
        return [(topic, key, value) for key, value in encode_parts(record, RECORD_BYTES)]

    def _entry(
        self, view: ViewPlan, start_ms: int, outcome: Outcome, audiences: Sequence[AudienceCharge], booking: Booking
    ) -> Addressed:
        entry = entry_record(view, start_ms, outcome, audiences, booking)
        return self._accounts, entry_key(entry), encode(entry)


def _total(view: ViewPlan, parts: Sequence[tuple[SealedTable, WindowNoise]], level: int) -> dict[str, Any]:
    columns = [view.kind.summand(table, level, noise) for table, noise in parts]
    return view.kind.total(parts[-1][0], [*map(sum, zip(*columns, strict=True))])


def coarse_to_fine(levels: Mapping[str, int]) -> list[str]:
    """Audiences by their levels."""
    return sorted(levels, key=lambda audience: (levels[audience], audience))


def account(ledger: LedgerPlan, start_ms: int) -> Account:
    """Return the public summary of a ledger in the period that pays for the window that starts at `start_ms`.

    Args:
        ledger: its plan, with what the period promises.
        start_ms: start of the window.
    """
    return Account(
        name=ledger.name,
        population=ledger.population,
        period=_interval(ledger.periods.interval(start_ms)),
        budget=PrivacyCost.spent(ledger.total),
        parts=_parts(ledger),
    )


def _interval(interval: shapes.Interval) -> TimeRange:
    return TimeRange.of(interval.start_ms, interval.end_ms)


def extent_of(view: ViewPlan, start_ms: int, panes: int | None) -> dict[str, Any]:
    """The fields of a record that say which window it is about, and of which edition: of panes, that of the last.

    Args:
        view: the view.
        start_ms: start of the window; of a running total, of the pane that it ends with.
        panes: of how many panes the window is made; None: of none.
    """
    shape = view.window.shape
    if shape.tells_totals:
        edition = view.edition(start_ms).number
        return {"edition": edition, "window": _interval(shape.total(start_ms)), "blocks": len(shape.blocks(start_ms))}
    last_ms = shape.next(start_ms, (panes or 1) - 1)
    window = TimeRange.of(start_ms, shape.end(last_ms))
    return {"edition": view.edition(last_ms).number, "window": window, "panes": panes, "blocks": None}


def _parts(ledger: LedgerPlan) -> AccountParts | None:
    found = {
        name: AccountPart(epsilon=Amount.up(part.epsilon), slack=Amount.up(part.slack), budget=Amount.up(part.cap))
        for name, part in ledger.parts.items()
    }
    return AccountParts(**found) if found else None


def audience_charge(
    view: ViewPlan, audience: str, level: int, revision: int, charged: Cost, loss: Cost
) -> AudienceCharge:
    """Return the part of an entry that is about one audience."""
    return AudienceCharge(
        audience=audience,
        revision=revision,
        level=view.levels[level].name,
        charged=PrivacyCost.spent(charged),
        loss=PrivacyCost.spent(loss),
    )


def entry_record(
    view: ViewPlan, start_ms: int, outcome: Outcome, audiences: Sequence[AudienceCharge], booking: Booking
) -> LedgerEntry:
    """The entry of a call.

    Args:
        view: the view's plan.
        start_ms: start of the window.
        outcome: "charge" or "refusal".
        audiences: the audiences that it is for.
        booking: outcome of the call.
    """
    return LedgerEntry(
        schema_version=SCHEMA_VERSION,
        code_version=__version__,
        type=outcome,
        ledger=account(booking.balance.plan, start_ms),
        view=view.view,
        edition=view.edition(start_ms).number,
        window=_interval(view.window.charged(start_ms)),
        requested=PrivacyCost.spent(booking.requested),
        remaining=PrivacyCost.left(booking.balance.left),
        remaining_for_view=PrivacyCost.left(booking.balance.room),
        shares=tuple(
            ViewShare(view=name, budget=PrivacyCost.left(cost))
            for name, cost in sorted(booking.balance.shares.kept.items())
        ),
        audiences=tuple(audiences),
    )


def release_record(
    view: ViewPlan,
    *,
    audience: str,
    level: int,
    start_ms: int,
    revision: int,
    fields: Mapping[str, Any],
    window_loss: Cost,
    period_loss: Cost,
    ledger: Account,
    panes: int | None = None,
) -> Release:
    """The record of one window for one audience.

    Args:
        view: the view's plan.
        audience: who it is for.
        level: index of the audience's level in `view.levels`.
        start_ms: start of the window.
        revision: 1 for the first release of the window to this audience.
        fields: what the view's kind read of the sealed table (`KindPlan.read`).
        window_loss: cumulative privacy loss of the audience, alone, in the window.
        period_loss: the same in the period.
        ledger: the account, from `account`.
        panes: of how many panes the window is made; None: of none.
    """
    at, extent = view.levels[level], extent_of(view, start_ms, panes)
    common: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "code_version": __version__,
        "type": "release",
        "kind": view.kind.name,
        "view": view.view,
        "audience": audience,
        **extent,
        "revision": revision,
        "level": Level(name=at.name, epsilon=Amount.up(at.epsilon * (panes or 1))),
        "noise_interval_95": at.interval_of(extent["blocks"] or panes or 1),
        "privacy": PrivacyLoss(window=PrivacyCost.spent(window_loss), period=PrivacyCost.spent(period_loss)),
        "ledger": ledger,
        "neighbours": NEIGHBOURS,
    }
    return KINDS[view.kind.name].release(**common, **fields)


def refusal_record(
    view: ViewPlan,
    *,
    audience: str,
    level: int,
    start_ms: int,
    revision: int,
    requested: Cost,
    period_loss: Cost,
    ledger: Account,
    reason: Reason = "budget",
    panes: int | None = None,
) -> Refusal:
    """The record of a window, or of a sharper revision of it, that is not released.

    Args:
        view: the view's plan.
        audience: who it is for.
        level: index of the level that was asked for.
        start_ms: start of the window.
        revision: the number the release would have had.
        requested: its worst-case cost.
        period_loss: cumulative privacy loss of the audience, alone, in the period.
        ledger: the account, from `account`.
        reason: why.
        panes: of how many panes the window is made; None: of none.
    """
    at = view.levels[level]
    return Refusal(
        schema_version=SCHEMA_VERSION,
        code_version=__version__,
        type="refusal",
        kind=view.kind.name,
        view=view.view,
        audience=audience,
        **extent_of(view, start_ms, panes),
        revision=revision,
        level=Level(name=at.name, epsilon=Amount.up(at.epsilon * (panes or 1))),
        reason=reason,
        requested=PrivacyCost.spent(requested),
        privacy=PeriodPrivacyLoss(period=PrivacyCost.spent(period_loss)),
        ledger=ledger,
        neighbours=NEIGHBOURS,
    )
