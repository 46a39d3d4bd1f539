"""Description of a plan, as data: `stream_dp.config.explanation` works it out."""

from __future__ import annotations

from pydantic import BaseModel, Field

from stream_dp.config.plan import ViewPlan
from stream_dp.exact.rationals import decimal_up
from stream_dp.kinds.base import Explanation
from stream_dp.records.models import Amount, PrivacyCost

DAY_SECONDS = 86_400
DISPLAY_DIGITS = 3


class ModeDescription(BaseModel):
    """Windows that overlap in one of the two ways in which they can be made; a number for each level."""

    mode: str = Field(description="panes: sums of panes, each of which is noised once. direct: each noised by itself.")
    configured: bool = Field(description="Whether it is the way of this view.")
    day_costs: list[PrivacyCost] = Field(description="What a day costs one user at worst.")
    expected_errors: list[str] = Field(description="Mean absolute noise of one count of a window, rounded up.")
    noise_intervals_95: list[int] = Field(description="It lies in plus or minus this with 95 % at least.")


def modes(view: ViewPlan) -> list[ModeDescription]:
    """Both ways, if the windows of a view overlap or are made of panes and its kind can be made either way."""
    return [
        ModeDescription(
            mode=one.mode,
            configured=one.configured,
            day_costs=[
                PrivacyCost.spent(view.cost(index) * one.paid.per_second * DAY_SECONDS)
                for index in range(len(view.levels))
            ],
            expected_errors=[decimal_up(level.error_of(one.panes), DISPLAY_DIGITS) for level in view.levels],
            noise_intervals_95=[level.interval_of(one.panes) for level in view.levels],
        )
        for one in view.window.shape.alternatives(divides=not view.kind.undivided)
    ]


class LevelDescription(BaseModel):
    """One level of a view."""

    name: str
    epsilon: Amount = Field(description="What the counts of one window or pane cost one user, over all their items.")
    noise_scale: Amount = Field(description="Of the discrete Laplace noise of one count: sensitivity / epsilon.")
    expected_error: str = Field(description="Mean absolute noise of one count of a window, rounded up.")
    noise_interval_95: int = Field(description="That noise lies in plus or minus this with 95 % at least.")
    cost: PrivacyCost = Field(description="What one window or pane costs one user at worst, the keys included.")
    windows_afforded: int = Field(description="Windows or panes a period's budget pays for, if the view were alone.")
    audiences: list[str] = Field(description="Who starts at this level.")


class ViewDescription(BaseModel):
    """One view."""

    name: str
    kind: str
    topic: str
    item_field: str = Field(description="A name, or a path that begins with $.")
    has_lists: bool = Field(description="Whether the field is a list of items, each counted by itself.")
    window: str
    step: str = Field(description="From one release to the next: of totals from pane to pane.")
    when: str = Field(description="Of which time something is released, and how often, in words.")
    unit: str = Field(description="What is counted, noised and paid for by itself: window, or pane.")
    hops: str = Field(description="What it means that windows overlap or are made of panes. Empty: they are not.")
    modes: list[ModeDescription] = Field(description="What they cost and how large their noise is, made in each way.")
    first_window: str | None = Field(description="Null: the first window is recorded when the worker first runs.")
    grace: str
    clock: str
    retention: str
    ledger: str
    population: str
    protection: str = Field(description="The neighbour relation in words.")
    items_per_user: int
    sensitivity: int = Field(description="How many published counts one user can move, each by one.")
    levels: list[LevelDescription]
    unlocks: dict[str, str] = Field(description="By audience: what it sees later, by the age of a window.")
    sharpening: str | None = Field(description="What is done with what the ledger has left over.")
    keys_at_worst: PrivacyCost = Field(
        description="What showing the keys of one window costs at worst, whatever the level."
    )
    explanation: Explanation = Field(description="What is peculiar to the kind.")
    coalition: str = Field(description="What somebody learns who reads every audience's topic.")
    fingerprint: str = Field(description="Changes whenever the view becomes another definition for its state.")


class PartDescription(BaseModel):
    """A part of a ledger's budget: what it promises, and how far it reaches."""

    name: str = Field(description="pure: what no other part takes; selection: draws; zcdp: the noise of counts.")
    epsilon: Amount = Field(description="What the part adds to the promise's epsilon.")
    delta: Amount = Field(description="What it adds to the promise's delta.")
    unit: str = Field(description="What is counted in it: epsilon, squares (of epsilon) or rho.")
    cap: Amount = Field(description="How much of that a period admits.")
    asked: Amount = Field(description="How much of that all views ask for in one period, at worst.")
    lasts: str = Field(description="How far into a period the part reaches, if the others did for ever.")
    windows_afforded: dict[str, int] = Field(description="By view: windows the part pays for, if it were alone.")


class ShareDescription(BaseModel):
    """Demand of one view on a ledger."""

    view: str
    level: str = Field(description="Finest level that an audience starts with or is unlocked.")
    cost: PrivacyCost = Field(description="Of one window at that level, at worst.")
    share: str | None = Field(description="What part of the budget it may take. Null: of what others leave.")
    kept: PrivacyCost = Field(description="What no other view may take of a period's budget.")
    windows_asked: int = Field(description="Windows that may fall into one period.")
    windows_afforded: int = Field(description="Of these, how many are paid for by what is kept.")
    lasts: str = Field(description="How far into a period that is.")


class LedgerDescription(BaseModel):
    """One ledger and the views that share it."""

    name: str
    population: str
    budget: PrivacyCost
    period: str
    parts: list[PartDescription] = Field(description="The parts of the budget; empty where it is one.")
    asked: PrivacyCost = Field(
        description="What all views ask for in one period, as far as audiences start and are unlocked."
    )
    affords_schedule: bool = Field(description="Whether every view has what it asks for.")
    lasts: str = Field(description="How far into a period the budget reaches.")
    odds: str = Field(description="Over a period, the odds that one user took part change by this factor at most.")
    shares: list[ShareDescription]
    fingerprint: str = Field(description="What was spent is kept under this; it changes with the population's wording.")


class PlanDescription(BaseModel):
    """A whole plan."""

    name: str
    id: str = Field(description="What it is on its cluster: its group, and the beginning of its topics' names.")
    broker: str
    access: str = Field(description="How one gets in: TLS, the login; nothing for plaintext without a login.")
    partitions: int
    slot: str = Field(description="Releases leave at multiples of this.")
    offset: str = Field(description="How long after the close of its window a release leaves at the earliest.")
    window_memory: str = Field(
        description="What one open window of one partition takes of a worker's memory at most, about; with more users "
        "and items it goes on on disk, more slowly and just as exactly."
    )
    block_cache: str = Field(description="What a worker caches of the files of its tables, all partitions together.")
    write_buffers: str = Field(description="What a worker takes for rows on their way to these files, a partition.")
    memory: str = Field(
        description="The sum for a worker that has every partition, with one full open window of every view in each: "
        "windows, block cache and write buffers, beside what Python and its libraries take."
    )
    views: list[ViewDescription]
    ledgers: list[LedgerDescription]
    warnings: list[str]
