"""A cluster with TLS, logins and an authorizer: who may do what, and what is said to those who may not."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError

from stream_dp.config.access import Broker, Sasl, Secret, Tls
from stream_dp.config.crosschecks import OWNERS_TOPIC
from stream_dp.config.file_schema import ServeConfig
from stream_dp.config.planner import load_plan
from stream_dp.control.editions import next_record
from stream_dp.control.editions import plan_of as plan_from_record
from stream_dp.errors import AccessError, ConfigError, OutageError, StreamDPError
from stream_dp.gateway.boards import Boards
from stream_dp.gateway.reader import BoardReader
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.tokens import Tokens
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client, KafkaClient, connect
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.control_topic import post, read_accepted, read_history
from stream_dp.runtime.kafka.outages import not_allowed
from stream_dp.runtime.kafka.rights import Right, worker_rights
from stream_dp.runtime.kafka.topics import COUNTS, Topics, sources_of
from stream_dp.runtime.localkafka import jars
from stream_dp.testing import Application, Event, application
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.testing.scripts import SourceWriter
from stream_dp.windows.durations import format_time
from stream_dp.windows.effects import Message
from tests.support.console import Desk
from tests.support.gateway import ask
from tests.support.processes import WorkerProcess
from tests.support.releasing import plan_of
from tests.support.secured import Secured, password_of, revoke, token_of
from tests.support.visits import PAGES, RICH, WITNESSED, Stream, configuration, new_name

pytestmark = pytest.mark.broker

SOON_SECONDS = 30.0
"""Within so much the slowest machine says what is wrong; it takes less than one second."""
RUNS = " is running: "
Call = Callable[..., Any]


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A secured Kafka, whatever STREAM_DP_BROKER names."""
    if (problem := jars.local_kafka_problem()) is not None:
        pytest.skip(f"no broker: {problem}")
    if jars.kafka_version().startswith("3.4."):
        pytest.skip("a Kafka 3.4 without ZooKeeper has no SCRAM")  # KIP-900: from 3.5 on
    broker = Secured.start(tmp_path_factory.mktemp("secured"))
    yield broker
    broker.stop()


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect connections that aiokafka 0.14 was still opening when their client was closed.

    It never closes these. Seen once beside other tests: a later test of the same process failed for their warnings.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@dataclass
class Site:
    """An application on a secured cluster.

    Attributes:
        admin: the application as somebody sees it who may do everything; its workers are not started there.
        secured: the cluster.
        text: the configuration.
        folder: where the configurations are.
    """

    admin: Application
    secured: Secured
    text: str
    folder: Path

    def file(self, user: str) -> Path:
        """The configuration with the login of a user."""
        file = self.folder / f"{user}.yaml"
        file.write_text(self.text.replace("broker: memory://", f"broker: {self.secured.broker(user)}"))
        return file

    @asynccontextmanager
    async def connected(self, user: str) -> AsyncIterator[Client]:
        """A client with the login of a user."""
        async with connect(load_plan(self.file(user), {}).broker) as client:
            yield client

    def spawned(self, spawn: Callable[..., WorkerProcess]) -> WorkerProcess:
        """A worker that logs in as one, in a process of its own."""
        (self.folder / "application.yaml").write_text(self.file("worker").read_text())
        there = replace(self.admin.plan, broker=Broker(f"kafka://{self.secured.login}"))
        return spawn(replace(self.admin, plan=there), "w", "--terse")

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Application]:
        """The application with a worker that logs in as one, and has begun to run."""
        plan = load_plan(self.file("worker"), {})
        async with connect(plan.broker, patient=True) as client:
            app = Application(plan, client, None, self.admin.entropy)
            try:
                await app.start()
                yield app
            finally:
                with suppress(RuntimeError):  # of Faust, where it crashed
                    await app.stop()


@asynccontextmanager
async def site(secured: Secured, folder: Path, *changes: tuple[str, str]) -> AsyncIterator[Site]:
    text = configuration(new_name(), *changes)
    async with application(text, folder, broker=secured.open) as admin:
        yield Site(admin, secured, text, folder)


