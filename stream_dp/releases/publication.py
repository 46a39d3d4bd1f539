"""From the plan of a view and what was read at a level to the records that are published, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from stream_dp.accounting import Cost
from stream_dp.config.plan import LedgerPlan, ViewPlan
from stream_dp.config.shares import Shares
from stream_dp.kinds.sealing import SealedTable
from stream_dp.records.by_kind import RELEASES
from stream_dp.records.codec import AnyRecord, encode, encode_parts, entry_key
from stream_dp.records.models import (
    SCHEMA_VERSION,
    Account,
    AccountPool,
    Amount,
    AudienceCharge,
    LedgerEntry,
    Level,
    PeriodPrivacyLoss,
    PrivacyCost,
    PrivacyLoss,
    Reason,
    Refusal,
    Refused,
    Release,
    TimeRange,
    ViewShare,
)
from stream_dp.releases.accounts import Booking, difference
from stream_dp.releases.pieces import RECORD_BYTES, Addressed, TablePart
from stream_dp.releases.rows import AudienceState, WindowRow
from stream_dp.version import __version__
from stream_dp.windows.effects import Message
from stream_dp.windows.merging import MergedHead
from stream_dp.windows.shapes.shape import Interval

Outcome = Literal["charge", "refusal"]
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Destinations:
    """Topics that an engine writes to, and what it tells those who count for it.

    Attributes:
        release: the public topic of a view and an audience.
        accounts: the operators' topic of the accounts.
        withdrawal: the tombstone that erases a merged bucket from its topic; sent once the bucket is stored.
        declare_lost: asks the counters of a view to stand in for what they handed on, from a window on. What stands in
            is taken for windows that wait, and in them for buckets that have not come.
    """

    release: Callable[[str, str], str]
    accounts: str
    withdrawal: Callable[[MergedHead], Message]
    declare_lost: Callable[[str, int], Sequence[Message]]


class Offer(NamedTuple):
    """Levels of a window that audiences are to get, released or refused.

    Attributes:
        view: the view.
        start_ms: start of the window, or of the pane that a running total ends with.
        levels: by audience, the index of the level.
    """

    view: ViewPlan
    start_ms: int
    levels: Mapping[str, int]

    @property
    def audiences(self) -> list[str]:
        """The audiences by their levels, coarse to fine."""
        return sorted(self.levels, key=lambda audience: (self.levels[audience], audience))


class Denial(NamedTuple):
    """Terms of a refusal; a whole window that nobody gets, unless they say otherwise.

    Attributes:
        requested: cost that the record names.
        reason: why.
        refuses: whether the audience has no release of the window, or one that does not become sharper.
        final: whether it can never come.
    """

    requested: Cost
    reason: Reason = "budget"
    refuses: Refused = "window"
    final: bool = True

    @classmethod
    def for_now(cls, requested: Cost, had: int) -> Denial:
        """The terms where a ledger does not pay for what one audience is to see: it may be asked for again.

        Args:
            requested: cost that the record names.
            had: index of the level that the audience has of the window, -1 for none.
        """
        return cls(requested, refuses="window" if had < 0 else "sharpening", final=False)


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision of a window for one audience: all that its record says, whether it is a release or a refusal.

    Attributes:
        view: the view's plan.
        audience: who it is for.
        level: index in `view.levels` of the level that the audience has, or asked for.
        start_ms: start of the window; of a running total, of the pane that it ends with.
        number: 1 for the first release of the window to this audience.
        period_loss: cumulative privacy loss of the audience, alone, in the period.
        ledger: the account, from `account`.
        panes: of how many panes the window is made; None: of none.
        interrupted: whether it was closed before its source had caught up after an outage.
    """

    view: ViewPlan
    audience: str
    level: int
    start_ms: int
    number: int
    period_loss: Cost
    ledger: Account
    panes: int | None = None
    interrupted: bool = False

    def release(self, fields: Mapping[str, Any], window_loss: Cost) -> Release:
        """The record of a release.

        Args:
            fields: what the view's kind read of the sealed table (`KindPlan.read`).
            window_loss: cumulative privacy loss of the audience, alone, in the window.
        """
        common, kind = self._common(), self.view.kind
        half_width = self.view.levels[self.level].interval_of(common["blocks"] or self.panes or 1)
        fields = kind.ranked(fields, half_width)
        record = RELEASES[kind.name](
            **common,
            **{**fields, "items": ()},
            type="release",
            interrupted=self.interrupted or None,
            noise=self.view.levels[self.level].noise,
            noise_interval_95=half_width,
            privacy=PrivacyLoss(window=PrivacyCost.spent(window_loss), period=PrivacyCost.spent(self.period_loss)),
        )
        return record.model_copy(update={"items": fields["items"]})

    def refusal(self, denial: Denial) -> Refusal:
        """The record of a refusal."""
        return Refusal(
            **self._common(),
            type="refusal",
            reason=denial.reason,
            refuses=denial.refuses,
            final=denial.final,
            requested=PrivacyCost.spent(denial.requested),
            privacy=PeriodPrivacyLoss(period=PrivacyCost.spent(self.period_loss)),
        )

    def _common(self) -> dict[str, Any]:
        at = self.view.levels[self.level]
        return {
            "schema_version": SCHEMA_VERSION,
            "code_version": __version__,
            "kind": self.view.kind.name,
            "view": self.view.view,
            "audience": self.audience,
            **extent_of(self.view, self.start_ms, self.panes),
            "revision": self.number,
            "level": Level(name=at.name, **at.price(self.panes or 1)),
            "ledger": self.ledger,
        }


