"""A plan in numbers and words: who is protected, how large the noise is, what it costs, how far a budget reaches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from fractions import Fraction

from pydantic import BaseModel, Field

from stream_dp.accounting import Cost
from stream_dp.accounting.composition import zcdp_epsilon
from stream_dp.accounting.cost import ENTRIES
from stream_dp.config.plan import LedgerPlan, Plan, PoolPlan, ViewPlan
from stream_dp.config.shares import Shares, asked, lasts_ms, reach_ms, remedy, windows_in
from stream_dp.exact.rationals import decimal_down, decimal_up, exact_text
from stream_dp.kinds.kind import Explanation
from stream_dp.records.models import Amount, PrivacyCost
from stream_dp.windows.durations import format_duration, format_time
from stream_dp.windows.encoding import WRITE_BUFFERS_BYTES, format_size
from stream_dp.windows.events import path_of

DAY_SECONDS = 86_400
DISPLAY_DIGITS, COST_DIGITS = 3, 6


class ModeDescription(BaseModel):
    """Windows that overlap in one of the two ways in which they can be made; a number for each level."""

    mode: str = Field(description="panes: sums of panes, each of which is noised once. direct: each noised by itself.")
    configured: bool = Field(description="Whether it is the way of this view.")
    day_costs: list[PrivacyCost] = Field(description="What a day costs one user at worst.")
    expected_errors: list[str] = Field(description="Mean absolute noise of one count of a window, rounded up.")
    noise_intervals_95: list[int] = Field(description="It lies in plus or minus this with 95 % at least.")


def modes(view: ViewPlan) -> list[ModeDescription]:
    """Both ways, if the windows of a view overlap or are made of panes and its kind can be made either way."""
    return [
        ModeDescription(
            mode=one.mode,
            configured=one.configured,
            day_costs=[
                PrivacyCost.spent(view.cost(index) * one.paid.per_second * DAY_SECONDS)
                for index in range(len(view.levels))
            ],
            expected_errors=[decimal_up(level.error_of(one.panes), DISPLAY_DIGITS) for level in view.levels],
            noise_intervals_95=[level.interval_of(one.panes) for level in view.levels],
        )
        for one in view.window.shape.alternatives(divides=not view.kind.unshared)
    ]


class LevelDescription(BaseModel):
    """One level of a view."""

    name: str
    epsilon: Amount | None = Field(
        description="What the counts of one window or pane cost one user, over all their items. Null: it is no promise."
    )
    noise_scale: Amount = Field(
        description="Of the noise of one count: sensitivity / epsilon. Of Gaussian noise it is the standard deviation."
    )
    expected_error: str = Field(description="Mean absolute noise of one count of a window, rounded up.")
    noise_interval_95: int = Field(description="That noise lies in plus or minus this with 95 % at least.")
    cost: PrivacyCost = Field(
        description="What one window or pane that is first released at this level costs one user at worst, the keys "
        "included."
    )
    windows_afforded: int = Field(description="Windows or panes a period's budget pays for, if the view were alone.")
    audiences: list[str] = Field(description="Who starts at this level.")


class ViewDescription(BaseModel):
    """One view."""

    name: str
    kind: str
    topic: str
    item_field: str = Field(description="A name, or a path that begins with $.")
    has_lists: bool = Field(description="Whether the field is a list of items, each counted by itself.")
    window: str
    step: str = Field(description="From one release to the next: of totals from pane to pane.")
    when: str = Field(description="Of which time something is released, and how often, in words.")
    unit: str = Field(description="What is counted, noised and paid for by itself: window, or pane.")
    hops: str = Field(description="What it means that windows overlap or are made of panes. Empty: they are not.")
    modes: list[ModeDescription] = Field(description="What they cost and how large their noise is, made in each way.")
    first_window: str | None = Field(description="Null: the first window is recorded when the worker first runs.")
    grace: str
    clock: str
    retention: str
    ledger: str
    population: str
    protection: str = Field(description="The neighbour relation in words.")
    items_per_user: int
    windows_per_user: int | None = Field(
        description="In how many windows or panes of a period a user counts at most. Null: in all."
    )
    listed: str = Field(description="Who learns keys of another audience by the list, in words. Empty: nobody.")
    participation: str = Field(description="What that costs and saves, in words. Empty: a user counts in all.")
    sensitivity: int = Field(description="How many published counts one user can move, each by one.")
    affords: Amount | None = Field(
        description="Epsilon of the counts that the ledger pays for in every window of a period, if the levels are "
        "shares of it. Null: their epsilons are written down."
    )
    levels: list[LevelDescription]
    unlocks: dict[str, str] = Field(description="By audience: what it sees later, by the age of a window.")
    sharpening: str | None = Field(description="What is done with what the ledger has left over.")
    keys_at_worst: PrivacyCost = Field(description="What showing the keys of one window costs at worst.")
    explanation: Explanation = Field(description="What is peculiar to the kind.")
    coalition: str = Field(description="What somebody learns who reads every audience's topic.")
    fingerprint: str = Field(description="Changes whenever the view becomes another definition for its state.")


class PartDescription(BaseModel):
    """A part of a ledger's budget: what it promises, and how far it reaches."""

    name: str = Field(
        description="zcdp: the pool, for the noise of counts and the draws of selections; pure: the rest."
    )
    epsilon: Amount = Field(description="What the part adds to the promise's epsilon.")
    delta: Amount = Field(description="What it adds to the promise's delta.")
    unit: str = Field(description="What is counted in it: epsilon or rho.")
    cap: Amount = Field(description="How much of that a period admits.")
    asked: Amount = Field(description="How much of that all views ask for in one period, at worst.")
    lasts: str = Field(description="How far into a period the part reaches, if the others did for ever.")
    windows_afforded: dict[str, int] = Field(description="By view: windows the part pays for, if it were alone.")


