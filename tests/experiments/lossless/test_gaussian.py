from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from experiments.lossless.gaussian import Gaussian, Insertion, covariance, insertion
from stream_dp.errors import ParameterError

ONE = Fraction(1)
Vectors = Callable[[str], Any]
Form = dict[Any, Fraction]


def fractions(values: Sequence[str]) -> list[Fraction]:
    return [Fraction(value) for value in values]


def expected(entry: dict[str, Any], fine: str = "weight_on_Y_r") -> Insertion[Fraction]:
    return Insertion(Fraction(entry[fine]), Fraction(entry["weight_on_Y_l"]), Fraction(entry["variance"]))


@pytest.mark.parametrize("name", ["G01", "G02"])
def test_vectors_g01_g02_insertion_between_two_releases(analysis_vector: Vectors, name: str) -> None:
    vector = analysis_vector(name)
    given = {key: Fraction(value) for key, value in vector["inputs"].items()}
    law = insertion(given["rho"], given["rho_l"], given["rho_r"], given["Delta2_sq"])

    assert law == expected(vector["expected"])
    assert law.weight_fine * given["Y_r"] + law.weight_coarse * given["Y_l"] == Fraction(vector["expected"]["mean"])


def test_vector_g03_coarser_than_all(analysis_vector: Vectors) -> None:
    g03 = analysis_vector("G03")

    assert insertion(Fraction(g03["inputs"]["rho"]), None, Fraction(g03["inputs"]["rho_r"]), ONE) == expected(
        g03["expected"]
    )


def test_vector_g04_finer_than_all(analysis_vector: Vectors) -> None:
    g04 = analysis_vector("G04")

    assert insertion(Fraction(g04["inputs"]["rho"]), Fraction(g04["inputs"]["rho_l"]), None, ONE) == expected(
        g04["expected"], fine="weight_on_f"
    )


def test_vector_g05_a_repeated_parameter_returns_the_stored_value(analysis_vector: Vectors) -> None:
    g05 = analysis_vector("G05")
    rho, coarse, fine = (Fraction(g05["inputs"][name]) for name in ("rho", "rho_l", "rho_r"))

    assert insertion(rho, coarse, fine, ONE) == expected(g05["expected"])
    assert insertion(rho, coarse, None, ONE) == Insertion(Fraction(0), ONE, Fraction(0))


def steps_in(order: Sequence[Fraction]) -> tuple[list[list[Any]], dict[Fraction, Form]]:
    """Every step, and every release as a linear form in h and in the independent noise of each step."""
    held: dict[Fraction, Form] = {}
    steps = []
    for rho in order:
        coarse = max((other for other in held if other < rho), default=None)
        fine = min((other for other in held if other > rho), default=None)
        law = insertion(rho, coarse, fine, ONE)
        form: Form = {("noise", rho, law.variance): ONE}
        for weight, source in (
            (law.weight_fine, held[fine] if fine else {"h": ONE}),
            (law.weight_coarse, held[coarse] if coarse else {}),
        ):
            for name, coefficient in source.items():
                form[name] = form.get(name, Fraction(0)) + weight * coefficient
        held[rho] = form
        steps.append([rho, coarse or 0, fine or "inf", law.weight_fine, law.weight_coarse, law.variance])
    return steps, held


def covariance_of(one: Form, other: Form) -> Fraction:
    return sum((one[name] * other[name] * name[2] for name in one if name in other and name != "h"), Fraction(0))


def test_vector_g06_steps_of_four_orders(analysis_vector: Vectors) -> None:
    g06 = analysis_vector("G06")
    rhos = fractions(g06["inputs"]["rhos"])

    for order, rows in g06["expected"]["steps"].items():
        steps, _ = steps_in([rhos[int(index)] for index in order.split("-")])
        assert steps == [[x if x == "inf" else Fraction(x) for x in row] for row in rows]


def test_vector_g06_all_120_orders_give_the_same_covariance(analysis_vector: Vectors) -> None:
    g06 = analysis_vector("G06")
    rhos = fractions(g06["inputs"]["rhos"])
    wanted = [fractions(row) for row in g06["expected"]["covariance"]]

    assert [[covariance(a, b, ONE) for b in rhos] for a in rhos] == wanted
    for order in permutations(rhos):
        _, held = steps_in(order)
        assert all(held[rho]["h"] == 1 for rho in rhos)
        assert [[covariance_of(held[a], held[b]) for b in rhos] for a in rhos] == wanted


