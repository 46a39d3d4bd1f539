"""The kind `lookup`: a table that answers with a noisy count for every key, under pure epsilon.

Readers get one object of a fixed size and ask it for any key, also a rare one or one that nobody has. It lists no
keys, so it does not say which are frequent. A window keeps a public number of contributions: a user's items may push
out those of others, which doubles the price. For windows with few users (specs/finite 2.10).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.exact.rationals import decimal_up
from stream_dp.histograms.compact import Compact
from stream_dp.histograms.counting_queries import mean_absolute
from stream_dp.kinds.fields import Section
from stream_dp.kinds.kind import Explanation, Kind, KindPlan, ViewBasis
from stream_dp.kinds.noise_levels import table_level
from stream_dp.kinds.public_lists import Counts
from stream_dp.kinds.sealing import SealedTable, Sealing, exact_digest

MOST_KEY_BYTES = 60
MOST_ROWS, MOST_ROWS_OF_LONG_KEYS = 2048, 1024
"""A table of so many takes 3 s."""
SHORT_KEY_BITS = 162
"""Of an element of the field, with keys of 20 bytes."""
UNIFORM_BITS = 32
MOST_EPSILON = 20
"""Of one count: the ratio of the noise is written into every table, in 64 bits."""
DISPLAY_DIGITS = 3


class LookupSettings(Section):
    """An answer for every key."""

    kind: Literal["lookup"]
    rows: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    key_bytes: Annotated[int, Field(ge=1, le=MOST_KEY_BYTES)] = 20
    largest_count: Annotated[int, Field(ge=1, le=(1 << 32) - 1)] = 10_000


@dataclass(frozen=True, kw_only=True)
class LookupPlan(KindPlan):
    """The plan of a lookup view.

    Attributes:
        compact: the mechanism.
        absent_mean: the mean answer for a key that nobody has.
    """

    compact: Compact
    absent_mean: Fraction
    name = "lookup"

    @property
    def identity(self) -> Sequence[object]:
        """The bounds of the mechanism."""
        return [self.compact.rows, self.compact.key_bytes, self.compact.items_per_user]

    @property
    def made_up_keys(self) -> int:
        """As many as the table has rows."""
        return self.compact.rows

    def keys_at_worst(self, *, pooled: bool) -> Cost:
        """Nothing: there is an answer for every key."""
        return Cost.ZERO

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Draw the table (specs/finite 2.10)."""
        named = {item.encode(): counts[item] for item in sorted(counts)}
        drawn = self.compact.draw(named, sealing.bits(b"noise"))
        return SealedTable(exact_digest(named, sealing), [], [], drawn.to_bytes())

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """The table."""
        mean = decimal_up(self.absent_mean, DISPLAY_DIGITS)
        return {"absent_mean": mean, "table": b64encode(table.payload).decode(), "items": ()}

    def explain(self, keys_at_worst: str) -> Explanation:
        """Size and bounds of the table.

        Details: `rows`, contributions that a window keeps, beyond which a random part of the keys is left out;
        `key_bytes`: longer keys share one answer; `largest_count`: larger counts count as this; `absent_mean`, the mean
        answer for a key that nobody has; `table_bytes` and `random_bits` of a release, whatever is in it.
        """
        compact = self.compact
        mean, size = decimal_up(self.absent_mean, DISPLAY_DIGITS), compact.table_bytes
        return Explanation(
            shows="a table that answers with a count for every key",
            keys=f"The table has {size:,} bytes whatever is in it, and answers for every key of at most "
            f"{compact.key_bytes} bytes, so showing keys costs no delta. A key that nobody has gets {mean} on average. "
            f"A window keeps {compact.rows:,} contributions of one user to one key; of more, a random part of the keys "
            "is left out. Since a user's keys may push out others, a count has twice the noise that it has elsewhere.",
            seen=["any key asked for"],
            details={
                "rows": compact.rows,
                "key_bytes": compact.key_bytes,
                "largest_count": compact.query.bound,
                "absent_mean": mean,
                "table_bytes": size,
                "random_bits": compact.bits,
            },
        )


def plan_lookup(settings: LookupSettings, basis: ViewBasis) -> LookupPlan:
    """Compute the noise and the size of the table.

    Raises:
        ConfigError: the ladder has more than one level, epsilon is out of bounds, or the table is too large.
    """
    moved = 2 * basis.items_per_user  # up to so many other counts are pushed out
    if any(epsilon > MOST_EPSILON * moved for _, epsilon in basis.ladder):
        words = f"has a level with an epsilon above {MOST_EPSILON} for each of the {moved} counts that one user moves"
        raise ConfigError([Fault("ladder", words)])
    level = table_level(basis.ladder, moved, count_bits=settings.largest_count.bit_length(), uniform_bits=UNIFORM_BITS)
    try:
        compact = Compact(level.table, settings.rows, settings.key_bytes, basis.items_per_user)
    except ParameterError as error:
        raise ConfigError([Fault(fault.path, fault.message) for fault in error.faults]) from None
    if compact.field.degree > SHORT_KEY_BITS and settings.rows > MOST_ROWS_OF_LONG_KEYS:
        fault = f"must be at most {MOST_ROWS_OF_LONG_KEYS} with keys of more than 20 bytes: a table would take too long"
        raise ConfigError([Fault("rows", fault)])
    return LookupPlan(levels=(level,), sensitivity=moved, compact=compact, absent_mean=mean_absolute(level.table, 0))


LOOKUP = Kind("lookup", LookupSettings, plan_lookup, names_keys=False)