def allow(site: Site, call: Call, *more: str) -> Any:
    """Give everybody their rights, as an administrator does."""
    who = ["--worker", "User:worker", "--operator", "User:operator", "--producer", "User:producer"]
    who += ["--gateway", "User:gateway"]
    for audience in ("partner", "public"):
        who += ["--reader", f"{audience}=User:{audience}"]
    return call("acl", site.file("admin"), *who, "--apply", *more)


async def refused(work: Any) -> str:
    with pytest.raises(AccessError) as raised:
        await work
    return str(raised.value)


async def first_record(client: Client, topic: str) -> None:
    async with aclosing(client.follow([topic], until_end=True)) as records:  # type: ignore[type-var]
        async for _ in records:
            return


async def test_with_the_rights_that_acl_gives_a_worker_runs_and_everybody_else_reaches_what_is_theirs_and_no_more(
    secured: Secured, tmp_path: Path, call: Call, spawn: Callable[..., WorkerProcess]
) -> None:
    async with site(secured, tmp_path, *WITNESSED, *RICH) as here:
        stream = Stream(here.admin)
        assert (await asyncio.to_thread(allow, here, call)).code == 0
        again = await asyncio.to_thread(allow, here, call, "--json")  # what is there stays
        assert json.loads(again.out)["applied"]
        worker = here.spawned(spawn)
        worker.start()
        await worker.wait_until_said(RUNS)
        await stream.go_on(1)
        await check_producer(here, stream.start)
        await stream.assert_released()
        await check_reader(here, call, json.loads(again.out)["reader_groups"]["partner"])
        await check_operator(here, call, stream)
        await check_gateway(here)
        await check_console(here)
        worker.check()

        # A right that is taken away ends the worker, which names it.
        ticks = Topics.of(here.admin.plan).ticks
        began = time.monotonic()
        await revoke(here.admin.client, Right("User:worker", "topic", ticks, "Write"))
        assert await asyncio.to_thread(worker.wait) == 1
        assert time.monotonic() - began < SOON_SECONDS
        said = worker.log.read_text()
        assert said.splitlines()[-1] == (
            f"error: the cluster at {secured.login} does not let this account use topic {ticks}; `stream-dp acl FILE` "
            "prints the rights that are needed"
        )
        assert "Traceback" not in said
        assert password_of("worker") not in said


@pytest.mark.slow
async def test_an_audience_is_added_once_the_workers_have_the_rights_for_its_topic(
    secured: Secured,
    tmp_path: Path,
    call: Call,
    spawn: Callable[..., WorkerProcess],
) -> None:
    async with site(secured, tmp_path, *RICH) as here:
        assert (await asyncio.to_thread(allow, here, call)).code == 0
        worker = here.spawned(spawn)
        worker.start()
        await worker.wait_until_said(RUNS)
        stream, view = Stream(here.admin), f"{here.admin.plan.name}-pages"
        here.text = here.text.replace("audiences: {", "audiences: {board: detailed, ", 1)
        later = format_time(stream.start + 3_600_000)
        words = ["apply", here.file("admin"), "--from", later, "--yes"]
        said = await asyncio.to_thread(call, *words)
        topic = Topics.of(here.admin.plan).release(view, "board")
        assert (said.code, "`stream-dp acl FILE --worker User:worker --apply`" in said.err) == (2, True)
        assert f"--operation DescribeConfigs --topic {topic}" in said.err

        # An operator does not see that. The worker uses the settings, and publishes the view's records when it may.
        operator = ["apply", here.file("operator"), "--from", later]
        assert (
            json.loads((await asyncio.to_thread(call, *operator, "--dry-run", "--json")).out)["rights"] == "not visible"
        )
        said = await asyncio.to_thread(call, *operator, "--yes")
        assert (said.code, said.out.splitlines()[-1]) == (0, "The worker uses settings 2.")
        assert f"this account cannot create topic {topic}, so audience board gets" in worker.log.read_text()
        await stream.go_on(1)
        async with asyncio.timeout(WITHIN_SECONDS):
            while await stream.shown() < stream.windows:
                await asyncio.sleep(0.2)
        assert (await asyncio.to_thread(allow, here, call)).code == 0
        until = time.monotonic() + WITHIN_SECONDS
        workers: list[tuple[int, list[str]]] = []
        while workers != [(2, [])] and time.monotonic() < until:  # it says so within two seconds
            status = json.loads((await asyncio.to_thread(call, "status", here.file("operator"), "--json")).out)
            workers = [(one["settings"], one["topic_problems"]) for one in status["workers"]]
        assert workers == [(2, [])]
        worker.check()