def test_interpolating_between_neighbours_that_are_not_the_nearest_breaks_the_joint_law() -> None:
    """A mutant: the marginal variances still look right."""
    quarter, half, double = Fraction(1, 4), Fraction(1, 2), Fraction(2)
    _, held = steps_in([double, quarter, half])
    law = insertion(ONE, quarter, double, ONE)
    mutant: Form = {("noise", ONE, law.variance): ONE}
    for weight, source in ((law.weight_fine, held[double]), (law.weight_coarse, held[quarter])):
        for name, coefficient in source.items():
            mutant[name] = mutant.get(name, Fraction(0)) + weight * coefficient

    assert covariance_of(mutant, mutant) == covariance(ONE, ONE, ONE)
    assert covariance_of(mutant, held[half]) != covariance(ONE, half, ONE)


def test_vector_g07_given_the_finest_release_the_data_do_not_matter(analysis_vector: Vectors) -> None:
    g07 = analysis_vector("G07")
    *rhos, finest = fractions(g07["inputs"]["rhos"])
    spread = covariance(finest, finest, ONE)
    regression = [covariance(rho, finest, ONE) / spread for rho in rhos]
    rest = [
        [covariance(a, b, ONE) - covariance(a, finest, ONE) * covariance(finest, b, ONE) / spread for b in rhos]
        for a in rhos
    ]

    assert regression == fractions(g07["expected"]["regression_weight_on_finest"])  # so the mean is Y_finest
    assert rest == [fractions(row) for row in g07["expected"]["conditional_covariance"]]


def test_vector_g08_the_best_estimate_from_any_set_is_its_finest_release(analysis_vector: Vectors) -> None:
    g08 = analysis_vector("G08")
    rhos = fractions(g08["inputs"]["rhos"])
    precision = inverse([[covariance(a, b, ONE) for b in rhos] for a in rhos])
    sums = [sum(row, Fraction(0)) for row in precision]

    assert precision == [fractions(row) for row in g08["expected"]["precision_matrix"]]
    assert [weight / sum(sums) for weight in sums] == fractions(g08["expected"]["gls_weights"])


def inverse(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    size = len(matrix)
    rows = [[*row, *(Fraction(int(i == j)) for j in range(size))] for i, row in enumerate(matrix)]
    for c in range(size):
        rows[c] = [value / rows[c][c] for value in rows[c]]
        for r in range(size):
            if r != c:
                rows[r] = [x - rows[r][c] * y for x, y in zip(rows[r], rows[c], strict=True)]
    return [row[size:] for row in rows]


def test_vector_g09_sharpening_averages_with_a_fresh_answer_of_the_difference(analysis_vector: Vectors) -> None:
    g09 = analysis_vector("G09")
    rhos = fractions(g09["inputs"]["rhos"])
    for rho, finer, row in zip(rhos, rhos[1:], g09["expected"]["rows"], strict=False):
        law = insertion(finer, rho, None, ONE)
        fresh = law.variance / law.weight_fine**2
        assert [law.weight_coarse, law.weight_fine, fresh, law.variance] == fractions(row)
        assert fresh == insertion(finer - rho, None, None, ONE).variance


def test_vector_g12_close_parameters_keep_their_accuracy_and_the_printed_form_loses_it(
    analysis_vector: Vectors,
) -> None:
    g12 = analysis_vector("G12")
    coarse, rho, fine = (g12["inputs"][name] for name in ("rho_l", "rho", "rho_r"))
    law = insertion(rho, coarse, fine, 1.0)
    printed = (1 - coarse / rho) * (1 / rho - 1 / fine) / (2 * (1 - coarse / fine))

    assert law.weight_fine == pytest.approx(g12["expected"]["weight_on_Y_r"], rel=1e-13, abs=0)
    assert law.weight_coarse == pytest.approx(g12["expected"]["weight_on_Y_l"], rel=1e-13, abs=0)
    assert law.variance == pytest.approx(g12["expected"]["variance"], rel=1e-13, abs=0)
    assert printed != pytest.approx(g12["expected"]["variance"], rel=1e-5, abs=0)


@pytest.mark.parametrize(
    ("rho", "coarse", "fine"),
    [(0.0, None, None), (-1.0, None, 2.0), (1.0, 2.0, None), (1.0, None, 1.0), (1.0, 0.0, 2.0)],
)
def test_parameters_in_the_wrong_order_are_refused(rho: float, coarse: float | None, fine: float | None) -> None:
    with pytest.raises(ParameterError, match="0 < coarse <= rho < fine"):
        insertion(rho, coarse, fine, 1.0)


def test_a_larger_rho_is_finer_and_its_density_narrower() -> None:
    family = Gaussian(4.0)
    x = np.linspace(-60, 60, 24001)

    assert family.is_finer(2.0, 1.0)
    for rho in (0.02, 0.5):
        density = family.density(rho, x)
        assert density.sum() * (x[1] - x[0]) == pytest.approx(1, abs=1e-8)
        assert (density * x * x).sum() * (x[1] - x[0]) == pytest.approx(4 / (2 * rho), rel=1e-6, abs=0)
