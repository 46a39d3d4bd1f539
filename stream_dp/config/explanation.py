"""A plan in numbers and words: who is protected, how large the noise is, what it costs, how far a budget reaches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.accounting.cost import PART_ENTRIES
from stream_dp.config.descriptions import (
    LedgerDescription,
    LevelDescription,
    PartDescription,
    PlanDescription,
    ShareDescription,
    ViewDescription,
    modes,
)
from stream_dp.config.plan import LedgerPlan, Plan, ViewPlan
from stream_dp.config.shares import Shares, asked, lasts_ms, reach_ms, remedy, windows_in
from stream_dp.config.unlocks import sharpening_words, unlocked_words
from stream_dp.exact.rationals import decimal_up, exact_text
from stream_dp.records.models import Amount, PrivacyCost
from stream_dp.windows.durations import format_duration, format_time
from stream_dp.windows.encoding import WRITE_BUFFERS_BYTES, format_size
from stream_dp.windows.events import path_of

DISPLAY_DIGITS = 3


def describe(plan: Plan) -> PlanDescription:
    """Put a plan into numbers and words.

    Every epsilon and delta is exact, beside a decimal that is rounded up; counts of windows are rounded down.
    """
    ledgers = [
        _ledger(ledger, [view for view in plan.views.values() if view.ledger == ledger])
        for ledger in plan.ledgers.values()
    ]
    return PlanDescription(
        name=plan.name,
        id=plan.id,
        broker=str(plan.broker),
        access=plan.broker.access,
        partitions=plan.partitions,
        slot=format_duration(plan.slots.every_ms),
        offset=format_duration(plan.slots.offset_ms),
        window_memory=format_size(plan.window_memory_bytes),
        block_cache=format_size(plan.block_cache_bytes),
        write_buffers=format_size(WRITE_BUFFERS_BYTES),
        memory=format_size(_memory_bytes(plan)),
        views=[_view(view) for view in plan.views.values()],
        ledgers=ledgers,
        warnings=_warnings(plan, ledgers),
    )


def _memory_bytes(plan: Plan) -> int:
    """Return the memory of a worker that has every partition, with one open window of every view in each."""
    of_partition = len(plan.newest) * plan.window_memory_bytes + WRITE_BUFFERS_BYTES
    return plan.block_cache_bytes + plan.partitions * of_partition


def odds_factor(epsilon: Fraction) -> str:
    """e^epsilon in `DISPLAY_DIGITS` digits, rounded up: how far one record can move the odds that a user took part."""
    exact = Context(prec=30, traps=[])
    power = exact.exp(exact.divide(epsilon.numerator, epsilon.denominator))
    return str(Context(prec=DISPLAY_DIGITS, rounding=ROUND_CEILING).plus(power)).replace("E+", "e")


def alone(view: ViewPlan, level: int) -> Cost:
    """Return the worst-case cost of one window by itself: (epsilon, delta), whatever parts the ledger has."""
    return replace(view, ledger=replace(view.ledger, parts={})).cost(level)


def _view(view: ViewPlan) -> ViewDescription:
    window, keys = view.window, PrivacyCost.spent(view.keys_at_worst)
    return ViewDescription(
        name=view.name,
        kind=view.kind.name,
        topic=view.source.topic,
        item_field=view.item_field,
        has_lists=view.has_lists,
        window=window.released.words,
        step=window.told.words,
        when=window.shape.when,
        unit=window.shape.counted_unit,
        hops=window.shape.explained(view.ledger.name),
        modes=modes(view),
        first_window=None if window.first_ms is None else format_time(window.first_ms),
        grace=format_duration(window.grace_ms),
        clock=window.clock,
        retention=format_duration(window.retention_ms),
        ledger=view.ledger.name,
        population=view.ledger.population,
        protection=_protection(view),
        items_per_user=view.items_per_user,
        sensitivity=view.kind.sensitivity,
        levels=[_level(view, index) for index in range(len(view.levels))],
        unlocks={name: unlocked_words(view, name) for name in view.unlocks},
        sharpening=sharpening_words(view),
        keys_at_worst=keys,
        explanation=view.kind.explain(price_words(keys)),
        coalition=_coalition(view),
        fingerprint=view.fingerprint.hex(),
    )


def _level(view: ViewPlan, index: int) -> LevelDescription:
    level, cost = view.levels[index], view.cost(index)
    return LevelDescription(
        name=level.name,
        epsilon=Amount.up(level.epsilon),
        noise_scale=Amount.up(Fraction(view.kind.sensitivity * level.epsilon.denominator, level.epsilon.numerator)),
        expected_error=decimal_up(level.error_of(view.window.summands), DISPLAY_DIGITS),
        noise_interval_95=level.interval_of(view.window.summands),
        cost=PrivacyCost.spent(cost),
        windows_afforded=view.ledger.budget.fits(cost),
        audiences=[name for name, start in view.audiences.items() if start == index],
    )


def _protection(view: ViewPlan) -> str:
    what, unit = view.window.shape.bounded_unit, view.window.shape.counted_unit
    counts = _many(view.kind.sensitivity, what, f"{what}s")
    values = _many(view.items_per_user, "distinct value", "distinct values")
    return (
        f"Protects {view.ledger.population}: each of them is a user. Adding or removing everything one user did moves "
        f"at most {counts} of a {unit}, each by one, because a user adds at most {values} of {view.item_field} "
        f"to a {unit}, each once."
    )


def _coalition(view: ViewPlan) -> str:
    finest = view.planned_level
    cost = alone(view, finest)
    top, most = view.levels[-1], alone(view, -1)
    grants = f" Grants can raise that to level {top.name}, epsilon {decimal_up(most.epsilon)}."
    return (
        f"Who reads every topic of this view learns no more than level {view.levels[finest].name} alone tells: one "
        f"{view.window.shape.counted_unit} costs a user epsilon {decimal_up(cost.epsilon)} and delta "
        f"{decimal_up(cost.delta)} at worst, so it changes the odds that the user took part by a factor of at most "
        f"{odds_factor(cost.epsilon)}."
        f"{'' if finest == len(view.levels) - 1 else grants}"
    )


def _ledger(ledger: LedgerPlan, views: Sequence[ViewPlan]) -> LedgerDescription:
    period = ledger.periods.longest
    shares = Shares.of(ledger.budget, period, views)
    reach = min((lasts_ms(shares, period, view) for view in views), default=period.length_ms)
    whole = sum((asked(view, period) for view in views), Cost.ZERO)
    return LedgerDescription(
        name=ledger.name,
        population=ledger.population,
        budget=PrivacyCost.spent(ledger.total),
        parts=_parts(ledger, views, whole) if ledger.parts else [],
        period=ledger.periods.words,
        asked=PrivacyCost.spent(whole),
        affords_schedule=reach == period.length_ms,
        lasts=format_duration(reach),
        odds=odds_factor(ledger.total.epsilon),
        shares=[_share(view, shares) for view in views],
        fingerprint=ledger.fingerprint.hex(),
    )


def _parts(ledger: LedgerPlan, views: Sequence[ViewPlan], whole: Cost) -> list[PartDescription]:
    """The pure part first; it also has the deltas of all windows."""
    pure = Cost(ledger.budget.epsilon, ledger.budget.delta)
    rows: list[tuple[str, Fraction, Fraction, tuple[str, ...]]] = [
        ("pure", pure.epsilon, pure.delta, ("epsilon", "delta"))
    ]
    rows += [(name, part.epsilon, part.slack, (PART_ENTRIES[name],)) for name, part in ledger.parts.items()]
    return [
        PartDescription(
            name=name,
            epsilon=Amount.up(epsilon),
            delta=Amount.up(delta),
            unit=entries[0],
            cap=Amount.down(getattr(ledger.budget, entries[0])),
            asked=Amount.up(getattr(whole, entries[0])),
            lasts=format_duration(reach_ms(ledger.budget, ledger.periods.longest, views, entries)),
            windows_afforded={
                view.name: min(getattr(ledger.budget, entry) // each for entry, each in used)
                for view in views
                if (used := [use for use in view.cost(view.planned_level).entries() if use[0] in entries])
            },
        )
        for name, epsilon, delta, entries in rows
    ]


def _share(view: ViewPlan, shares: Shares) -> ShareDescription:
    period = view.ledger.periods.longest
    reach = lasts_ms(shares, period, view)
    return ShareDescription(
        view=view.name,
        level=view.levels[view.planned_level].name,
        cost=PrivacyCost.spent(view.cost(view.planned_level)),
        share=None if view.share is None else exact_text(view.share),
        kept=PrivacyCost.left(shares.kept[view.name]),
        windows_asked=windows_in(view, period),
        windows_afforded=windows_in(view, period, reach),
        lasts=format_duration(reach),
    )


def _warnings(plan: Plan, ledgers: Sequence[LedgerDescription]) -> list[str]:
    warnings = [
        f"ledger {ledger.name} does not afford its schedule: a period asks for {price_words(ledger.asked)}, its budget "
        f"is {budget_words(ledger)}; {_refused_from(ledger)}"
        for ledger in ledgers
        if not ledger.asked.cost <= plan.ledgers[ledger.name].budget
    ]
    for ledger in ledgers:
        warnings += _short_shares(ledger, plan)
    used = {(view.ledger.name, name) for view in plan.views.values() for name, _ in view.cost(0).entries()}
    warnings += [
        f"ledger {ledger.name}: part {name} takes epsilon {part.epsilon} of the budget, and no view is charged to it"
        for ledger in plan.ledgers.values()
        for name, part in ledger.parts.items()
        if (ledger.name, PART_ENTRIES[name]) not in used
    ]
    warnings += [
        f"{place}: {field!r} is the name of one field, its dot included; where a field inside another one is meant, "
        f"every event is refused: write {path_of(tuple(field.split('.')))}"
        for place, field in _fields(plan)
        if "." in field and not field.startswith("$")
    ]
    unchecked = {view.source.topic for view in plan.views.values() if view.source.partitioner == "unchecked"}
    warnings += [
        f"topic {topic}: nobody checks that a user's events stay in one partition; a user in several is counted, and "
        "can change a window, several times"
        for topic in sorted(unchecked)
    ]
    if plan.broker.sasl is not None and plan.broker.tls is None and not plan.broker.is_embedded:
        warnings.append(
            "broker.sasl without broker.tls: raw events and counts cross the network in plaintext, and who listens can "
            "try passwords on what was seen of the login; write `tls: true`, or name a CA"
        )
    copies = plan.topics.replication
    if copies is not None and copies > 1 and plan.topics.min_insync_replicas == copies:
        warnings.append(
            f"topics.min_insync_replicas is topics.replication, {copies}: while one broker is down, nothing is "
            f"written; {copies - 1} goes on without it"
        )
    if plan.broker.is_embedded:
        warnings.append("the embedded log keeps everything in memory: topics are gone when the process ends")
    if plan.key_file.resolve().is_relative_to(plan.data_dir.resolve()):
        warnings.append("key_file lies inside data_dir: who copies the state gets the key with it")
    return warnings


def _short_shares(ledger: LedgerDescription, plan: Plan) -> Iterator[str]:
    """Views that others' shares or their own leave less than the budget could pay for, and what to write instead."""
    views = [view for view in plan.views.values() if view.ledger.name == ledger.name]
    short = [share for share in ledger.shares if share.windows_afforded < share.windows_asked]
    if all(view.share is None for view in views) or not short:
        return
    better = remedy(plan.ledgers[ledger.name].budget, plan.ledgers[ledger.name].periods.longest, views)
    if better is None:
        advice = "the budget does not pay for all views, however it is shared out"
    elif all(view.share is None for view in better):
        advice = "leave out every share of the ledger, and the budget pays for all of it"
    else:
        given = ", ".join(f'{view.name} "{view.share}"' for view in better if view.share is not None)
        advice = f"all views last with these shares: {given}"
    for share in short:
        whose = "what the shares of other views leave" if share.share is None else f"its share of {share.share}"
        yield (
            f"view {share.view}: {whose} in ledger {ledger.name} pays for {share.windows_afforded} of the "
            f"{share.windows_asked} windows of a period; {advice}"
        )