async def check_producer(here: Site, start_ms: int) -> None:
    """A producer writes to the source, and does not read it."""
    writer = SourceWriter(here.admin.plan)
    async with here.connected("producer") as producer:  # another visit, too late to count
        await producer.publish(writer.records([Event("u1", PAGES[0], start_ms)]))
        assert await refused(first_record(producer, writer.source.topic))


async def check_reader(here: Site, call: Call, groups: str) -> None:
    """An audience's account reads its topics, in groups of its own; nothing else, and it writes nowhere."""
    plan, view = here.admin.plan, f"{here.admin.plan.name}-pages"
    own, file = Topics.of(plan).release(view, "partner"), here.file("partner")
    said = await asyncio.to_thread(call, "tail", file, view, "partner", "--until-end", "--json")
    types = [json.loads(line)["type"] for line in said.out.splitlines()]
    assert (said.code, said.err, types) == (0, "", ["view", "release"])
    assert await group_reads(here, "partner", f"{groups}site", own)
    with pytest.raises(GroupAuthorizationFailedError):
        await group_reads(here, "partner", plan.name, own)

    topics = {spec.name for spec in Topics.of(plan).all(plan)} | {OWNERS_TOPIC, "__consumer_offsets", *sources_of(plan)}
    async with here.connected("partner") as reader:
        await first_record(reader, own)
        for topic in sorted(topics):
            if topic != own:
                assert f"use topic {topic};" in await refused(first_record(reader, topic))
            assert f"use topic {topic};" in await refused(reader.publish([Message(topic, b"key", b"value")]))
    said = await asyncio.to_thread(call, "tail", file, view, "public", "--until-end")
    assert said.code == 1
    assert f"does not let this account use topic {Topics.of(plan).release(view, 'public')};" in said.err
    said = await asyncio.to_thread(call, "grant", file, "partner", "--level", "detailed")
    assert (said.code, f"use topic {Topics.of(plan).control};" in said.err) == (1, True)


async def check_operator(here: Site, call: Call, stream: Stream) -> None:
    """An operator grants, tunes and reads the ledger; what workers hold is not theirs, and they give nobody rights."""
    file = here.file("operator")
    said = await asyncio.to_thread(call, "grant", file, "partner", "--level", "detailed")
    assert (said.code, said.err) == (0, "")
    await stream.wait_until_sharpened({"partner": "detailed"})
    view, later = f"{here.admin.plan.name}-pages", format_time(stream.start + 3_600_000)
    said = await asyncio.to_thread(call, "tune", file, view, "items_per_user=1", "--from", later, "--yes", "--json")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["settings"] == 2
    said = await asyncio.to_thread(call, "tune", file, view, "items_per_user=2", "--expect", "1", "--yes")
    assert (said.code, "Conflict: settings 2 are in effect, not 1" in said.err) == (1, True)
    await check_two_at_once(here)
    said = await asyncio.to_thread(call, "settings", file)
    assert (said.code, said.err) == (0, "")
    for command in (["ledger", file], ["tail", file, view, "partner", "--until-end"]):
        said = await asyncio.to_thread(call, *command)
        assert (said.code, said.err.startswith("note: settings 3 are in effect, and FILE differs")) == (0, True)
    async with here.connected("operator") as operator:
        assert await refused(first_record(operator, Topics.of(here.admin.plan).changelog(COUNTS)))
    said = await asyncio.to_thread(call, "acl", file, "--operator", "User:operator", "--apply")
    assert (said.code, "has Alter on it" in said.err) == (1, True)


