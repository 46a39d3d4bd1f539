"""The 20 equally likely places of a true number that the pages draw are quantiles of the noise in the record."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable
from typing import Any, get_args

import pytest

from stream_dp.gateway.web import STATIC
from stream_dp.records.models import Noise
from stream_dp.testing.application import WITHIN_SECONDS

COUNT = 500
RATIO = math.exp(-1 / 20)
LAPLACE = {"distribution": "discrete laplace", "ratio": {}, "scale": "20.0000000001"}
LAWS: dict[str, tuple[dict[str, Any], Callable[[int], float]]] = {
    "laplace": (LAPLACE, lambda k: RATIO ** abs(k)),
    "clamped": (
        {**LAPLACE, "distribution": "clamped discrete laplace", "largest_count": 9000},
        lambda k: RATIO ** abs(k),
    ),
    "truncated": (
        {**LAPLACE, "distribution": "truncated discrete laplace", "largest": 30},
        lambda k: RATIO ** abs(k) if abs(k) <= 30 else 0.0,
    ),
    "gaussian": (
        {"distribution": "discrete gaussian", "variance": {}, "scale": "20.0000000001"},
        lambda k: math.exp(-k * k / 800),
    ),
}


def test_every_law_that_a_record_may_name_is_tried_here() -> None:
    named = get_args(Noise.model_fields["distribution"].annotation)
    assert {noise["distribution"] for noise, _ in LAWS.values()} == {*named}


def places(release: dict[str, Any], count: int = COUNT) -> Any:
    """What `places` of the pages says."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    program = f"""
    const {{places}} = await import({json.dumps((STATIC / "model.js").as_uri())});
    console.log(JSON.stringify(places({json.dumps(release)}, {count})));
    """
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("law", LAWS)
def test_each_place_is_the_middle_of_a_twentieth_of_the_law(law: str) -> None:
    noise, weight = LAWS[law]
    weights = {k: weight(k) for k in range(-400, 401)}
    quantiles: list[int] = []
    whole, below = sum(weights.values()), 0.0
    for k, one in weights.items():
        below += one / whole
        while len(quantiles) < 20 and below >= (len(quantiles) + 0.5) / 20:
            quantiles.append(k)
    found = places({"noise": noise, "noise_interval_95": 60})
    assert len(found) == 20
    assert found == sorted(found)
    assert max(abs(place - COUNT - k) for place, k in zip(found, quantiles, strict=True)) <= 1


@pytest.mark.parametrize(
    "release",
    [
        {"noise": {**LAPLACE, "distribution": "a later law"}},
        {},
        {"noise": LAPLACE, "panes": 7},
        {"noise": LAPLACE, "blocks": 3},
        {"noise": LAPLACE, "within_95": 200},
    ],
    ids=["unknown law", "no law", "sum of panes", "sum of blocks", "chosen by its noise"],
)
def test_of_what_has_another_law_no_places_are_shown(release: dict[str, Any]) -> None:
    assert places({"noise": LAPLACE}) is not None
    assert places(release) is None


@pytest.mark.parametrize(("law", "count"), [("laplace", -1), ("clamped", 0)])
def test_a_count_that_was_cut_off_has_no_places(law: str, count: int) -> None:
    assert places({"noise": LAWS[law][0]}, count) is None
    assert places({"noise": LAWS[law][0]}, count + 1) is not None