class ShareDescription(BaseModel):
    """Demand of one view on a ledger."""

    view: str
    level: str = Field(description="Finest level that an audience starts with or is unlocked.")
    cost: PrivacyCost = Field(description="Of one window on schedule, at worst.")
    share: str | None = Field(description="What part of the budget it may take. Null: of what others leave.")
    kept: PrivacyCost = Field(description="What no other view may take of a period's budget.")
    windows_asked: int = Field(description="Windows that may fall into one period.")
    windows_afforded: int = Field(description="Of these, how many are paid for by what is kept.")
    lasts: str = Field(description="How far into a period that is.")


class LedgerDescription(BaseModel):
    """One ledger and the views that share it."""

    name: str
    population: str
    budget: PrivacyCost
    period: str
    parts: list[PartDescription] = Field(description="The pool and the rest; empty where there is no pool.")
    asked: PrivacyCost = Field(description="What all views ask for in one period, at start and unlocked levels.")
    affords_schedule: bool = Field(description="Whether every view has what it asks for.")
    lasts: str = Field(description="How far into a period the budget reaches.")
    odds: str = Field(description="Over a period, the odds that one user took part change by this factor at most.")
    shares: list[ShareDescription]
    fingerprint: str = Field(description="What was spent is kept under this; it changes with the population's wording.")


class PlanDescription(BaseModel):
    """A whole plan."""

    name: str
    id: str = Field(description="What it is on its cluster: its group, and the beginning of its topics' names.")
    broker: str
    access: str = Field(description="How one gets in: TLS, the login; nothing for plaintext without a login.")
    partitions: int
    slot: str = Field(description="Releases leave at multiples of this.")
    offset: str = Field(description="How long after the close of its window a release leaves at the earliest.")
    window_memory: str = Field(description="Memory of one open window of one partition; larger ones spill to disk.")
    block_cache: str = Field(description="What a worker caches of the files of its tables, all partitions together.")
    write_buffers: str = Field(description="What a worker takes for rows on their way to these files, a partition.")
    memory: str = Field(description="The sum for a worker with every partition and one full open window of every view.")
    views: list[ViewDescription]
    ledgers: list[LedgerDescription]
    warnings: list[str]


def describe(plan: Plan) -> PlanDescription:
    """Put a plan into numbers and words.

    Every epsilon and delta is exact, beside a decimal that is rounded up; counts of windows are rounded down.
    """
    views = plan.views.values()
    ledgers = [_ledger(one, [view for view in views if view.ledger == one]) for one in plan.ledgers.values()]
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
        warnings=[*_ledger_warnings(plan, ledgers), *_warnings(plan)],
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
    """Return the worst-case cost of one window by itself: (epsilon, delta), without the ledger's pool.

    Without a pure epsilon it takes the slack of the pool.
    """
    pool = view.ledger.pool
    if pool is not None and view.levels[level].pure_epsilon is None:
        cost = view.cost(level)
        return Cost(cost.epsilon + zcdp_epsilon(cost.rho, pool.slack), cost.delta + pool.slack)
    return replace(view, ledger=replace(view.ledger, pool=None)).cost(level)


