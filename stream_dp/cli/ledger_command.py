"""`stream-dp ledger FILE`: budget, spending and remaining budget of every ledger, for operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stream_dp.accounting import Cost
from stream_dp.cli.command_line import FILE, MOMENT, print_json, run_effective
from stream_dp.cli.display import indented, table
from stream_dp.config.forecast import Forecast
from stream_dp.config.plan import Plan
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.operations import budgets as operations
from stream_dp.records.statement import LedgerStatement, periods_of
from stream_dp.windows.durations import moment

DIGITS = 4
MOST_APART = 7
"""Tables with more columns have one space between them, to fit 80 characters."""
CHART_MARGIN, WIDEST = 18, 72
WORDS = {"", "spent by", "for", "view", "a window of", "level", "until"}
"""Headings of columns without numbers."""
STYLES = {"epsilon": "cyan", "delta": "magenta", "rho": "yellow"}
_BARS = "▁▂▃▄▅▆▇█"


@click.command()
@FILE
@click.option("--ledger", "name", metavar="NAME", help="Show this ledger only.")
@click.option("--period", "at_ms", type=MOMENT, help="Show the period of this day, not the newest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every period.")
def ledger(file: Path, name: str | None, at_ms: int | None, *, as_json: bool) -> None:
    """Show what the ledgers of the application that FILE describes have spent and have left.

    The first lines say whether each budget lasts. Below, for every ledger and period:

    \b
    * the budget, what is spent and what is left of it;
    * who spent it: by view, and by the audience that was the first to see so much. A release that only repeats what a
      finer audience has costs nothing. "Epsilon it sees" is the cost of what an audience sees, whoever paid for it;
    * what is reserved for each view (`share` in the file), what the view has spent, and what it can still use;
    * how many more windows that affords at the present levels, charged at worst, how many are to come in the period,
      and until when the budget lasts. A top-k usually costs less than at worst, and gets the rest back;
    * what was left over the period, as bars.

    Everything is read from the topic NAME-accounts. It has the costs of all audiences, so it is internal: this command
    needs READ on it, and is for operators. It needs no access to a worker. Spending whose entries are gone, as in a
    topic that was made again, is one line.

    \b
    stream-dp ledger app.yaml                      every ledger, its newest period
    stream-dp ledger app.yaml --period 2024-03-05  the period of that day
    stream-dp ledger app.yaml --json               for machines, all periods

    Exit codes: 0 done; 1 the broker does not answer, or there is no topic or entry; 2 no such ledger.
    """
    plan, statements = run_effective(file, lambda plan, client: operations.read_ledgers(plan, client, name, at_ms))
    if as_json:
        print_json({"ledgers": [operations.as_json(plan, statement) for statement in statements.values()]})
        return
    console = Console(highlight=False)
    periods = [*periods_of(statements).values()]
    for *_, newest in periods:
        console.print(verdict(plan, statements[newest]))
    for *earlier, newest in periods:
        console.print(page(plan, statements[newest], console.width, [period.start_ms for period in earlier]))


def verdict(plan: Plan, statement: LedgerStatement) -> Text:
    """Return how long the budget of a ledger lasts: the views that it stops first, the cause, and what to do.

    Args:
        plan: the application.
        statement: of the ledger in a period.
    """
    found, account = operations.outlook(plan, statement), statement.account
    end = moment(account.period.end_ms)
    least = min(_entries(statement), key=lambda one: getattr(statement.left, one) / getattr(statement.budget, one))
    share = _percent(getattr(statement.left, least), getattr(statement.budget, least))
    left = f"ledger {account.name} has {share} of {least} left"
    if found.state == "whole":
        return Text.assemble(("OK", "bold green"), f": {left}, enough for all views until {end}.")
    exhausted = found.state == "exhausted"
    head = ("Budget exhausted", "bold red") if exhausted else ("Budget short", "bold yellow")
    short = {name: view for name, view in found.views.items() if view.windows < view.to_come}
    first = [
        name for name, view in short.items() if (not view.windows if exhausted else view.until_ms <= found.until_ms)
    ]
    limits = {name: words for name in first if (words := _limit(plan, statement, name, short[name]))}
    whose = "Its" if len(first) == 1 else "Their"
    if not first and exhausted:
        lines = [f"{left}, not enough for the next windows of all views; some are refused until {end}"]
    elif not first:
        until = moment(found.until_ms)
        lines = [f"{left}, enough for windows of all views until {until}; later ones may be refused until {end}"]
    elif exhausted:
        lines = [f"view {name} is out of budget{limits.get(name, '')}" for name in first]
        lines.append(f"{whose} next windows are refused until {end}")
    else:
        ends = {name: moment(short[name].until_ms) for name in first}
        lines = [f"view {name} can pay for windows until {ends[name]}{limits.get(name, '')}" for name in first]
        lines.append(f"{whose} later windows may be refused until {end}")
    lines += [
        f"view {name} can pay for {view.windows} more at most"
        for name, view in short.items()
        if first and name not in first
    ]
    if first and (others := [name for name in found.views if name not in short]):
        lines.append(f"{'view' if len(others) == 1 else 'views'} {', '.join(others)} can pay to the end of the period")
    if first and len(limits) < len(first):
        lines.append(left)
    raised = f"Raise `share` of {', '.join(limits)}, or lower the cost of a window"
    lines.append(raised if limits else "A larger budget counts from the next period on")
    return Text.assemble(head, f": {lines[0]}.", *(f" {line[0].upper()}{line[1:]}." for line in lines[1:]))


def _limit(plan: Plan, statement: LedgerStatement, name: str, view: Forecast) -> str:
    """Return what a view has used of its `share`; empty if something else stops it first."""
    share = plan.views[name].share
    entry = min(dict(view.cost.entries()), key=lambda one: getattr(view.left, one) / getattr(view.cost, one))
    used, left = getattr(view.spent, entry), getattr(view.left, entry)
    if share is None or used + left < getattr(statement.budget, entry) * share:
        return ""
    return f": it has used {decimal_up(used, DIGITS)} of its share, {entry} {decimal_down(used + left, DIGITS)}"


def page(plan: Plan, statement: LedgerStatement, width: int, earlier: Sequence[int] = ()) -> RenderableType:
    """Return the page of a ledger in a period.

    Args:
        plan: the application.
        statement: of the ledger in the period.
        width: of the terminal.
        earlier: starts of earlier periods with entries.
    """
    account, period = statement.account, statement.account.period
    total = account.budget.cost
    promise = f"(epsilon {decimal_up(total.epsilon, DIGITS)}, delta {decimal_up(total.delta, DIGITS)})"
    whose = Text(f"{account.population}: {promise} per user per period, all views and audiences", "dim")
    chart = burn_down(statement, max(20, min(WIDEST, width - CHART_MARGIN)))
    parts: list[RenderableType] = [
        Group(whose, _balance(statement)),
        _shares(statement),
        *_views(plan, statement),
        Group(Text("left over the period (·: still to come)", "dim"), chart),
    ]
    if earlier:
        parts.append(Text(f"earlier periods, with --period: {', '.join(map(moment, earlier))}", "dim"))
    title = Text.assemble("ledger ", (account.name, "bold"), f", {moment(period.start_ms)} to {moment(period.end_ms)}")
    return Padding(Group(title, indented(*parts, below=1)), (1, 0, 0, 0))


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


def _entries(statement: LedgerStatement) -> list[str]:
    """Return the entries of the budget."""
    return [name for name, _ in statement.budget.entries()]


def _balance(statement: LedgerStatement) -> Table:
    rows = _table("", "budget", "spent", "left", "")
    for name, budget in statement.budget.entries():
        spent, left = getattr(statement.spent, name), getattr(statement.left, name)
        amounts = (decimal_down(budget, DIGITS), decimal_up(spent, DIGITS), decimal_down(left, DIGITS))
        rows.add_row(Text(name, STYLES[name]), *amounts, _percent(left, budget))
    return rows


def _percent(left: Fraction, budget: Fraction) -> str:
    """Return the share that is left, rounded down."""
    return f"{100 * left // budget} %"


def _shares(statement: LedgerStatement) -> Table:
    entries = _entries(statement)
    alone = [] if "rho" in entries else ["epsilon it sees"]
    rows = _table("spent by", "for", "windows", "refused", *entries, *alone)
    for (view, audience), share in sorted(statement.shares.items()):
        charged, loss = (_number(share.charged, name) for name in entries), _number(share.loss, "epsilon")
        rows.add_row(view, audience, str(share.windows), str(share.refused), *charged, *(loss for _ in alone))
    if statement.older != Cost.ZERO:
        rows.add_row("not recorded", "", "", "", *(_number(statement.older, name) for name in entries), style="dim")
    return rows


def _views(plan: Plan, statement: LedgerStatement) -> Iterator[RenderableType]:
    views = operations.outlook(plan, statement).views
    entries = [name for name in _entries(statement) if any(getattr(view.cost, name) for view in views.values())]
    shares = _table("view", "", "reserved", "spent", "can still use")
    paid = _table("a window of", "level", *entries, "affordable", "to come", "until")
    for name, view in views.items():
        for at, entry in enumerate(entry for entry in entries if getattr(view.cost, entry)):
            kept, spent, left = (getattr(cost, entry) for cost in (view.kept, view.spent, view.left))
            each = decimal_down(kept, DIGITS), decimal_up(spent, DIGITS), decimal_down(left, DIGITS)
            shares.add_row("" if at else name, Text(entry, STYLES[entry]), *each)
        prices = (_number(view.cost, entry) for entry in entries)
        until = "end" if view.windows >= view.to_come else moment(view.until_ms)
        paid.add_row(name, view.level, *prices, str(view.windows), str(view.to_come), until)
    yield from (shares, paid)


def _number(cost: Cost, name: str) -> str:
    value = getattr(cost, name)
    return decimal_up(value, DIGITS) if value else "-"


def _table(*headings: str) -> Table:
    return table(*headings, words=WORDS, apart=2 if len(headings) <= MOST_APART else 1)
