"""From a configuration to its plan: thresholds, minimum counts and costs, or every fault at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

from stream_dp.accounting import Cost
from stream_dp.accounting.composition import gaussian_rho, rho_within
from stream_dp.accounting.cost import ENTRIES
from stream_dp.accounting.rounding import largest
from stream_dp.config.access import plan_broker, plan_registry
from stream_dp.config.crosschecks import (
    cross_check,
    dead_letter_topic,
    given_shares,
    ladder_faults,
    list_faults,
    readers,
    shape_of,
    unlock_faults,
    unlocks_of,
)
from stream_dp.config.file_schema import LedgerConfig, SourceConfig, ViewConfig
from stream_dp.config.loading import Sections, in_file_order, read_config, read_data
from stream_dp.config.plan import (
    FINGERPRINT_BYTES,
    LedgerPlan,
    Plan,
    PoolPlan,
    SharpenPlan,
    SourcePlan,
    Unlock,
    ViewPlan,
    ViewWords,
    WindowPlan,
)
from stream_dp.config.shares import asked
from stream_dp.config.yaml_data import join
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.exact.rationals import decimal_down
from stream_dp.kinds import KINDS
from stream_dp.kinds.kind import KindPlan, ViewBasis
from stream_dp.kinds.noise_levels import (
    COARSEST,
    FINEST,
    GAUSSIAN,
    GAUSSIAN_FINEST,
    LAPLACE,
    TRUNCATED,
    TableLevel,
    noise_levels,
    table_rho,
)
from stream_dp.lossless.gaussian import SMALLEST_STEP
from stream_dp.text_files import read_fault, read_text
from stream_dp.windows.durations import DAY_MS, CalendarUnit, Slots, format_duration
from stream_dp.windows.local_times import DEFAULT_ZONE
from stream_dp.windows.time_zones import zone_digest

AFFORDED_DIGITS = 6
"""Of the epsilon that levels are shares of."""


def fingerprint(view: ViewPlan, application: str) -> bytes:
    """Identity of a view: `FINGERPRINT_BYTES` bytes of BLAKE2b over everything that may not change under its state.

    The id of its application is in: of two that have one key file and ask the same, each draws noise of its own.

    What is left out may change between two starts: the view's name (it stands beside the fingerprint in `query_id`),
    clearances, unlocks and audiences, what is done with what is left, grace, clock, how far ahead, idle time, catch-up,
    retention, the ledger's name, its periods (but with `windows_per_user`, which counts in them), its budget and how
    that is shared. Whether a ledger has a pool decides how a window is charged, so it is in. `view.fingerprint` itself
    is not looked at.
    """
    source, ledger, shape = view.source, view.ledger, view.window.shape
    identity = [
        application,
        view.kind.name,
        [source.topic, source.partitions, source.format, source.user_field, source.time_field, source.time_unit],
        source.partitioner,
        *([] if source.time_zone == DEFAULT_ZONE else [["zone", source.time_zone, zone_digest(source.time_zone)]]),
        *([] if source.key_field is None else [["key", source.key_field]]),
        [view.item_field] if view.has_lists else view.item_field,
        [*shape.identity, view.window.first_ms],
        *(
            [["windows", *shape.released.identity]] if shape.is_sum and view.kind.waits_for_list else []
        ),  # each has one list
        [view.items_per_user, view.buckets],
        *([] if view.windows_per_user is None else [_participation(view)]),
        [list(level.identity) for level in view.levels],
        [ledger.fingerprint.hex(), *([] if ledger.pool is None else ["zcdp"])],
        list(view.kind.identity),
    ]
    text = json.dumps(identity, ensure_ascii=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=FINGERPRINT_BYTES, person=b"stream-dp view 1").digest()


def _participation(view: ViewPlan) -> list[Any]:
    """Identity of the bound on windows: users are counted in the periods of the ledger, so these must not change."""
    periods = view.ledger.periods
    return ["windows", view.windows_per_user, view.pacing, *periods.identity, periods.start_of(0)]


def load_plan(path: str | Path, environ: Mapping[str, str] | None = None) -> Plan:
    """Read, check and plan a configuration file.

    Args:
        path: the YAML file. Relative folders in it are relative to where it stands.
        environ: the environment, by default the process's; `STREAM_DP_BROKER` in it wins over the file's broker.

    Raises:
        ConfigError: the file cannot be read, or anything in it is wrong; `faults` has everything.
    """
    file = Path(path)
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} {read_fault(error)}") from None
    sections, faults = read_config(text, os.environ if environ is None else environ)
    return _plan(sections, faults, file.parent)


def build_plan(raw: Mapping[str, Any], folder: str | Path = ".") -> Plan:
    """Check and plan a configuration that was made in memory.

    Args:
        raw: what a file holds, variables put in.
        folder: what its relative folders are relative to.

    Raises:
        ConfigError: anything in it is wrong; `faults` has everything.
    """
    return _plan(*read_data(dict(raw)), Path(folder))


def _plan(sections: Sections, faults: Sequence[Fault], folder: Path) -> Plan:
    found = [*faults, *cross_check(sections)]
    ledgers: dict[str, LedgerPlan] = {}
    for name, ledger in sections.ledgers.items():
        with _faults_below(join("ledgers", name), found):
            ledgers[name] = plan_ledger(name, ledger)
    planned: dict[str, ViewPlan] = {}
    for name in sorted(sections.views, key=lambda name: _has_shares(sections, sections.views[name])):
        with _faults_below(join("views", name), found):
            if (made := _planned(sections, name, ledgers, planned.values(), folder)) is not None:
                planned[name] = made
                found += list_faults(sections, join("views", name), name, made.kind)
    unset = {fault.path for fault in sections.unset}
    found = [*sections.unset, *(fault for fault in found if fault.path not in unset)]
    config = sections.config
    if found or config is None:
        raise ConfigError(in_file_order(found, sections.raw))
    return Plan(
        name=config.name,
        broker=plan_broker(config.broker, config.name, folder),
        data_dir=folder.joinpath(config.data_dir),
        key_file=folder.joinpath(config.key_file),
        partitions=next(iter(config.sources.values())).partitions,
        views={name: planned[name] for name in sections.views},
        ledgers=ledgers,
        audiences=tuple(config.audiences),
        erase_within_ms=config.erase_within,
        window_memory_bytes=config.window_memory,
        block_cache_bytes=config.block_cache,
        standbys=config.standbys,
        slots=Slots(config.release.slot, config.release.offset),
        topics=config.topics,
        raw=sections.raw,
        folder=folder,
        registry=plan_registry(config.registry, folder),
        serve=config.serve,
        readers=None if config.serve.tokens is None else folder.joinpath(config.serve.tokens),
        operators=None if config.console.tokens is None else folder.joinpath(config.console.tokens),
    )


@contextmanager
def _faults_below(path: str, found: list[Fault]) -> Iterator[None]:
    """Collect the faults of a part of the file, their paths made those of the file."""
    try:
        yield
    except (ConfigError, ParameterError) as error:
        found += [Fault(join(path, fault.path), fault.message) for fault in error.faults]


def _has_shares(sections: Sections, view: ViewConfig) -> bool:
    """Tell whether the levels of a view are shares of what its ledger affords."""
    return any(level.share is not None for level in sections.ladders.get(view.ladder, ()))


def _planned(
    sections: Sections, name: str, ledgers: Mapping[str, LedgerPlan], others: Collection[ViewPlan], folder: Path
) -> ViewPlan | None:
    """The plan of a view, None where something it refers to is wrong (that is a fault of its own already).

    Args:
        sections: the configuration.
        name: of the view.
        ledgers: by name.
        others: the views that were planned before; those whose levels are shares come last.
        folder: what relative paths are relative to.
    """
    view = sections.views[name]
    source, ledger = sections.sources.get(view.source), ledgers.get(view.ledger)
    levels = sections.ladders.get(view.ladder, ())
    index = {level.level: at for at, level in enumerate(levels)}
    names = readers(sections, view)
    audiences = {name: index.get(audience.level) for name, audience in sections.audiences.items() if name in names}
    starts = {name: at for name in names if (at := audiences.get(name)) is not None}
    if source is None or ledger is None or not starts or len(starts) < len(set(names)):
        return None
    if any(unlock_faults(sections, name, view, names)) or any(ladder_faults("", levels)):
        return None
    window, affords = _window(view), None

    def plan_kind(full: Fraction = Fraction(1)) -> KindPlan:
        ladder = [(level.level, level.size * full) for level in levels]
        basis = ViewBasis(
            ladder,
            view.items_per_user,
            folder,
            window.shape.totals,
            noise=view.noise,
            application=sections.id or "",
            view=name,
        )
        return KINDS[view.kind].plan(view, basis)

    if view.noise == GAUSSIAN and ledger.pool is None:
        raise ConfigError(
            f"discrete Gaussian noise has no pure epsilon; give ledger {ledger.name!r} a pool (zcdp)", path="noise"
        )
    if view.noise == TRUNCATED and ledger.pool is not None:
        raise ConfigError(
            f"{TRUNCATED} noise is for a ledger without a pool (zcdp); {ledger.name!r} has one: take {GAUSSIAN}, "
            "which shows keys of fewer users there",
            path="noise",
        )

    steps = {name: unlocks_of(sections, view, name) for name in names}
    unlocks = {name: tuple(Unlock(index[one.level], one.after) for one in some) for name, some in steps.items() if some}
    if _has_shares(sections, view):
        each = _each_window(sections, name, ledger, others, window)
        start = max(starts.values())
        taken = sorted({start, *(one.level for some in unlocks.values() for one in some if one.level > start)})
        gaussian = view.noise == GAUSSIAN
        sizes = [level.size for level in levels] if gaussian else [levels[at].size for at in taken]
        kind = _trial(plan_kind, _afforded(ledger, each, sizes, view.items_per_user, gaussian=gaussian))
        affords = _afforded(ledger, each, sizes, kind.sensitivity, kind, gaussian=gaussian)
        kind = plan_kind(affords)
    else:
        kind = plan_kind()
    if view.noise != LAPLACE and isinstance(kind.levels[0], TableLevel):
        raise ConfigError(f"the noise of a {view.kind} with these settings comes from a table; leave it out", "noise")
    if kind.rank is not None and isinstance(kind.levels[0], TableLevel):
        raise ConfigError("has no meaning with strict: how to read a count that was ranked is not known", "rank")
    left = view.sharpen
    sharpen = None if left is None else SharpenPlan(left.audience, index[left.level], left.reserve, left.every)
    planned = ViewPlan(
        name=name,
        source=_source(sections, view.source, source),
        item_field=view.field,
        window=window,
        items_per_user=view.items_per_user,
        buckets=view.buckets,
        audiences=starts,
        ledger=ledger,
        kind=kind,
        fingerprint=b"",
        windows_per_user=view.windows_per_user,
        pacing=view.pacing,
        share=view.share,
        falls_back=view.when_short == "coarser",
        has_lists=view.items is not None,
        unlocks=unlocks,
        sharpen=sharpen,
        affords=affords,
        words=ViewWords(
            view.title or name.replace("-", " ").capitalize(), view.unit or ledger.population, view.item_meaning or ""
        ),
    )
    _check_panes(view, planned.kind)
    _check_affordable(planned, given_shares(sections, view.ledger))
    return replace(planned, fingerprint=fingerprint(planned, sections.id or ""))


_TRIALS = 24
"""Sizes that are tried below the first, each 10/7 times smaller; of larger ones half as many."""


def _trial(plan_kind: Callable[[Fraction], KindPlan], size: Fraction) -> KindPlan:
    """Return a plan for what is the same whatever the noise: what keys cost, and how many counts a user moves.

    Raises:
        ConfigError: there is none near a size, for another reason than the size.
    """
    faults = []
    for step in sorted(range(-_TRIALS, _TRIALS // 2), key=abs):
        try:
            return plan_kind(size * Fraction(10, 7) ** step)
        except ConfigError as error:
            faults.append(error)
    raise faults[0]


def _each_window(
    sections: Sections, name: str, ledger: LedgerPlan, others: Collection[ViewPlan], window: WindowPlan
) -> Cost:
    """Return what a ledger has for each window of a view whose levels are shares, if all of a period have the same.

    The view has its `share` of the budget. Views without one part evenly what the shares of others, and the views whose
    epsilons are written down, do not need.
    """
    period, given = ledger.periods.longest, given_shares(sections, ledger.name)
    if name in given:
        whole = ledger.budget * given[name]
    else:
        written = [
            one for one in others if one.ledger.name == ledger.name and one.affords is None and one.share is None
        ]
        needed = sum((asked(one, period) for one in written), ledger.budget * sum(given.values()))
        alike = [
            one
            for one, view in sections.views.items()
            if view.ledger == ledger.name and one not in given and _has_shares(sections, view)
        ]
        whole = (ledger.budget.most(needed) - needed) * Fraction(1, len(alike))
    windows, most = window.shape.paid.whole_in(period), sections.views[name].windows_per_user
    return whole * Fraction(1, max(1, windows if most is None else min(windows, most)))


def _afforded(
    ledger: LedgerPlan,
    each: Cost,
    sizes: Sequence[Fraction],
    moved: int,
    kind: KindPlan | None = None,
    *,
    gaussian: bool = False,
) -> Fraction:
    """Return the largest epsilon of the counts of a window that a cost covers, in 6 digits, rounded down.

    Args:
        ledger: the ledger.
        each: the cost.
        sizes: shares of that epsilon that a window takes on schedule, one after another. In a pool they cost more
            together than the last of them alone.
        moved: how many counts a user moves, each by one.
        kind: says what showing the keys costs, and how noise is charged; None: nothing, as usual.
        gaussian: whether the noise is; then the sizes are those of all levels, and the last is paid for.

    Raises:
        ConfigError: nothing is left for the counts.
    """

    def within(epsilon: Fraction) -> bool:
        if kind is not None and (kind.is_whole or isinstance(kind.levels[0], TableLevel)):
            return table_rho(epsilon) <= rest.rho
        if gaussian:
            variances = [Fraction(moved, epsilon * size) ** 2 for size in sizes]
            apart = all(coarse - fine >= SMALLEST_STEP for coarse, fine in pairwise(variances))
            one = Fraction(epsilon * sizes[-1], moved)
            small = one < COARSEST or gaussian_rho(variances[-1], moved, shown) <= rest.rho
            return one <= GAUSSIAN_FINEST and apart and small
        if epsilon * min(sizes) < COARSEST * moved or epsilon > FINEST * moved:
            return epsilon <= FINEST * moved
        whole, first, *later = noise_levels([("", epsilon * size) for size in (Fraction(1), *sizes)], moved, shown)
        return max(whole.rho, first.rho + sum(level.step_rho for level in later)) <= rest.rho

    shown = Fraction(0) if kind is None else kind.shown
    keys = Cost.ZERO if kind is None else kind.keys_at_worst(pooled=ledger.pool is not None)
    rest = each.most(keys) - keys
    found = largest(within) if ledger.pool is not None else min(rest.epsilon, FINEST * moved)
    if not found or not keys <= each:
        short = _too_small(ledger.name, keys, each)
        costs = f", and showing the keys of one costs {_listed(keys)}" if any(keys) else ""
        raise ConfigError(
            f"ledger {ledger.name!r} has {_listed(each)} for each window of a period, if all are alike{costs}. That "
            f"leaves nothing for the counts; {f'raise {short}' if short else 'leave more to this view'}, use longer "
            "windows, or make the keys cheaper",
            path="ledger",
        )
    return Fraction(decimal_down(found, AFFORDED_DIGITS))


def _check_panes(view: ViewConfig, kind: KindPlan) -> None:
    window = view.window
    if window.pane is None or isinstance(window.size, CalendarUnit) or window.zone is not None:
        return
    reason = kind.undivided if window.step in (None, window.size) else kind.unshared
    if not reason:
        return
    step = format_duration(window.step or window.size)
    raise ConfigError(
        f"windows of a {kind.name} are not made of panes: {reason}. Leave pane out: with step: {step} each "
        "window is counted and noised by itself, at the price of a window each",
        path="window.pane",
    )


def plan_ledger(name: str, ledger: LedgerConfig) -> LedgerPlan:
    """Work out the caps of one ledger: what its pool takes of epsilon and delta, and what that is as rho.

    Args:
        name: the ledger's name.
        ledger: its configuration.

    Raises:
        ConfigError: the pool takes more than there is; the path is relative to the ledger.
    """
    total, given = Cost(ledger.epsilon, ledger.delta), ledger.zcdp
    if given is None:
        return LedgerPlan(name, ledger.population, total, total, shape_of(ledger.lengths))
    taken = Cost(given.epsilon, given.slack)
    if not taken <= total:
        raise ConfigError(
            f"it takes epsilon {taken.epsilon} and delta {taken.delta} out of the ledger's epsilon {total.epsilon} and "
            f"delta {total.delta}, which are the totals",
            path="zcdp",
        )
    cap = Fraction(rho_within(given.epsilon, given.slack) * 10**12 // 1, 10**12)  # with a short denominator
    budget = total - taken + Cost(Fraction(0), Fraction(0), rho=cap)
    pool = PoolPlan(given.epsilon, given.slack, cap)
    return LedgerPlan(name, ledger.population, total, budget, shape_of(ledger.lengths), pool)


def _source(sections: Sections, name: str, source: SourceConfig) -> SourcePlan:
    return SourcePlan(
        name=name,
        topic=source.topic,
        partitions=source.partitions,
        user_field=source.user,
        time_field=source.time.field if source.time else None,
        time_unit=source.time.unit if source.time else "ms",
        dead_letter_topic=dead_letter_topic(sections, name, source),
        partitioner=source.partitioner,
        key_field=source.key,
        format=source.format,
        time_zone=source.time.zone if source.time else DEFAULT_ZONE,
    )


def _window(view: ViewConfig) -> WindowPlan:
    window, shape = view.window, shape_of(view.lengths)
    return WindowPlan(
        shape=shape,
        first_ms=window.start,
        grace_ms=window.grace,
        clock=window.clock,
        max_ahead_ms=max(shape.released.longest.length_ms, DAY_MS) if window.max_ahead is None else window.max_ahead,
        idle_ms=window.idle,
        retention_ms=view.retention,
        catch_up_ms=window.catch_up,
    )


def _listed(cost: Cost) -> str:
    return " and ".join(f"{name} {value}" for name, value in cost.entries(at_least=2))


def _too_small(ledger: str, cost: Cost, budget: Cost) -> str:
    """The keys of a ledger of which there is less than a cost."""
    keys = dict(zip(ENTRIES, ("epsilon", "delta", "zcdp.epsilon"), strict=True))
    short = [keys[name] for name, asked, there in zip(ENTRIES, cost, budget, strict=True) if asked > there]
    return " and ".join(f"ledgers.{ledger}.{key}" for key in short)


def _check_affordable(view: ViewPlan, given: Mapping[str, Fraction]) -> None:
    """The ledger must pay for at least one window at the clearances of the start, out of what the view may take."""
    cost, budget = view.planned, view.ledger.budget
    level = view.levels[view.planned_level].name
    one = f"one costs {_listed(cost)} at level {level!r}, and"
    if not cost <= budget:
        raise ConfigError(
            f"ledger {view.ledger.name!r} affords no window: {one} the budget of a period is {_listed(budget)}; raise "
            f"{_too_small(view.ledger.name, cost, budget)}",
            path="ledger",
        )
    others = sum(given.values(), Fraction(0))
    part = 1 - others if view.share is None else view.share
    if others <= 1 and not cost <= budget * part:
        whose = "what the shares of other views leave" if view.share is None else "its share"
        raise ConfigError(
            f"{whose}, {part} of ledger {view.ledger.name!r}, affords no window: {one} that is "
            f"{_listed(budget * part)} of a period's budget",
            path="share",
        )
