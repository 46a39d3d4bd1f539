"""What `stream-dp acl` prints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stream_dp.config.planner import load_plan
from stream_dp.control.editions import first_record
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.control_topic import post_accepted
from stream_dp.runtime.kafka.rights import Right, operator_rights
from stream_dp.runtime.kafka.topics import sources_of
from tests.support.console import Desk
from tests.support.published import Call


def test_table_and_commands_name_everybody(call: Call, visits_file: Path) -> None:
    said = call("acl", visits_file, "--reader", "public=User:site", "--operator", "User:ops")
    assert said.code == 0
    table, _, calls = said.out.partition("With Kafka's own tool")
    rows = [line.split() for line in table.splitlines()]
    assert ["User:site", "topic", "visits.releases.pages.public", "Read"] in rows
    assert ["User:site", "group", "visits.public.*", "Read"] in rows
    assert ["User:ops", "topic", "visits-control", "Read,", "Write"] in rows
    assert "--allow-principal User:site --operation Read --topic visits.releases.pages.public\n" in calls
    machine = json.loads(call("acl", visits_file, "--reader", "public=User:site", "--json").out)
    assert (machine["applied"], machine["reader_groups"]) == (False, {"public": "visits.public."})
    assert machine["rights"][0] == {
        "principal": "User:site",
        "resource": "topic",
        "name": "visits.releases.pages.public",
        "operation": "Read",
        "prefixed": False,
    }


def test_where_nobody_is_named_an_example_of_each_is_shown(call: Call, visits_file: Path) -> None:
    said = call("acl", visits_file)
    assert all(name in said.out for name in ("User:worker", "User:operator", "User:producer", "User:reader-public"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--reader", "publc=User:x"], "error: reader: no audience is named 'publc'; did you mean 'public'?"),
        (["--apply"], "name the accounts that get the rights: --worker, --reader, --operator, --producer, --gateway"),
        (["--worker", "w"], "write a principal as the cluster calls it, \"User:name\", not 'w'"),
        (["--reader", "User:x"], "write an audience and its principal, \"partner=User:name\", not 'User:x'"),
    ],
)
def test_what_cannot_be_meant_is_refused(call: Call, visits_file: Path, options: list[str], message: str) -> None:
    said = call("acl", visits_file, *options)
    assert said.code == 2
    assert message in " ".join(said.err.replace("│", " ").split())


def test_what_is_given_is_what_is_printed_whatever_settings_are_in_effect(
    call: Call, visits_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, given = MemoryLog(), list[Right]()
    log.create("visits-control", 1)
    former = load_plan(visits_file)
    assert asyncio.run(post_accepted(former, MemoryClient(log), first_record(former, 0)))

    async def allow(_: MemoryClient, rights: Sequence[Right]) -> None:
        given.extend(rights)

    @asynccontextmanager
    async def here(_: object) -> AsyncIterator[MemoryClient]:
        yield MemoryClient(log)

    monkeypatch.setattr(MemoryClient, "allow", allow, raising=False)
    monkeypatch.setattr("stream_dp.cli.acl_command.KafkaClient", MemoryClient)
    monkeypatch.setattr("stream_dp.cli.command_line.connect", here)
    text = visits_file.read_text().replace("broker: memory://", "broker: kafka://here:9092")
    file = visits_file.with_name("new.yaml")
    file.write_text(text.replace("  searches:\n    {source", "  wanted:\n    {source"))
    options = ["--worker", "User:app", "--reader", "public=User:site", "--json"]
    printed = call("acl", file, *options)
    assert (printed.code, printed.err) == (0, "")
    said = call("acl", file, *options, "--apply")
    assert (said.code, said.err) == (0, "")
    assert (said.code, said.err) == (0, "")
    assert [right._asdict() for right in given] == json.loads(printed.out)["rights"] == json.loads(said.out)["rights"]
    assert Right("User:app", "topic", "visits.releases.wanted.public", "Create") in given


def test_an_operators_account_has_the_rights_of_the_console(visits_file: Path) -> None:
    plan = load_plan(visits_file)
    desk, rights = Desk(plan, visits_file.with_name("operators.tokens")), operator_rights(plan, "User:ops")

    async def use() -> None:
        desk.report()
        await desk.start()
        change = await desk.plan_of("items_per_user=2")
        agreed = {"view": "pages", "assignments": ["items_per_user=2"], "plan": change["plan"], "settings": 1}
        assert (await desk.send("/v1/settings", agreed)).status == 202
        grant = {"grant": {"audience": "public", "level": "fine", "at": "2100-01-01T00:00:00Z"}}
        made = (await desk.send("/v1/grants", grant)).json
        assert (await desk.send("/v1/grants", {**grant, "plan": made["plan"]})).status == 202
        assert (await desk.send(f"/v1/grants/{made['id']}", {"consent": True}, "DELETE")).status == 202
        await desk.look()

    asyncio.run(use())
    read = {right.name for right in rights if (right.resource, right.operation) == ("topic", "Read")}
    assert desk.asked - sources_of(plan).keys() <= read, "sources are looked at as far as the account may see them"
    assert not any(".releases." in topic for topic in desk.asked)
    assert desk.written == {right.name for right in rights if right.operation == "Write"} == {"visits-control"}
    assert {right.name for right in rights if right.resource == "group"} == desk.groups == {"visits"}
