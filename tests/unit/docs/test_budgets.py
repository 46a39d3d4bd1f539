"""docs/budgets.md says what the code computes."""

from __future__ import annotations

import doctest
import re
from fractions import Fraction
from pathlib import Path

import pytest

from experiments.topk import numbers as topk_numbers
from experiments.topk.composition import NO_STEPS, compose
from experiments.topk.pay_what_you_get import pay_what_you_get, size
from stream_dp.accounting import Cost
from stream_dp.accounting.composition import discrete_laplace_rho, rho_within, squares_within
from stream_dp.accounting.rounding import exp_up
from stream_dp.config.explanation import describe
from stream_dp.config.planner import load_plan
from stream_dp.select.gumbel import TopKParameters, threshold

DOCUMENT = Path(__file__).parents[3] / "docs" / "budgets.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_examples_in_the_document_run() -> None:
    results = doctest.testfile(str(DOCUMENT), module_relative=False)

    assert (results.failed, results.attempted) == (0, 12)


def test_the_table_of_a_month_is_what_the_code_computes() -> None:
    rows = [
        line.split("|")[1:-1] for line in TEXT.splitlines() if "daily, " in line or ", 720" in line or ", 8,640" in line
    ]
    table = [[cell.strip() for cell in row] for row in rows]
    months = [
        *topk_numbers.proved_months(pay_what_you_get=False),
        *topk_numbers.proved_months(pay_what_you_get=True),
        *topk_numbers.laplace_months(),
    ]

    assert len(table) == len(months) == 9
    for (_, windows, draws, epsilon, any_items, one_item), month in zip(table, months, strict=True):
        assert windows == f"{month.schedule}, {month.windows:,}"
        assert draws == ("" if month.draws is None else f"{month.draws:,}")
        assert Fraction(epsilon.removesuffix(" a call")) == Fraction(f"{float(month.parameters.epsilon):.3g}")
        assert any_items == (f"{round(month.lead[None]):,}" if None in month.lead else "")
        assert one_item == f"{round(month.lead[1]):,}"


def test_the_worked_example_keeps_its_ledger() -> None:
    windows, draws = 1440, 8 * 1440
    epsilon, delta = Fraction("0.0066"), Fraction("2.5e-10")
    each = exp_up(-Fraction("0.0098") / 5)  # the noise of one of a user's five counts

    squares = squares_within(Fraction("2.2"), Fraction("3e-7"))
    assert draws * epsilon**2 <= squares
    assert windows * 5 * discrete_laplace_rho(each) <= rho_within(Fraction("0.79"), Fraction("3e-7"))
    assert draws * delta <= Fraction("0.01")
    assert windows * delta + 2 * Fraction("3e-7") <= Fraction("1e-6")
    at_worst = int(squares / (10 * epsilon**2))
    assert f"{at_worst:,} of 1,440" in TEXT


@pytest.mark.parametrize("share", ["1/4", "3/4"])
def test_half_of_delta_for_slack_is_near_the_best_choice(share: str) -> None:
    total = Cost(Fraction(3), Fraction("1e-6"))
    lead = [
        threshold(0, TopKParameters(10, 1000, (s := size(total, 7200, 720, part * total.delta)).epsilon, s.delta))[1]
        for part in (Fraction(1, 2), Fraction(share))
    ]

    assert abs(lead[1] / lead[0] - 1) < Fraction(1, 25)


def test_what_the_hardened_statement_and_the_tight_mean_change() -> None:
    slack = Fraction("5e-7")
    sizing = size(Cost(Fraction(3), Fraction("1e-6")), 86_400, 8_640, slack)
    statement = pay_what_you_get(86_400, 8_640, sizing.epsilon, sizing.delta, slack)
    tight = compose({sizing.epsilon: 86_400}, NO_STEPS, slack, tight_mean=True)

    assert f"{float(statement.hardened.epsilon - statement.printed.epsilon):.0e}" == "5e-06"
    assert f"{float(3 - tight.epsilon):.2f}" == "0.34"
    assert "5e-6 for 86,400 draws" in TEXT
    assert "by 0.34 of 3" in TEXT


def test_the_configuration_in_the_document_affords_what_it_says(tmp_path: Path) -> None:
    (written,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "site.yaml"
    file.write_text(
        "name: site\nbroker: memory://\ndata_dir: ./state\nkey_file: ./site.key\n"
        "sources:\n  reads: {topic: reads, partitions: 4}\n" + written
    )
    (ledger,) = describe(load_plan(file, {})).ledgers

    (share,) = ledger.shares
    assert (share.windows_afforded, share.windows_asked) == (1159, 1440)
    assert "1,159 of 1,440" in TEXT
