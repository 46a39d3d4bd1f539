"""The readers' page in Chromium, on the gateway itself: numbers, words, what comes, keys, narrow screens."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.gateway.tokens import revoke_token
from stream_dp.gateway.web import STATIC
from stream_dp.records.by_kind import HistogramRelease, LeadingCount, PureTopKRelease
from stream_dp.records.codec import parse, topic_key
from stream_dp.records.models import Release
from tests.browser import checks
from tests.browser.served_reader import ServedReader, serving
from tests.browser.shop import DAYS, HOSTILE, LAST, Shop, plan, published, start_of
from tests.browser.states import STATES, State, at, opened
from tests.support.chosen import kept_ordinary
from tests.support.given import there

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # files of gateways that are killed
]
Page = Any
Open = Callable[..., Page]
WIDE, PHONE, NARROW = 1280, 390, 320
LEAST_SOUGHT = 300
"""Counts from here on are looked for in the page; a smaller number may be anything."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedReader]:
    with serving(tmp_path_factory.mktemp("served"), plan(), published(), "public", "partner") as one:
        yield one


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop that goes on while one looks, with windows of one day."""
    with Shop(tmp_path, "destinations", "leaders") as one:
        one.day(0)
        yield one


@pytest.fixture
def look(empty_page: Callable[..., Page]) -> Open:
    """Open an address of a page."""

    def opened(served: ServedReader, address: str = "", wait: str = ".strip", **options: Any) -> Page:
        page = empty_page(**options)
        page.goto(f"{served.url}#/{address}")
        page.wait_for_selector(wait)
        return page

    return opened


@pytest.fixture
def visit(look: Open, served: ServedReader) -> Open:
    """Open an address of the page of all states."""
    return lambda *address, **options: look(served, *address, **options)


def main(page: Page) -> str:
    return re.sub(r"\s+", " ", page.inner_text("main"))


def live(page: Page) -> None:
    page.wait_for_selector("#live >> text=/^Live$/")


def spoken(page: Page) -> list[str]:
    """What screen readers were given in the last seconds."""
    return sorted(page.eval_on_selector_all("#say p", "all => all.map(e => e.textContent)"))


def each_state(*kept: str) -> pytest.MarkDecorator:
    """A test of every state; of some of them ordinarily."""
    names = [*STATES]
    assert {*kept} <= {*names}
    return pytest.mark.parametrize("state", kept_ordinary(kept, names), indirect=True)


@pytest.fixture
def state(request: pytest.FixtureRequest) -> State:
    return STATES[request.param]


def released() -> list[Release]:
    found = [parse(message.value) for message in published() if message.value]
    return [one for one in found if isinstance(one, Release)]


def limits() -> set[int]:
    """Numbers near the least count that is shown: what is hidden is said with them."""
    least = {(one.minimum_count, one.noise_interval_95) for one in released() if isinstance(one, HistogramRelease)}
    return {number + by for number, half in least for by in (-half, 0, half)}


def record(view: str, day: int, audience: str = "public") -> Release:
    """The newest release of a window."""
    some = [
        one for one in released() if (one.view, one.audience, one.window.start_ms) == (view, audience, start_of(day))
    ]
    return max(some, key=lambda one: one.revision)


# -- every state ----------------------------------------------------------------------------------------------------


@each_state("sharper", "gap", "compare")
def test_every_count_has_its_interval_in_the_same_element(
    empty_page: Callable[..., Page], served: ServedReader, state: State
) -> None:
    counts = {item.count for one in released() for item in one.items if (item.count or 0) >= LEAST_SOUGHT}
    counts = {count for count in counts if count % 5} - limits()  # others may be on an axis
    with state.on(empty_page(), served) as page:
        assert checks.bare(page, counts) == []
        shown = next(iter(counts))
        page.evaluate("text => document.querySelector('main').append(text)", f"{shown:,}")
        assert checks.bare(page, counts) == [f"{shown:,}"], "the walk finds a count that is bare"


@each_state("sharper")
def test_axe_finds_nothing(empty_page: Callable[..., Page], served: ServedReader, state: State) -> None:
    with state.on(empty_page(reduced_motion="reduce"), served) as page:
        for width in (WIDE, PHONE):
            page.set_viewport_size({"width": width, "height": 900})
            for _ in range(2):
                page.click("#theme")
                page.wait_for_timeout(200)  # until it is drawn for the width
                opened(page)
                assert checks.faults(page) == []


@each_state("sharper")
def test_nothing_is_cut_on_narrow_screens_and_in_large_text(
    empty_page: Callable[..., Page], served: ServedReader, state: State
) -> None:
    with state.on(empty_page(), served) as page:
        for width, text in ((NARROW, 100), (WIDE, 200), (WIDE // 2, 200)):
            page.set_viewport_size({"width": width, "height": 600})
            page.evaluate("text => { document.documentElement.style.fontSize = `${text}%`; }", text)
            page.wait_for_timeout(250)
            assert (checks.too_wide(page), checks.cut_off(page)) == ([], []), (width, text)


@each_state("sharper")
def test_tabs_get_to_every_control(empty_page: Callable[..., Page], served: ServedReader, state: State) -> None:
    for width in (WIDE, PHONE):
        with state.on(empty_page(viewport={"width": width, "height": 900}), served) as page:
            assert checks.unreached(page) == []


@pytest.mark.slow
def test_the_checks_find_what_they_look_for(visit: Open) -> None:
    page = visit("public/leaders")
    page.evaluate(
        """() => {
             const add = (tag, css, text) => {
               const e = document.createElement(tag);
               Object.assign(e.style, css);
               e.textContent = text;
               document.querySelector('main').append(e);
               return e;
             };
             add('button', {}, '');
             const tiny = {minHeight: 0, height: '12px', width: '12px', padding: 0};
             add('button', tiny, 'a'); add('button', tiny, 'b');
             add('p', {width: '1400px'}, 'wide');
             add('p', {height: '4px', overflow: 'hidden'}, 'cut off');
             add('button', {outline: 'none'}, 'no focus to see');
           }"""
    )
    assert {fault.split(" ")[0] for fault in checks.faults(page)} >= {"button-name", "target-size"}
    assert any("wide" in found for found in checks.too_wide(page))
    assert any("cut off" in found for found in checks.cut_off(page))
    assert ["no focus to see" in found for found in checks.unreached(page)] == [True]


@pytest.mark.slow
def test_the_arrow_keys_get_to_every_window(visit: Open) -> None:
    page = visit("public/destinations")
    page.focus("#window")
    newest = page.get_attribute("#window", "data-id")
    page.keyboard.press("Home")
    reached = [page.get_attribute("#window", "data-id")]
    for _ in range(DAYS - 1):
        page.keyboard.press("ArrowRight")
        reached.append(page.get_attribute("#window", "data-id"))
        assert page.evaluate("document.activeElement.id") == "window"
        assert ".." in page.url
    assert reached == [one.get_attribute("data-id") for one in page.query_selector_all(".strip button")]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("End")
    assert page.get_attribute("#window", "data-id") == newest


# -- words ----------------------------------------------------------------------------------------------------------


def test_a_lead_is_told_with_how_sure_it_is(visit: Open) -> None:
    first = record("leaders", 1).items[0]
    assert isinstance(first, LeadingCount)
    assert first.margin_95 is not None
    shown = main(visit(at("leaders", 1)))
    assert f"{first.item} is first: 99 % sure (settled)" in shown
    assert f"The lead over all others is at least {int(float(first.margin_95.decimal)):,} aircraft, 95 % sure." in shown


@pytest.mark.slow
def test_estimates_from_leads_are_beside_their_interval(visit: Open) -> None:
    newest = record("leaders", 1)
    first = newest.items[0]
    assert isinstance(first, LeadingCount)
    page = visit(at("leaders", 1))
    page.click("#combined summary")
    least, most = newest.interval(first)
    assert (
        f"{first.item}: about {round(float(first.combined)):,}; {least:,} to {most:,} by its count alone, 95 % sure"
    ) in main(page)


@pytest.mark.slow
def test_known_keys_have_two_sides_and_new_ones_are_marked(visit: Open) -> None:
    newest = record("known", LAST)
    counts = {item.item: item.count for item in newest.items}
    half = newest.noise_interval_95
    page = visit(at("known", LAST))
    rows = [row.inner_text() for row in page.query_selector_all(".bars li:not(.axis)")]
    ranges = {row.split()[0]: " ".join(row.split()[1:]) for row in rows}
    assert ranges["SML"].startswith(f"{counts['SML'] - half} to {counts['SML'] + half}")
    assert ", new" in ranges["DCA"]
    assert ", new" not in ranges["ORD"]
    assert counts["GONE"] < half
    assert ranges["GONE"].startswith(("probably none", "0 to"))
    assert "The 4 keys that were known before are always shown, and any other from" in main(page)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["ranked", "first"])
def test_a_list_that_shows_its_first_keys_only(visit: Open, view: str) -> None:
    text = main(visit(at(view, 1)))
    assert "Only the 3 keys with the largest noisy counts are shown. No other key had a larger one." in text
    assert "the key on top is there partly because of its noise" in text
    assert "not in the list" not in text
    assert "What changed since" not in text
    assert "all keys together" not in text


@pytest.mark.slow
def test_a_run_of_draws_that_the_budget_ended_is_told(visit: Open) -> None:
    page = visit(at("busiest", 1))
    page.route("**/windows?*", lambda route: route.fulfill(json=ended_by_budget(route.fetch().json())))
    page.reload()
    page.wait_for_selector("text=The rest of the privacy budget paid for the first 2 of 4 keys.")


def ended_by_budget(answer: Any) -> Any:
    """Windows whose budget paid for two keys."""
    for window in answer["windows"]:
        window["record"] |= {"paid": 2, "items": window["record"]["items"][:2]}
    return answer


@pytest.mark.slow
def test_kinds_and_states_in_words(visit: Open) -> None:
    sharper = main(visit(at("destinations", 0)))
    assert "More precise than before: ±30, was ±60" in sharper
    release = record("destinations", 0)
    assert isinstance(release, HistogramRelease)
    half, least = release.noise_interval_95, release.minimum_count
    assert f"A key is shown from {least} on. One with {least + half} or more would be shown, 97 % sure" in sharper
    assert "does not mean that there was nothing" in main(visit(at("destinations", 2)))
    refused = main(visit(at("short", 3)))
    assert "A new budget begins with the next period, on 10 May 2026." in refused
    assert "It asked for ε 0.05." in main(visit(at("short", 0)))
    assert "Before it: 1 Mar 2026" in refused
    found = record("found", 3)
    assert isinstance(found, PureTopKRelease)
    chosen = visit(at("found", 3))
    assert f"All counts together ±{found.within_95}, 95 % sure" in main(chosen)
    assert "±" not in chosen.inner_text("#views [aria-current=page]"), "of keys that were chosen by their noise"
    assert "/v1/views/table/series?item=KEY" in main(visit("public/table"))
    assert "released, nothing to show" not in main(visit("public/table"))
    compared = visit(at("destinations", LAST))
    compared.click("#compare")
    compared.wait_for_selector(".compare .range")
    assert "Level coarse, each count ±120" in compared.inner_text(".compare")
    assert "Level middle, each count ±60" in compared.inner_text(".compare")


def test_a_hostile_key_is_text(visit: Open) -> None:
    page = visit(f"{at('lost', 0)}?item=%3Cimg%20src%3Dx%3E")
    page.wait_for_timeout(200)
    assert HOSTILE in page.inner_text(".bars")
    assert page.query_selector("main img") is None
    assert "broken" not in page.title()


@pytest.mark.slow
def test_what_is_told_of_the_budget_is_what_the_record_says(visit: Open) -> None:
    page = visit(at("destinations", 1))
    privacy, ledger = record("destinations", 1).privacy, record("destinations", 1).ledger
    told = main(page)
    period, whole = privacy.period.epsilon.decimal, ledger.budget.epsilon.decimal
    assert f"Your releases of 1 Mar to 9 May 2026: ε {period}. All readers together: at most ε {whole}." in told
    assert f"This window alone: ε {privacy.window.epsilon.decimal}." in told


@pytest.mark.slow
def test_what_is_calculated_here_says_so(visit: Open) -> None:
    page = visit(at("airlines", 1))
    shown = main(page)
    assert "What changed since 1 Mar 2026" in shown
    rose = re.search(r"ORD rose by ([\d,]+) to ([\d,]+) aircraft", shown)
    assert rose is not None
    low, high = (int(end.replace(",", "")) for end in rose.groups())
    assert low < 1009 < high
    assert "right for all 7 keys together, 95 % sure" in shown
    assert "It is 1st of 7. 95 % sure for all keys together." in shown
    assert "It was not released" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(("view", "half"), [("airlines", 30), ("gaussian", 19)])
def test_twenty_places_of_which_nineteen_are_in_the_interval(visit: Open, view: str, half: int) -> None:
    page = visit(at(view, 1))
    xs = page.eval_on_selector_all(".dots circle", "all => all.map(e => Number(e.getAttribute('cx')))")
    low, high = page.eval_on_selector(".dots .interval", "e => [e.x1.baseVal.value, e.x2.baseVal.value]")
    assert len(xs) == 20
    assert sum(low - 8 <= x <= high + 8 for x in xs) == 20
    middle = sorted(xs)
    spread = (middle[14] - middle[5]) / (high - low)
    assert spread == pytest.approx({"airlines": 0.2, "gaussian": 0.305}[view], abs=0.05), "of the law of the noise"
    assert record(view, 1).noise_interval_95 == pytest.approx(half, abs=2)
    page.route("**/windows?*", lambda route: route.fulfill(json=of_a_later_law(route.fetch().json())))
    page.reload()
    page.wait_for_selector(".plot")
    assert page.query_selector(".dots") is None, "of a law that the page does not know"


@pytest.mark.slow
@pytest.mark.parametrize(("button", "ending"), [("csv", "csv"), ("json", "json")])
def test_a_window_is_downloaded(visit: Open, served: ServedReader, button: str, ending: str) -> None:
    page = visit(at("destinations", 1))
    with page.expect_download() as begun:
        page.click(f"#{button}")
    assert begun.value.suggested_filename == f"destinations-2026-03-02.{ending}"
    text = Path(begun.value.path()).read_text()
    newest = record("destinations", 1)
    if ending == "csv":
        found = {row["item"]: int(row["count"]) for row in csv.DictReader(text.splitlines())}
    else:
        found = {item["item"]: item["count"] for item in json.loads(text)["record"]["items"]}
    assert found == {item.item: item.count for item in newest.items}


@pytest.mark.slow
@pytest.mark.parametrize(("now", "said"), [("2026-03-08T12:00:00Z", "is due"), ("2026-03-09T01:01:00Z", "was due")])
def test_when_the_next_window_is_due(
    empty_page: Callable[..., Page], served: ServedReader, now: str, said: str
) -> None:
    page = empty_page()
    page.clock.set_fixed_time(now)
    page.goto(f"{served.url}#/public/destinations")
    page.wait_for_selector(".strip")
    assert f"The next window {said} at 9 Mar 2026, 01:00 UTC." in main(page)
    page.goto(f"{served.url}#/public/fresh")
    page.wait_for_selector("text=The first window has not ended yet")
    assert "The next window was due at 2 Mar 2026, 01:00 UTC." in main(page)


def of_a_later_law(answer: Any) -> Any:
    """Windows whose noise has a law that no page knows."""
    for window in answer["windows"]:
        window["record"]["noise"]["distribution"] = "a later law"
    return answer


# -- while one looks ------------------------------------------------------------------------------------------------


def test_sharpened_while_one_looks(look: Open, shop: Shop) -> None:
    page = look(shop.served, at("destinations", 0))
    assert "±60" in page.inner_text(".chips")
    assert page.query_selector(".lane .old") is None
    live(page)
    shop.sharpen(0)
    page.wait_for_selector(".lane .old")
    sharper = shop.record("destinations", 0)
    said = [f"{title}: more precise now, ±30 instead of ±60." for title in ("Destinations", "Leaders")]
    page.wait_for_selector("#say p >> nth=1", state="attached")
    assert spoken(page) == said
    least, most = sharper.interval(there(sharper.entry(sharper.items[0].item)))
    assert f"{least:,} to {most:,}" in page.inner_text(".bars")


@pytest.mark.slow
def test_an_earlier_interval_that_missed_is_told(look: Open, shop: Shop) -> None:
    shop.sharpen(0)
    page = look(shop.served, at("destinations", 0))
    page.route("**/windows?*", moved)
    page.reload()
    page.wait_for_selector("text=The earlier interval missed. About 1 of 20 does; the new one replaces it.")


def moved(route: Any) -> None:
    """Answer with a former interval somewhere else."""
    body = route.fetch().json()
    body["windows"][0]["before"]["intervals"]["ORD"] = [100, 200]
    route.fulfill(json=body)


def test_new_windows_and_refusals_come_by_the_stream(look: Open, shop: Shop) -> None:
    page = look(shop.served, "public/leaders")
    live(page)
    shop.day(1)
    page.wait_for_selector(".strip button >> nth=1")
    page.wait_for_selector("#say p >> nth=1", state="attached")
    assert spoken(page) == ["Destinations: new, 2 Mar 2026.", "Leaders: new, 2 Mar 2026."]
    assert page.get_attribute("#window", "aria-label") == "2 Mar 2026: released", "the newest"


@pytest.mark.slow
def test_a_window_that_is_taken_back_goes_from_the_page(look: Open, shop: Shop) -> None:
    shop.day(1)
    page = look(shop.served, "public/leaders")
    page.wait_for_selector(".strip button >> nth=1")
    live(page)
    shop.served.log.append("shop.releases.leaders.public", 0, topic_key(shop.record("leaders", 0)), None)
    page.wait_for_selector(".strip button >> nth=1", state="detached")
    assert page.get_attribute("#window", "aria-label") == "2 Mar 2026: released"


@pytest.mark.slow
def test_releases_that_were_made_anew_are_read_again(look: Open, shop: Shop) -> None:
    shop.day(1)
    page = look(shop.served, "public/leaders")
    page.wait_for_selector(".strip button >> nth=1")
    live(page)
    topic = "shop.releases.leaders.public"
    kept = [
        one for one in shop.served.log.read(shop.place(topic), 0) if one.key != topic_key(shop.record("leaders", 0))
    ]
    shop.served.log.delete(topic)
    shop.served.log.create(topic, 1)
    for one in kept:
        shop.served.log.append(topic, 0, one.key, one.value)
    page.wait_for_selector(".strip button >> nth=1", state="detached")
    live(page)
    shop.day(2)
    page.wait_for_selector(".strip button >> nth=1")


@pytest.mark.slow
@pytest.mark.parametrize("known", [["destinations"], []])
def test_a_view_that_is_new_gets_into_an_open_page(
    empty_page: Callable[..., Page], shop: Shop, known: list[str]
) -> None:
    topics = {f"shop.releases.{name}.public" for name in ("leaders", "destinations") if name not in known}
    for topic in topics:
        shop.served.log.delete(topic)
    shop.served.kill()
    shop.served.start()
    page = empty_page()
    page.clock.install()
    page.goto(shop.served.url)
    page.wait_for_selector(".strip" if known else "h1 >> text=Nothing to read yet")
    for topic in topics:
        shop.served.log.create(topic, 1)
    shop.day(1)
    passed = 0
    while page.locator("#views >> text=Leaders").count() == 0:
        assert (passed := passed + 1) <= 20, "seconds"
        page.clock.fast_forward(1000)
        page.wait_for_timeout(100)
    live(page)
    shop.day(2)
    page.wait_for_selector("#say >> text=/^leaders: new, 3 Mar 2026.$/i", state="attached")


def test_interrupted_and_mended(look: Open, shop: Shop) -> None:
    page = look(shop.served, "public/leaders")
    live(page)
    with shop.served.killed():
        page.wait_for_selector("#banner .bar")
        assert "What you see came until then; nothing of it is wrong." in page.inner_text("#banner")
        assert "ORD is first" in main(page)
        shop.day(1)
    page.click("#try")
    page.wait_for_selector("#banner .bar", state="detached")
    page.wait_for_selector(".strip button >> nth=1")


@pytest.mark.slow
def test_a_gateway_that_starts_is_waited_for(look: Open, shop: Shop) -> None:
    with shop.served.starting():
        page = look(shop.served, "public/leaders", wait="#banner .bar")
        assert "The gateway is starting." in page.inner_text("#banner")
        assert "Nothing has come yet." in main(page)
    page.wait_for_selector(".strip")
    live(page)


@pytest.mark.slow
def test_a_gateway_without_kafka_says_so_and_is_waited_for(look: Open, shop: Shop) -> None:
    with shop.served.silent_broker():
        shop.served.kill()
        shop.served.start(is_ready=False)
        page = look(shop.served, "public/leaders", wait="#banner .bar")
        assert "Kafka does not answer the gateway." in page.inner_text("#banner")
        assert "What you see" not in page.inner_text("#banner"), "nothing is seen"
    page.wait_for_selector(".strip")
    live(page)


# -- tokens ---------------------------------------------------------------------------------------------------------


def test_token_unknown_and_revoked(look: Open, shop: Shop) -> None:
    identifier, token = shop.served.token("public")
    with shop.served.closed():
        page = look(shop.served, wait="#token")
        page.fill("#token", "sdp_wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=This token is not known")
        page.fill("#token", token)
        page.keyboard.press("Enter")
        page.wait_for_selector(".strip")
        assert token not in page.url
        assert page.inner_text("#tokens") == "Sign out"
        assert page.evaluate("document.cookie") == ""
        live(page)
        assert "ORD" in page.content()
        revoke_token(shop.served.tokens, identifier)
        page.wait_for_selector("text=Your token was revoked.")
        assert "What was shown has been removed" in main(page)
        assert page.query_selector(".bars") is None
        assert "ORD" not in page.content()
        page.click("#tokens")
        page.wait_for_selector("#tokens >> text=Use a token")
        page.wait_for_selector("text=You need a token")


# -- files ----------------------------------------------------------------------------------------------------------


def test_vendored_files_are_those_of_the_list() -> None:
    listed = json.loads((STATIC / "vendor" / "README.json").read_text())["uPlot"]
    for name, digest in listed["sha256"].items():
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest


def test_no_inline_code_and_no_parsing_of_html() -> None:
    for file in STATIC.glob("*.*"):
        text = file.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org/2000/svg)", text
        ), file.name
    assert not re.search(r"<style|style=|<script>|\son\w+=", (STATIC / "index.html").read_text())


def test_keys_without_counts_are_listed_and_followed_as_shown_or_hidden(visit: Open) -> None:
    page = visit("public/names")
    page.click("#as-table summary")
    text = main(page)
    assert "Keys, without counts: 6" in text
    assert "shown" in text
    assert not re.search(r"[Ee]ach count|NaN|undefined|null", text)


def test_bins_of_users_say_what_a_bound_leaves_out(visit: Open) -> None:
    text = main(visit("public/spread"))
    assert re.search(r"A bound at the end of bin 1 leaves out \d+ to \d+ % of the keys of all", text)
    assert "NaN" not in text
