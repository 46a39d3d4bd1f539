"""Windows of panes over lists that may change: the list of a window is that of its first pane, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import Sealing, own_secret, read_counts
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.by_kind import CatalogueRelease, RunningRelease
from stream_dp.releases import releasing
from stream_dp.releases.panes import BlockRow, list_of_window
from stream_dp.releases.pieces import stored_table
from stream_dp.releases.rows import BLOCK, WINDOW, WindowRow
from stream_dp.runtime.factory import counted_view
from stream_dp.runtime.kafka.list_topics import Lists
from stream_dp.windows.encoding import decode, encode, window_key
from tests.support.chosen import every
from tests.support.factorization import cover
from tests.support.machine import Machine
from tests.support.releasing import KEY, ONLY_PAGES, SHOP, Desk, keyed, plan, plan_of, release_topic

SECOND, PANES = 1000, 3
TOPIC = release_topic("found", "public")
MADE_OF = "{from: found, audience: public, keep: 2}"
KEYS = "abcdef"
STARTS = range(0, 6 * SECOND, SECOND)
COUNTS: Mapping[int, Mapping[str, int]] = {
    start: {key: 10 * at + n + 1 for n, key in enumerate(KEYS)} for at, start in enumerate(STARTS)
}
WINDOWS = {"catalogue": f"{{size: {PANES}s, step: {PANES}s, pane: 1s,", "running": f"{{size: {PANES}s, pane: 1s,"}


@cache
def shop(kind: str, budget: str = "400") -> Plan:
    """A view in panes of a second, and the one that its list is made of."""
    view = SHOP.partition("  pages:\n")[2].partition("  tops:\n")[0]
    counts = view.replace("kind: histogram", f"kind: {kind}\n    catalogue: {MADE_OF}")
    counts = counts.replace('    delta: "1/100"\n', "").replace("{size: 1s,", WINDOWS[kind])
    head = SHOP.partition("  pages:\n")[0].replace('epsilon: "40"', f'epsilon: "{budget}"')
    return plan_of(head.replace("period: 4s", "period: 12s") + "  found:\n" + view + "  pages:\n" + counts)


def list_at(closed_ms: int, other: int = 0) -> KeyList:
    """Another list every second; and others yet, as another worker has read them."""
    at = closed_ms // SECOND + 3 * other
    return KeyList.of(KEYS[(at + n) % len(KEYS)] for n in range(1 + at % 3))


class Workers:
    """Lists as the process that runs now has them; the one behind a crash has others."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def at(self, _view: str, closed_ms: int) -> Mapping[str, KeyList]:
        return {TOPIC: list_at(closed_ms, other=self.machine.cut_after is None)}


def given(kind: str, cuts: Sequence[int] = (), budget: str = "400") -> Desk:
    machine = Machine()
    desk = Desk(shop(kind, budget), lists=Workers(machine).at, cuts=cuts, machine=machine)
    for start in STARTS:
        desk.give("pages", start, COUNTS[start], start + SECOND)
    desk.grant(1, "public", "fine")
    return desk


def of_pane(desk: Desk, start: int, level: int, exact: Mapping[str, int], listed: KeyList) -> list[int]:
    view = desk.plan.views["pages"]
    name = view.noise_name(start)
    noise = WindowNoise.of(name, KEY, own_secret(name, keyed))
    table = view.kind.seal(exact, Sealing(noise, keyed, {TOPIC: listed}))
    return read_counts(table, view.levels, [level], noise)[0]


def total(desk: Desk, first: int, panes: int, level: int, listed: KeyList) -> dict[str, int]:
    """What the first panes of a window show together, from exact counts and the list of its first pane."""
    blocks = [(at, at + 1) for at in range(panes)]
    if desk.plan.views["pages"].window.shape.tells_totals:
        blocks = list(cover(0, panes, 2))
    columns = []
    for begin, end in blocks:
        exact = Counter[str]()
        for at in range(begin, end):
            exact.update(COUNTS[first + at * SECOND])
        columns.append(of_pane(desk, first + (end - 1) * SECOND, level, exact, listed))
    return dict(zip(listed, map(sum, zip(*columns, strict=True)), strict=True))


