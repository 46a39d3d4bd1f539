"""How `stream-dp ledger` shows the statement of a ledger: on a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stream_dp.accounting import Cost
from stream_dp.accounting.cost import ENTRIES
from stream_dp.cli.numbers import moment
from stream_dp.config.forecast import Forecast, forecast
from stream_dp.config.plan import Plan
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.records.models import Amount, PrivacyCost
from stream_dp.records.statement import LedgerStatement, Period

DIGITS = 4
CHART_MARGIN, WIDEST = 18, 72
STYLES = {"epsilon": "cyan", "delta": "magenta", "squares": "green", "rho": "yellow"}
_BARS = "▁▂▃▄▅▆▇█"


def page(plan: Plan, statement: LedgerStatement, width: int, earlier: Sequence[int] = ()) -> RenderableType:
    """One ledger in one period.

    Args:
        plan: the application.
        statement: what the entries tell.
        width: of the terminal.
        earlier: starts of earlier periods that the entries tell of.
    """
    account, period = statement.account, statement.account.period
    parts: list[RenderableType] = [
        Text(f"protects {account.population}: {_promise(statement)} a period, all views and audiences together", "dim"),
        _balance(statement),
        Text(""),
        _shares(statement),
        Text(""),
        *_views(plan, statement),
        Text(""),
        burn_down(statement, max(20, min(WIDEST, width - CHART_MARGIN))),
    ]
    if earlier:
        parts.append(Text(f"earlier periods, with --period: {', '.join(map(moment, earlier))}", "dim"))
    title = Text.assemble("ledger ", (account.name, "bold"), f", {moment(period.start_ms)} to {moment(period.end_ms)}")
    return Group(title, *(Padding(part, (0, 0, 0, 2)) for part in parts), Text(""))


def burn_down(statement: LedgerStatement, width: int) -> Text:
    """Draw what was left of each entry of the budget over the period: a row of bars, one for each slice of time."""
    period, entries = statement.account.period, _entries(statement)
    margin = max(map(len, entries), default=0)
    rows = Text()
    for name in entries:
        bars = "".join(_BARS[int(left * (len(_BARS) - 1))] for left in _lefts(statement, name, width))
        rows.append(f"{name:>{margin}} ").append(bars, STYLES[name]).append("·" * (width - len(bars)), "dim")
        rows.append(f" {_percent(getattr(statement.left, name), getattr(statement.budget, name))}\n")
    start, end = moment(period.start_ms), moment(period.end_ms)
    return rows.append(f"{'':{margin}} {start}{end:>{max(width - len(start), len(end) + 1)}}")


def _lefts(statement: LedgerStatement, name: str, width: int) -> list[Fraction]:
    """Return the part of an entry (0 to 1) left at the end of each slice of the period, up to the furthest window."""
    period, cap = statement.account.period, getattr(statement.budget, name)
    entries = [min(Fraction(1), getattr(left, name) / cap) for _, left in statement.history]
    spent = [before - after for before, after in pairwise([Fraction(1), *entries])]
    length_ms = period.end_ms - period.start_ms
    slices = [Fraction(0)] * width
    for (end_ms, _), share in zip(statement.history, spent, strict=True):
        slices[_slice(end_ms - period.start_ms, length_ms, width)] += share
    reached = _slice(statement.reached_ms - period.start_ms, length_ms, width) + 1
    lefts = list(accumulate(slices[:reached], lambda left, share: left - share, initial=Fraction(1)))
    return [min(max(left, Fraction(0)), Fraction(1)) for left in lefts[1:]]


def _slice(at_ms: int, length_ms: int, width: int) -> int:
    """Return the slice of the period that a window ends in; windows that end after the period are in the last one."""
    return min(-(-at_ms * width // length_ms), width) - 1


def as_json(plan: Plan, statement: LedgerStatement) -> dict[str, Any]:
    """The same for machines: exact numbers beside decimals."""
    account = statement.account
    views, lasts_ms = forecast(plan, statement)
    return {
        "ledger": account.name,
        "population": account.population,
        "period": account.period.model_dump(mode="json"),
        "promise": _dump(account.budget.cost),
        "budget": _dump(statement.budget),
        "spent": _dump(statement.spent),
        "left": _dump(statement.left, left=True),
        "spent_without_entry": _dump(statement.older),
        "spent_by": [
            {
                "view": view,
                "audience": audience,
                "windows": share.windows,
                "refused": share.refused,
                "charged": _dump(share.charged),
                "loss": _dump(share.loss),
            }
            for (view, audience), share in sorted(statement.shares.items())
        ],
        "affords": {
            "all_views_until_ms": lasts_ms,
            "all_views_until": moment(lasts_ms),
            "to_the_end": lasts_ms == account.period.end_ms,
            "views": {name: _forecast_json(view) for name, view in views.items()},
        },
        "history": [{"window_end_ms": time_ms, "left": _dump(left, left=True)} for time_ms, left in statement.history],
    }


def _forecast_json(view: Forecast) -> dict[str, Any]:
    return {
        "level": view.level,
        "window_costs_at_worst": _dump(view.cost),
        "kept": _dump(view.kept, left=True),
        "spent": _dump(view.spent),
        "left": _dump(view.left, left=True),
        "windows_afforded": view.windows,
        "windows_to_come": view.to_come,
        "until_ms": view.until_ms,
        "until": moment(view.until_ms),
    }


def _dump(cost: Cost, *, left: bool = False) -> dict[str, Any]:
    amount = Amount.down if left else Amount.up
    price = PrivacyCost(**{name: amount(value) for name, value in cost.entries(at_least=2)})
    return price.model_dump(mode="json", exclude_none=True)


def _entries(statement: LedgerStatement) -> list[str]:
    """What the budget counts."""
    return [name for name in ENTRIES if getattr(statement.budget, name)]


def _promise(statement: LedgerStatement) -> str:
    total = statement.account.budget.cost
    return f"(epsilon {decimal_up(total.epsilon, DIGITS)}, delta {decimal_up(total.delta, DIGITS)})"


def _balance(statement: LedgerStatement) -> Table:
    table = _table("", "budget", "spent", "left", "")
    for name in _entries(statement):
        budget, left = getattr(statement.budget, name), getattr(statement.left, name)
        table.add_row(
            Text(name, STYLES[name]),
            decimal_down(budget, DIGITS),
            decimal_up(getattr(statement.spent, name), DIGITS),
            decimal_down(left, DIGITS),
            _percent(left, budget),
        )
    return table


def _percent(left: Fraction, budget: Fraction) -> str:
    """What is left, rounded down as everywhere."""
    return f"{100 * left // budget} %"


def _shares(statement: LedgerStatement) -> Table:
    entries = _entries(statement)
    table = _table("spent by", "for", "windows", "refused", *entries, "epsilon alone" if "rho" not in entries else "")
    for (view, audience), share in sorted(statement.shares.items()):
        table.add_row(
            view,
            audience,
            str(share.windows),
            str(share.refused or "-"),
            *(_number(share.charged, name) for name in entries),
            _number(share.loss, "epsilon") if "rho" not in entries else "",
        )
    if statement.older != Cost.ZERO:
        older = (_number(statement.older, name) for name in entries)
        table.add_row("no entry tells by whom", "", "", "", *older, "", style="dim")
    return table


def _views(plan: Plan, statement: LedgerStatement) -> Iterator[RenderableType]:
    views, lasts_ms = forecast(plan, statement)
    entries = [name for name in _entries(statement) if any(getattr(view.cost, name) for view in views.values())]
    shares = _table("view", "", "kept for it", "spent", "left for it")
    table = _table("a window of", "level", *entries, "more", "to come", "until")
    for name, view in views.items():
        for at, entry in enumerate(entry for entry in entries if getattr(view.cost, entry)):
            kept, spent, left = (getattr(cost, entry) for cost in (view.kept, view.spent, view.left))
            each = decimal_down(kept, DIGITS), decimal_up(spent, DIGITS), decimal_down(left, DIGITS)
            shares.add_row("" if at else name, Text(entry, STYLES[entry]), *each)
        prices = (_number(view.cost, entry) for entry in entries)
        until = "the end" if view.windows >= view.to_come else moment(view.until_ms)
        table.add_row(name, view.level, *prices, str(view.windows), str(view.to_come), until)
    yield shares
    yield Text("")
    yield table
    if lasts_ms == statement.account.period.end_ms:
        reach = "pays for all views to the end of the period"
    elif any(view.paid for view in views.values()):
        reach = f"pays for all views for windows that begin before {moment(lasts_ms)}"
    else:
        reach = "does not pay for the next windows of all views"
    yield Text(f"Charged at worst, what is left {reach}.")


def _number(cost: Cost, name: str) -> str:
    value = getattr(cost, name)
    return decimal_up(value, DIGITS) if value else "-"


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        words = heading in {"", "spent by", "for", "view", "a window of", "level", "until"}
        table.add_column(heading, justify="left" if words else "right", overflow="fold")
    return table


def whole(plan: Plan, found: Mapping[Period, LedgerStatement]) -> dict[str, Any]:
    """All statement as one JSON object."""
    return {"ledgers": [as_json(plan, statement) for statement in found.values()]}
