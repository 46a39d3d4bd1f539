"""`stream-dp ledger FILE`: what was spent, by whom, what is left, and how long it lasts; for operators."""

from __future__ import annotations

import json
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
from stream_dp.accounting.cost import ENTRIES
from stream_dp.cli.command_line import MOMENT, effective, run
from stream_dp.config.plan import Plan
from stream_dp.config.planning import load_plan
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.operations.ledger import outlook, read_ledgers, whole
from stream_dp.operations.numbers import moment
from stream_dp.records.statement import LedgerStatement, Period, periods_of
from stream_dp.runtime.kafka.client import Client

DIGITS = 4
MOST_APART = 7
"""Tables with more columns have one space between them, to fit 80 characters."""
CHART_MARGIN, WIDEST = 18, 72
STYLES = {"epsilon": "cyan", "delta": "magenta", "squares": "green", "rho": "yellow"}
_BARS = "▁▂▃▄▅▆▇█"


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--ledger", "name", metavar="NAME", help="Show this ledger only.")
@click.option("--period", "at_ms", type=MOMENT, help="Show the period of this day, not the newest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every period.")
def ledger(file: Path, name: str | None, at_ms: int | None, *, as_json: bool) -> None:
    """Show what the ledgers of the application that FILE describes have spent and have left.

    The first lines say whether each budget lasts. Below, for every ledger and period:

    \b
    * the budget, what is spent and what is left of it;
    * who spent it: by view, and by the audience that was the first to see so much. A release that only repeats what a
      finer audience has costs nothing. "Alone" is the cost of what an audience knows by itself;
    * what is reserved for each view (`share` in the file), what the view has spent, and what is left for it;
    * how many more windows that pays for at the present levels, charged at worst, and until when. A top-k usually costs
      less than at worst, and gets the rest back;
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
    file_plan = load_plan(file)

    async def read(client: Client) -> tuple[Plan, dict[Period, LedgerStatement]]:
        plan = (await effective(file_plan, client)).plan
        return plan, await read_ledgers(plan, client, name, at_ms)

    plan, statements = run(file_plan, read)
    if as_json:
        click.echo(json.dumps(whole(plan, statements), indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)
    periods = [*periods_of(statements).values()]
    for *_, newest in periods:
        console.print(verdict(plan, statements[newest]))
    for *earlier, newest in periods:
        console.print(page(plan, statements[newest], console.width, [period.start_ms for period in earlier]))


def verdict(plan: Plan, statement: LedgerStatement) -> Text:
    """Whether the budget of a ledger lasts, in a sentence.

    Args:
        plan: the application.
        statement: of the ledger in a period.
    """
    found, name, end = outlook(plan, statement), statement.account.name, moment(statement.account.period.end_ms)
    least = min(_entries(statement), key=lambda one: getattr(statement.left, one) / getattr(statement.budget, one))
    left = f"{_percent(getattr(statement.left, least), getattr(statement.budget, least))} of {least} left"
    if found.state == "whole":
        return Text.assemble(("OK", "bold green"), f": ledger {name} has {left}, enough for all views until {end}.")
    if found.state == "short":
        return Text.assemble(
            ("Budget short", "bold yellow"),
            f": ledger {name} has {left}. Windows of all views that begin before {moment(found.until_ms)} are paid "
            f"for; later ones may be refused until {end}.",
        )
    return Text.assemble(
        ("Budget exhausted", "bold red"),
        f": ledger {name} has {left}, not enough for the next windows of all views. Windows are refused until {end}.",
    )


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
        Group(
            Text(f"{account.population}: {_promise(statement)} per user per period, all views and audiences", "dim"),
            _balance(statement),
        ),
        _shares(statement),
        *_views(plan, statement),
        burn_down(statement, max(20, min(WIDEST, width - CHART_MARGIN))),
    ]
    if earlier:
        parts.append(Text(f"earlier periods, with --period: {', '.join(map(moment, earlier))}", "dim"))
    title = Text.assemble("ledger ", (account.name, "bold"), f", {moment(period.start_ms)} to {moment(period.end_ms)}")
    return Padding(Group(title, *(Padding(part, (0, 0, 1, 2), expand=False) for part in parts)), (1, 0, 0, 0))


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
    alone = [] if "rho" in entries else ["epsilon alone"]
    table = _table("spent by", "for", "windows", "refused", *entries, *alone)
    for (view, audience), share in sorted(statement.shares.items()):
        table.add_row(
            view,
            audience,
            str(share.windows),
            str(share.refused or "-"),
            *(_number(share.charged, name) for name in entries),
            *(_number(share.loss, "epsilon") for _ in alone),
        )
    if statement.older != Cost.ZERO:
        table.add_row("not recorded", "", "", "", *(_number(statement.older, name) for name in entries), style="dim")
    return table


def _views(plan: Plan, statement: LedgerStatement) -> Iterator[RenderableType]:
    views = outlook(plan, statement).views
    entries = [name for name in _entries(statement) if any(getattr(view.cost, name) for view in views.values())]
    shares = _table("view", "", "reserved", "spent", "left for it")
    table = _table("a window of", "level", *entries, "paid for", "to come", "until")
    for name, view in views.items():
        for at, entry in enumerate(entry for entry in entries if getattr(view.cost, entry)):
            kept, spent, left = (getattr(cost, entry) for cost in (view.kept, view.spent, view.left))
            each = decimal_down(kept, DIGITS), decimal_up(spent, DIGITS), decimal_down(left, DIGITS)
            shares.add_row("" if at else name, Text(entry, STYLES[entry]), *each)
        prices = (_number(view.cost, entry) for entry in entries)
        until = "end" if view.windows >= view.to_come else moment(view.until_ms)
        table.add_row(name, view.level, *prices, str(view.windows), str(view.to_come), until)
    yield shares
    yield table


def _number(cost: Cost, name: str) -> str:
    value = getattr(cost, name)
    return decimal_up(value, DIGITS) if value else "-"


def _table(*headings: str) -> Table:
    apart = 2 if len(headings) <= MOST_APART else 1
    table = Table(box=None, padding=(0, apart, 0, 0), pad_edge=False)
    for heading in headings:
        words = heading in {"", "spent by", "for", "view", "a window of", "level", "until"}
        table.add_column(heading, justify="left" if words else "right", overflow="fold")
    return table