async def check_gateway(here: Site) -> None:
    """The gateway's account reads the releases of every audience, in no group; nothing else, and it writes nowhere."""
    plan, view = load_plan(here.file("gateway"), {}), f"{here.admin.plan.name}-pages"
    boards, audiences = Boards(), ("partner", "public")
    gateway = Gateway(ServeConfig(public=[*audiences]), boards, Tokens(None, wall_clock_ms))
    reading = asyncio.create_task(BoardReader(plan, boards, lambda: connect(plan.broker)).run())
    async with asyncio.timeout(WITHIN_SECONDS):
        while not boards.started:
            await asyncio.sleep(0.1)
    for audience in audiences:
        answer = await ask(gateway.app(), f"/v1/views/{view}/windows?audience={audience}")
        assert [window["record"]["audience"] for window in answer.json["windows"]] == [audience]
    reading.cancel()
    assert not boards.silent

    topics, released = Topics.of(here.admin.plan), [Topics.of(plan).release(view, audience) for audience in audiences]
    others = {spec.name for spec in topics.all(here.admin.plan)} | {OWNERS_TOPIC, "__consumer_offsets"}
    others |= {*sources_of(here.admin.plan)}
    async with here.connected("gateway") as reader:
        for topic in sorted(others):
            if not topic.startswith(f"{plan.id}.releases."):
                assert f"use topic {topic};" in await refused(first_record(reader, topic))
        for topic in [*released, topics.control]:
            assert f"use topic {topic};" in await refused(reader.publish([Message(topic, b"key", b"value")]))
    with pytest.raises(GroupAuthorizationFailedError):
        await group_reads(here, "gateway", plan.name, released[0])


class Console(Desk):
    """The console on the cluster, with the account of an operator."""

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with connect(self.plan.broker) as client:
            yield client


async def check_console(here: Site) -> None:
    """With an operator's account the console shows what there is, tunes, grants and takes a grant back."""
    plan, view = load_plan(here.file("operator"), {}), f"{here.admin.plan.name}-pages"
    desk = Console(plan, here.folder / "operators.tokens")
    await desk.look()
    for name in ("status", "ledgers", "settings", "grants"):
        answer = await desk.get(f"/v1/{name}")
        assert (answer.status, bool(answer.json)) == (200, True), name
    assert not [one for one in (await desk.get("/v1/status")).json["problems"] if "partition" in one["code"]]
    asked = {"view": view, "assignments": ["items_per_user=2"]}
    planned = await desk.plan_of("items_per_user=2", view=view)
    agreed = {**asked, "plan": planned["plan"], "settings": planned["settings"], "note": ""}
    posted = await desk.send("/v1/settings", agreed)
    assert (posted.status, posted.json["posted"]) == (202, True), posted.body
    grant = {"audience": "public", "level": "standard", "at": format_time(wall_clock_ms() + 3_600_000)}
    weighed = await desk.send("/v1/grants", {"grant": grant})
    given = await desk.send("/v1/grants", {"grant": grant, "plan": weighed.json["plan"]})
    assert given.status == 202, given.body
    back = await desk.send(f"/v1/grants/{given.json['id']}", {"consent": True}, "DELETE")
    assert back.status == 202, back.body


async def check_two_at_once(here: Site) -> None:
    """Of two operators who have seen the same settings, one changes them, and the other one is told."""
    async with here.connected("operator") as one, here.connected("operator") as two:
        plan = load_plan(here.file("operator"), {})
        known = await read_accepted(plan, one)
        records = [
            next_record(known, plan_from_record(known[-1], plan), {}, {}, number, str(number)) for number in (1, 2)
        ]
        told = await asyncio.gather(post(plan, one, records[0]), post(plan, two, records[1]))
        assert sorted(told) == [False, True]
        assert (await read_history(plan, two)).posted[-1] == records[told.index(True)]


