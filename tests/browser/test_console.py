"""The operators' page in Chromium, on the console itself: parts, tuning, consent, grants, tokens, narrow screens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.control.editions import next_record
from stream_dp.gateway.tokens import revoke_token
from stream_dp.gateway.web import STATIC
from stream_dp.operations.assignments import tuned
from stream_dp.runtime.embedded import MemoryClient
from stream_dp.runtime.kafka.control_topic import post_accepted, read_accepted
from tests.browser import air, checks
from tests.browser.conftest import PATIENCE_MS
from tests.browser.served_console import Served, served
from tests.browser.states import opened

pytestmark = pytest.mark.browser
STANDARD = '[id="tune-levels.standard.epsilon"]'
Page = Any
Open = Callable[..., Page]


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as one:
        yield one


@pytest.fixture
def visit(empty_page: Callable[..., Page]) -> Open:
    """Open the page with a token."""

    def opened(console: Served, token: str | None = None, wait: str = "#meaning h3", **options: Any) -> Page:
        page = empty_page(**options)
        page.goto(console.url)
        page.fill("#token", console.token if token is None else token)
        page.keyboard.press("Enter")
        page.wait_for_selector(wait)
        return page

    return opened


def text(page: Page, selector: str = "main") -> str:
    return re.sub(r"\s+", " ", page.inner_text(selector))


def choose(page: Page, view: str) -> None:
    page.select_option("#tune-view", view)
    settled(page)


def settled(page: Page) -> None:
    """Wait until the numbers are those of the last movement."""
    page.wait_for_selector("#tiles:not(.stale) .tile")


def move(page: Page, slider: str, steps: int) -> None:
    page.focus(slider)
    for _ in range(abs(steps)):
        page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")


def until(page: Page, holds: Callable[[], bool]) -> None:
    """Wait for something that is not on the page."""
    for _ in range(PATIENCE_MS // 50):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not within {PATIENCE_MS} ms")


def others_post(console: Served, note: str = "theirs") -> None:
    """Somebody else changes a setting."""
    client = MemoryClient(console.log)
    known = air.run(read_accepted(console.plan, client))
    wanted = tuned(console.plan, "airlines", ["items_per_user=2"])
    begins = dict.fromkeys(("airlines", "busiest"), air.NOW + 10 * air.WEEK)  # they share the budget
    record = next_record(known, wanted, begins, {}, air.now_ms(), note)
    assert air.run(post_accepted(console.plan, client, record))


@pytest.mark.slow
def test_every_part_is_shown_and_text_of_notes_is_text(visit: Open, console: Served) -> None:
    page = visit(console)
    shown = text(page)
    assert "What needs you" in shown
    assert "Budget planes pays for all views until 11 Feb 2014, 14 days before its period ends." in shown
    assert "Workers are ready and every partition has one. No view is late. No records were lost." in shown
    assert "Left 25 % of epsilon" in shown
    assert "All views are paid until 11 Feb 2014 the period ends 25 Feb 2014" in shown
    assert re.search(r"busiest ε 2\.801 ε 0\.7999 2 of 4 11 Feb 2014", shown)
    assert "window of 2013-12-31 unlocked to standard for public" in shown
    assert "public sees standard" in shown
    assert "Take back" in shown
    assert "partner 2, public 2" in text(page, "#refusals")
    assert "air-one ready 0, 1" in text(page, "#runs")
    assert "Exact: for operators only." in text(page, "#runs")
    page.click("#counters summary")
    assert "334,996" in text(page, "#counters")
    page.click("#steps-planes summary")
    assert "10 Dec 2013 90.7 %" in text(page, "#steps-planes")
    assert air.HOSTILE in page.inner_text("#history")
    assert page.query_selector("main img") is None
    assert page.title() == "air · stream-dp"


@pytest.mark.slow
def test_all_is_well_is_said_and_then_a_problem_comes_by_the_stream(visit: Open, tmp_path: Path) -> None:
    with served(tmp_path, epsilon="9") as console:
        page = visit(console)
        assert "All is well." in text(page, "#part-now")
        assert "Every budget lasts to the end of its period." in text(page, "#part-now")
        air.say(console.log, air.report(reported_ms=air.now_ms() - 60_000))
        page.wait_for_selector(".todo .bad")
        assert "has not reported for" in text(page, ".todo")
        assert "All is well" not in text(page, "#part-now")


def test_error_and_price_move_with_sliders_and_a_plan_is_agreed_to(visit: Open, console: Served) -> None:
    page = visit(console)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    choose(page, "small-places")
    assert "Right to within, 95 % (standard) ±30" in text(page, "#tiles")
    assert "hidden" in text(page, "#meaning")
    assert page.is_disabled("#show-plan")
    move(page, STANDARD, 1)
    move(page, "#tune-items_per_user", -1)
    move(page, '[id="tune-window.size"]', 1)
    settled(page)
    assert re.search(r"±10 ▼ was ±30 A key is shown from 63 ▼ was 193", text(page, "#tiles"))
    assert re.search(r"ε 0\.02143 ▼ was ε 0\.02858", text(page, "#tiles"))
    assert "100 shown 90 to 110" in text(page, "#meaning")
    page.wait_for_selector("#curve-table")
    page.click("#show-plan")
    plan = text(page, "#plan")
    assert "View small-places, from the window of 11 Feb 2014 on" in plan
    assert "window.size 7d → 14d" in plan
    assert "level standard ±30 → ±10" in plan
    assert "budget too small" in plan
    assert page.is_disabled("#apply")
    page.fill("#note", air.HOSTILE)
    page.check("#agreed")
    page.click("#apply")
    page.wait_for_selector("text=for a worker to accept them")
    air.accept(console.plan, console.log, 3)
    page.wait_for_selector("text=Not yet: air-one")
    air.say(console.log, air.report(settings=3))
    page.wait_for_selector("text=The worker uses settings 3.")
    posted = air.run(read_accepted(console.plan, MemoryClient(console.log)))[2]
    assert posted.note == air.HOSTILE
    assert posted.sections["views"]["small-places"]["window"]["size"] == "14d"
    assert posted.sections["ladders"]["totals"][1]["epsilon"] == "3/10"
    page.wait_for_selector("#history >> text=views.small-places.window.size")
    assert page.query_selector("main img") is None
    assert not [url for url in asked if "/views" in url or "/windows" in url]


@pytest.mark.slow
def test_a_fault_is_shown_at_its_slider_in_the_words_of_check(visit: Open, console: Served) -> None:
    page = visit(console)
    choose(page, "small-places")
    page.fill('[id="tune-levels.overview.epsilon-exact"]', "1/2")
    page.keyboard.press("Tab")
    page.wait_for_selector(".ctl .fault:not(:empty), #faults:not(:empty)")
    faults = [found.inner_text() for found in page.query_selector_all("#tune .fault, #tune .faults")]
    assert "epsilon" in " ".join(faults)
    assert page.is_disabled("#show-plan")
    assert "stale" in (page.get_attribute("#meaning", "class") or "")


@pytest.mark.slow
def test_one_question_at_a_time_and_answers_of_former_ones_are_dropped(visit: Open, console: Served) -> None:
    page = visit(console)
    choose(page, "small-places")
    page.wait_for_selector("#curve-table")
    held: list[Any] = []
    page.route("**/v1/plan", lambda route: held.append(route))  # noqa: PLW0108 - playwright wants a function
    move(page, "#tune-items_per_user", 1)
    until(page, lambda: len(held) == 1)
    move(page, "#tune-items_per_user", 1)
    page.wait_for_timeout(300)
    assert len(held) == 1
    assert json.loads(held[0].request.post_data)["assignments"] == ["items_per_user=3"]
    held[0].continue_()
    until(page, lambda: len(held) == 2)
    held[1].continue_()
    settled(page)
    assert page.input_value("#tune-items_per_user-exact") == "4"
    assert "±60" in text(page, "#tiles")


@pytest.mark.slow
def test_other_settings_that_came_first_are_shown_and_nothing_is_changed(visit: Open, console: Served) -> None:
    page = visit(console)
    move(page, STANDARD, -1)
    moved = page.input_value(f'{STANDARD[:-2]}-exact"]')
    settled(page)
    page.click("#show-plan")
    others_post(console)
    page.check("#agreed")
    page.click("#apply")
    page.wait_for_selector("#refused:not(:empty)")
    assert "Nothing was changed: settings 3 (theirs) were posted first." in text(page, "#refused")
    assert "views.airlines.items_per_user 1 → 2" in text(page, "#refused")
    assert len(air.run(read_accepted(console.plan, MemoryClient(console.log)))) == 3
    page.keyboard.press("Escape")
    page.wait_for_selector("#tune-items_per_user-exact[value='2']")
    assert page.input_value(f'{STANDARD[:-2]}-exact"]') == moved
    settled(page)
    assert re.search(r"±\d+ [▼▲] was ±\d+", text(page, "#tiles"))


@pytest.mark.slow
def test_settings_of_others_leave_what_was_moved_where_it_is(visit: Open, console: Served) -> None:
    page = visit(console)
    move(page, STANDARD, -1)
    moved = page.input_value(f'{STANDARD[:-2]}-exact"]')
    page.click("#tune-more summary")
    page.fill("#more", "ladders.counts.detailed=")
    settled(page)
    others_post(console)
    page.wait_for_selector("#tune-items_per_user-exact[value='2']")
    settled(page)
    assert page.input_value(f'{STANDARD[:-2]}-exact"]') == moved
    assert page.input_value("#more") == "ladders.counts.detailed="
    assert page.evaluate("document.activeElement.id") == "more"


@pytest.mark.slow
def test_a_plan_that_means_something_else_now_is_read_again(visit: Open, console: Served) -> None:
    page = visit(console)
    with page.expect_response("**/v1/plan") as answered:
        move(page, STANDARD, -1)
    now = answered.value.json() | {"plan": "other"}
    settled(page)
    bodies: list[Any] = []

    def refuse(route: Any) -> None:
        bodies.append(json.loads(route.request.post_data))
        body = {"type": "plan_changed", "title": "", "status": 409, "now": now}
        route.fulfill(status=409, content_type="application/problem+json", body=json.dumps(body))

    page.route("**/v1/settings", lambda route: refuse(route) if route.request.method == "POST" else route.continue_())
    page.click("#show-plan")
    page.check("#agreed")
    page.click("#apply")
    page.wait_for_selector("text=this is what the change means now")
    assert page.is_disabled("#apply")
    page.check("#agreed")
    page.click("#apply")
    page.wait_for_selector("#agreed:not(:checked)")
    assert [body["plan"] for body in bodies][1] == "other"


@pytest.mark.slow
def test_what_removes_something_asks_for_the_name_of_the_application(visit: Open, console: Served) -> None:
    page = visit(console)
    page.click("#tune-more summary")
    page.fill("#more", "ladders.counts.detailed=")
    settled(page)
    page.click("#show-plan")
    assert "This removes: level detailed of view airlines" in text(page, "#plan")
    page.check("#agreed")
    assert page.is_disabled("#apply")
    page.fill("#application", "air")
    page.click("#apply")
    page.wait_for_selector("text=for a worker to accept them")


@pytest.mark.slow
def test_a_token_to_look_sees_nothing_that_changes_something(visit: Open, console: Served) -> None:
    page = visit(console, console.looker, wait="#part-now .todo")
    assert "Your token is for looking only." in text(page)
    assert page.query_selector("#show-plan, #grant-new, [id^=back-]") is None
    assert page.query_selector("a[href='#tune']") is None
    assert page.query_selector(".todo a[href='#budgets']") is not None


@pytest.mark.slow
def test_a_grant_is_weighed_agreed_to_and_another_is_taken_back(visit: Open, console: Served) -> None:
    page = visit(console)
    page.click("#grant-new summary")
    page.select_option("#grant-level", "detailed")
    page.fill("#grant-at", "2001-01-01T00:00:00Z")
    page.click("#grant-weigh")
    page.wait_for_selector("#grant-said .faults")
    page.fill("#grant-at", "2100-06-01T00:00:00Z")
    page.check("#grant-views [value=busiest]")
    page.click("#grant-weigh")
    page.wait_for_selector("#grant-agree")
    assert "busiest: overview (±120) → detailed (±30)" in text(page, "#grant-said")
    assert page.is_disabled("#grant-give")
    page.check("#grant-agree")
    page.click("#grant-give")
    page.wait_for_selector("text=public sees detailed")
    page.wait_for_selector('[aria-label="Take back: public sees detailed"]')
    page.click('[aria-label="Take back: public sees standard"]')
    page.wait_for_selector('[aria-label="Take back: public sees standard"]', state="detached")


def test_interrupted_and_mended(visit: Open, console: Served) -> None:
    page = visit(console)
    page.wait_for_selector("#live:not(.off) >> text=Live")
    page.context.set_offline(True)
    console.end_streams()
    page.wait_for_selector("#banner .bar")
    assert "What you see came until then." in text(page, "#banner")
    assert "Budget planes" in text(page)
    page.context.set_offline(False)
    page.evaluate("document.querySelector('#try')?.click()")  # the page may have tried again already
    page.wait_for_selector("#banner .bar", state="detached")


@pytest.mark.slow
def test_token_unknown_and_revoked(visit: Open, console: Served) -> None:
    page = visit(console, "sdpo_wrong", wait="text=This token is not known")
    page.fill("#token", console.token)
    page.keyboard.press("Enter")
    page.wait_for_selector("#meaning h3")
    assert page.evaluate("document.cookie") == ""
    first = json.loads(console.file.read_text().splitlines()[0])["id"]
    revoke_token(console.file, first)
    page.wait_for_selector("text=Your token was revoked.")
    assert "What was shown has been removed" in text(page)
    assert "planes" not in page.content()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "size"), [(320, 100), (390, 100), (1280, 200), (640, 200)])
def test_nothing_is_cut_on_narrow_screens_and_in_large_text(
    visit: Open, console: Served, width: int, size: int
) -> None:
    page = visit(console, viewport={"width": width, "height": 700}, color_scheme="dark")
    page.evaluate("size => { document.documentElement.style.fontSize = `${size}%`; }", size)
    opened(page)
    page.wait_for_timeout(250)
    assert (checks.too_wide(page), checks.cut_off(page)) == ([], [])
    move(page, STANDARD, -1)
    settled(page)
    page.click("#show-plan")
    assert (
        page.evaluate("document.querySelector('#plan').scrollWidth - document.querySelector('#plan').clientWidth") <= 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_tabs_get_to_every_control(visit: Open, console: Served, width: int) -> None:
    page = visit(console, viewport={"width": width, "height": 900})
    page.wait_for_selector("#curve-table")
    opened(page)
    assert checks.unreached(page) == []
    move(page, STANDARD, -1)
    settled(page)
    page.click("#show-plan")
    page.wait_for_selector("#plan[open]")
    assert checks.unreached(page, "#plan") == []


@pytest.mark.slow
def test_every_button_and_field_has_a_name_and_keys_reach_the_plan(visit: Open, console: Served) -> None:
    page = visit(console, reduced_motion="reduce")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, a, input, select, textarea')].filter(e => !(e.textContent.trim()
             || e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML)"""
    )
    assert nameless == []
    move(page, STANDARD, -1)
    settled(page)
    said = page.inner_text("#say")
    assert "A day costs" in said
    move(page, "#tune-items_per_user", 1)
    settled(page)
    page.wait_for_function("said => document.getElementById('say').textContent !== said", arg=said)
    assert page.locator("#say p").count() == 1, "the newest answer takes the place of the one before"
    page.focus("#show-plan")
    page.keyboard.press("Enter")
    page.wait_for_selector("#plan[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#plan", state="detached")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_finds_nothing(visit: Open, console: Served, theme: str, width: int) -> None:
    options = {"color_scheme": theme, "viewport": {"width": width, "height": 900}, "reduced_motion": "reduce"}
    page = visit(console, **options)
    page.wait_for_selector("#curve-table")
    opened(page)
    assert checks.faults(page) == []
    held: list[Any] = []
    page.route("**/v1/plan", lambda route: held.append(route))  # noqa: PLW0108 - playwright wants a function
    move(page, STANDARD, -1)
    until(page, lambda: len(held) == 1)
    assert "stale" in (page.get_attribute("#tiles", "class") or "")
    assert checks.faults(page) == []
    held[0].continue_()
    settled(page)
    page.click("#show-plan")
    assert checks.faults(page) == []
    page.keyboard.press("Escape")
    page.context.set_offline(True)
    console.end_streams()
    page.wait_for_selector("#banner .bar")
    assert checks.faults(page) == []
    page.context.set_offline(False)
    page = visit(console, "sdpo_wrong", wait="text=This token is not known", **options)
    assert checks.faults(page) == []
    page = visit(console, console.looker, wait="#part-now .todo", **options)
    assert checks.faults(page) == []


def test_the_page_has_no_inline_code() -> None:
    assert not re.search(r"<style|style=|<script>|\son\w+=", (STATIC / "console.html").read_text())
