"""From a configuration to its plan: thresholds, minimum counts and costs, or every fault at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from stream_dp.accounting import Cost
from stream_dp.accounting.composition import rho_within, squares_within
from stream_dp.accounting.cost import PART_ENTRIES
from stream_dp.accounting.ladder import ladder_rho
from stream_dp.config.crosschecks import cross_check, dead_letter_topic, readers
from stream_dp.config.loading import Sections, in_file_order, parts_of, read_config
from stream_dp.config.models import (
    AnyViewConfig,
    Config,
    HistogramConfig,
    LedgerConfig,
    LevelConfig,
    PartConfig,
    SourceConfig,
    TopKConfig,
    WindowConfig,
)
from stream_dp.config.plan import (
    Kind,
    LedgerPlan,
    LevelPlan,
    PartPlan,
    Plan,
    SourcePlan,
    ViewPlan,
    WindowPlan,
    fingerprint,
)
from stream_dp.config.yaml_data import join
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.kinds import selection
from stream_dp.kinds.selection import Mechanism, Selection
from stream_dp.lossless.discovery import discovery_delta, minimum_count
from stream_dp.lossless.families.discrete_laplace import interval, mean_absolute
from stream_dp.lossless.levels import WORD, threshold_for

CONFIDENCE = Fraction(95, 100)
"""Of the noise intervals in plans and records."""

COARSEST, FINEST = Fraction(1, 1000), Fraction(40)
"""Bounds on the epsilon of one count. Noise takes 1/epsilon words of a keyed stream per count; above 40 the threshold
A of `lossless 6.3` gets down to the resolution of its 64 bits, and nothing is hidden anyway."""

_DAY_MS = 86_400_000
_UNKNOWN_DOMAIN = frozenset({"kbar", "selection.delta"})
_NEEDED: Mapping[Mechanism, frozenset[str]] = {
    "gumbel": _UNKNOWN_DOMAIN,
    "strict": _UNKNOWN_DOMAIN,
    "chosen-kbar": _UNKNOWN_DOMAIN,
    "laplace": _UNKNOWN_DOMAIN,
    "fixed-threshold": frozenset({"selection.delta"}),
    "known-domain": frozenset({"catalogue"}),
}
"""Which of the keys that depend on the mechanism of a selection it needs; the others have no meaning for it."""


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
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not text in UTF-8: {error.reason} at byte {error.start}") from None
    parts, faults = read_config(text, os.environ if environ is None else environ)
    return _plan(parts, faults, file.parent)


def build_plan(config: Config, folder: str | Path = ".") -> Plan:
    """Check and plan a configuration that was made in memory.

    Args:
        config: the whole configuration.
        folder: what its relative folders are relative to.

    Raises:
        ConfigError: its parts do not agree; `faults` has everything.
    """
    return _plan(parts_of(config), [], Path(folder))


def _plan(parts: Sections, faults: Sequence[Fault], folder: Path) -> Plan:
    found = [*faults, *cross_check(parts)]
    ledgers: dict[str, LedgerPlan] = {}
    for name, ledger in parts.ledgers.items():
        try:
            ledgers[name] = plan_ledger(name, ledger)
        except (ConfigError, ParameterError) as error:
            found += [Fault(join(join("ledgers", name), fault.path), fault.message) for fault in error.faults]
    views: dict[str, ViewPlan] = {}
    for name, view in parts.views.items():
        try:
            planned = _planned(parts, name, view, ledgers)
        except (ConfigError, ParameterError) as error:
            found += [Fault(join(join("views", name), fault.path), fault.message) for fault in error.faults]
            continue
        if planned is not None:
            views[name] = planned
    config = parts.config
    if found or config is None:
        raise ConfigError(in_file_order(found, parts.raw))
    return Plan(
        name=config.name,
        broker=config.broker,
        data_dir=folder / config.data_dir,
        key_file=folder / config.key_file,
        partitions=next(iter(config.sources.values())).partitions,
        views=views,
        ledgers=ledgers,
        audiences=tuple(config.audiences),
        erase_within_ms=config.erase_within,
    )


def _planned(parts: Sections, name: str, view: AnyViewConfig, ledgers: Mapping[str, LedgerPlan]) -> ViewPlan | None:
    """The plan of a view, None where something it refers to is wrong (that is a fault of its own already)."""
    source, ledger = parts.sources.get(view.source), ledgers.get(view.ledger)
    ladder = parts.ladders.get(view.ladder)
    if source is None or ledger is None or ladder is None:
        return None
    index = {level.level: position for position, level in enumerate(ladder)}
    names = readers(parts, view)
    if any(parts.audiences.get(audience) not in index for audience in names):
        return None
    audiences = {audience: index[parts.audiences[audience]] for audience in names}
    planned = plan_view(
        name,
        view,
        source=_source(view.source, source),
        ledger=ledger,
        ladder=ladder,
        audiences=audiences,
    )
    _check_affordable(planned)
    return planned


def plan_view(
    name: str,
    view: AnyViewConfig,
    *,
    source: SourcePlan,
    ledger: LedgerPlan,
    ladder: Sequence[LevelConfig],
    audiences: Mapping[str, int],
) -> ViewPlan:
    """Compute the numbers of one view.

    A level's epsilon pays for all the counts one user moves, so one count is noised with epsilon divided by the
    sensitivity (`lossless 1.2`). A histogram's delta is parted evenly over its levels and a user's items, which
    gives each level its own minimum count (`lossless 2.9.5`, per-level thresholds).

    Args:
        name: the view's name.
        view: its configuration.
        source: its source.
        ledger: its ledger.
        ladder: its levels, coarse to fine.
        audiences: the index of the level each audience starts with.

    Raises:
        ConfigError: a level's epsilon is out of bounds, kbar is below k, or delta is too large for the ladder;
            paths of faults are relative to the view.
    """
    topk: Selection | None = None
    share: Fraction | None = None
    kind: Kind
    if isinstance(view, HistogramConfig):
        kind, delta, sensitivity = view.kind, view.delta, view.items_per_user
        share = delta / (len(ladder) * view.items_per_user)
    else:
        topk = plan_selection(view)
        kind, delta, sensitivity = view.kind, topk.delta, min(view.k, view.items_per_user)
    _check_bounds(ladder, sensitivity)
    thresholds = [threshold_for(level.epsilon / sensitivity) for level in ladder]
    shown = Fraction(0) if share is None else delta / view.items_per_user
    rhos = ladder_rho([Fraction(threshold, WORD) for threshold in thresholds], sensitivity, shown)
    levels = tuple(_level(*level, share) for level in zip(ladder, thresholds, rhos, strict=True))
    _check_discovery(levels, view.items_per_user)
    planned = ViewPlan(
        name=name,
        kind=kind,
        source=source,
        item_field=view.item,
        window=_window(view.window, view.retention),
        items_per_user=view.items_per_user,
        buckets=view.buckets,
        levels=levels,
        audiences=audiences,
        ledger=ledger,
        delta=delta,
        topk=topk,
        fingerprint=b"",
    )
    return replace(planned, fingerprint=fingerprint(planned))


def plan_selection(view: TopKConfig) -> Selection:
    """How a top-k chooses its keys.

    Args:
        view: its configuration.

    Raises:
        ConfigError: a key is missing that the mechanism needs, one is there that it has no use for, or a value is
            outside its range; paths are relative to the view.
    """
    k, kbar, catalogue, given = view.k, view.kbar, view.catalogue, view.selection
    needed = _NEEDED[given.mechanism]
    values = {"kbar": kbar, "catalogue": catalogue, "selection.delta": given.delta}
    faults = [
        Fault(path, f"is required by {given.mechanism}")
        if path in needed
        else Fault(path, f"has no meaning for {given.mechanism}; leave it out")
        for path, value in values.items()
        if (value is None) == (path in needed)
    ]
    if catalogue is not None and (twice := [item for item, number in Counter(catalogue).items() if number > 1]):
        faults += [Fault("catalogue", f"{item!r} stands twice") for item in twice]
    if faults:
        raise ConfigError(faults)
    try:
        if catalogue is not None:
            return selection.known_domain(k, given.epsilon, tuple(catalogue))
        delta = given.delta or Fraction(0)
        if given.mechanism == "fixed-threshold":
            return selection.fixed_threshold(k, given.epsilon, delta)
        if given.mechanism == "chosen-kbar":
            return selection.chosen_kbar(k, kbar or 0, given.epsilon, delta)
        bounded = {"gumbel": selection.gumbel, "strict": selection.strict, "laplace": selection.laplace}
        return bounded[given.mechanism](k, kbar or 0, given.epsilon, delta, view.items_per_user)
    except (ConfigError, ParameterError) as error:
        inner = {"epsilon", "delta"}
        raise ConfigError(
            [
                Fault(f"selection.{fault.path}" if fault.path in inner else fault.path, fault.message)
                for fault in error.faults
            ]
        ) from None


def plan_ledger(name: str, ledger: LedgerConfig) -> LedgerPlan:
    """Work out the caps of one ledger: what its parts take of epsilon and delta, and what that is as squares and rho.

    Args:
        name: the ledger's name.
        ledger: its configuration.

    Raises:
        ConfigError: `parts` has no part, or they take more than there is; paths are relative to the ledger.
    """
    parts: dict[str, PartPlan] = {}
    if ledger.parts is not None:
        for part, inverse in _CAPS.items():
            given: PartConfig | None = getattr(ledger.parts, part)
            if given is not None:
                cap = decimal_floor(inverse(given.epsilon, given.slack))
                parts[part] = PartPlan(given.epsilon, given.slack, cap)
        if not parts:
            raise ConfigError([Fault("parts", f"names no part; known: {', '.join(_CAPS)}")])
    total = Cost(ledger.epsilon, ledger.delta)
    taken = sum((Cost(part.epsilon, part.slack) for part in parts.values()), Cost.ZERO)
    if not taken <= total:
        raise ConfigError(
            [
                Fault(
                    "parts",
                    f"they take epsilon {taken.epsilon} and delta {taken.delta} out of the ledger's epsilon "
                    f"{total.epsilon} and delta {total.delta}, which are the totals",
                )
            ]
        )
    rest = total - taken
    caps = {entry: parts[part].cap for part, entry in PART_ENTRIES.items() if part in parts}
    budget = Cost(rest.epsilon, rest.delta, **caps)
    return LedgerPlan(name, ledger.population, total, budget, ledger.period, ledger.start, parts)


_CAPS: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {"selection": squares_within, "zcdp": rho_within}


def decimal_floor(value: Fraction) -> Fraction:
    """A cap with a short denominator: rounded down to 12 decimals."""
    return Fraction(value.numerator * 10**12 // value.denominator, 10**12)


def _source(name: str, source: SourceConfig) -> SourcePlan:
    return SourcePlan(
        name=name,
        topic=source.topic,
        partitions=source.partitions,
        user_field=source.user,
        time_field=source.time.field if source.time else None,
        time_unit=source.time.unit if source.time else "ms",
        dead_letter_topic=dead_letter_topic(source),
        partitioner=source.partitioner,
    )


def _window(window: WindowConfig, retention_ms: int) -> WindowPlan:
    ahead = max(window.size, _DAY_MS) if window.max_ahead is None else window.max_ahead
    return WindowPlan(
        size_ms=window.size,
        start_ms=window.start,
        grace_ms=window.grace,
        clock=window.clock,
        max_ahead_ms=ahead,
        idle_ms=window.idle,
        retention_ms=retention_ms,
    )


def _check_bounds(ladder: Sequence[LevelConfig], sensitivity: int) -> None:
    faults = [
        Fault(
            "ladder",
            f"level {level.level!r} has epsilon {level.epsilon} for the {sensitivity} counts that one user moves, "
            f"{level.epsilon / sensitivity} for one; that must be between {COARSEST} and {FINEST}",
        )
        for level in ladder
        if not COARSEST <= level.epsilon / sensitivity <= FINEST
    ]
    if faults:
        raise ConfigError(faults)


def _level(level: LevelConfig, threshold: int, rho: Fraction, share: Fraction | None) -> LevelPlan:
    """One level's numbers; `share` is the delta that one key at this level may come to, None for a top-k."""
    ratio = Fraction(threshold, WORD)
    return LevelPlan(
        name=level.level,
        epsilon=level.epsilon,
        threshold=threshold,
        minimum_count=None if share is None else minimum_count(threshold, share),
        noise_interval=interval(ratio, CONFIDENCE),
        expected_error=mean_absolute(ratio),
        rho=rho,
    )


def _check_discovery(levels: Sequence[LevelPlan], items_per_user: int) -> None:
    """The guarantee for unknown keys has a condition of its own, which `discovery_delta` checks (`lossless 2.9.5`)."""
    shown = [(level.threshold, level.minimum_count) for level in levels if level.minimum_count is not None]
    try:
        discovery_delta(shown, items_per_user)
    except ParameterError as error:
        raise ConfigError([Fault("delta", fault.message) for fault in error.faults]) from None


def _listed(cost: Cost) -> str:
    return " and ".join(f"{name} {value}" for name, value in cost.entries(at_least=2))


def _check_affordable(view: ViewPlan) -> None:
    """The ledger must pay for at least one window at the clearances of the start."""
    finest = max(view.audiences.values())
    cost, budget = view.cost(finest), view.ledger.budget
    if not cost <= budget:
        raise ConfigError(
            [
                Fault(
                    "ledger",
                    f"ledger {view.ledger.name!r} affords no window: one costs {_listed(cost)} at level "
                    f"{view.levels[finest].name!r}, and the budget of a period is {_listed(budget)}",
                )
            ]
        )
