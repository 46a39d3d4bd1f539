"""Who owns which partitions, and who keeps copies of them, where an application has standbys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """The partitions that a worker owns, and those that it keeps copies of."""

    owned: Collection[int] = ()
    copied: Collection[int] = ()


def share(former: Mapping[str, Share], partitions: int, copies: int) -> dict[str, Share]:
    """Share partitions, and copies of them, among workers.

    A partition stays where it is, or goes to a worker that has a copy. To even them out, partitions move to copies, or
    to a new worker. The copies of one worker's partitions are spread over all others, so its death leaves them even.

    Args:
        former: by worker, what it had.
        partitions: number of them.
        copies: of each, if there are so many other workers.
    """
    members = sorted(former)
    owner = {partition: member for member in members for partition in former[member].owned}
    warm = {partition: [owner[partition]] if partition in owner else [] for partition in range(partitions)}
    for member in members:
        for partition in former[member].copied:
            warm[partition].append(member)
    new = {member for member in members if not former[member].owned and not former[member].copied}
    _share_out(owner, warm, members, new)
    kept = _spread(owner, warm, members, min(copies, len(members) - 1))
    return {
        member: Share(
            [partition for partition in warm if owner[partition] == member],
            [partition for partition in warm if member in kept[partition]],
        )
        for member in members
    }


def _share_out(
    owner: dict[int, str], warm: Mapping[int, Sequence[str]], members: Sequence[str], new: Collection[str]
) -> None:
    """Give every partition an owner, and even them out.

    Args:
        owner: of those that have one; changed.
        warm: by partition, who has its rows.
        members: all workers.
        new: those that had nothing.
    """
    loads = Counter(owner.values())
    for partition in warm.keys() - owner.keys():
        owner[partition] = min(warm[partition] or members, key=lambda member: (loads[member], member))
        loads[owner[partition]] += 1
    while moves := [
        (member not in warm[partition], loads[member], -loads[owner[partition]], partition, member)
        for partition in warm
        for member in members
        if loads[owner[partition]] > loads[member] + 1 and (member in warm[partition] or member in new)
    ]:
        *_, partition, member = min(moves)
        loads[owner[partition]] -= 1
        owner[partition] = member
        loads[member] += 1


def _spread(
    owner: Mapping[int, str], warm: Mapping[int, Sequence[str]], members: Sequence[str], copies: int
) -> dict[int, list[str]]:
    """Return who keeps copies of each partition: whoever has its rows, unless others have fewer copies."""
    loads, others = Counter(owner.values()), max(1, len(members) - 1)
    pairs, total = Counter[tuple[str, str]](), Counter[str]()
    most = -(-len(owner) * copies // len(members))
    kept: dict[int, list[str]] = {partition: [] for partition in warm}

    def keep(partition: int, member: str) -> None:
        kept[partition].append(member)
        pairs[owner[partition], member] += 1
        total[member] += 1

    for partition, there in warm.items():
        own = owner[partition]
        of_owner = -(-loads[own] * copies // others)
        for member in dict.fromkeys(there):
            has_room = pairs[own, member] < of_owner and total[member] < most
            if member != own and has_room and len(kept[partition]) < copies:
                keep(partition, member)
    for partition, there in kept.items():
        while len(there) < copies:
            able = [(pairs[owner[partition], one], total[one], one) for one in members if one not in there]
            keep(partition, min(one for one in able if one[-1] != owner[partition])[-1])
    return kept
