"""The least rights that worker, operators, readers and producers of an application need on a secured cluster.

Resources are named one by one. Only transactional ids are a prefix, the name of a changelog, since every partition has
one, and so are the consumer groups of readers, who choose their names: theirs ends in a dot, which no name has, so that
none is the beginning of another's.

Whoever may read or write may also describe, and a producer that may write to a topic may be an idempotent one (Kafka
2.8), so neither is among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from shlex import quote
from typing import Literal, NamedTuple

from stream_dp.config.plan import Plan
from stream_dp.runtime.kafka.topics import Topics, sources_of

Resource = Literal["topic", "group", "transactional-id"]
Operation = Literal["Read", "Write", "Create", "Delete", "Describe", "DescribeConfigs"]


class Right(NamedTuple):
    """That somebody may do something to a resource, or, with a prefix, to all whose names begin so."""

    principal: str
    resource: Resource
    name: str
    operation: Operation
    prefixed: bool = False


class AclEntry(NamedTuple):
    """One entry of a cluster's authorizer, in its own words; `resource` may be the cluster, `operation` All."""

    principal: str
    resource: str
    name: str
    operation: str
    prefixed: bool = False
    allows: bool = True
    host: str = "*"

    def is_about(self, right: Right) -> bool:
        """Return True if it allows, or denies, what a right is to allow."""
        if self.principal not in (right.principal, "User:*") or self.operation not in (right.operation, "All"):
            return False
        if self.resource == "cluster":
            return right.resource == "topic" and right.operation == "Create"
        if self.resource != right.resource or (right.prefixed and not self.prefixed and self.name != "*"):
            return False
        return right.name.startswith(self.name) if self.prefixed else self.name in (right.name, "*")


def lacking(needed: Iterable[Right], entries: Sequence[AclEntry]) -> list[Right]:
    """Those of some rights that a cluster does not give.

    An entry for one host allows, since nobody knows here where an account connects from, and denies nothing.

    Args:
        needed: the rights.
        entries: of its authorizer.
    """
    found = []
    for right in needed:
        about = [entry for entry in entries if entry.is_about(right)]
        is_denied = any(not entry.allows and entry.host == "*" for entry in about)
        if is_denied or not any(entry.allows for entry in about):
            found.append(right)
    return found


def workers_known(plan: Plan, entries: Sequence[AclEntry]) -> list[str]:
    """The accounts of an application's workers: those with all rights of a worker, but for `Create`.

    Args:
        plan: the application.
        entries: of the cluster's authorizer.
    """
    named = dict.fromkeys(entry.principal for entry in entries if entry.allows and entry.principal != "User:*")
    return [
        name
        for name in named
        if not lacking([right for right in worker_rights(plan, name) if right.operation != "Create"], entries)
    ]


def worker_rights(plan: Plan, principal: str) -> list[Right]:
    """Return the rights that every worker of an application needs.

    `Create` is for the first start alone. Workers write into the control topic when a view first begins.

    Args:
        plan: the application.
        principal: the account of its workers, as the cluster calls it: "User:name".
    """
    topics = Topics.of(plan)
    written_only = {topics.accounts, topics.status, *(source.dead_letter_topic for source in sources_of(plan).values())}
    rekeyed = {topics.rekeyed(source) for source in topics.rekeyed_sources}
    lists = [topic for view in plan.views.values() for topic in view.kind.topics]
    rights = [Right(principal, "topic", topic, "Read") for topic in [*sources_of(plan), *lists]]
    for name in [topics.owners.name, *(spec.name for spec in topics.all(plan))]:
        operations: list[Operation] = [] if name in written_only else ["Read"]
        operations += ["Write", "Create", "DescribeConfigs"]
        operations += ["Delete"] if name in rekeyed else []
        rights += [Right(principal, "topic", name, operation) for operation in operations]
    rights.append(Right(principal, "group", plan.id, "Read"))
    for changelog in topics.changelogs:
        rights.append(Right(principal, "group", f"{changelog}-claims", "Read"))
        rights.append(Right(principal, "transactional-id", f"{changelog}-", "Write", prefixed=True))
    return list(dict.fromkeys(rights))


