"""The readers' page in Chromium: states, numbers, hostile keys, the policy, the keyboard, narrow screens."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser.conftest import serious_faults
from tests.browser.gateway_double import HOSTILE, STATIC, TOKEN, Double, Json, answer
from tests.support.chosen import kept_ordinary

pytestmark = pytest.mark.browser
Page = Any
Open = Callable[..., Page]
VIEWS = ("destinations", "leaders", "carriers", "airlines", "running-total", "most-flown", "small-places")


@pytest.fixture(scope="module")
def server() -> Iterator[Double]:
    double = Double()
    yield double
    double.drop()
    double.server.shutdown()
    double.server.server_close()


@pytest.fixture
def double(server: Double) -> Double:
    server.reset()
    return server


@pytest.fixture
def visit(empty_page: Callable[..., Page], double: Double) -> Open:
    """Open an address of the page."""

    def opened(address: str = "", wait: str = ".strip", **options: Any) -> Page:
        page = empty_page(**options)
        page.goto(f"{double.url}#/{address}")
        page.wait_for_selector(wait, timeout=15000)
        return page

    return opened


def main(page: Page) -> str:
    return re.sub(r"\s+", " ", page.inner_text("main"))


def record(double: Double, view: str, at: int = -1, audience: str = "public") -> Json:
    found: Json = double.views[audience][view]["records"][at]
    return found


def refused(release: Json, reason: str = "budget") -> Json:
    """A refusal of what comes after a release."""
    none = {"epsilon": {"exact": "1/5", "decimal": "0.2"}, "delta": {"exact": "0", "decimal": "0"}}
    kept = ("view", "audience", "kind", "edition", "window", "ledger", "level", "released")
    head = {name: release[name] for name in kept}
    number = {"revision": release["revision"] + 1, "privacy": {"period": release["privacy"]["period"]}, "items": []}
    return {**head, **number, "type": "refusal", "reason": reason, "requested": none}


def odd(double: Double) -> set[int]:
    """Give every release counts that occur nowhere else; return them."""
    counts, following = set(), 770_003
    for view in double.views["public"].values():
        for one in view["records"]:
            for item in one["items"]:
                item["count"] = following
                counts.add(following)
                following += 1013
    return counts


@pytest.mark.parametrize("view", kept_ordinary(["carriers"], VIEWS))
def test_every_count_has_its_interval_in_the_same_element(visit: Open, double: Double, view: str) -> None:
    counts = odd(double)
    page = visit(f"public/{view}")
    page.click("#as-table summary") if page.query_selector("#as-table") else None
    texts = page.evaluate(
        """() => [...document.querySelectorAll('*')].flatMap(e => [...e.attributes].map(a => a.name + ' ' + a.value)
             .concat([...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data)))"""
    )
    found = [text for text in texts for n in re.findall(r"\d{3},?\d{3}", text) if int(n.replace(",", "")) in counts]
    assert not [text for text in found if not re.search(r"\d to \d|at most \d", text)]
    if view != "small-places":
        assert re.search(r"[\d,]+ to [\d,]+", main(page))


@pytest.mark.slow
def test_states_in_words(visit: Open, double: Double) -> None:
    one = record(double, "leaders")
    double.views["public"]["leaders"]["records"].append(refused(one))
    lost = refused(record(double, "carriers"), "lost") | {"revision": 1}
    double.views["public"]["carriers"]["records"] = [*double.views["public"]["carriers"]["records"][:-1], lost]
    double.views["public"]["most-flown"]["records"] = [
        r for r in double.views["public"]["most-flown"]["records"] if r["type"] == "refusal"
    ]
    double.views["public"]["airlines"]["records"] = []
    empty = main(visit("public/small-places"))
    assert "Nothing stands out in this window" in empty
    assert "does not mean that there was nothing" in empty
    assert "97 % sure" in empty
    sharper = main(visit("public/leaders"))
    assert "A more precise version was refused" in sharper
    assert "Nothing was taken back" in sharper
    assert "It asked for ε 0.2" in sharper
    assert "they will not come back" in main(visit("public/carriers"))
    whole = main(visit("public/most-flown"))
    assert "This window was refused" in whole
    assert "A new budget begins with the next period" in whole
    assert "No window yet" in main(visit("public/airlines", wait=".card"))
    assert "There is nothing here that you may read" in main(visit("public/secret", wait=".card"))


@pytest.mark.slow
def test_kinds_in_words(visit: Open, double: Double) -> None:
    for one in double.views["public"]["carriers"]["records"]:
        one["complete"] = False
    assert "the next ones are too close to tell apart" in main(visit("public/carriers/2013-11-05..2013-12-03"))
    assert "in no order" in main(visit("public/most-flown"))
    assert "probably none" in main(visit("public/airlines")) or "0 to" in main(visit("public/airlines"))
    assert "may be lower than the one before" in main(visit("public/running-total"))
    leaders = main(visit("public/leaders/2013-11-05..2013-12-03"))
    assert "UA is first: 99 % sure (settled)" in leaders
    assert "The lead over all others is at least 32" in leaders
    assert "(not settled)" in leaders
    assert "3?" in leaders
    destinations = main(visit("public/destinations/2013-11-05..2013-12-03"))
    assert "More precise than before: ±22, was ±45" in destinations
    assert "A key is shown from 121 on. One with 143 or more would be shown" in destinations


def test_places_are_drawn_where_the_law_of_the_noise_is_known_and_estimates_beside_their_interval(
    visit: Open, double: Double
) -> None:
    page = visit("public/destinations/2013-11-05..2013-12-03?item=ORD")
    assert len(page.query_selector_all(".dots circle")) == 20
    for one in double.views["public"]["destinations"]["records"]:
        one["noise"]["distribution"] = "a later law"
    page = visit("public/destinations/2013-11-05..2013-12-03?item=ORD", wait=".plot")
    assert page.query_selector(".dots") is None
    page = visit("public/leaders")
    page.click("#combined summary")
    best, noise = (record(double, "leaders")[name] for name in ("items", "noise_interval_95"))
    count, estimate = best[0]["count"], round(float(best[0]["combined"]))
    said = (
        f"{best[0]['item']}: about {estimate}; {max(0, count - noise)} to {count + noise} by its count alone, 95 % sure"
    )
    assert said in main(page)


@pytest.mark.slow
def test_a_list_that_shows_its_first_keys_only(visit: Open, double: Double) -> None:
    """Of a catalogue and of a histogram; a run of top-k draws that the budget ended."""
    for view, window in (("airlines", ""), ("destinations", "/2013-11-05..2013-12-03")):
        for one in double.views["public"][view]["records"]:
            if one["type"] == "release" and len(one["items"]) > 3:
                one["items"] = one["items"][:3]
                one |= {"rank": 3, "two_sided_from": one["items"][-1]["count"] + 1}
        text = main(visit(f"public/{view}{window}"))
        assert "Only the 3 keys with the largest noisy counts are shown. No other key had a larger one." in text
        assert "the key on top is there partly because of its noise" in text
        assert "noise alone may have shown it" in text
        assert "not in the list" not in text
        assert "What changed since" not in text
        assert "all keys together" not in text
    for one in double.views["public"]["carriers"]["records"]:
        one |= {"paid": len(one["items"]), "complete": True}
    carriers = main(visit("public/carriers/2013-11-05..2013-12-03"))
    assert "The rest of the privacy budget paid for the first 5 of 5 keys." in carriers


@pytest.mark.slow
def test_another_edition_and_post_processing(visit: Open, double: Double) -> None:
    for one in double.views["public"]["destinations"]["records"][-6:]:
        one["edition"] = 2
    page = visit("public/destinations")
    assert "counted differently (edition 2)" in main(page)
    assert "has no interval of its own" not in main(page)
    page.check("#smooth")
    assert "It was not released, costs no privacy and has no interval of its own" in main(page)


def test_a_hostile_key_is_text(visit: Open, double: Double) -> None:
    for one in double.views["public"]["destinations"]["records"]:
        for item in one["items"][:1]:
            item["item"] = HOSTILE
    page = visit("public/destinations/2013-11-05..2013-12-03?item=" + "%3Cimg%20src%3Dx%3E")
    page.wait_for_timeout(200)
    assert HOSTILE in page.inner_text(".bars")
    assert page.query_selector("main img") is None
    assert "broken" not in page.title()


@pytest.mark.slow
def test_sharpened_while_one_looks(visit: Open, double: Double) -> None:
    records = double.views["public"]["destinations"]["records"]
    window = [r for r in records if r["window"]["start"].startswith("2013-11-05")]
    for one in window[1:]:
        records.remove(one)
    page = visit("public/destinations/2013-11-05..2013-12-03")
    assert "±45" in page.inner_text(".chips")
    assert page.query_selector(".lane .old") is None
    page.wait_for_selector("#live >> text=/^Live$/")
    made = answer(window)
    made["before"]["intervals"]["ORD"] = [600, 700]
    double.send("release", made)
    page.wait_for_selector(".lane .old", timeout=3000)
    assert page.inner_text("#say") == "Destinations: more precise now, ±22 instead of ±45."
    assert "400 to 444" in page.inner_text(".bars")
    assert "The earlier interval missed. About 1 of 20 does; the new one replaces it." in main(page)


def test_known_keys_have_two_sides_and_new_ones_are_marked(visit: Open, double: Double) -> None:
    one = record(double, "destinations")
    half, least = one["noise_interval_95"], one["two_sided_from"] - 1
    counts = [("KNOWN", {"count": least}), ("NEW", {"count": least, "new": True}), ("GONE", {"count": -half - 1})]
    one["items"] = [{"item": item, **rest} for item, rest in counts]
    one["catalogue"] = {"version": "0" * 16, "keys": 2}
    page = visit("public/destinations")
    known, new, gone = (row.inner_text() for row in page.query_selector_all(".bars li:not(.axis)"))
    assert f"{least - half} to {least + half}" in known
    assert f"at most {least + half}, new" in new
    assert "probably none" in gone
    assert len(page.query_selector_all(".lane .hid")) == 1
    assert "The 2 keys that were known before are always shown, and any other from" in main(page)


def test_new_windows_and_refusals_come_by_the_stream(visit: Open, double: Double) -> None:
    page = visit("public/leaders")
    page.wait_for_selector("#live >> text=/^Live$/")
    newest = record(double, "leaders")
    double.send("refusal", {"position": "5d1f09c2-8", "record": refused(newest), "state": "sharper_refused"})
    page.wait_for_selector("text=Nothing was taken back", timeout=3000)
    later = copy.deepcopy(newest) | {"revision": 1}
    length = newest["window"]["end_ms"] - newest["window"]["start_ms"]
    start = newest["window"]["end_ms"]
    later["window"] = {"start_ms": start, "end_ms": start + length, "start": "", "end": ""}
    before = len(page.query_selector_all(".strip button"))
    double.send("release", answer([later]) | {"state": "released"})
    page.wait_for_selector(f".strip button >> nth={before}")
    asked = next(path for path in double.asked if path.startswith("/v1/events"))
    assert "after=" in asked
    assert "leaders.5d1f09c2-7" in asked


@pytest.mark.slow
def test_interrupted_and_mended(visit: Open, double: Double) -> None:
    page = visit("public/leaders")
    page.wait_for_selector("#live >> text=/^Live$/")
    double.is_down = True
    double.drop()
    page.wait_for_selector("#banner .bar", timeout=3000)
    assert "What you see came until then; nothing of it is wrong." in page.inner_text("#banner")
    assert "UA" in main(page)
    double.is_down = False
    page.click("#try")
    page.wait_for_selector("#banner .bar", state="detached", timeout=5000)


def test_token_unknown_and_revoked(visit: Open, double: Double) -> None:
    double.needs_token = True
    page = visit(wait="#token")
    page.fill("#token", "sdp_wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=This token is not known")
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector(".strip")
    assert TOKEN not in page.url
    assert page.evaluate("document.cookie") == ""
    page.wait_for_selector("#live >> text=/^Live$/")
    double.send("bye", {"reason": "revoked"})
    page.wait_for_selector("text=Your token was revoked.")
    assert "What was shown has been removed" in main(page)
    assert page.query_selector(".bars") is None
    assert "ORD" not in page.content()


@pytest.mark.slow
def test_the_keyboard_moves_between_windows(visit: Open) -> None:
    page = visit("public/destinations")
    page.focus("#window")
    here = page.get_attribute("#window", "data-id")
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute("#window", "data-id") != here
    assert page.evaluate("document.activeElement.id") == "window"
    assert ".." in page.url
    page.keyboard.press("End")
    assert page.get_attribute("#window", "data-id") == here
    page.keyboard.press("Home")
    assert page.get_attribute("#window", "aria-label").startswith("1 Jan")


@pytest.mark.slow
def test_comparison_of_audiences(visit: Open) -> None:
    page = visit("public/destinations/2013-11-05..2013-12-03")
    page.click("#compare")
    page.wait_for_selector(".compare")
    text = page.inner_text(".compare")
    assert "±22" in text
    assert "±15" in text
    assert "400 to 444" in text


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_no_sideways_scrolling_on_narrow_screens(visit: Open, view: str) -> None:
    page = visit(f"public/{view}", viewport={"width": 320, "height": 600})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.slow
def test_every_button_and_field_has_a_name(visit: Open) -> None:
    page = visit("public/destinations/2013-11-05..2013-12-03")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, a, input, select')].filter(e => !(e.textContent.trim()
             || e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theme", "views"),
    [("light", VIEWS[:3]), *((theme, VIEWS) for theme in ("light", "dark"))],
)
def test_axe_finds_no_serious_fault(visit: Open, double: Double, theme: str, views: tuple[str, ...]) -> None:
    for address, wait in (
        *((f"public/{view}", ".strip") for view in views),
        ("public/destinations/2013-11-05..2013-12-03", ".bars"),
    ):
        page = visit(address, wait=wait, color_scheme=theme)
        for summary in page.query_selector_all("summary"):
            summary.click()
        assert not serious_faults(page), address
    page.click("#compare")
    page.wait_for_selector(".compare")
    assert not serious_faults(page)
    double.is_down = True
    double.drop()
    page.wait_for_selector("#banner .bar")
    assert not serious_faults(page)
    double.is_down, double.needs_token = False, True
    page = visit(wait="#token", color_scheme=theme)
    assert not serious_faults(page)
    page.fill("#token", "sdp_wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=This token is not known")
    assert not serious_faults(page)


@pytest.mark.slow
def test_axe_finds_a_fault_where_there_is_one(visit: Open) -> None:
    page = visit("public/leaders")
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert [fault.split(":")[0] for fault in serious_faults(page)] == ["button-name"]


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


def test_keys_without_counts_are_listed_and_followed_as_shown_or_hidden(visit: Open, double: Double) -> None:
    view = double.views["public"]["carriers"]
    view |= {"kind": "keys", "records": [one for one in view["records"] if one["revision"] == 1]}
    for at, one in enumerate(view["records"]):
        one |= {"kind": "keys", "items": [{"item": "AA"}, *([{"item": "rare"}] if at % 2 else [])]}
    page = visit("public/carriers?item=rare")
    page.click("#as-table summary")
    text = main(page)
    assert re.search(r"Keys, without counts: \d", text)
    assert "shown" in text
    assert "hidden" in text
    assert not re.search(r"Each count|NaN|undefined|null", text)
    assert page.title() != "broken"


def test_bins_of_users_say_what_a_bound_leaves_out(visit: Open, double: Double) -> None:
    view = double.views["public"]["carriers"]
    view["kind"] = "bounds"
    bins = [{"item": "1", "count": 400, "left_out": 30, "left_out_95": [25, 36]}, {"item": "more than 1", "count": 90}]
    for one in view["records"]:
        one |= {"kind": "bounds", "items": bins}
    text = main(visit("public/carriers"))
    assert "How many" in text
    assert text.count("leaves out 25 to 36 %") == 1
    assert "NaN" not in text
