"""`stream-dp plan FILE --events HISTORY`: the accuracy to be expected over a grid of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.text import Text

from stream_dp.cli.command_line import FILE, print_json, write_new
from stream_dp.cli.display import table
from stream_dp.cli.feed_command import EVENTS, decide_on_outliers, surveyed
from stream_dp.cli.replay_command import reading_options
from stream_dp.config.explanation import odds_factor
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError, StateError
from stream_dp.exact.rationals import decimal_up, parse_exact
from stream_dp.operations import named, plain
from stream_dp.operations.events_file import FileSurvey
from stream_dp.operations.feed import FeedOptions
from stream_dp.operations.needed_epsilon import needed_epsilon
from stream_dp.operations.past_counts import EventColumns
from stream_dp.operations.past_events import PastEvents, open_past_events
from stream_dp.operations.what_if import (
    Goal,
    Point,
    Subject,
    best,
    changed_file,
    check_kind,
    finder,
    points,
    what_if,
)
from stream_dp.text_files import read_text
from stream_dp.windows.durations import format_duration

RAW = "computed from raw data: do not publish"
FIGURES = {"recall": "recall", "true keys": "true_keys", "false keys": "false_keys", "median error": "error"}
"""Panels of the figure."""


class GridValues(click.ParamType):
    """A setting and its values: `k=5,10`."""

    name = "KEY=VALUE,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[str]]:
        """Return the setting and the values, or fail."""
        key, sign, text = str(value).partition("=")
        if not key or not sign or not all(text.split(",")):
            self.fail(f"write KEY=VALUE,VALUE, such as k=5,10, not {str(value)!r}", param, ctx)
        if key.partition(".")[0] in ("views", "ladders", "levels", "audiences"):
            self.fail(f"write a setting of the view, or epsilon, not {key}", param, ctx)
        return key, text.split(",")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options that say what is computed of a plan, and where it goes."""

    view: str | None
    audience: str | None
    source: str | None
    write: Path | None
    figure: Path | None
    as_json: bool