def _refused_from(ledger: LedgerDescription) -> str:
    if ledger.lasts == format_duration(0):
        return "it does not pay for the first windows of all its views together; some are refused from the start"
    return f"windows are refused from {ledger.lasts} into each period of {ledger.period} on"


def _fields(plan: Plan) -> Iterator[tuple[str, str]]:
    """The fields that are read of events, each with its place in the file."""
    for source in {view.source.name: view.source for view in plan.views.values()}.values():
        yield from (
            (f"sources.{source.name}.{key}", field)
            for key, field in (
                ("key", source.key_field),
                ("user", source.user_field),
                ("time.field", source.time_field),
            )
            if field is not None
        )
    yield from ((view.item_path, view.item_field) for view in plan.views.values())


def price_words(price: PrivacyCost) -> str:
    """A price in words: "epsilon 4 and delta 1e-6"."""
    return _and(f"{name} {amount.decimal}" for name, amount in price if amount is not None)


def budget_words(ledger: LedgerDescription) -> str:
    """Return the caps of a period in words: (epsilon, delta), or those of the parts."""
    if not ledger.parts:
        return price_words(ledger.budget)
    pure, *parts = ledger.parts
    caps = [("epsilon", pure.cap), ("delta", pure.delta), *((part.unit, part.cap) for part in parts)]
    return _and(f"{name} {amount.decimal}" for name, amount in caps)


def _and(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _many(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