class RecordBuilder:
    """Makes the records of windows and the entries of their accounts, ready to be sent."""

    def __init__(self, destinations: Destinations) -> None:
        """Set up the builder."""
        self._destinations = destinations

    def releases(self, offer: Offer, parts: Sequence[TablePart], row: WindowRow, booking: Booking) -> list[Addressed]:
        """One record per audience, coarse to fine, in parts if it is large.

        Args:
            offer: the window, and the level to be published to each audience.
            parts: its sealed table, and what that was sealed with; of a total those of all its blocks.
            row: its row: what every audience has of it now. The number of published parts is noted there.
            booking: what was charged.
        """
        view, audiences, (table, noise) = offer.view, offer.audiences, parts[-1]
        if not audiences:
            return []
        if len(parts) == 1:
            readings = view.kind.read(table, [offer.levels[audience] for audience in audiences], noise)
        else:
            readings = [_total(view, parts, offer.levels[audience]) for audience in audiences]
        states = row.states
        numbers = {audience: states[audience].revision for audience in audiences}
        revisions = self._revisions(offer, numbers, booking, interrupted=row.interrupted)
        records: list[Addressed] = []
        for revision, fields in zip(revisions, readings, strict=True):
            state = states[revision.audience]
            record = revision.release(fields, view.steps(state.steps) + view.keys_spent(table))
            records += self.published(record, state)
        return records

    def refusals(self, offer: Offer, number: int, denial: Denial, booking: Booking) -> list[Addressed]:
        """One record per audience that says why there is no release.

        Args:
            offer: the window, and the level that was asked for, for each audience.
            number: the revision that their releases would have been.
            denial: what the records say of it; their cost is at least that of `booking`.
            booking: the refusal.
        """
        revisions = self._revisions(offer, dict.fromkeys(offer.levels, number), booking)
        return [sent for one in revisions for sent in self.addressed(one.refusal(denial))]

    def charge(
        self, offer: Offer, table: SealedTable, states: Mapping[str, AudienceState], finest: int, booking: Booking
    ) -> Addressed:
        """The entry of what was charged.

        Args:
            offer: the window, and the level that is published to each audience.
            table: its sealed table.
            states: what every audience has of it now, its revision among it.
            finest: the finest level that anyone had before, -1 for none: then the audiences together cost what the
                finest of them does, and each is charged what it adds to the coarser ones, of what the ledger was.
            booking: the charge.
        """
        view, charges, charged = offer.view, list[AudienceCharge](), Cost.ZERO
        for audience in offer.audiences:
            level, number = offer.levels[audience], states[audience].revision
            cost = difference(view, table, finest, level).least(booking.charged)
            charges.append(audience_charge(view, audience, level, number, cost - charged, booking.shares[audience]))
            charged = cost
        return self._entry(offer, "charge", charges, booking)

    def refusal(self, offer: Offer, number: int, booking: Booking) -> Addressed:
        """The entry of what was refused; arguments as for `refusals`."""
        levels = offer.levels
        charges = [
            audience_charge(offer.view, one, levels[one], number, Cost.ZERO, Cost.ZERO) for one in offer.audiences
        ]
        return self._entry(offer, "refusal", charges, booking)

    def published(self, record: AnyRecord, state: AudienceState) -> list[Addressed]:
        """A release as it is published; in how many parts is noted in what its audience has."""
        sent = self.addressed(record)
        state.parts = max(state.parts, len(sent))
        return sent

    def addressed(self, record: AnyRecord) -> list[Addressed]:
        """A record as it is published, in parts if it is large."""
        topic = self._destinations.release(record.view, record.audience)
        return [(topic, key, value) for key, value in encode_parts(record, RECORD_BYTES)]

    @staticmethod
    def _revisions(
        offer: Offer, numbers: Mapping[str, int], booking: Booking, *, interrupted: bool = False
    ) -> list[Revision]:
        view, start_ms, levels = offer
        ledger, losses = account(booking.balance.plan, start_ms), booking.ledger.readers
        return [
            Revision(
                view,
                name,
                levels[name],
                start_ms,
                numbers[name],
                losses.get(name, Cost.ZERO),
                ledger,
                interrupted=interrupted,
            )
            for name in offer.audiences
        ]

    def _entry(
        self, offer: Offer, outcome: Outcome, audiences: Sequence[AudienceCharge], booking: Booking
    ) -> Addressed:
        entry = entry_record(offer.view, offer.start_ms, outcome, audiences, booking)
        return self._destinations.accounts, entry_key(entry), encode(entry)


