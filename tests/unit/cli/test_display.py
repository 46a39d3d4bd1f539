from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType

from stream_dp.cli.display import (
    Bars,
    Row,
    count_words,
    full_width,
    level_words,
    rest,
)

Make = Callable[..., Any]


def drawn(what: RenderableType, width: int) -> list[str]:
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_bar_is_solid_to_the_lower_end_of_the_interval_and_thin_to_the_upper_one() -> None:
    rows = [Row("home", (8, 12), "10"), Row("faq", (2, 6), "4"), Row("x", (-5, -1), "-3")]
    assert drawn(Bars(rows, scale=12), 20) == [
        "home ▆▆▆▆▆▆▆▆──── 10",
        "faq  ▆▆────        4",
        "x                 -3",
    ]


def test_every_line_has_the_width_of_the_screen_whatever_the_keys() -> None:
    rows = [Row("k" * 100, (1, 8), "7"), Row("日本", (1, 6), "5")]
    console = Console(width=60)
    lines = console.render_lines(Bars(rows, 8), pad=False)
    assert {sum(segment.cell_length for segment in line) for line in lines} == {60}


def test_a_narrow_screen_shortens_keys_then_leaves_out_the_bars_and_cuts_no_words() -> None:
    rows = [Row("a-rather-long-key", (8, 12), "10 ±2   was 12 ±4")]
    assert drawn(Bars(rows, 12), 38) == [
        "a-rather-long-… ▆▆▆─ 10 ±2   was 12 ±4",
    ]
    assert drawn(Bars(rows, 12), 30) == [
        "a-rather-lo… 10 ±2   was 12 ±4",
    ]
    narrow = drawn(Bars(rows, 12), 20)
    assert " ".join(" ".join(narrow).split()) == "a-rather-lo… 10 ±2 was 12 ±4"


def test_bar_of_a_key_that_noise_alone_may_have_shown_is_thin_from_one(release: Make) -> None:
    record = release({"home": 60, "faq": 45})
    assert record.minimum_count == 45 < record.two_sided_from <= 60
    rows = [Row(entry.item, record.interval(entry), str(entry.count)) for entry in record.items]
    assert drawn(Bars(rows, scale=70), 78) == [
        "home " + "▆" * 51 + "─" * 18 + "  60",
        "faq  ▆" + "─" * 53 + " " * 17 + "45",
    ]
    assert [count_words(record, entry) for entry in record.items] == ["60 ±9", "45 (1 to 54)"]


def test_full_width_reaches_the_upper_end_of_the_longest_bar(release: Make) -> None:
    record = release({"home": 60, "faq": 50})
    assert full_width(record) == 60 + record.noise_interval_95
    assert full_width(release({})) == 1


def test_words_of_a_histogram_name_level_noise_and_threshold(release: Make) -> None:
    record = release({"home": 60, "faq": 50, "about": 45})
    assert level_words(record) == f"coarse, epsilon 1/3, ±{record.noise_interval_95}"
    assert record.extent() == f"3 shown, from {record.minimum_count} up"
    assert (rest(record, 2), rest(record, 3)) == ("and 1 more", "")


def test_words_of_a_short_list_say_that_it_ended(release: Make) -> None:
    record = release({"cat": 60}, view="searches", complete=False)
    assert record.extent() == "1 of 3; the rest cannot be told apart"
