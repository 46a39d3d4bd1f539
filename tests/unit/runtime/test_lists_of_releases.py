"""Lists of the keys that an audience was shown of another view: what stands in its release topic, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stream_dp.config.explanation import describe
from stream_dp.config.loading import read_config
from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan
from stream_dp.control.editions import first_record, next_record, plan_holding
from stream_dp.errors import ConfigError
from stream_dp.kinds.public_lists import KeyList, ReleaseSettings
from stream_dp.records.codec import AnyRecord, encode, encode_parts
from stream_dp.records.models import Release
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.list_topics import Lists, ListWatch, read_lists
from stream_dp.testing import ManualClock
from tests.support.releasing import SHOP, Desk, plan_of, release_topic

KEEP = 2
COUNTED = f"""\
  counted:
    source: visits
    item: page
    kind: catalogue
    catalogue: {{from: pages, audience: public, keep: {KEEP}}}
    items_per_user: 1
    window: {{size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}}
    ledger: visitors
    ladder: three
    retention: 1h
    buckets: 2
"""
TOPIC = release_topic("pages", "public")


def listing(*changes: tuple[str, str]) -> Plan:
    text = SHOP.partition("  tops:\n")[0] + COUNTED
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return plan_of(text)


def desk_with(*windows: dict[str, int]) -> Desk:
    desk = Desk(listing())
    for at, counts in enumerate(windows):
        desk.give("pages", 1000 * at, counts)
    return desk


HOME, CART, HELP = {"home": 900, "none": 1}, {"cart": 900, "home": 1}, {"help": 900}


def log_of(records: Iterable[AnyRecord], *, partitions: int = 2) -> MemoryLog:
    log = MemoryLog()
    log.create(TOPIC, partitions)
    put(log, records)
    return log


def put(log: MemoryLog, records: Iterable[AnyRecord]) -> None:
    for record in records:
        refused = b"" if isinstance(record, Release) else b" refused"
        log.append(TOPIC, record.window.start_ms // 1000 % 2, b"%d" % record.window.start_ms + refused, encode(record))


def keys_shown(records: Iterable[AnyRecord]) -> set[str]:
    return {entry.item for record in records if isinstance(record, Release) for entry in record.items}


async def listed(log: MemoryLog, plan: Plan | None = None) -> KeyList:
    lists, faults = await read_lists(plan or listing(), MemoryClient(log))
    assert faults == []
    return lists.newest("counted")[TOPIC]


async def test_the_list_has_the_keys_of_the_newest_windows() -> None:
    records = desk_with(HOME, CART, HELP).records("pages", "public")
    assert [await listed(log_of(records[:n])) for n in range(4)] == [
        KeyList.of([]),
        KeyList.of(["home"]),
        KeyList.of(["home", "cart"]),
        KeyList.of(["cart", "help"]),
    ]
    assert await listed(log_of(reversed(records))) == KeyList.of(["cart", "help"]), "by the windows, not as they came"


async def test_of_a_window_the_sharpest_release_counts_and_refusals_are_no_windows() -> None:
    desk = desk_with({"home": 900, "rare": 5}, CART)
    desk.grant(1, "public", "fine")
    records = desk.records("pages", "public")
    coarser = [record for record in records if record.revision == 1]
    sharper = [record for record in records if record.revision == 2]
    assert keys_shown(coarser) == {"home", "cart"}
    assert keys_shown(sharper) == {"home", "rare", "cart"}, "rare is seen at the fine level only"
    assert await listed(log_of(records)) == KeyList.of(keys_shown(sharper))
    assert await listed(log_of([*sharper, *coarser])) == KeyList.of(keys_shown(sharper)), "an old one that comes again"
    poor = Desk(listing(('epsilon: "40"', 'epsilon: "9"')))
    for at, counts in enumerate((HOME, CART, HELP)):
        poor.give("pages", 1000 * at, counts)
    found = poor.records("pages", "public")
    assert [record.type for record in found] == ["release", "release", "refusal"]
    assert await listed(log_of(found)) == KeyList.of(["home", "cart"])


async def test_parts_of_a_release_count_once_they_are_all_there() -> None:
    (record,) = desk_with({f"page {at}": 900 for at in range(400)}).records("pages", "public")
    assert isinstance(record, Release)
    parts = encode_parts(record, 6000)
    assert len(parts) > 1
    log = MemoryLog()
    log.create(TOPIC, 1)
    for key, part in parts:
        assert (await listed(log)).size == 0
        log.append(TOPIC, 0, key, part)
    assert (await listed(log)).size == 400


async def test_a_revision_feeds_a_list_once_it_is_whole() -> None:
    """Until all parts of a newer revision are there, the list follows from the older one, and from nothing else."""
    desk = desk_with({"home": 900, "rare": 5, **{f"page {at}": 900 for at in range(399)}})
    desk.grant(1, "public", "fine")
    coarser, sharper = desk.records("pages", "public")
    *rest, last = encode_parts(sharper, 6000)
    assert rest
    old, new = KeyList.of(keys_shown([coarser])), KeyList.of(keys_shown([sharper]))
    assert (old.size, new.size) == (400, 401)
    log = MemoryLog()
    log.create(TOPIC, 1)
    for key, part in [*encode_parts(coarser, 6000), last]:
        log.append(TOPIC, 0, key, part)
    assert await listed(log) == old
    for key, part in [*rest, *encode_parts(coarser, 6000)]:
        log.append(TOPIC, 0, key, part)
    assert await listed(log) == new


async def test_what_is_taken_back_leaves_the_list_whenever_a_worker_began_to_read() -> None:
    records = desk_with(HOME, CART).records("pages", "public")
    log = log_of(records)
    client, clock = MemoryClient(log), ManualClock(1000)
    lists, _ = await read_lists(listing(), client)
    watch = ListWatch(listing(), lists, client, clock)
    log.append(TOPIC, 0, b"0", None)
    await watch.look()
    assert lists.newest("counted")[TOPIC] == await listed(log) == KeyList.of(["cart"])


async def test_a_sharper_release_of_which_parts_are_missing_leaves_the_former_in_effect() -> None:
    desk = desk_with({f"page {at}": 900 for at in range(400)})
    desk.grant(1, "public", "fine")
    log = MemoryLog()
    log.create(TOPIC, 1)
    first, second = (encode_parts(record, 6000) for record in desk.records("pages", "public"))
    for key, part in [*first, *second[:-1]]:
        log.append(TOPIC, 0, key, part)
    assert (await listed(log)).size == 400
    log.append(TOPIC, 0, *second[-1])
    assert (await listed(log)).size == 400


async def test_a_record_that_cannot_be_read_leaves_the_last_list_in_effect(caplog: pytest.LogCaptureFixture) -> None:
    log = log_of(desk_with(HOME).records("pages", "public"))
    client = MemoryClient(log)
    lists, _ = await read_lists(listing(), client)
    watch = ListWatch(listing(), lists, client, ManualClock(1000))
    log.append(TOPIC, 0, b"x", b"no record")
    await watch.look()
    assert lists.newest("counted")[TOPIC] == KeyList.of(["home"])
    assert "it holds a record that is none of stream-dp" in caplog.text
    _, faults = await read_lists(listing(), client)
    assert [str(one) for one in faults] == [
        f"views.counted: topic {TOPIC}: it holds a record that is none of stream-dp"
    ]


async def test_records_of_a_later_version_count_by_their_keys() -> None:
    (record,) = desk_with(HOME).records("pages", "public")
    later = (
        encode(record)
        .replace(b'"kind":"histogram"', b'"kind":"newer"')
        .replace(b'"schema_version":1', b'"schema_version":9')
    )
    log = log_of([])
    log.append(TOPIC, 0, b"0", later)
    assert await listed(log) == KeyList.of(["home"])


async def test_what_is_kept_in_memory_goes_by_what_views_need() -> None:
    windows = [{f"page {at}": 900} for at in range(9)]
    log = log_of(desk_with(*windows).records("pages", "public"))
    lists, _ = await read_lists(listing(), MemoryClient(log))
    content = lists.topics[TOPIC]._content
    assert content is not None
    assert len(content._entries) == KEEP + 2  # type: ignore[union-attr]
    more, _ = await read_lists(listing(("keep: 2", "keep: 5")), MemoryClient(log))
    lists.join(more)
    assert lists.topics[TOPIC].keep == 5, "a view that needs more reads the topic anew"


def retained(retention: str) -> tuple[str, str]:
    """A change of how long the windows of pages are kept."""
    return "retention: 1h\n    buckets: 2\n  counted", f"retention: {retention}\n    buckets: 2\n  counted"


def test_settings_may_change_one_view_after_the_other() -> None:
    """Of former settings only the views that they began are planned, and what those cannot be planned without."""
    before, local = listing(), listing()
    known = [first_record(before, 0)]
    changes: list[tuple[tuple[tuple[str, str], ...], dict[str, int]]] = [
        ((("keep: 2", "keep: 3"),), {"counted": 60_000}),
        (
            (
                ("keep: 2", "keep: 3"),
                ("retention: 1h\n    buckets: 2\n  counted", "retention: 2h\n    buckets: 2\n  counted"),
            ),
            {},
        ),
        ((("keep: 2", "keep: 4"),), {"counted": 120_000}),
    ]
    for at, (change, begins) in enumerate(changes):
        known.append(next_record(known, listing(*change), begins, {}, at))
        held = plan_holding(known, local)
    assert held.newest["counted"].kind.made_of == ReleaseSettings("pages", "public", 4)


@pytest.mark.parametrize(("retention", "warns"), [("2s", True), ("1h", False)])
def test_a_list_of_more_windows_than_are_retained_is_warned_of(retention: str, warns: bool) -> None:
    plan = listing(
        ("keep: 2", "keep: 5"),
        ("retention: 1h\n    buckets: 2\n  counted", f"retention: {retention}\n    buckets: 2\n  counted"),
    )
    found = [one for one in describe(plan).warnings if one.startswith("view counted")]
    assert bool(found) == warns
    assert not found or "keeps 5 windows of pages" in found[0]


async def test_a_window_that_has_closed_goes_by_the_list_of_that_time() -> None:
    desk = desk_with(HOME)
    log = log_of(desk.records("pages", "public"))
    client, clock = MemoryClient(log), ManualClock(1000)
    lists, _ = await read_lists(listing(), client)
    watch = ListWatch(listing(), lists, client, clock)
    desk.give("pages", 1000, CART)
    put(log, desk.records("pages", "public")[1:])
    clock.now_ms = 2000
    await watch.look()
    assert at(lists, 2000) == KeyList.of(["home"])
    assert at(lists, 2001) == KeyList.of(["home", "cart"])


def at(lists: Lists, closed_ms: int) -> KeyList:
    return lists.at("counted", closed_ms)[TOPIC]


@pytest.mark.parametrize("keys", [[], ["home", "cart"]])
def test_a_window_is_released_with_the_keys_of_the_list_or_with_none(keys: list[str]) -> None:
    desk = Desk(listing(), lists={TOPIC: KeyList.of(keys)})
    desk.give("counted", 0, HOME)
    record = desk.record("counted", "public", 0)
    assert {entry.item for entry in record.items} == set(keys)
    assert record.privacy.window.cost.epsilon == 1, "a window with nothing on its list costs as much"
    assert desk.ledger(view="counted").spent.delta == 0
    desk.auditor.settled()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("from: pages", "from: pagse"), "views.counted.catalogue: no view is named 'pagse'; did you mean"),
        (("from: pages", "from: counted"), "views.counted.catalogue: a view has no list of its own keys"),
        (
            ("audience: public", "audience: guests"),
            "views.counted.catalogue: audience 'guests' does not read view 'pages'",
        ),
        (("keep: 2", "keep: 0"), "views.counted.catalogue: keep is a number of windows from 1 to 1000"),
        (("keep: 2", "kept: 2"), "views.counted.catalogue: write a list of keys"),
        (("kind: catalogue\n", "kind: catalogue\n    strict:\n"), "a list that is made of releases is empty"),
    ],
)
def test_what_cannot_be_a_list_is_a_fault(change: tuple[str, str], fault: str) -> None:
    text = (SHOP.partition("  tops:\n")[0] + COUNTED).replace(*change)
    sections, faults = read_config(text, {})
    found = list(faults)
    if not found:
        with pytest.raises(ConfigError) as caught:
            build_plan(sections.raw)
        found = list(caught.value.faults)
    assert any(fault in str(one) for one in found), found


def test_a_list_of_a_list_is_refused_so_none_comes_from_itself() -> None:
    more = COUNTED.replace("counted:", "again:").replace("from: pages", "from: counted")
    with pytest.raises(ConfigError, match="the list of view 'counted' is made of releases itself"):
        plan_of(SHOP.partition("  tops:\n")[0] + COUNTED + more)


SELECTION = '\n    k: 1\n    selection: {epsilon: "1"}'
OTHERS = {
    "gap": (f"gap{SELECTION}", "{size: 1s,"),
    "subset": (f"subset{SELECTION}", "{size: 1s,"),
    "running": ("running", "{size: 2s, pane: 1s,"),
    "panes": ("catalogue", "{size: 2s, step: 2s, pane: 1s,"),
}
"""By name, a kind and its windows."""


@pytest.mark.parametrize("name", OTHERS)
def test_every_kind_says_who_learns_the_keys_and_has_no_list_of_a_list(name: str) -> None:
    kind, window = OTHERS[name]
    shop = SHOP.partition("  tops:\n")[0]
    view = COUNTED.replace("kind: catalogue", f"kind: {kind}").replace("{size: 1s,", window)
    described = next(one for one in describe(plan_of(shop + view)).views if one.name == "counted")
    assert "also see which keys public was shown of pages" in str(described)
    again = view.replace("counted:", "again:").replace("from: pages", "from: counted")
    with pytest.raises(ConfigError, match="the list of view 'counted' is made of releases itself"):
        plan_of(shop + view + again)


def test_the_windows_that_are_kept_are_part_of_the_definition() -> None:
    one, other = listing(), listing(("keep: 2", "keep: 3"))
    assert one.views["counted"].fingerprint != other.views["counted"].fingerprint
