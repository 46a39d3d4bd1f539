"""Plans that hold after settings have changed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from stream_dp.config.plan import Plan
from stream_dp.control.editions import Posted, next_record, plan_holding


def holding(*begun: tuple[int, Plan], accepted_ms: Mapping[int, int] = MappingProxyType({})) -> Plan:
    """The plan that holds when views begin anew at seconds; and end, as far as a plan has them no more.

    Args:
        begun: the seconds and plans.
        accepted_ms: by second, when the settings were accepted; 0 for all others.
    """
    known: list[Posted] = []
    for second, wanted in begun:
        gone = [] if not known else [name for name in known[-1].sections["views"] if name not in wanted.views]
        ends = dict.fromkeys(gone, 1000 * second)
        record = next_record(known, wanted, dict.fromkeys(wanted.views, 1000 * second), ends, 0)
        known.append(replace(record, accepted_ms=accepted_ms.get(second, 0)))
    return plan_holding(known, begun[0][1])
