"""`stream-dp plan`: the page, JSON, the written file and the picture."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp.config.planner import load_plan
from tests.support.chosen import ordinarily
from tests.support.published import Call

SHOP = """\
name: shop
broker: kafka://127.0.0.1:1
data_dir: state
key_file: shop.key
sources: {orders: {topic: orders, partitions: 2, user: customer, time: {field: at, unit: iso}}}
ledgers: {customers: {population: customers, epsilon: 4, delta: "1e-5", period: 4w, start: 2024-01-01T00:00:00Z}}
ladders: {steps: [{level: standard, epsilon: 1}]}  # one level
audiences: {public: standard}
views: {products: {source: orders, item: product, kind: histogram, items_per_user: 2, delta: "1e-6", ledger: customers,
  ladder: steps, window: {size: 1w, start: 2024-01-01T00:00:00Z, clock: event}}}
"""
GRID = ("--grid", "epsilon=1/2,1,2", "--grid", "items_per_user=1,2")


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str | Path, ...]:
    """The first words of a command, about four weeks of 200 customers; no broker is at the address of the file."""
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)
    (tmp_path / "shop.yaml").write_text(SHOP, encoding="utf-8")
    rows = [
        f"c{user},{'tea' if user % 3 else 'coffee' if user % 2 else 'cocoa'},2024-01-{day:02}T12:00:00Z"
        for day in range(1, 29)
        for user in range(200)
        if (user + day) % 4 == 0
    ]
    (tmp_path / "orders.csv").write_text("\n".join(["customer,product,at", *rows]) + "\n", encoding="utf-8")
    return "plan", tmp_path / "shop.yaml", "--events", tmp_path / "orders.csv", "--until", "2024-02-01"


def test_the_page_marks_the_best_setting_and_says_that_it_is_raw(
    words: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    said = call(*words, *GRID, "--write", tmp_path / "best.yaml")

    assert said.code == 0, said.err
    first, *lines = said.out.splitlines()
    assert first == "computed from raw data: do not publish"
    (best,) = [line.split() for line in lines if line.startswith("*")]
    assert best[:5] == ["*", "1", "1", "100.0", "3.0"]
    assert [line.split()[-3:] for line in lines if line.split()[:2] == ["2", "1"]] == [["14d", "of", "28d"]]
    assert lines[-1] == (
        "Best: epsilon=1 items_per_user=1. An item needs about 15 users in a window to be shown half of the time."
    )
    written = (tmp_path / "best.yaml").read_text(encoding="utf-8")
    assert written == SHOP.replace("items_per_user: 2", "items_per_user: 1")
    assert load_plan(tmp_path / "best.yaml").views["products"].kind.least_shown(0) == 15
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.yaml", "orders.csv", "shop.yaml"]


POOLED = (
    ('epsilon: 4, delta: "1e-5",', 'epsilon: 4, delta: "1e-5", zcdp: {epsilon: "3.9", slack: "1e-6"},'),
    ("{level: standard, epsilon: 1}", '{level: standard, share: "1"}'),
)


def times_larger(times: Fraction) -> Callable[[re.Match[str]], str]:
    return lambda one: f'epsilon: "{float(Fraction(one[1]) * times):.6}"'


@pytest.mark.parametrize("pooled", ordinarily(1, [False, True]))
def test_a_needed_epsilon_suffices_for_the_recall_and_one_step_less_does_not(
    words: tuple[str, ...], call: Call, tmp_path: Path, pooled: bool
) -> None:
    text = SHOP
    for old, new in POOLED if pooled else ():
        text = text.replace(old, new)
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")
    asked = ("--recall", "0.99", "--error", "1", "--json")

    found = call(*words, *asked)

    (point,) = json.loads(found.out)["points"]
    needed = Fraction(point["needed"])
    recalls = []
    for times in (needed / 4, needed / 4 * Fraction(95, 100)):
        larger = re.sub(r'epsilon: "?([\d.]+)"?', times_larger(times), text)
        (tmp_path / "shop.yaml").write_text(larger, encoding="utf-8")
        (point,) = json.loads(call(*words, "--json").out)["points"]
        assert point["lasts_ms"] == point["period_ms"]
        recalls.append(point["recall"])
    assert recalls[0] >= 0.99 > recalls[1]


def test_the_page_says_what_a_recall_costs_or_that_it_is_out_of_reach(
    words: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    said = call(*words, "--recall", "0.99", "--error", "0.5", "--grid", "items_per_user=1,2")
    answer = " ".join(said.out.split())
    assert "A recall of 99% with a median error of at most 50% needs epsilon " in answer
    assert (
        "with items_per_user=1; the file promises 4. Then what is released may change the odds that a given user"
        in answer
    )
    text = SHOP.replace("kind: histogram", "kind: histogram, noise: discrete-gaussian")  # there is always some noise
    for old, new in POOLED:
        text = text.replace(old, new)
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")
    said = call(*words, "--recall", "1", "--error", "0")
    assert "is out of reach for a promise up to 64 times larger or smaller" in " ".join(said.out.split())
    said = call(*words, "--recall", "1", "--grid", "epsilon=1,2")
    assert said.code == 2


@pytest.mark.slow
def test_the_noise_of_the_file_does_not_matter_to_what_another_noise_needs(
    words: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    needed = []
    for noise in ("discrete-laplace", "discrete-gaussian"):
        text = SHOP.replace("kind: histogram", f"kind: histogram, noise: {noise}")
        for old, new in POOLED:
            text = text.replace(old, new)
        (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")
        said = call(*words, "--recall", "0.9", "--error", "1", "--grid", "noise=discrete-laplace", "--json")
        (point,) = json.loads(said.out)["points"]
        needed.append(point["needed"])
    assert needed[0] == needed[1] is not None


def test_a_grid_compares_laws_of_noise(words: tuple[str, ...], call: Call) -> None:
    laws = "discrete-laplace,truncated-laplace,discrete-gaussian"
    said = call(*words, "--grid", f"noise={laws}", "--grid", "epsilon=1/10", "--json")
    laplace, truncated, gaussian = json.loads(said.out)["points"]
    assert laplace["shown_from"] == 278
    assert truncated["shown_from"] == 218
    assert "give ledger 'customers' a pool" in gaussian["reason"]


def test_json_has_every_point_and_reasons(words: tuple[str, ...], call: Call) -> None:
    said = call(*words, "--grid", "epsilon=1,8", "--json", "--goal", "error")

    found = json.loads(said.out)
    assert (found["note"], found["view"]) == ("computed from raw data: do not publish", "products")
    one, other = found["points"]
    assert one == found["best"]
    assert (one["windows"], one["k"], one["false_keys"], one["shown_from"]) == (4, 10, 0, 30)
    assert one["lasts_ms"] == one["period_ms"] == 28 * 86_400_000
    assert "affords no window" in other["reason"]
    assert other["recall"] is None


def test_without_a_grid_the_file_is_computed_and_a_goal_may_be_met_by_nothing(
    words: tuple[str, ...], call: Call, tmp_path: Path
) -> None:
    said = call(*words, "--error", "0", "--write", tmp_path / "best.yaml")

    assert said.code == 1
    assert "No setting meets the goal (--goal, --error) with a budget that lasts a whole period." in said.out
    assert "no setting meets the goal, so nothing is written" in said.err
    assert not (tmp_path / "best.yaml").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--grid", "k"), "write KEY=VALUE,VALUE, such as k=5,10, not 'k'"),
        (("--grid", "k=1,,2"), "write KEY=VALUE,VALUE"),
        (("--grid", "levels.standard.epsilon=1"), "write a setting of the view, or epsilon"),
        (("--view", "product"), "did you mean 'products'?"),
        (("--audience", "staff"), "no audience is named 'staff'"),
        (("--source", "visits"), "name one of the views"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], call: Call, wrong: tuple[str, ...], message: str) -> None:
    said = call(*words, *wrong)

    assert said.code == 2
    assert message in said.err


def test_a_picture(words: tuple[str, ...], call: Call, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    assert call(*words, *GRID, "--figure", tmp_path / "plan.svg").code == 0

    picture = (tmp_path / "plan.svg").read_text(encoding="utf-8")
    assert "<svg" in picture
    assert call(*words, "--figure", tmp_path / "plan.doc").code == 1


def test_without_matplotlib_the_command_says_what_to_install(
    words: tuple[str, ...], call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    said = call(*words, "--figure", tmp_path / "plan.svg")

    assert said.code == 2
    assert "a picture needs matplotlib: pip install 'stream-dp[figures]'" in said.err


def test_two_views_are_split_and_both_are_written(words: tuple[str, ...], call: Call, tmp_path: Path) -> None:
    """The view that counts is meant; it is found by itself, since the other makes its list."""
    start = "start: 2024-01-01T00:00:00Z, clock: event"
    both = "source: orders, item: product, items_per_user: 1, share: 1/2, ledger: customers, ladder: steps"
    text = SHOP.partition("views:")[0].replace("epsilon: 1}", 'share: "1"}').replace("epsilon: 4", "epsilon: 8")
    text += f"""views:
  found: {{{both}, kind: histogram, delta: "1e-6", window: {{size: 1w, {start}}}}}
  counted: {{{both}, kind: catalogue, catalogue: {{from: found, audience: public}}, window: {{size: 1d, {start}}}}}
"""
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")

    said = call(*words, "--grid", "split=1/4,1/2,3/4", "--goal", "useful", "--write", tmp_path / "best.yaml")

    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert "users in a window of found to be shown half of the time" in " ".join(lines[-2:])
    rows = [line.replace("*", " ").split() for line in lines if "/4 " in line or "/2 " in line]
    best = max(rows, key=lambda row: float(row[-1]))[0]
    assert f"Best: split={best}." in said.out
    views = load_plan(tmp_path / "best.yaml").views
    assert (views["found"].share, views["counted"].share) == (Fraction(best), 1 - Fraction(best))
    assert call(*words, "--view", "found").code == 0
    assert (
        "give the view, and the one that its list is made of"
        in call(*words, "--view", "found", "--grid", "split=1/2").out
    )
