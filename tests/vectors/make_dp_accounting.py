"""Writes dp_accounting.json: what the PyPI package dp-accounting says about the events both can price.

Its pins (attrs < 24) do not go with those of this project, so it runs in an environment of its own, by hand:

    python3.11 -m venv dpa && dpa/bin/pip install dp-accounting==0.6.0
    dpa/bin/python tests/vectors/make_dp_accounting.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from math import exp, log, sqrt
from pathlib import Path

# mypy runs where the package is not: see above.
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.rdp import RdpAccountant

ORDERS = [1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 64.0]
GRID = [1 + n / 10 for n in range(1, 100)] + [*range(11, 64), 128, 256, 512, 1024]
DELTA = 1e-6


def renyi(event: dp_event.DpEvent, orders: list[float]) -> list[float]:
    """The Renyi curve of an event, read off one order at a time."""
    return [float(RdpAccountant([order]).compose(event)._rdp[0]) for order in orders]


def epsilon(event: dp_event.DpEvent) -> float:
    """Epsilon of an event at DELTA, over the grid of orders."""
    return float(RdpAccountant(GRID).compose(event).get_epsilon(DELTA))


def curves() -> dict[str, object]:
    """Renyi curves of the mechanisms with a closed form."""
    return {
        "gaussian": [
            {"noise_multiplier": sigma, "renyi": renyi(dp_event.GaussianDpEvent(sigma), ORDERS)}
            for sigma in (0.5, 1.0, 4.0)
        ],
    }


def sums() -> list[dict[str, object]]:
    """Epsilon of a year of windows: what a coalition that holds one level of each has learnt."""
    rows = []
    for sigma, windows in ((16.0, 12), (64.0, 365)):
        event = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(sigma), windows)
        rows.append({"noise": "gaussian", "parameter": sigma, "windows": windows, "epsilon": epsilon(event)})
    return rows


def deltas() -> list[dict[str, object]]:
    """Numerically tight deltas, by privacy loss distributions rounded upwards."""
    rows = []
    for eps0, windows, at in ((0.5, 1, 0.25), (0.25, 30, 5.0), (0.0625, 365, 6.0)):
        loss = pld.from_discrete_laplace_mechanism(eps0, value_discretization_interval=eps0 / 64)
        rows.append(
            {
                "noise": "discrete laplace",
                "parameter": eps0,
                "windows": windows,
                "epsilon": at,
                "delta": float(loss.self_compose(windows).get_delta_for_epsilon(at)),
            }
        )
    for sigma, windows, at in ((2.0, 1, 2.0), (8.0, 30, 3.0)):
        loss = pld.from_discrete_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
        rows.append(
            {
                "noise": "discrete gaussian",
                "parameter": sigma,
                "windows": windows,
                "epsilon": at,
                "delta": float(loss.self_compose(windows).get_delta_for_epsilon(at)),
            }
        )
    return rows


def zcdp() -> list[dict[str, float]]:
    """Epsilon of rho-zCDP, over orders that are dense around the best one."""
    rows = []
    for rho, at in ((0.001, 1e-7), (0.0625, 1e-6), (1.0, 1e-6), (8.0, 1e-9)):
        orders = [1 + sqrt(log(1 / at) / rho) * n / 2000 for n in range(200, 2001)]
        accountant = RdpAccountant(orders).compose(dp_event.ZCDpEvent(rho))
        rows.append({"rho": rho, "slack": at, "epsilon": float(accountant.get_epsilon(at))})
    return rows


def optimal() -> list[dict[str, object]]:
    """Optimal composition of pure DP: on a grid as wide as epsilon, no loss is rounded."""
    rows = []
    for eps, k in ((0.0625, 100), (0.25, 50), (0.5, 21)):
        loss = pld.from_privacy_parameters(DifferentialPrivacyParameters(eps, 0.0), value_discretization_interval=eps)
        composed = loss.self_compose(k, tail_mass_truncation=0)
        deltas = [float(composed.get_delta_for_epsilon((k - 2 * i) * eps)) for i in range(k // 2 + 1)]
        rows.append({"epsilon": eps, "k": k, "deltas": deltas})
    return rows


def general() -> list[dict[str, float]]:
    """The least epsilon of k mechanisms with an epsilon and a delta each, at the delta of Theorem 3."""
    rows = []
    for eps, delta, k, slack in ((0.125, 1e-9, 100, 1e-7), (0.03125, 1e-10, 1000, 1e-7), (0.5, 1e-8, 20, 1e-6)):
        loss = pld.from_privacy_parameters(DifferentialPrivacyParameters(eps, delta), eps / 4).self_compose(k)
        best = float(loss.get_epsilon_for_delta(k * delta + slack))
        rows.append({"epsilon": eps, "delta": delta, "k": k, "slack": slack, "total": best})
    return rows


def draw(eps: float) -> pld.PrivacyLossDistribution:
    """One item against bottom, as likely as each other in one table and e^eps in favour of the item in the other."""
    item = 1 / (1 + exp(-eps))
    return pld.from_two_probability_mass_functions(
        {"item": log(0.5), "bottom": log(0.5)},
        {"item": log(item), "bottom": log(1 - item)},
        value_discretization_interval=eps / 256,
    )


def selections() -> list[dict[str, object]]:
    """The least epsilon of such draws, alone and with measured counts, at delta = slack."""
    rows = []
    for draws, eps, counts, eps_count, slack in (
        (200, 0.0625, 0, 0.0, 1e-7),
        (1000, 0.03125, 0, 0.0, 1e-6),
        (200, 0.0625, 100, 0.0625, 1e-7),
    ):
        loss = draw(eps).self_compose(draws)
        if counts:
            noise = pld.from_laplace_mechanism(1 / eps_count, value_discretization_interval=eps / 256)
            loss = loss.compose(noise.self_compose(counts))
        rows.append(
            {
                "draws": {str(eps): draws},
                "counts": {str(eps_count): counts} if counts else {},
                "slack": slack,
                "total": float(loss.get_epsilon_for_delta(slack)),
            }
        )
    return rows


COMPOSITIONS: dict[str, Callable[[], object]] = {
    "zcdp": zcdp,
    "optimal": optimal,
    "general": general,
    "selections": selections,
}


def main() -> None:
    """Write the file beside this one."""
    document = {
        "package": f"dp-accounting {version('dp-accounting')}",
        "orders": ORDERS,
        "delta": DELTA,
        "curves": curves(),
        "sums": sums(),
        "deltas": deltas(),
        "compositions": {name: rows() for name, rows in COMPOSITIONS.items()},
    }
    Path(__file__).with_name("dp_accounting.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