def reader_rights(plan: Plan, audience: str, principal: str) -> list[Right]:
    """Return the rights of an audience's readers: its topics, and consumer groups that begin with `reader_groups`.

    Args:
        plan: the application.
        audience: one of its audiences.
        principal: the account of the readers.
    """
    topics = Topics.of(plan)
    views = [view.name for view in plan.views.values() if audience in view.audiences]
    rights = [Right(principal, "topic", topics.release(view, audience), "Read") for view in views]
    return [*rights, Right(principal, "group", reader_groups(plan, audience), "Read", prefixed=True)]


def reader_groups(plan: Plan, audience: str) -> str:
    """Return the prefix of the consumer groups of an audience's readers."""
    return f"{plan.id}.{audience}."


def gateway_rights(plan: Plan, principal: str) -> list[Right]:
    """Return the rights of the readers' gateway: the release topics of every audience, and nothing else.

    Args:
        plan: the application.
        principal: the account of the gateway.
    """
    return [Right(principal, "topic", name, "Read") for name in _released(plan)]


def _released(plan: Plan) -> list[str]:
    """Return the release topics of all audiences."""
    topics = Topics.of(plan)
    return [topics.release(view.name, audience) for view in plan.views.values() for audience in view.audiences]


def operator_rights(plan: Plan, principal: str) -> list[Right]:
    """Return the rights for `console`, and for `apply`, `tune`, `settings`, `grant`, `ledger`, `status`, any `tail`.

    Args:
        plan: the application.
        principal: the account of the operators.
    """
    topics = Topics.of(plan)
    read = [topics.control, topics.accounts, topics.status, *_released(plan)]
    return [
        *(Right(principal, "topic", name, "Read") for name in read),
        Right(principal, "topic", topics.control, "Write"),
        Right(principal, "group", plan.id, "Describe"),
    ]


def producer_rights(plan: Plan, principal: str) -> list[Right]:
    """Return the rights of producers of events.

    Args:
        plan: the application.
        principal: the account of the producers.
    """
    return [Right(principal, "topic", topic, "Write") for topic in sources_of(plan)]


def rights_of(
    plan: Plan,
    *,
    workers: Iterable[str] = (),
    readers: Iterable[tuple[str, str]] = (),
    operators: Iterable[str] = (),
    producers: Iterable[str] = (),
    gateways: Iterable[str] = (),
) -> list[Right]:
    """The rights of several accounts, each right once.

    Args:
        plan: the application.
        workers: accounts of workers.
        readers: audiences, each with the account of its readers.
        operators: accounts of operators.
        producers: accounts of producers.
        gateways: accounts of gateways.
    """
    found = [worker_rights(plan, name) for name in workers]
    found += [reader_rights(plan, audience, name) for audience, name in readers]
    found += [operator_rights(plan, name) for name in operators]
    found += [producer_rights(plan, name) for name in producers]
    found += [gateway_rights(plan, name) for name in gateways]
    return list(dict.fromkeys(chain.from_iterable(found)))


def commands(rights: Iterable[Right], address: str) -> list[str]:
    """The same as calls of Kafka's own tool, one for every account and resource.

    Args:
        rights: what to give.
        address: where the cluster is reached.
    """
    grouped: dict[tuple[str, Resource, str, bool], list[Operation]] = {}
    for right in rights:
        place = right.principal, right.resource, right.name, right.prefixed
        grouped.setdefault(place, []).append(right.operation)
    return [
        f"kafka-acls.sh --bootstrap-server {address} --command-config admin.properties --add "
        f"--allow-principal {quote(principal)} "
        + " ".join(f"--operation {operation}" for operation in operations)
        + f" --{resource} {name}"
        + (" --resource-pattern-type prefixed" if prefixed else "")
        for (principal, resource, name, prefixed), operations in grouped.items()
    ]
