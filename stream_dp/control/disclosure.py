"""Who may see what of the windows of every edition: as the newest settings say, and nothing that they do not.

What is counted and noised belongs to an edition for ever. What is disclosed of it does not: the newest audiences,
`unlock`, `sharpen` and `retention` of a view hold for the windows of all its editions. What was taken out of the file
discloses nothing more, from when the settings are adopted.

An edition may have another ladder, so levels are found by their names. A name that the edition's ladder does not have
comes to the finest of its levels that costs no more epsilon and is no finer by the order of the newest ladder, where
that names it; or to nothing.

A window of a former edition that is still to be released goes to the audiences that it was opened with and that are
still there, at no finer a level than then and than now. Where none is left, it goes to those of today, at no finer a
level than the finest then. Audiences that came later get it as they get one that was released before (`clearances`).

The last windows of a view that was taken out are released as they were opened; nothing of it becomes finer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from stream_dp.config.plan import Edition, SharpenPlan, Unlock, ViewPlan

NOBODY = -1
"""The index of no level."""


def disclosed(
    definitions: Sequence[ViewPlan], newest: ViewPlan | None, audiences: Collection[str]
) -> Iterator[ViewPlan]:
    """The definitions of a view with what the newest settings disclose of their windows.

    Args:
        definitions: with their editions, as they were decided.
        newest: the view by the newest settings; None where it was taken out.
        audiences: those of the newest settings.
    """
    former = dict.fromkeys(name for one in definitions for edition in one.editions for name in edition.audiences)
    for definition in definitions:
        found = _disclosed(definition, newest, audiences)
        yield replace(found, former=tuple(name for name in former if name not in found.audiences))


def _disclosed(definition: ViewPlan, newest: ViewPlan | None, audiences: Collection[str]) -> ViewPlan:
    if newest is None:
        editions = tuple(
            replace(one, audiences={name: at for name, at in one.audiences.items() if name in audiences})
            for one in definition.editions
        )
        return replace(definition, audiences={}, unlocks={}, sharpen=None, editions=editions, is_removed=True)
    named = level_indices(definition, newest)
    found = _found(newest.audiences, newest, named)
    return replace(
        definition,
        audiences=found,
        unlocks=_unlocks(newest, found, named),
        sharpen=_sharpen(definition, newest, found, named),
        window=replace(definition.window, retention_ms=newest.window.retention_ms),
        editions=tuple(replace(one, audiences=_opened_with(one, found)) for one in definition.editions),
        named={name: at for name, at in named.items() if all(level.name != name for level in definition.levels)},
    )


def level_indices(definition: ViewPlan, newest: ViewPlan) -> dict[str, int]:
    """Return the index in a definition's ladder of level names: its own, and those of the newest definition.

    Args:
        definition: the definition.
        newest: the view by the newest settings.
    """
    own = {level.name: at for at, level in enumerate(definition.levels)}
    order = {level.name: at for at, level in enumerate(newest.levels)}
    found = dict(own)
    for wanted in newest.levels:
        if wanted.name not in own:
            no_finer = (
                at
                for name, at in own.items()
                if definition.levels[at].epsilon <= wanted.epsilon and order.get(name, NOBODY) <= order[wanted.name]
            )
            found[wanted.name] = max(no_finer, default=NOBODY)
    return found


def _found(levels: Mapping[str, int], newest: ViewPlan, named: Mapping[str, int]) -> dict[str, int]:
    """Levels of the newest ladder as those of a definition, where they come to one."""
    found = {audience: named[newest.levels[level].name] for audience, level in levels.items()}
    return {audience: at for audience, at in found.items() if at != NOBODY}


def _opened_with(edition: Edition, found: Mapping[str, int]) -> dict[str, int]:
    """Who gets the windows of an edition when they are released."""
    own = edition.audiences
    still = {name: min(at, found[name]) for name, at in own.items() if name in found}
    return still or {name: min(at, max(own.values())) for name, at in found.items()}


def _unlocks(newest: ViewPlan, found: Mapping[str, int], named: Mapping[str, int]) -> dict[str, tuple[Unlock, ...]]:
    unlocks: dict[str, tuple[Unlock, ...]] = {}
    for audience, steps in newest.unlocks.items():
        had, rising = found.get(audience), list[Unlock]()
        for step in steps if had is not None else ():
            level = named[newest.levels[step.level].name]
            if had is not None and level > had:
                rising.append(Unlock(level, step.after_ms))
                had = level
        if rising:
            unlocks[audience] = tuple(rising)
    return unlocks


def _sharpen(
    definition: ViewPlan, newest: ViewPlan, found: Mapping[str, int], named: Mapping[str, int]
) -> SharpenPlan | None:
    """Return the plan for leftover budget; None for windows of panes, for which no file may have one."""
    wanted, window = newest.sharpen, definition.window
    if wanted is None or wanted.audience not in found or definition.most_panes > 1 or window.shape.tells_totals:
        return None
    level = named[newest.levels[wanted.level].name]
    return replace(wanted, level=level) if level > found[wanted.audience] else None