def _view(view: ViewPlan) -> ViewDescription:
    window, keys = view.window, PrivacyCost.spent(view.keys_at_worst)
    return ViewDescription(
        name=view.name,
        kind=view.kind.name,
        topic=view.source.topic,
        item_field=view.item_field,
        has_lists=view.has_lists,
        window=window.shape.released.words,
        step=window.shape.told.words,
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
        windows_per_user=view.windows_per_user,
        listed=_listed(view),
        participation=_participation(view),
        sensitivity=view.kind.sensitivity,
        affords=None if view.affords is None else Amount.down(view.affords),
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
        epsilon=None if level.pure_epsilon is None else Amount.up(level.pure_epsilon),
        noise_scale=Amount.up(Fraction(view.kind.sensitivity * level.epsilon.denominator, level.epsilon.numerator)),
        expected_error=decimal_up(level.error_of(view.window.shape.summands), DISPLAY_DIGITS),
        noise_interval_95=level.interval_of(view.window.shape.summands),
        cost=PrivacyCost.spent(cost),
        windows_afforded=_afforded(view, view.ledger.budget.fits(cost)),
        audiences=[name for name, start in view.audiences.items() if start == index],
    )


def _protection(view: ViewPlan) -> str:
    what, unit = view.window.shape.bounded_unit, view.window.shape.counted_unit
    pushed = " and may push out as many of others" if view.kind.sensitivity > view.items_per_user else ""
    changes = view.kind.moves or f"at most {_many(view.kind.sensitivity, what)} of a {unit}, each by one"
    return (
        f"Protects {view.ledger.population}: each is a user. Adding or removing all events of one user changes "
        f"{changes}, because a user adds at most "
        f"{_many(view.items_per_user, 'distinct value')} of {view.item_field} to a {unit}, each once{pushed}."
    )


def _afforded(view: ViewPlan, windows: int) -> int:
    """Return how many windows a budget pays for that pays for so many that a user is in."""
    return max(windows, view.covered(windows_in(view, view.ledger.periods.longest), windows))


def _listed(view: ViewPlan) -> str:
    made_of = view.kind.made_of
    others = [] if made_of is None else [name for name in view.audiences if name != made_of.audience]
    if made_of is None or not others:
        return ""
    return (
        f"{_and(others)} also see which keys {made_of.audience} was shown of {made_of.view}. The ledger counts that; "
        "their own privacy loss in records does not."
    )


def _participation(view: ViewPlan) -> str:
    most, unit = view.windows_per_user, view.window.shape.counted_unit
    windows, period = windows_in(view, view.ledger.periods.longest), view.ledger.periods.words
    if most is None or most >= windows:
        return ""
    whole, bounded = view.planned * windows, asked(view, view.ledger.periods.longest)
    paced = ", a tenth of them at its start and more as it goes on" if view.pacing == "even" else ""
    trusted = (
        " No worker checks that: the partitions of the source are not checked, so it holds if producers put all events "
        "of a user into one."
        if view.source.partitioner == "unchecked"
        else ""
    )
    return (
        f"A user counts in at most {_many(most, unit)} of the {windows:,} of a period of {period}{paced}; what they "
        f"add to further ones is dropped. So a period costs a user {price_words(PrivacyCost.spent(bounded))}, not "
        f"{price_words(PrivacyCost.spent(whole))}.{trusted}"
    )


def _coalition(view: ViewPlan) -> str:
    finest, top, most = view.levels[view.planned_level], view.levels[-1], alone(view, len(view.levels) - 1)
    cost, unit = alone(view, view.planned_level), view.window.shape.counted_unit
    epsilon, delta = decimal_up(cost.epsilon, COST_DIGITS), decimal_up(cost.delta, COST_DIGITS)
    paid = finest == top or top.pure_epsilon is None  # with the first release all levels are
    grants = f" Grants can raise that to level {top.name}, epsilon {decimal_up(most.epsilon, COST_DIGITS)}."
    return (
        f"A reader of all topics of this view learns no more than a reader of level {finest.name} alone. One {unit} "
        f"costs a user at most epsilon {epsilon} and delta {delta}, so it changes the odds that the user took part by "
        f"a factor of at most {odds_factor(cost.epsilon)}.{'' if paid else grants}"
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
        parts=_parts(ledger, ledger.pool, views, whole) if ledger.pool else [],
        period=ledger.periods.words,
        asked=PrivacyCost.spent(whole),
        affords_schedule=reach == period.length_ms,
        lasts=format_duration(reach),
        odds=odds_factor(ledger.total.epsilon),
        shares=[_share(view, shares) for view in views],
        fingerprint=ledger.fingerprint.hex(),
    )


