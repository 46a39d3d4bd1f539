"""Sparse releases against drawing every bin: exact laws on small domains, vectors H02 and H07, state and refusals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits, RecordedBits
from stream_dp.lossless.families.discrete_laplace import DiscreteLaplace, bridge_pmf, pmf, tail
from stream_dp.lossless.families.two_clocks import TwoClocks
from stream_dp.lossless.multiple_release import insert
from stream_dp.lossless.sparse import LadderSparse, SparseRounds, _appearing, _free_bins

F = Fraction
COARSE, FINE = F(1, 6), F(1, 12)
REACH = 14  # noise beyond it has together less than 10^-10
NEGLIGIBLE = F(1, 10**9)
LAPLACE = DiscreteLaplace()
NO_BITS = RecordedBits(b"")
Table = tuple[tuple[int, int], ...]


@cache
def joint(coarse: int, fine: int) -> Fraction:
    """P(noise at the coarse level, noise at the fine level)."""
    return pmf(FINE, fine) * bridge_pmf(FINE, COARSE, coarse - fine)


def sorted_items(shown: dict[int, Any]) -> tuple[tuple[int, Any], ...]:
    return tuple(sorted(shown.items()))


# ------------------------------------------------------------------------------------------------------ LadderSparse
@cache
def silent(count: int, thresholds: tuple[int, int]) -> Fraction:
    """P(a bin of this count is shown at neither level), dense."""
    return sum(
        joint(c, f)
        for c, f in product(range(-REACH, REACH), repeat=2)
        if count + c < thresholds[0] and count + f < thresholds[1]
    ) + F(0)


@pytest.mark.parametrize("family", [LAPLACE, TwoClocks()])
@pytest.mark.parametrize("thresholds", [(1, 1), (2, 1), (1, 3)])
def test_the_table_of_a_ladder_has_the_law_of_drawing_every_bin(
    every_number: Callable[..., Any], family: Any, thresholds: tuple[int, int]
) -> None:
    counts, bins = {1: 2, 0: 0}, 2
    ladder = [(COARSE, thresholds[0]), (FINE, thresholds[1])]

    law = every_number(lambda bits: sorted_items(dict(LadderSparse.close(family, counts, bins, ladder, bits).table)))

    def dense(table: tuple[tuple[int, tuple[int, int]], ...]) -> tuple[Fraction, Fraction]:
        probability = F(1)
        for bin_ in range(bins):
            count = counts.get(bin_, 0)
            if bin_ in dict(table):
                c, f = dict(table)[bin_]
                assert c >= thresholds[0] or f >= thresholds[1]
                probability *= joint(c - count, f - count)
            else:
                probability *= silent(count, thresholds)
        return probability, probability + NEGLIGIBLE

    assert law.agrees_with(dense, [(), ((0, (1, 1)),), ((1, (2, 2)),)])
    assert law.missing < F(1, 200)


def test_thresholds_that_show_half_the_domain_are_drawn_densely(every_number: Callable[..., Any]) -> None:
    ladder = [(COARSE, 0), (FINE, 0)]
    assert tail(COARSE, 0) + tail(FINE, 0) > 1
    law = every_number(lambda bits: sorted_items(dict(LadderSparse.close(LAPLACE, {}, 1, ladder, bits).table)))

    def dense(table: Table) -> Any:
        return joint(*table[0][1]) if table else (silent(0, (0, 0)), silent(0, (0, 0)) + NEGLIGIBLE)  # type: ignore[misc]

    assert law.agrees_with(dense, [()])
    assert law.missing < F(1, 100)


def test_one_level_is_the_one_shot_trick(every_number: Callable[..., Any]) -> None:
    """Lemma 5.5: the shown bins of a domain of three, one of them non-zero."""
    law = every_number(
        lambda bits: sorted_items(LadderSparse.close(LAPLACE, {2: 1}, 3, [(COARSE, 2)], bits).release(COARSE))
    )

    def dense(table: Table) -> Fraction:
        probability = F(1)
        for bin_, count in enumerate((0, 0, 1)):
            shown = dict(table).get(bin_)
            probability *= 1 - tail(COARSE, 2 - count) if shown is None else pmf(COARSE, shown - count)
        return probability

    assert law.agrees_with(dense, [(), ((2, 2),), ((0, 2), (1, 2))])
    assert law.missing < F(1, 50)


def test_t6_the_coarse_release_does_not_depend_on_the_fine_threshold(every_number: Callable[..., Any]) -> None:
    """Its exact law is that of its own level, whatever the finer level shows."""
    for fine_threshold in (1, 4):
        ladder = [(COARSE, 1), (FINE, fine_threshold)]
        law = every_number(
            lambda bits, ladder=ladder: sorted_items(
                LadderSparse.close(LAPLACE, {0: 1}, 2, ladder, bits).release(COARSE)
            )
        )

        def dense(table: Table) -> Fraction:
            probability = F(1)
            for bin_, count in enumerate((1, 0)):
                shown = dict(table).get(bin_)
                probability *= 1 - tail(COARSE, 1 - count) if shown is None else pmf(COARSE, shown - count)
            return probability

        assert law.agrees_with(dense, [(), ((0, 1),)])
        assert law.missing < F(1, 30)


def test_releases_of_a_ladder_are_look_ups() -> None:
    ladder = ((F(9, 10), 20), (F(4, 5), 9), (F(3, 5), 5))
    sparse = LadderSparse.close(TwoClocks(), {7: 30, 3: 1}, 5_000, ladder, KeyedBits(b"key", b"ladder"))

    assert list(sparse.table) == sorted(sparse.table)
    assert len(sparse.table) > 10
    for place, (level, threshold) in enumerate(ladder):
        shown = sparse.release(level)
        assert shown == {b: row[place] for b, row in sparse.table.items() if row[place] >= threshold}
        assert 7 in shown
    assert set(sparse.table) == {bin_ for level, _ in ladder for bin_ in sparse.release(level)}
    with pytest.raises(ParameterError, match="not a level of the ladder"):
        sparse.release(F(1, 2))


# ------------------------------------------------------------------------------------------------------ SparseRounds
def pattern(count: int, rounds: list[tuple[Fraction, int]], shown: list[int | None]) -> tuple[Fraction, Fraction]:
    """P(a bin of this count shows these readings in these rounds, None where it is hidden), dense."""
    probability = F(0)
    for c, f in product(range(-REACH, REACH), repeat=2):
        readings = [count + (c if level == COARSE else f) for level, _ in rounds]
        hidden = [None if y < threshold else y for y, (_, threshold) in zip(readings, rounds, strict=True)]
        if hidden == shown:
            probability += joint(c, f)
    return probability, probability + NEGLIGIBLE


@pytest.mark.parametrize(
    "rounds",
    [
        [(COARSE, 1), (FINE, 1)],
        [(FINE, 1), (COARSE, 2)],
        [(COARSE, 2), (COARSE, 1)],
        [(COARSE, 1), (COARSE, 2)],
    ],
    ids=["gradual", "backwards", "lower threshold", "higher threshold"],
)
def test_rounds_in_any_order_have_the_joint_law_of_drawing_every_bin(
    every_number: Callable[..., Any], rounds: list[tuple[Fraction, int]]
) -> None:
    counts, bins = {0: 1}, 2

    def run(bits: Any) -> tuple[Table, ...]:
        sparse = SparseRounds(LAPLACE, counts, bins)
        return tuple(sorted_items(sparse.release(level, threshold, bits)) for level, threshold in rounds)

    law = every_number(run, F(1, 2 * 10**5))
    known = cache(lambda count, *shown: pattern(count, rounds, list(shown)))

    def dense(tables: tuple[Table, ...]) -> tuple[Fraction, Fraction]:
        low = high = F(1)
        for bin_ in range(bins):
            ends = known(counts.get(bin_, 0), *(dict(table).get(bin_) for table in tables))
            low, high = low * ends[0], high * ends[1]
        return low, high

    assert law.agrees_with(dense, [((), ()), (((0, 2),), ((0, 2),)), ((), ((1, 2),))])
    assert law.missing < F(1, 10)


def only_of_this_round(sparse: Any, rounds: Any, bits: Any) -> Any:
    """Mutant: newcomers drawn without regard to their silence in the past."""
    newcomers = _appearing(sparse._family, rounds[-1:], sparse._bins - len(sparse._tracked), bits)
    for path in newcomers:
        for level, _ in rounds[:-1]:
            path[level] = insert(sparse._family, path, 0, level, bits)
    return newcomers


def without_redraw(sparse: Any, rounds: Any, bits: Any) -> Any:
    """Mutant: bins that contradict the silence of the past are dropped instead of drawn again."""
    appearing = _appearing(sparse._family, rounds, sparse._bins - len(sparse._tracked), bits)
    return [path for path in appearing if not any(int(path[level]) >= t for level, t in rounds[:-1])]


@pytest.mark.parametrize("mutant", [only_of_this_round, without_redraw])
def test_wrong_newcomers_are_told_apart(
    every_number: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., Any]
) -> None:
    """Negative controls: a bin that was hidden must have been below the threshold then, and gets all its chances."""
    rounds = [(COARSE, 1), (FINE, 1)]

    def run(bits: Any) -> tuple[Table, ...]:
        sparse = SparseRounds(LAPLACE, {}, 1)
        return tuple(sorted_items(sparse.release(level, threshold, bits)) for level, threshold in rounds)

    def dense(tables: tuple[Table, ...]) -> tuple[Fraction, Fraction]:
        return pattern(0, rounds, [dict(table).get(0) for table in tables])

    right = every_number(run)
    monkeypatch.setattr(SparseRounds, "_newcomers", mutant)
    wrong = every_number(run)

    assert right.agrees_with(dense)
    assert not wrong.agrees_with(dense)


def test_rounds_repeat_without_randomness_and_go_on_from_their_state() -> None:
    rounds = [(F(4, 5), 12), (F(9, 10), 25), (F(3, 5), 6)]
    counts = {5: 400, 8: 2}
    sparse = SparseRounds(TwoClocks(), counts, 3_000)
    bits = KeyedBits(b"key", b"rounds")
    first = [sparse.release(*round_, bits) for round_ in rounds]
    again = SparseRounds(TwoClocks(), counts, 3_000, rounds=sparse.rounds, paths=sparse.paths)

    for copy in (sparse, again):
        assert [copy.release(*round_, NO_BITS) for round_ in rounds] == first
    assert again.release(F(1, 2), 6, KeyedBits(b"key", b"4")) == sparse.release(F(1, 2), 6, KeyedBits(b"key", b"4"))
    assert all(5 in shown for shown in first)
    assert any(len(shown) > 1 for shown in first)
    for shown in first:
        assert list(shown) == sorted(shown)


def test_a_phantom_stays_what_it_was() -> None:
    """A bin shown by noise alone keeps its readings in later rounds, at lower thresholds and at other levels."""
    sparse = SparseRounds(TwoClocks(), {}, 400)
    bits = KeyedBits(b"key", b"phantom")
    shown = sparse.release(F(9, 10), 20, bits)
    assert shown
    for _ in range(3):
        more = sparse.release(F(9, 10), 19, bits)
        assert {bin_: more[bin_] for bin_ in shown} == shown
    paths = sparse.paths
    sparse.release(F(1, 2), 5, bits)
    assert all(sparse.paths[bin_][F(9, 10)] == paths[bin_][F(9, 10)] for bin_ in shown)


# ---------------------------------------------------------------------------------------------------- vectors, helpers
def test_vector_h02_first_appearances(vector: Callable[[str], Any]) -> None:
    """By the shipped kernels, level by level; in double precision, which is enough for nine digits."""
    h02 = vector("H02")
    levels = [F(a) for a in h02["inputs"]["ladder_a"]]
    thresholds = h02["inputs"]["thresholds_ge"]
    box = range(-250, 251)
    laws = [{z: float(pmf(a, z)) for z in box} for a in levels]
    first, hidden = [], dict(laws[0])
    for i, threshold in enumerate(thresholds):
        if i:
            coarse, fine = levels[i - 1], levels[i]
            bridge = [float(bridge_pmf(fine, coarse, k)) for k in range(501)]
            share = {z: hidden[z] / laws[i - 1][z] for z in hidden}
            hidden = {w: laws[i][w] * sum(share[z] * bridge[abs(z - w)] for z in share) for w in box}
        silent_before = sum(hidden.values())
        first.append(sum(p for z, p in hidden.items() if z >= threshold))
        if i:
            assert first[i] / silent_before == pytest.approx(h02["expected"]["p_first"][i], rel=1e-8)
        hidden = {z: p for z, p in hidden.items() if z < threshold}
    expected = h02["expected"]
    assert [float(LAPLACE.tail(a, t)) for a, t in zip(levels, thresholds, strict=True)] == pytest.approx(
        expected["tail"], rel=1e-9
    )
    assert float(sum(LAPLACE.tail(a, t) for a, t in zip(levels, thresholds, strict=True))) == pytest.approx(
        expected["sum_of_tails"], rel=1e-9
    )
    assert sum(first) == pytest.approx(expected["p_any"], rel=1e-8)
    assert [1e6 * p for p in first] == pytest.approx(expected["expected_phantoms_per_million_empty_bins"], rel=1e-8)
    h07 = vector("H07")["expected"]
    assert 1e6 * sum(first) == pytest.approx(h07["expected_kept"], rel=1e-8)
    assert 1e6 * expected["sum_of_tails"] == pytest.approx(h07["expected_candidates"], rel=1e-8)
    assert sum(first) / expected["sum_of_tails"] == pytest.approx(h07["keep_rate"], rel=1e-8)


def test_free_bins_are_distinct_uniform_and_free(every_coin: Callable[..., Any]) -> None:
    law = every_coin(lambda bits: tuple(_free_bins(2, 6, {0, 3}, bits)), F(1, 10**7))
    free = [1, 2, 4, 5]

    assert set(law.decided) == {(a, b) for a in free for b in free if a != b}
    assert law.agrees_with(lambda pair: F(1, 12))
    assert law.missing < F(1, 10**5)


# ----------------------------------------------------------------------------------------------------------- refusals
def test_t8_tails_of_more_than_one_are_refused_and_nothing_changes() -> None:
    sparse = SparseRounds(LAPLACE, {0: 3}, 100)
    bits = KeyedBits(b"key", b"t8")
    sparse.release(F(9, 10), 1, bits)
    before = sparse.paths
    with pytest.raises(ParameterError, match="too low"):
        sparse.release(F(4, 5), 0, bits)

    assert sparse.paths == before
    assert sparse.rounds == ((F(9, 10), 1),)
    assert sparse.release(F(9, 10), 1, NO_BITS)


def test_what_makes_no_sense_is_refused() -> None:
    bits = KeyedBits(b"key", b"refused")
    for refused in (
        lambda: LadderSparse.close(LAPLACE, {}, 10, [], bits),
        lambda: LadderSparse.close(LAPLACE, {}, 10, [(FINE, 3), (COARSE, 3)], bits),
        lambda: LadderSparse.close(LAPLACE, {}, 10, [(COARSE, 3), (COARSE, 4)], bits),
        lambda: LadderSparse.close(LAPLACE, {10: 1}, 10, [(COARSE, 3)], bits),
        lambda: LadderSparse.close(LAPLACE, {}, 10, [(COARSE, -1)], bits),
        lambda: LadderSparse.close(LAPLACE, {}, 10, [(F(1), 3)], bits),
        lambda: SparseRounds(LAPLACE, {-1: 1}, 10),
        lambda: SparseRounds(LAPLACE, {}, 10).release(COARSE, -1, bits),
    ):
        with pytest.raises(ParameterError):
            refused()


def test_state_of_other_counts_is_refused() -> None:
    with pytest.raises(StateError, match="other keys"):
        SparseRounds(LAPLACE, {1: 2}, 10, rounds=[(COARSE, 1)], paths={2: {COARSE: 4}})