async def group_reads(here: Site, user: str, group: str, topic: str) -> bool:
    """Whether a reader with a group of its own gets a record, as any Kafka client would."""
    cluster = Cluster.of(load_plan(here.file(user), {}).broker)
    consumer = AIOKafkaConsumer(topic, **cluster.options, group_id=group, auto_offset_reset="earliest")
    try:
        await consumer.start()
        return (await asyncio.wait_for(consumer.getone(), WITHIN_SECONDS)).value is not None
    finally:
        await consumer.stop()


def logins(secured: Secured) -> dict[str, Broker]:
    """Clusters as plans have them, each with a way to get in."""
    folder = secured.folder
    for name, text in (("wrong", "wrong"), ("token", token_of("worker")), ("old", token_of("worker", -9999))):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)

    def secret(name: str, place: str = "sasl.password") -> Secret:
        return Secret(f"broker.{place}", folder / name)

    def login(mechanism: Any = "scram-sha-512", user: str = "worker", file: str = "") -> Sasl:
        return Sasl(mechanism, user, secret(file or f"{user}.password"))

    def token(name: str) -> Sasl:
        return Sasl("oauthbearer", "", secret(name, "sasl.token"))

    ca = Tls(folder / "ca.pem")
    own = replace(ca, certificate=folder / "worker.crt", key=folder / "worker.key")
    own = replace(own, key_password=secret("worker.key.password", "tls.key_password"))
    at = {name: f"kafka://{getattr(secured, name)}" for name in ("open", "login", "bare", "mutual")}
    return {
        "scram-sha-512": Broker(at["login"], tls=ca, sasl=login()),
        "scram-sha-256": Broker(at["login"], tls=ca, sasl=login("scram-sha-256")),
        "plain": Broker(at["login"], tls=ca, sasl=login("plain")),
        "oauthbearer": Broker(at["login"], tls=ca, sasl=token("token")),
        "without TLS": Broker(at["bare"], sasl=login()),
        "a certificate": Broker(at["mutual"], tls=own),
        "broker.sasl: {login} refuses the login of worker: the name or the password is wrong": Broker(
            at["login"], tls=ca, sasl=login(file="wrong")
        ),
        "broker.sasl: {login} refuses the login of nobody: the name or the password is wrong": Broker(
            at["login"], tls=ca, sasl=login("plain", "nobody", "wrong")
        ),
        "broker.sasl.token: {login} refuses the token; it may be out of date, or for another cluster": Broker(
            at["login"], tls=ca, sasl=token("old")
        ),
        "broker.sasl.mechanism: {bare} does not take plain; it takes scram-sha-512": Broker(
            at["bare"], sasl=login("plain")
        ),
        "broker.sasl: {login} wants a login; it takes oauthbearer, plain, scram-sha-256, scram-sha-512": Broker(
            at["login"], tls=ca
        ),
        "broker.sasl: {open} takes no login on this port; use the port that does, or leave sasl out": Broker(
            at["open"], sasl=login()
        ),
        "broker.tls.ca: {login} shows a certificate that is not trusted (unable to get local issuer certificate); name "
        "the CA that signed it": Broker(at["login"], tls=Tls(folder / "other-ca.pem"), sasl=login()),
        "broker.address: the broker at localhost:{port} shows a certificate that is not for localhost; write a name "
        "that is in it": Broker(at["login"].replace("127.0.0.1", "localhost"), tls=ca, sasl=login()),
        "broker.tls: {open} speaks no TLS on this port; use its port for TLS, or leave tls out": Broker(
            at["open"], tls=ca
        ),
        "broker.tls: {login} speaks TLS; write `tls: true`, or name the CA that signed its certificate": Broker(
            at["login"]
        ),
        "broker.tls.certificate: {mutual} refuses our certificate, or that we show none (bad certificate)": Broker(
            at["mutual"], tls=ca
        ),
    }