def _parts(ledger: LedgerPlan, pool: PoolPlan, views: Sequence[ViewPlan], whole: Cost) -> list[PartDescription]:
    """The pure part first; it also has the deltas of all windows."""
    rows = [
        ("pure", ledger.budget.epsilon, ledger.budget.delta, ["epsilon", "delta"]),
        ("zcdp", pool.epsilon, pool.slack, ["rho"]),
    ]
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
                view.name: _afforded(view, min(getattr(ledger.budget, entry) // each for entry, each in used))
                for view in views
                if (used := [use for use in view.planned.entries() if use[0] in entries])
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
        cost=PrivacyCost.spent(view.planned),
        share=None if view.share is None else exact_text(view.share),
        kept=PrivacyCost.left(shares.kept[view.name]),
        windows_asked=windows_in(view, period),
        windows_afforded=windows_in(view, period, reach),
        lasts=format_duration(reach),
    )


def _ledger_warnings(plan: Plan, ledgers: Sequence[LedgerDescription]) -> Iterator[str]:
    for ledger in ledgers:
        if not ledger.asked.cost <= plan.ledgers[ledger.name].budget:
            yield (
                f"ledger {ledger.name}: budget too small. A period of {ledger.period} "
                f"{_lacking(ledger.asked.cost, plan.ledgers[ledger.name].budget)}. {_refused_from(ledger)}. Lower "
                "epsilon, use longer windows, or raise the budget"
            )
    for ledger in ledgers:
        yield from _short_shares(ledger, plan)


def _warnings(plan: Plan) -> Iterator[str]:
    for place, field in _fields(plan):
        if "." in field and not field.startswith("$"):
            path = path_of(tuple(field.split(".")))
            yield f"{place}: {field!r} is the name of one field, with its dot. For a field inside another, write {path}"
    for view in plan.views.values():
        yield from _view_warnings(view, plan)
        if not plan.broker.is_embedded:
            yield from _short_wait(view)
    for topic in sorted({view.source.topic for view in plan.views.values() if view.source.partitioner == "unchecked"}):
        yield (
            f"topic {topic}: partitions are not checked (partitioner: unchecked). A user with events in several "
            "partitions is counted, and can change a window, several times"
        )
    if plan.broker.sasl is not None and plan.broker.tls is None and not plan.broker.is_embedded:
        yield (
            "broker.sasl without broker.tls: raw events and counts cross the network in plaintext, and a listener can "
            "guess the password from the login; write `tls: true`, or name a CA"
        )
    copies = plan.topics.replication
    if copies is not None and copies > 1 and plan.topics.min_insync_replicas == copies:
        path = "topics.min_insync_replicas"
        yield f"{path} is topics.replication, {copies}: no writes while one broker is down; write {copies - 1}"
    if plan.broker.is_embedded:
        yield "the embedded log keeps everything in memory: topics are gone when the process ends"
    if plan.key_file.resolve().is_relative_to(plan.data_dir.resolve()):
        yield "key_file is inside data_dir: a copy of the state has the key with it"


def _view_warnings(view: ViewPlan, plan: Plan) -> Iterator[str]:
    windows, most = windows_in(view, view.ledger.periods.longest), view.windows_per_user
    if most is not None and most >= windows:
        yield (
            f"view {view.view}: windows_per_user {most} bounds nothing, since a period has {windows} windows; write "
            "less, or leave it out"
        )
    made_of = view.kind.made_of
    source = None if made_of is None else plan.views.get(made_of.view)
    if source is not None and source.item_field != view.item_field:
        yield (
            f"view {view.view} counts {view.item_field!r}, and its list has keys of {source.item_field!r} (view "
            f"{source.view}): is that meant?"
        )
    if made_of is None or source is None:
        return
    start, shape = 0, source.window.shape
    for _ in range(made_of.keep - 1):
        start = shape.next(start)
    if start > source.window.retention_ms:
        yield (
            f"view {view.view}: its list keeps {made_of.keep} windows of {made_of.view}, which are retained for "
            f"{format_duration(source.window.retention_ms)}. What is deleted leaves the list: retain them longer, "
            "or keep fewer"
        )


DELIVERY_MS = 120_000
"""Time for which producers usually try to deliver a record: the default of `delivery.timeout.ms` in Java."""


def _short_wait(view: ViewPlan) -> Iterator[str]:
    """Yield a warning if windows close before a producer that is cut off gives up.

    If only that producer is cut off, ticks continue: there is no silence and no catch-up. Watermarks are not affected:
    their writer knows what was delivered.
    """
    window = view.window
    waits_ms = window.grace_ms + window.catch_up_ms
    if window.clock == "wall" and waits_ms < DELIVERY_MS:
        yield (
            f"view {view.view}: window.grace and window.catch_up add up to {format_duration(waits_ms)}. A producer "
            f"usually tries to deliver a record for {format_duration(DELIVERY_MS)} (delivery.timeout.ms). If one "
            "producer alone cannot reach the broker for longer than window.grace, records that it delivers afterwards "
            "are late. Raise window.grace, or lower delivery.timeout.ms"
        )


def _short_shares(ledger: LedgerDescription, plan: Plan) -> Iterator[str]:
    """Views that others' shares or their own leave less than the budget could pay for, and what to write instead."""
    views = [view for view in plan.views.values() if view.ledger.name == ledger.name]
    short = [share for share in ledger.shares if share.windows_afforded < share.windows_asked]
    if all(view.share is None for view in views) or not short:
        return
    better = remedy(plan.ledgers[ledger.name].budget, plan.ledgers[ledger.name].periods.longest, views)
    given = ", ".join(f'{view.name} "{view.share}"' for view in better or () if view.share is not None)
    if better is None:
        advice = "the budget does not pay for all views, however it is shared out"
    elif given:
        advice = f"all views last with these shares: {given}"
    else:
        advice = "leave out every share of the ledger, and the budget pays for all of it"
    for share in short:
        whose = "what the shares of other views leave" if share.share is None else f"its share of {share.share}"
        yield (
            f"view {share.view}: {whose} in ledger {ledger.name} pays for {share.windows_afforded} of the "
            f"{share.windows_asked} windows of a period; {advice}"
        )


def _refused_from(ledger: LedgerDescription) -> str:
    if ledger.lasts == format_duration(0):
        return "It does not pay for the first windows of all its views together: some are refused from the start"
    return f"Windows are refused after the first {ledger.lasts} of each period"


def _lacking(asked: Cost, budget: Cost) -> str:
    """Return the entries of a budget that do not suffice: "needs rho 31.9; the budget is rho 4.31"."""
    short = [(name, need, cap) for name, need, cap in zip(ENTRIES, asked, budget, strict=True) if need > cap]
    needs = _and(f"{name} {decimal_up(need, DISPLAY_DIGITS)}" for name, need, _ in short)
    caps = _and(f"{name} {decimal_down(cap, DISPLAY_DIGITS)}" for name, _, cap in short)
    return f"needs {needs}; the budget is {caps}"


def _fields(plan: Plan) -> Iterator[tuple[str, str]]:
    """The fields that are read of events, each with its place in the file."""
    for source in {view.source.name: view.source for view in plan.views.values()}.values():
        yield from source.fields.items()
    yield from ((view.item_path, view.item_field) for view in plan.views.values())


def price_words(price: PrivacyCost) -> str:
    """A price in words: "epsilon 4 and delta 1e-6"."""
    return _and(f"{name} {amount.decimal}" for name, amount in price if amount is not None)


def _and(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _many(number: int, one: str) -> str:
    return f"{number} {one if number == 1 else f'{one}s'}"


def unlocked_words(view: ViewPlan, audience: str) -> str:
    """Describe the later levels of an audience, and their cost beyond the start."""
    steps = [f"{view.levels[step.level].name} {format_duration(step.after_ms)}" for step in view.unlocks[audience]]
    seen, more = f"{audience} sees {', '.join(steps)} after the end of a window.", view.unlocks_beyond(view.start_level)
    if not any(more):
        return f"{seen} That costs nothing more."
    return (
        f"{seen} The ledger reserves the cost of all unlocks for every window, {_counts_words(more)} more than at the "
        "start."
    )


def _counts_words(cost: Cost) -> str:
    """Return the cost of counts in words: "epsilon 3", or "rho 8" in a ledger with a pool."""
    name, value = cost.entries(at_least=1)[-1]
    return f"{name} {decimal_up(value)}"


def sharpening_words(view: ViewPlan) -> str | None:
    """Describe the use of leftover budget, and the cost of one window."""
    wanted = view.sharpen
    if wanted is None:
        return None
    base, level = view.levels[view.planned_level], view.levels[wanted.level]
    cost = view.counts(wanted.level, view.planned_level)
    more = f"at {_counts_words(cost)} more per window than {base.name}" if any(cost) else "which costs nothing more"
    reserve = f"{exact_text(wanted.reserve)} of the budget and " if wanted.reserve else ""
    return (
        f"Every {format_duration(wanted.every_ms)}, leftover budget of ledger {view.ledger.name} sharpens the newest "
        f"windows of {wanted.audience} to level {level.name}, {more}. Reserved: {reserve}the cost of windows to come."
    )