@click.command()
@FILE
@click.option("--events", "history", required=True, type=EVENTS, help="The history, as `feed` reads it.")
@click.option("--view", help="The view. [default: the only one, or the one whose list the other makes]")
@click.option("--audience", help="Whose level is computed. [default: the one with the finest level]")
@click.option(
    "--grid",
    multiple=True,
    type=GridValues(),
    help="Values of a setting of the view, as `tune` takes it: k=5,10. `epsilon` is that of the level, `window` the "
    "size of a window. `split` is for a view whose list is made of releases: the part of the shares of both that the "
    "view gets that finds the keys. Several --grid are combined. Without any, the settings of FILE are computed.",
)
@click.option(
    "--goal",
    type=click.Choice(["true-keys", "useful", "error"]),
    default="true-keys",
    show_default=True,
    help="The best setting has the most true keys with a median error of at most --error; or the most useful counts, "
    "which are within 50 %; or the least median error.",
)
@click.option("--error", "most_error", type=click.FloatRange(min=0), default=0.1, show_default=True)
@click.option(
    "--recall",
    type=click.FloatRange(0, 1),
    help="Say also which epsilon the ledger would have to promise so that this share of the k most frequent keys is "
    "shown, with a median error of at most --error. All epsilons of the view grow or shrink alike.",
)
@click.option(
    "--write", type=click.Path(dir_okay=False, path_type=Path), help="Write FILE with the best setting to a new file."
)
@click.option(
    "--figure",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a picture, .svg or .png (needs stream-dp[figures]).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reading_options
def plan(
    file: Path,
    history: Path,
    *,
    grid: Sequence[tuple[str, list[str]]],
    goal: Goal,
    most_error: float,
    recall: float | None,
    **given: Any,  # noqa: ANN401  the fields of PlanOptions and FeedOptions
) -> None:
    """Compute which accuracy to expect of a view of FILE, for a grid of settings, from a HISTORY of events.

    For each setting: the share of the k most frequent keys that are shown (recall), how many true and false keys a
    window shows, the relative error of a shown count (median and 95th percentile; of noise and bounding together, and
    apart), from how many users on a key is shown half of the time, and how far into a period the budget lasts. The
    prices and thresholds are those of the product. Nothing is drawn; figures of a topk are those of 30 windows, evenly
    spaced. Kinds: histogram, catalogue and topk (gumbel), and lists that are made of releases of these; `stream-dp
    replay` runs every kind.

    A true key of a topk is one of the k most frequent; of other kinds, any key that a user had. The best setting is
    marked with *; its budget lasts a whole period. An invalid or unaffordable setting has a row with the reason.

    All figures are computed from raw data, without noise: do not publish them. Settings that were chosen by people's
    data reveal a little of it; a history that was published anyway, or is old, is best.

    \b
    stream-dp plan app.yaml --events events.csv --grid epsilon=1/4,1/2,1 --grid items_per_user=1,3,10
    stream-dp plan app.yaml --events events.csv --grid k=5,10 --grid window=1h,1d --write new.yaml
    stream-dp plan app.yaml --events events.csv --grid split=1/4,1/2,3/4 --goal useful
    stream-dp plan app.yaml --events events.csv --recall 0.95 --grid noise=discrete-laplace,discrete-gaussian

    Exit codes: 0 done; 1 the history cannot be read, or no setting meets the goal for --write; 2 wrong usage, a fault
    in FILE, or invalid rows, which are named on stderr with the reason and the remedy.
    """
    wanted = PlanOptions(**{field.name: given.pop(field.name) for field in fields(PlanOptions)})
    loaded = load_plan(file)
    figure = None if wanted.figure is None else _matplotlib()
    one = _view(loaded, wanted)
    audience = wanted.audience or max(one.audiences, key=lambda name: one.audiences[name])
    named("audience", audience, one.audiences, "--audience")
    check_kind(one, loaded.views)
    if one.affords is not None and "epsilon" in dict(grid):
        words = "the levels are shares of what the ledger affords for every window; vary the window, or items_per_user"
        raise ConfigError(words, "--grid epsilon")
    if recall is not None and any(key.endswith("epsilon") for key, _ in grid):
        raise ConfigError("--recall looks for the epsilons; leave them out of --grid", "--grid")
    settings = points(dict(grid))
    err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    sharing = [each.name for each in loaded.views.values() if each.source == one.source]

    def report(survey: FileSurvey, views: Sequence[ViewPlan]) -> None:
        for line in surveyed(survey, [view for view in views if view.name == one.name]):
            err.print(line)

    def look(options: FeedOptions) -> tuple[EventColumns, PastEvents]:
        columns = EventColumns(one, sharing)
        with err.status("reading the history"):
            return columns, open_past_events(loaded, history, options, one.source.name, columns.take, report)

    columns, read = decide_on_outliers(FeedOptions(**given), look)
    subject = Subject(loaded, one.name, audience, read.until_ms)
    computed = what_if(subject, columns, settings)
    if recall is not None:
        asked = recall, most_error
        computed = (
            replace(point, needed=needed_epsilon(subject, columns, point.settings, asked)) for point in computed
        )
    found = list(track(computed, "settings", len(settings), console=err, transient=True, disable=not err.is_terminal))
    chosen = best(found, goal, most_error)
    if wanted.as_json:
        print_json({"note": RAW, "view": one.name, "points": plain(found), "best": plain(chosen)})
    else:
        _print(found, chosen, one, goal)
        if recall is not None:
            Console(highlight=False, markup=False).print(_promise(found, one, recall, most_error))
    if figure is not None and wanted.figure is not None:
        _draw(figure, found, chosen, wanted.figure)
    if wanted.write is not None:
        if chosen is None:
            raise StateError("no setting meets the goal, so nothing is written; change --goal or --error")
        text = changed_file(read_text(file), subject, chosen.settings)
        write_new(wanted.write, text)
        err.print(f"{wanted.write}: {_words(chosen.settings)}")


def _view(plan: Plan, wanted: PlanOptions) -> ViewPlan:
    name = wanted.view
    views = {view.name: view for view in plan.views.values() if wanted.source in (None, view.source.name)}
    finding = [finds.name for view in views.values() if (finds := finder(view, plan.views)) is not None]
    usual = [one for one in views if one not in finding]
    if name is None and len(usual) != 1:
        raise ConfigError(f"name one of the views: {', '.join(views)}", "--view")
    return named("view", name or usual[0], views, "--view")


def _words(settings: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items()) or "as in FILE"


def _print(found: Sequence[Point], chosen: Point | None, view: ViewPlan, goal: Goal) -> None:
    console = Console(highlight=False, markup=False)
    console.print(Text(RAW, "bold red"))
    needs = ["epsilon\nneeded"] if any(point.needed is not None for point in found) else []
    useful = ["useful\nkeys"] if goal == "useful" else []
    keys = ["", *(key.replace("windows_", "windows_\n") for key in found[0].settings)]
    rows = [
        [
            "*" if point is chosen else "",
            *point.settings.values(),
            *_cells(point),
            *([f"{point.useful:.1f}"] if useful else []),
            *([point.needed or "-"] if needs else []),
        ]
        for point in found
        if not point.reason
    ]
    figures = ("recall\n%", "true\nkeys", "false\nkeys", "error %\n50/95", "noise %\n50/95", "bias %\n50/95")
    console.print(
        table(
            *keys,
            *figures,
            "shown\nfrom",
            "budget\nlasts",
            *useful,
            *needs,
            rows=rows,
            words={*keys, "budget\nlasts"},
            apart=1,
        )
    )
    for point in found:
        if point.reason:
            console.print(f"not possible: {_words(point.settings)}: {point.reason}")
    if chosen is None:
        console.print("No setting meets the goal (--goal, --error) with a budget that lasts a whole period.")
        console.print("`--goal useful` allows any error, and counts what is right within 50 %.")
    elif chosen.shown_from is None:
        console.print(f"Best: {_words(chosen.settings)}. Every key of the list is shown.")
    else:
        window = "a window" if view.kind.made_of is None else f"a window of {view.kind.made_of.view}"
        users = f"about {chosen.shown_from:,} users in {window} to be shown half of the time"
        console.print(f"Best: {_words(chosen.settings)}. An item needs {users}.")


def _promise(found: Sequence[Point], view: ViewPlan, recall: float, most_error: float) -> str:
    """Return the answer to what a recall costs."""
    asked = f"A recall of {recall:.0%} with a median error of at most {most_error:.0%}"
    reached = [(parse_exact(point.needed), point) for point in found if point.needed is not None]
    if not reached:
        return (
            f"{asked} is out of reach for a promise up to 64 times larger or smaller. Bounds on users make errors too, "
            "and a budget has to last."
        )
    epsilon, point = min(reached, key=lambda one: one[0])
    ledger = view.ledger
    settings = f" with {_words(point.settings)}" if point.settings else ""
    return (
        f"{asked} needs epsilon {point.needed} per {ledger.periods.words}{settings}; the file promises "
        f"{decimal_up(ledger.total.epsilon)}. Then what is released may change the odds that a given user took part "
        f"({ledger.population}) by a factor of at most {odds_factor(epsilon)}, apart from delta."
    )


def _cells(point: Point) -> list[str]:
    pairs = [point.error, point.noise, point.bias]
    period = format_duration(point.period_ms or 0)
    lasts = "all" if point.lasts else f"{format_duration((point.lasts_ms or 0) // 1000 * 1000)} of {period}"
    return [
        "-" if point.recall is None else f"{100 * point.recall:.1f}",
        f"{point.true_keys:.1f}",
        f"{point.false_keys:.1f}",
        *("-" if pair is None else f"{100 * pair[0]:.1f}/{100 * pair[1]:.1f}" for pair in pairs),
        "-" if point.shown_from is None else f"{point.shown_from:,}",
        lasts,
    ]


def _matplotlib() -> Any:  # noqa: ANN401  an optional library
    try:
        return import_module("matplotlib.figure").Figure
    except ImportError:
        raise ConfigError("a picture needs matplotlib: pip install 'stream-dp[figures]'", "--figure") from None


def _draw(figure_type: Any, found: Sequence[Point], chosen: Point | None, file: Path) -> None:  # noqa: ANN401
    """Write small multiples: a panel for each figure, a bar for each setting."""
    valid = [point for point in found if point.error is not None]
    figure = figure_type(figsize=(3 * len(FIGURES) + 2, 1.2 + 0.3 * len(valid)), layout="constrained")
    for axes, (title, name) in zip(
        figure.subplots(1, len(FIGURES), sharey=True, squeeze=False)[0], FIGURES.items(), strict=True
    ):
        values = [value[0] if isinstance(value := getattr(point, name), tuple) else value or 0 for point in valid]
        axes.barh(range(len(valid)), values, color=["C1" if point is chosen else "C0" for point in valid])
        axes.set_title(title)
        axes.set_xlim(0, 1.05 * max(values, default=0) or 1)
        axes.set_yticks(range(len(valid)), [_words(point.settings) for point in valid])
    axes.invert_yaxis()  # of all: they share it
    figure.suptitle(RAW, color="C3")
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise StateError(f"{file} cannot be written: {error}") from None