async def test_every_way_to_get_in_works_and_every_other_is_told_why_not_within_seconds(secured: Secured) -> None:
    said, expected = [], []
    names = {name: f"the broker at {getattr(secured, name)}" for name in ("open", "login", "bare", "mutual")}
    names["port"] = secured.login.rpartition(":")[2]
    for words, broker in logins(secured).items():
        began = time.monotonic()
        try:
            async with connect(broker) as client:
                await client.describe([])
            said.append(words)
        except ConfigError as error:
            said.append(str(error))
        assert time.monotonic() - began < SOON_SECONDS
        expected.append(words.format(**names))
    assert said == expected


async def test_a_broker_that_is_gone_is_waited_for_also_beside_one_that_refuses(secured: Secured) -> None:
    right = logins(secured)["scram-sha-512"]
    with pytest.raises(OutageError, match="no Kafka answers"):
        async with connect(replace(right, url="kafka://127.0.0.1:1")):
            pass
    async with connect(replace(right, url=f"kafka://127.0.0.1:1,{secured.login}")) as client:
        await client.describe([])


async def test_worker_whose_login_is_refused_ends_at_once_with_the_code_of_a_wrong_configuration(
    secured: Secured, tmp_path: Path, spawn: Callable[..., WorkerProcess]
) -> None:
    async with site(secured, tmp_path) as here:
        worker = here.spawned(spawn)
        file = tmp_path / "application.yaml"
        file.write_text(file.read_text().replace("worker.password", "partner.password"))
        worker.start()
        assert await asyncio.to_thread(worker.wait) == 2
        (line,) = [line for line in worker.said().splitlines() if "stream_dp.worker: connecting to" not in line]
        reason = "refuses the login of worker: the name or the password is wrong"
        assert line == f"error: broker.sasl: the broker at {secured.login} {reason}"


ONE_VIEW = (("public: overview, partner: standard, internal: standard", "public: overview"), *RICH)
RIGHTS = worker_rights(plan_of(configuration("name", *ONE_VIEW)), "User:worker")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(RIGHTS)), ids=[" ".join(right[1:4]) for right in RIGHTS])
async def test_a_worker_without_any_one_of_its_rights_does_not_do_its_work(
    secured: Secured, tmp_path: Path, number: int
) -> None:
    async with site(secured, tmp_path, *ONE_VIEW) as here:
        admin = here.admin.client
        assert isinstance(admin, KafkaClient)
        rights = worker_rights(here.admin.plan, "User:worker")
        without = rights[number]
        await admin.allow(rights)
        await revoke(admin, without)
        if without == Right("User:worker", "topic", OWNERS_TOPIC, "Create"):
            await admin._admin.delete_topics([OWNERS_TOPIC])
        reason = await failure(here)
        assert reason is not None, f"it needs no {without}"
        told = reason if isinstance(reason, AccessError) else not_allowed(secured.login, reason)
        assert told is not None, f"nobody would know that it is {without}: {reason!r}"


@pytest.mark.slow
async def test_worker_whose_topics_are_there_needs_no_right_to_create_any(secured: Secured, tmp_path: Path) -> None:
    async with site(secured, tmp_path, *ONE_VIEW) as here:
        admin = here.admin.client
        assert isinstance(admin, KafkaClient)
        rights = worker_rights(here.admin.plan, "User:worker")
        await admin.allow(rights)
        async with here.worker():
            pass
        for right in rights:
            if right.operation == "Create":
                await revoke(admin, right)
        assert await failure(here) is None


async def failure(here: Site) -> BaseException | None:
    """Why a worker that releases, carries out a grant, is started again and renews its claims cannot do so."""
    stream, reason = Stream(here.admin), None
    try:
        for life in range(2):
            async with here.worker() as app:
                assert app.worker is not None
                await stream.go_on(1)
                if not life:
                    await here.admin.grant("public", "standard")
                while await stream.shown() < stream.windows or not await here.admin.read(Topics.of(app.plan).orders):
                    if (reason := app.worker.crash_reason()) is not None:
                        return reason
                    await asyncio.sleep(0.2)
                for table in app.worker.tables.values():
                    await table.renew()
    except asyncio.CancelledError:  # the crash cuts off what the end of the worker waits for
        if reason is None:
            raise
        return reason
    except (StreamDPError, KafkaError) as error:
        return error
    return None
