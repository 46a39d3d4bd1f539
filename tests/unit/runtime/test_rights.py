"""The least rights of everybody, as lists, as calls of Kafka's tool, and as a request."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stream_dp.runtime.kafka.requests import entries_of, rights_request
from stream_dp.runtime.kafka.rights import (
    AclEntry,
    Right,
    commands,
    gateway_rights,
    lacking,
    operator_rights,
    producer_rights,
    reader_rights,
    rights_of,
    worker_rights,
    workers_known,
)
from tests.support.releasing import plan

SHOP = plan()
CHANGELOGS = [f"shop-{table}-changelog" for table in ("counts", "merges", "releases")]
RELEASED = [
    f"shop.releases.{view}.{audience}" for view in ("pages", "tops") for audience in ("partner", "public", "staff")
]
MAKES = ("Create", "DescribeConfigs")


def listed(rights: list[Right]) -> dict[tuple[str, str], tuple[str, ...]]:
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for _, resource, name, operation, prefixed in rights:
        place = (resource, name + "*" * prefixed)
        found[place] = (*found.get(place, ()), operation)
    return found


def test_worker_may_do_what_it_does_and_nothing_to_the_cluster() -> None:
    rights = worker_rights(SHOP, "User:w")
    both = [
        "stream-dp-owners",
        "shop-ticks",
        "shop-partials",
        "shop-merged",
        "shop-control",
        "shop-orders",
        *CHANGELOGS,
        *RELEASED,
    ]
    assert {right.principal for right in rights} == {"User:w"}
    assert listed(rights) == {
        ("topic", "visits"): ("Read",),
        **{("topic", name): ("Read", "Write", *MAKES) for name in both},
        **{("topic", name): ("Write", *MAKES) for name in ("shop-accounts", "shop-status", "shop.dead-letters.visits")},
        ("group", "shop"): ("Read",),
        **{("group", f"{name}-claims"): ("Read",) for name in CHANGELOGS},
        **{("transactional-id", f"{name}-*"): ("Write",) for name in CHANGELOGS},
    }


def test_worker_deletes_records_of_the_topic_of_re_keyed_events_and_of_no_other() -> None:
    rekeyed = worker_rights(plan(("partitions: 1", "key: user, partitions: 1")), "User:w")
    topic = ("topic", "shop-rekeyed-visits")
    assert listed(rekeyed) == listed(worker_rights(SHOP, "User:w")) | {topic: ("Read", "Write", *MAKES, "Delete")}


def test_worker_reads_lists_that_stand_in_topics() -> None:
    of_a_list = "kind: histogram\n", "kind: catalogue\n    catalogue: {topic: list}\n"
    listed_plan = plan(of_a_list, ('    delta: "1/100"\n', ""))
    assert Right("User:w", "topic", "list", "Read") in worker_rights(listed_plan, "User:w")


def test_reader_has_the_topics_of_the_audience_and_groups_that_nobody_else_has() -> None:
    assert listed(reader_rights(SHOP, "staff", "User:r")) == {
        ("topic", "shop.releases.pages.staff"): ("Read",),
        ("topic", "shop.releases.tops.staff"): ("Read",),
        ("group", "shop.staff.*"): ("Read",),
    }


def test_operator_grants_and_reads_what_is_charged_and_released() -> None:
    read = ["shop-accounts", "shop-status", *RELEASED]
    assert listed(operator_rights(SHOP, "User:o")) == {
        ("topic", "shop-control"): ("Read", "Write"),
        ("group", "shop"): ("Describe",),
        **{("topic", name): ("Read",) for name in read},
    }


def test_the_gateway_reads_release_topics_and_nothing_else() -> None:
    assert listed(gateway_rights(SHOP, "User:g")) == {("topic", name): ("Read",) for name in RELEASED}


def test_producer_writes_to_the_sources() -> None:
    assert listed(producer_rights(SHOP, "User:p")) == {("topic", "visits"): ("Write",)}


def test_account_of_several_has_every_right_once() -> None:
    twice = list(rights_of(SHOP, operators=["User:x"], readers=[("staff", "User:x"), ("staff", "User:x")]))
    assert len(twice) == len(set(twice))
    assert set(twice) == {*operator_rights(SHOP, "User:x"), *reader_rights(SHOP, "staff", "User:x")}


def test_rights_are_calls_of_the_tool_that_kafka_has() -> None:
    rights = [
        Right("User:a b", "topic", "t", "Read"),
        Right("User:a b", "topic", "t", "Write"),
        Right("User:c", "transactional-id", "x-", "Write", prefixed=True),
    ]
    start = "kafka-acls.sh --bootstrap-server here:1 --command-config admin.properties --add --allow-principal"
    assert commands(rights, "here:1") == [
        f"{start} 'User:a b' --operation Read --operation Write --topic t",
        f"{start} User:c --operation Write --transactional-id x- --resource-pattern-type prefixed",
    ]


def test_rights_are_asked_for_in_one_request() -> None:
    rights = [Right("User:a", "group", "g.", "Read", prefixed=True), Right("User:a", "topic", "t", "DescribeConfigs")]
    request = rights_request(rights).prepare({30: (1, 3)})
    assert request.API_VERSION == 1
    assert request.to_object()["creations"] == [
        {
            "resource_type": 3,
            "resource_name": "g.",
            "resource_pattern_type": 4,
            "principal": "User:a",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        },
        {
            "resource_type": 2,
            "resource_name": "t",
            "resource_pattern_type": 3,
            "principal": "User:a",
            "host": "*",
            "operation": 10,
            "permission_type": 3,
        },
    ]


NEEDED = Right("User:a", "topic", "shop-ticks", "Write")


@pytest.mark.parametrize(
    ("entries", "is_given"),
    [
        ([], False),
        ([AclEntry("User:a", "topic", "shop-ticks", "Write")], True),
        ([AclEntry("User:a", "topic", "shop-ticks", "Read")], False),
        ([AclEntry("User:a", "topic", "shop-tick", "Write")], False),
        ([AclEntry("User:a", "topic", "shop-", "Write", prefixed=True)], True),
        ([AclEntry("User:a", "topic", "*", "All")], True),
        ([AclEntry("User:*", "topic", "shop-ticks", "All")], True),
        ([AclEntry("User:b", "topic", "shop-ticks", "Write")], False),
        ([AclEntry("User:a", "group", "shop-ticks", "All")], False),
        ([AclEntry("User:a", "cluster", "kafka-cluster", "All")], False),
        (
            [
                AclEntry("User:a", "topic", "*", "All"),
                AclEntry("User:a", "topic", "s", "All", prefixed=True, allows=False),
            ],
            False,
        ),
        (
            [
                AclEntry("User:a", "topic", "*", "All"),
                AclEntry("User:a", "topic", "*", "All", allows=False, host="::1"),
            ],
            True,
        ),
    ],
)
def test_a_right_is_lacking_unless_some_entry_allows_it_and_none_denies_it(
    entries: list[AclEntry], is_given: bool
) -> None:
    assert lacking([NEEDED], entries) == ([] if is_given else [NEEDED])


def test_topics_may_be_created_by_whoever_may_create_any() -> None:
    create = NEEDED._replace(operation="Create")
    assert lacking([create], [AclEntry("User:a", "cluster", "kafka-cluster", "Create")]) == []


def test_rights_to_names_that_begin_alike_need_an_entry_for_such_names() -> None:
    needed = Right("User:a", "group", "shop.", "Read", prefixed=True)
    assert lacking([needed], [AclEntry("User:a", "group", "shop.", "Read")]) == [needed]
    assert lacking([needed], [AclEntry("User:a", "group", "sh", "Read", prefixed=True)]) == []


def test_workers_are_the_accounts_with_all_rights_of_a_worker_but_to_create() -> None:
    rights = rights_of(SHOP, workers=["User:w"], operators=["User:o"], readers=[("staff", "User:s")])
    entries = [AclEntry(*right) for right in rights if right.operation != "Create"]
    assert workers_known(SHOP, [*entries, AclEntry("User:o", "topic", "shop-", "All", prefixed=True)]) == ["User:w"]


def test_entries_are_read_from_the_answer_of_the_authorizer() -> None:
    acls = [("User:a", "*", 4, 3), ("User:b", "::1", 2, 2), ("User:c", "*", 12, 3)]
    answer = SimpleNamespace(resources=[(2, "t", 4, acls), (6, "token", 3, acls), (4, "kafka-cluster", 3, acls[:1])])
    assert entries_of(answer) == [
        AclEntry("User:a", "topic", "t", "Write", prefixed=True),
        AclEntry("User:b", "topic", "t", "All", prefixed=True, allows=False, host="::1"),
        AclEntry("User:a", "cluster", "kafka-cluster", "Write"),
    ]