def check(desk: Desk, *, lists: Sequence[int] = (0,)) -> int:
    """Every record shows all panes of its window on one list, one of its first pane; return how many there are."""
    names = [level.name for level in desk.plan.views["pages"].levels]
    found: dict[int, set[str]] = {}
    records = desk.records("pages", "public")
    for record in records:
        assert isinstance(record, CatalogueRelease | RunningRelease)
        first = record.window.start_ms
        panes = (record.window.end_ms - first) // SECOND
        found.setdefault(first, set()).add(record.catalogue.version)
        possible = {one.version: one for one in (list_at(first + SECOND, other) for other in lists)}
        listed = possible[record.catalogue.version]
        assert record.catalogue.keys == listed.size
        level = names.index(record.level.name)
        assert {entry.item: entry.count for entry in record.items} == total(desk, first, panes, level, listed)
    assert all(len(versions) == 1 for versions in found.values())
    return len(records)


@pytest.mark.parametrize("kind", WINDOWS)
def test_all_panes_of_a_window_have_the_list_of_its_first(kind: str) -> None:
    desk = given(kind)
    desk.auditor.settled()
    assert check(desk, lists=(1,)) == (2 * 2 if kind == "catalogue" else 6 + 6), "and again, finer"
    assert list_at(SECOND, 1) != list_at(2 * SECOND, 1), "the list has changed from pane to pane"


@pytest.mark.parametrize("kind", WINDOWS)
@every(7)
def test_a_window_keeps_its_list_wherever_it_crashes_and_the_next_worker_has_others(kind: str, step: int) -> None:
    points = given(kind, [10**6]).machine.points
    for cut in range(0, points, step):
        desk = given(kind, [cut])
        desk.auditor.settled()
        assert check(desk, lists=(0, 1)) >= (2 if kind == "catalogue" else 6)


@pytest.mark.parametrize("kind", WINDOWS)
def test_panes_with_lists_of_their_own_are_found_out(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The mutant: every pane goes by the list of its own close."""
    monkeypatch.setattr(releasing, "list_of_window", lambda *_: None)
    with pytest.raises((AssertionError, ValueError, KeyError)):
        check(given(kind), lists=(1,))


def test_what_is_off_the_list_of_the_window_is_counted_once_and_not_kept_for_later_panes() -> None:
    desk = given("running")
    off = sum(
        count
        for start, counts in COUNTS.items()
        for key, count in counts.items()
        if key not in list_at(start // (PANES * SECOND) * PANES * SECOND + SECOND, 1)
    )
    assert desk.machine.counts["events_unknown", (("view", "pages"),)] == off
    kept = [decode(BlockRow, value).counts for key, value in desk.machine.changelog if key.startswith(BLOCK) and value]
    windows = [set(list_at(SECOND, 1)), set(list_at(4 * SECOND, 1))]
    assert kept
    assert all(any(counts.keys() <= listed for listed in windows) for counts in kept)


def test_where_the_first_pane_was_refused_the_next_one_takes_its_place() -> None:
    desk = given("catalogue")
    view, stored = desk.plan.views["pages"], Machine(rows=dict(desk.machine.rows))
    stored.rows[window_key(WINDOW, "pages", 0)] = encode(WindowRow(refused=True, slot_ms=0, lost=True))
    assert list_of_window(view, 0, stored) is None
    assert list_of_window(view, SECOND, stored) is None, "there is none yet"
    of_second = list_of_window(view, 2 * SECOND, stored)
    assert of_second is not None
    assert list(of_second) == stored_table("pages", SECOND, stored).items
    assert list_of_window(view, 3 * SECOND, stored) is None, "another window begins"


def test_hopping_windows_of_panes_are_refused_in_clear_words() -> None:
    changes = (ONLY_PAGES, ("kind: histogram", "kind: catalogue\n    catalogue: {topic: page-list}"))
    hops = (('    delta: "1/100"\n', ""), ("{size: 1s,", "{size: 3s, step: 1s, pane: 1s,"))
    with pytest.raises(ConfigError, match="fixed with the first pane of a window, so no pane can be in two"):
        plan(*changes, *hops)


def test_another_length_of_windows_is_another_definition_where_each_has_a_list() -> None:
    def fingerprint(listed: str, size: int) -> bytes:
        changes = (ONLY_PAGES, ("kind: histogram", f"kind: catalogue\n    catalogue: {listed}"))
        rest = (('    delta: "1/100"\n', ""), ("{size: 1s,", f"{{size: {size}s, step: {size}s, pane: 1s,"))
        return plan(*changes, *rest).views["pages"].fingerprint

    assert fingerprint("{topic: page-list}", 2) != fingerprint("{topic: page-list}", 4)
    assert fingerprint("[home]", 2) == fingerprint("[home]", 4)


@pytest.mark.parametrize("kind", WINDOWS)
def test_users_of_panes_are_not_bounded_by_the_list_of_now(kind: str) -> None:
    """The list of the window may be another one."""
    assert counted_view(shop(kind).views["pages"], 0, None, Lists()).list_at is None
