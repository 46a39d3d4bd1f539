from __future__ import annotations

import pytest

from experiments.common.chart import Line, log_linear_chart, log_log_chart


def drawn(*lines: Line, width: int = 12, height: int = 4) -> list[str]:
    return log_log_chart(lines, width=width, height=height).plain.split("\n")


def test_a_power_law_is_a_straight_line_between_marked_decades() -> None:
    assert drawn(Line("down", "red", [(1, 1000), (1000, 1)])) == [
        "1000 ┤⠑⠢⣀         ",
        " 100 ┤   ⠑⠢⣀      ",
        "  10 ┤      ⠉⠢⢄   ",
        "   1 ┤         ⠉⠢⢄ down",
        "     └┴───┴──┴───┴",
        "      1   10 100 1000",
    ]


def test_curves_that_end_in_one_row_share_its_margin() -> None:
    rows = drawn(Line("one", "red", [(1, 1), (10, 1)]), Line("two", "blue", [(1, 10), (10, 1.01)]))

    assert next(row for row in rows if "one" in row).endswith(" one, two")


def test_the_last_curve_gives_the_colour_where_curves_meet() -> None:
    chart = log_log_chart(
        [Line("a", "red", [(1, 1), (10, 10)]), Line("b", "blue", [(1, 1), (10, 10)])], width=9, height=3
    )
    styles = {str(span.style) for span in chart.spans if chr(0x2800) < chart.plain[span.start] <= chr(0x28FF)}

    assert styles == {"blue"}


@pytest.mark.parametrize("points", [[(5.0, 5.0)], [(5.0, 5.0), (5.0, 5.0)]])
def test_a_single_point_is_drawn(points: list[tuple[float, float]]) -> None:
    rows = drawn(Line("here", "red", points))

    assert sum(chr(0x2800) < sign <= chr(0x28FF) for row in rows for sign in row) == 1


def test_an_even_scale_is_marked_at_round_numbers() -> None:
    chart = log_linear_chart([Line("up", "red", [(1, 1.0), (10, 1.3), (100, 1.6)])], width=12, height=7)

    assert chart.plain.split("\n") == [
        "1.6 ┤          ⡠⠊ up",
        "1.5 ┤        ⢀⠔⠁ ",
        "1.4 ┤       ⡰⠁   ",
        "1.3 ┤     ⡠⠊     ",
        "1.2 ┤   ⢀⠜       ",
        "1.1 ┤ ⢀⠔⠁        ",
        "  1 ┤⡠⠊          ",
        "    └┴─────┴────┴",
        "     1     10   100",
    ]


@pytest.mark.parametrize("values", [(0.0, 0.0), (5.0, 5.0), (-3.0, 17.0), (0.001, 0.0012), (1.0, 1e6)])
def test_every_value_stands_between_the_marks_of_an_even_scale(values: tuple[float, float]) -> None:
    rows = log_linear_chart([Line("", "red", list(zip((1, 10), values, strict=True)))], width=9, height=9).plain
    marks = [float(row.split("┤")[0]) for row in rows.split("\n") if "┤" in row]

    assert min(marks) <= min(values) <= max(values) <= max(marks)
    assert 2 <= len(marks) <= 9