def _total(view: ViewPlan, parts: Sequence[TablePart], level: int) -> dict[str, Any]:
    columns = [view.kind.summand(table, level, noise) for table, noise in parts]
    return view.kind.total(parts[-1][0], [*map(sum, zip(*columns, strict=True))])


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
        zcdp=account_pool(ledger),
    )


def _interval(interval: Interval) -> TimeRange:
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


def account_pool(ledger: LedgerPlan) -> AccountPool | None:
    """Return the pool of a ledger's budget, None if it has none."""
    pool = ledger.pool
    if pool is None:
        return None
    return AccountPool(epsilon=Amount.up(pool.epsilon), slack=Amount.up(pool.slack), budget=Amount.up(pool.cap))


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

    What the period keeps for each view is the same in nearly all entries, and long where a ledger has many views: the
    first entries of a view in a period name it, and one in an hour, since views may be taken out meanwhile.

    Args:
        view: the view's plan.
        start_ms: start of the window.
        outcome: "charge" or "refusal".
        audiences: the audiences that it is for.
        booking: outcome of the call.
    """
    charged = view.window.charged(start_ms)
    names_shares = booking.is_first or charged.start_ms // HOUR_MS < charged.end_ms // HOUR_MS
    return LedgerEntry(
        schema_version=SCHEMA_VERSION,
        code_version=__version__,
        type=outcome,
        ledger=account(booking.balance.plan, start_ms),
        view=view.view,
        edition=view.edition(start_ms).number,
        window=_interval(charged),
        requested=PrivacyCost.spent(booking.requested),
        remaining=PrivacyCost.left(booking.balance.left),
        remaining_for_view=PrivacyCost.left(booking.balance.room),
        shares=_view_shares(booking.balance.shares) if names_shares else (),
        audiences=tuple(audiences),
    )


@lru_cache(maxsize=16)
def _view_shares(shares: Shares) -> tuple[ViewShare, ...]:
    return tuple(ViewShare(view=name, budget=PrivacyCost.left(cost)) for name, cost in sorted(shares.kept.items()))
