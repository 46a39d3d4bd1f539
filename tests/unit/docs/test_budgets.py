"""docs/budgets.md says what the code computes."""

from __future__ import annotations

import doctest
import re
from fractions import Fraction
from pathlib import Path

import pytest

from experiments.topk import numbers as topk_numbers
from experiments.topk.pay_what_you_get import pay_what_you_get
from stream_dp.accounting.composition import discrete_laplace_rho, rho_within
from stream_dp.accounting.rounding import exp_up
from stream_dp.config.explanation import describe
from stream_dp.config.planner import load_plan

DOCUMENT = Path(__file__).parents[3] / "docs" / "budgets.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_examples_in_the_document_run() -> None:
    results = doctest.testfile(str(DOCUMENT), module_relative=False)

    assert (results.failed, results.attempted) == (0, 22)


def test_the_table_of_a_month_is_what_the_code_computes() -> None:
    rows = [
        line.split("|")[1:-1] for line in TEXT.splitlines() if "daily, " in line or ", 720" in line or ", 8,640" in line
    ]
    table = [[cell.strip() for cell in row] for row in rows]
    months = [
        *topk_numbers.pooled_months(pay_what_you_get=False),
        *topk_numbers.pooled_months(pay_what_you_get=True),
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
    epsilon, delta = Fraction("0.0099"), Fraction("2.5e-10")
    each = exp_up(-Fraction("0.0156") / 5)  # the noise of one of a user's five counts

    pool, of_draw = rho_within(Fraction("2.99"), Fraction("6e-7")), epsilon**2 / 8
    of_counts = 5 * discrete_laplace_rho(each)
    assert draws * of_draw + windows * of_counts <= pool
    assert draws * delta <= Fraction("0.01")
    assert windows * delta + Fraction("6e-7") <= Fraction("1e-6")
    at_worst = int(pool / (10 * of_draw + of_counts))
    assert f"{at_worst:,} of 1,440" in TEXT


@pytest.mark.parametrize("share", ["1/4", "3/4"])
def test_half_of_delta_for_slack_is_near_the_best_choice(share: str, monkeypatch: pytest.MonkeyPatch) -> None:
    half = topk_numbers.month(720, 7200).lead[None]
    monkeypatch.setattr(topk_numbers, "SLACK", Fraction(share) * topk_numbers.TOTAL.delta)

    assert 0 < topk_numbers.month(720, 7200).lead[None] / half - 1 < Fraction(3, 200)


def test_the_hardened_draws_and_the_account_of_the_paper_cost_what_the_document_says() -> None:
    draws, slack = 86_400, topk_numbers.SLACK
    found = topk_numbers.month(8_640, draws).parameters
    statement = pay_what_you_get(draws, 8_640, found.epsilon, found.delta, slack)

    assert f"{float(statement.hardened.epsilon - statement.printed.epsilon):.0e}" == "5e-06"
    assert f"{float(statement.printed.epsilon):.1f}" == "3.9"
    assert "5e-6 for 86,400 draws" in TEXT
    assert "3.9 for the 86,400 draws" in TEXT


def test_the_configuration_in_the_document_affords_what_it_says(tmp_path: Path) -> None:
    _, written = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "site.yaml"
    file.write_text(
        "name: site\nbroker: memory://\ndata_dir: ./state\nkey_file: ./site.key\n"
        "sources:\n  reads: {topic: reads, partitions: 4}\n" + written
    )
    (ledger,) = describe(load_plan(file, {})).ledgers

    (share,) = ledger.shares
    assert (share.windows_afforded, share.windows_asked) == (1205, 1440)
    assert "1,205 of 1,440" in TEXT
