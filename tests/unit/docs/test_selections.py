"""docs/selections.md says what the code computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.subset import numbers as subset_numbers
from experiments.subset.profiles import Profile
from tests.support.chosen import ordinarily

TEXT = (Path(__file__).parents[3] / "docs" / "selections.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("k", ordinarily(1, [10, 100]))
def test_the_table_of_budgets_is_what_the_code_computes(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_numbers, "CURVE_POINTS", 2)
    profile = Profile.of(subset_numbers.scores("netflix-like", None), k)
    one = subset_numbers.compare("netflix-like", profile, 1, np.random.default_rng(1))

    assert one.factor is not None
    needed = " | ".join(f"{value:.3g}" for value in one.almost_sure.values())
    assert f"| {k} | {needed} | {one.factor:.3g} | {one.label} |" in TEXT
