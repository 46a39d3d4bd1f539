"""What is asked of the visits while things happen: views of every shape, and settings that change."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.visits import EXACT, MORE, RICH, TOP, WITNESSED, configuration

_ALL = EXACT.replace("items_per_user: 2", "items_per_user: 7").replace("ladder: plain", "ladder: wide")
"""An exact view in which a user has every page, so that it is no matter in which order the events of a user come."""
HOPS = _ALL.replace("NAME-exact", "NAME-hops-exact").replace("{size: 1m,", "{size: 3m, step: 1m,")
ANYWHERE = _ALL.replace("NAME-exact", "NAME-anywhere-exact").replace("source: visits", "source: anywhere")
SMOOTH = """
  NAME-smooth:
    kind: histogram
    noise: discrete-gaussian
    source: visits
    item: page
    delta: "1e-7"
    items_per_user: 2
    window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}
    ledger: pooled
    ladder: smooth
    retention: 30d
    buckets: 2
"""
"""A view with Gaussian noise, of a ledger with a pool."""
POOLED = (
    '{population: pooled, epsilon: "100000", delta: "9/10", period: 366d, zcdp: {epsilon: "99999", slack: "1/100"}}'
)
LEVELS = '[{level: overview, epsilon: "1/4"}, {level: standard, epsilon: "1/2"}, {level: detailed, epsilon: "1"}]'
SHAPES = (
    ("views:\n", "views:" + TOP + HOPS + ANYWHERE + SMOOTH),
    ("ledgers:\n", f"ledgers:\n  pooled: {POOLED}\n"),
    ("ladders:\n", f"ladders:\n  smooth: {LEVELS}\n"),
    ("sources:\n", "sources:\n  anywhere: {topic: NAME.anywhere, partitions: 3, key: user, time: {field: at}}\n"),
    ("ladders:\n", 'ladders:\n  wide: [{level: overview, epsilon: "280"}]\n'),
)
"""Changes that add a top list, windows that hop, a source that is not keyed by user, and a view with Gaussian noise."""
_NOW = EXACT.replace("NAME-exact", "NAME-late").replace("start: 2024-01-01T00:00:00Z, ", "")
LATE = (
    ("views:\n", "views:" + _NOW.replace("1h", "2m").replace("witnesses", "late")),
    ("ledgers:\n", 'ledgers:\n  late: {population: late, epsilon: "100000000", delta: "0", period: 366d}\n'),
)
"""Changes that add an exact view from a moment on that only the workers' clocks decide."""
UNLOCKS_AFTER_MINUTES = 4
UNLOCK = (
    "partner: standard",
    f"partner: {{level: standard, unlock: [{{level: detailed, after: {UNLOCKS_AFTER_MINUTES}m}}]}}",
)
"""The partner sees every window at its finest by itself, when the stream is so much further."""
SINGLE = (("items_per_user: 2", "items_per_user: 1"), ('epsilon: "80"', 'epsilon: "40"'))
"""Another definition: a user counts once in a window."""
COARSE = (("partner: {level: standard", "partner: {level: overview"),)
"""The same definition: the partner starts at another level."""


@dataclass(frozen=True)
class Settings:
    """What operators may change while things happen."""

    more: bool = False
    """Whether there is one source more, with a view."""
    single: bool = False
    """Whether a user counts once in a window, not twice; not where every page of a user counts."""
    coarse: bool = False
    """Whether the partner starts at the coarsest level."""
    late: bool = False
    """Whether there is a view more, which begins where `apply` has it begin."""
    changes: tuple[tuple[str, str], ...] = ()
    """What else is changed of the configuration, at all times."""

    def text(self, name: str) -> str:
        """The configuration of the application of a name."""
        changes = [*SHAPES, *WITNESSED, *RICH, UNLOCK, *(MORE if self.more else ()), *(LATE if self.late else ())]
        changes += [*self.changes, *(SINGLE if self.single else ()), *(COARSE if self.coarse else ())]
        return configuration(name, *changes)
