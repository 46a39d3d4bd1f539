"""From the plan of a view and what was read at a level to the record that is published, and its place in a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stream_dp.accounting import Cost
from stream_dp.accounting.cost import PART_ENTRIES
from stream_dp.config.plan import LedgerPlan, ViewPlan
from stream_dp.kinds.registry import KINDS
from stream_dp.kinds.sealing import SealedTable, WindowNoise
from stream_dp.records.codec import AnyRecord, encode, topic_key
from stream_dp.records.models import (
    NEIGHBOURS,
    SCHEMA_VERSION,
    Account,
    AccountPart,
    AccountParts,
    Amount,
    Interval,
    Level,
    Price,
    Refusal,
    Release,
)
from stream_dp.releases.pricing import difference
from stream_dp.releases.rows import Given
from stream_dp.version import __version__
from stream_dp.windows.shape import Tiling

Addressed = tuple[str, bytes, bytes]
"""Topic, key and bytes of a record, as they stand in an outbox."""


class Publisher:
    """Makes the records of windows, ready to be sent."""

    def __init__(self, topic: Callable[[str, str], str], prf_key: bytes) -> None:
        """Set up the publisher.

        Args:
            topic: the public topic of a view and an audience.
            prf_key: the secret that windows were sealed with.
        """
        self._topic = topic
        self._prf_key = prf_key

    def releases(
        self,
        view: ViewPlan,
        start_ms: int,
        table: SealedTable,
        given: Mapping[str, Given],
        levels: Mapping[str, int],
        finest: int,
        ledger: Account,
    ) -> list[Addressed]:
        """One record per audience, coarse to fine, each charged with what it adds to the finest before it.

        Args:
            view: the view.
            start_ms: start of the window.
            table: its sealed table.
            given: what every audience has of it now, its revision among it.
            levels: the level to be published to each audience.
            finest: the finest level that anyone had before, -1 for none.
            ledger: the account after the charge.
        """
        audiences = sorted(levels, key=lambda audience: (levels[audience], audience))
        noise = WindowNoise(view.noise_name(start_ms), self._prf_key)
        readings = view.kind.read(table, [levels[audience] for audience in audiences], noise)
        records = []
        for audience, fields in zip(audiences, readings, strict=True):
            level = levels[audience]
            record = release_record(
                view,
                audience=audience,
                level=level,
                start_ms=start_ms,
                revision=given[audience].revision,
                fields=fields,
                charged=difference(view, table, finest, max(finest, level)),
                held=view.spent(table, level),
                ledger=ledger,
            )
            finest = max(finest, level)
            records.append(self._addressed(record))
        return records

    def refusal(
        self, view: ViewPlan, audience: str, level: int, start_ms: int, revision: int, asked: Cost, ledger: Account
    ) -> Addressed:
        """The record that tells an audience that the ledger could not pay."""
        record = refusal_record(
            view,
            audience=audience,
            level=level,
            start_ms=start_ms,
            revision=revision,
            asked=asked,
            ledger=ledger,
        )
        return self._addressed(record)

    def _addressed(self, record: AnyRecord) -> Addressed:
        return self._topic(record.view, record.audience), topic_key(record), encode(record)


def account(ledger: LedgerPlan, start_ms: int, left: Cost) -> Account:
    """The public face of a ledger in the period that pays for the window that starts at `start_ms`.

    Args:
        ledger: its plan, with what the period promises.
        start_ms: start of the window.
        left: what is left of the caps.
    """
    return Account(
        name=ledger.name,
        population=ledger.population,
        period=_interval(ledger.periods, ledger.periods.start_of(start_ms)),
        budget=Price.spent(ledger.total),
        left=Price.left(left),
        parts=_parts(ledger, left),
    )


def _interval(shape: Tiling, start_ms: int) -> Interval:
    return Interval.of(start_ms, shape.end(start_ms))


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
    fields: Mapping[str, Any],
    charged: Cost,
    held: Cost,
    ledger: Account,
) -> Release:
    """The record of one window for one audience.

    Args:
        view: the view's plan.
        audience: who it is for.
        level: index of the audience's level in `view.levels`.
        start_ms: start of the window.
        revision: 1 for the first release of the window to this audience.
        fields: what the view's kind read of the sealed table (`KindPlan.read`).
        charged: what the ledger paid when this record was made.
        held: what the audience alone has been told about the window.
        ledger: the account, from `account`.
    """
    at = view.levels[level]
    common: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "code_version": __version__,
        "type": "release",
        "kind": view.kind.name,
        "view": view.name,
        "audience": audience,
        "window": _interval(view.window.shape, start_ms),
        "revision": revision,
        "level": Level(name=at.name, epsilon=Amount.up(at.epsilon)),
        "noise_interval_95": at.noise_interval,
        "charged": Price.spent(charged),
        "held": Price.spent(held),
        "ledger": ledger,
        "neighbours": NEIGHBOURS,
    }
    return KINDS[view.kind.name].release(**common, **fields)


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
        kind=view.kind.name,
        view=view.name,
        audience=audience,
        window=_interval(view.window.shape, start_ms),
        revision=revision,
        level=Level(name=at.name, epsilon=Amount.up(at.epsilon)),
        reason="budget",
        asked=Price.spent(asked),
        ledger=ledger,
        neighbours=NEIGHBOURS,
    )
