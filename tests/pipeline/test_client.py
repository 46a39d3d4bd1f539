"""The client for programs, on the embedded log: from its topics as a Kafka client has them, and by a gateway."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiokafka.errors import KafkaConnectionError

from stream_dp.client import Expired, Releases
from stream_dp.client.from_gateway import sent_events
from stream_dp.config.plan import Plan
from stream_dp.errors import AccessError, BrokerError, OutageError, ParameterError, StateError
from stream_dp.gateway.tokens import new_token, revoke_token
from stream_dp.records.codec import encode, encode_parts, topic_key
from stream_dp.records.models import Refusal, Release
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.given import there
from tests.support.published import DAY_MS, refusal, release, visits, visits_file  # noqa: F401 - fixtures
from tests.support.serving import MemoryConsumer, World, ready

Make = Callable[..., Any]
MANY = {f"page {number}": 900 - number for number in range(300)}


@dataclass
class Site:
    """Releases of an application, and a way to read them."""

    world: World
    consumer: MemoryConsumer
    source: str
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def reader(self, **options: Any) -> Releases:
        if self.source == "kafka":
            options = {"application": "visits", "audience": "public", **options}
            return Releases("kafka://one:9092,two:9092", view="pages", **options)
        if not self.world.port:
            await ready(await self.stack.enter_async_context(self.world.serving()))
        return Releases(f"http://127.0.0.1:{self.world.port}", view="pages", **options)

    async def all(self, **options: Any) -> list[Any]:
        """Everything that is there now."""
        async with asyncio.timeout(WITHIN_SECONDS):
            return [record async for record in await self.reader(**{"follow": False, **options})]


@pytest.fixture(params=["kafka", "gateway"])
async def site(
    request: pytest.FixtureRequest, visits: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setattr("stream_dp.client.sources.FIRST_SECONDS", 0.01)
    world = World(visits, tmp_path / "readers.tokens")
    consumer = MemoryConsumer(world.log)
    monkeypatch.setattr("stream_dp.client.from_kafka.AIOKafkaConsumer", consumer)
    site = Site(world, consumer, request.param)
    async with site.stack:
        yield site
    assert consumer.running == 0


only_kafka = pytest.mark.parametrize("site", ["kafka"], indirect=True)
only_gateway = pytest.mark.parametrize("site", ["gateway"], indirect=True)


@asynccontextmanager
async def following(reader: Releases) -> AsyncIterator[AsyncIterator[Any]]:
    async with asyncio.timeout(WITHIN_SECONDS), aclosing(reader.__aiter__()) as records:
        yield records


def words(record: Any) -> str:
    """A record in a word: "0 r2" is revision 2 of the first day."""
    kind = {Expired: "gone"}.get(type(record), "refused" if isinstance(record, Refusal) else "r")
    return f"{record.window.start_ms // DAY_MS} {kind}{getattr(record, 'revision', '')}"


async def test_the_newest_record_of_every_window_comes_in_order_and_whole(
    site: Site, release: Make, refusal: Make
) -> None:
    sharper = release(MANY, day=1, revision=2, level=1)
    site.world.publish(release({"home": 4}, day=2), refusal(day=3), release({"home": 40}), release(MANY, day=1))
    site.world.publish(release(MANY, day=4))
    site.world.publish(sharper, refusal(day=2, revision=2))
    site.world.publish(release(MANY, day=1), release({"home": 40}), refusal(day=3))  # repeated after a crash
    found = await site.all()
    assert list(map(words, found)) == ["0 r1", "1 r2", "2 r1", "2 refused2", "3 refused1", "4 r1"]
    assert found[1] == sharper
    assert found[1].interval(there(found[1].entry("page 0")))[0] < MANY["page 0"]


@pytest.mark.parametrize("since", ["1970-01-03", "1970-01-03T00:00:00Z", datetime(1970, 1, 3, tzinfo=UTC)])
async def test_since_leaves_out_windows_that_begin_before(site: Site, release: Make, since: Any) -> None:
    site.world.publish(*(release({"home": 40}, day=day) for day in range(4)))
    assert list(map(words, await site.all(since=since))) == ["2 r1", "3 r1"]
    async with following(await site.reader(since=since)) as records:
        assert [words(await anext(records)) for _ in range(2)] == ["2 r1", "3 r1"]
        site.world.publish(release({"home": 41}, revision=2, level=1), release({"home": 41}, day=3, revision=2))
        assert words(await anext(records)) == "3 r2"


async def test_former_revisions_come_if_they_are_asked_for(site: Site, release: Make) -> None:
    records = [release(MANY, revision=revision, level=revision - 1) for revision in (1, 2)]
    site.world.publish(*records, release({"home": 4}, day=1), records[0])
    assert list(map(words, await site.all(revisions="all"))) in (["0 r1", "0 r2", "1 r1"], ["1 r1", "0 r1", "0 r2"])
    async with following(await site.reader(revisions="all")) as found:
        assert sorted([words(await anext(found)) for _ in range(3)]) == ["0 r1", "0 r2", "1 r1"]
        site.world.publish(records[1], release({"home": 5}, day=1, revision=2, level=1))
        assert words(await anext(found)) == "1 r2"


async def test_what_is_new_comes_once_and_windows_expire(site: Site, release: Make, refusal: Make) -> None:
    large = release(MANY)
    site.world.publish(large, release({"home": 4}, day=1))
    async with following(await site.reader(expired=True)) as records:
        assert [words(await anext(records)) for _ in range(2)] == ["0 r1", "1 r1"]
        site.world.publish(large, release({"home": 5}, day=1, revision=2, level=1))
        assert words(await anext(records)) == "1 r2"
        site.world.publish(refusal(day=1, revision=3, level=2))
        assert words(await anext(records)) == "1 refused3"
        site.world.publish(*(key for key, _ in encode_parts(large, 3200)))
        gone = await anext(records)
        assert gone == Expired("pages", "public", large.window)
        site.world.publish(release({"home": 4}, day=2))
        assert words(await anext(records)) == "2 r1"
    assert list(map(words, await site.all(expired=True))) == ["1 r2", "1 refused3", "2 r1"]


async def test_a_topic_that_is_made_anew_is_read_anew(site: Site, release: Make) -> None:
    site.world.publish(release({"home": 4}, revision=2, level=1), release({"home": 4}, day=1))
    async with following(await site.reader(expired=True)) as records:
        assert [words(await anext(records)) for _ in range(2)] == ["0 r2", "1 r1"]
        site.world.log.delete(site.world.topic())
        site.world.publish(release({"home": 50}))
        assert [words(await anext(records)) for _ in range(2)] == ["1 gone", "0 r1"]


async def test_records_of_types_that_are_not_known_are_passed_over(site: Site, release: Make) -> None:
    site.world.publish(release({"home": 4}))
    view = json.dumps({"schema_version": 1, "type": "view", "view": "pages", "audience": "public"}).encode()
    site.world.log.append(site.world.topic(), 0, b"pages/public/view/1", view)
    site.world.log.append(site.world.topic(), 0, b"pages/public/view/1", None)
    site.world.publish(release({"home": 4}, day=1))
    assert list(map(words, await site.all())) == ["0 r1", "1 r1"]


def changed(record: Release, **fields: Any) -> bytes:
    return json.dumps(json.loads(encode(record)) | fields).encode()


@only_kafka
@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda record: b"{", "offset 1: not a release record"),
        (lambda record: b"\xff", "offset 1: "),
        (
            lambda record: changed(record, noise_interval_95="12"),
            "offset 1: not a release record of schema version 1: ",
        ),
        (lambda record: changed(record, kind="other"), "offset 1: not a release record of schema version 1"),
        (lambda record: changed(record, schema_version=2), "schema version 2 was found"),
        (lambda record: changed(record, schema_version=2, type="view"), "schema version 2 was found"),
        (lambda record: changed(record, audience="staff"), "offset 1: the record is of another view or audience"),
    ],
)
async def test_a_record_that_was_tampered_with_is_an_error(site: Site, release: Make, tamper: Make, said: str) -> None:
    site.world.publish(release({"home": 4}))
    site.world.log.append(site.world.topic(), 0, topic_key(release({}, day=1)), tamper(release({}, day=1)))
    with pytest.raises(StateError, match=r"topic visits\.releases\.pages\.public") as caught:
        await site.all()
    assert said in str(caught.value)


@only_kafka
async def test_kafka_is_read_without_a_group_and_with_the_options_that_were_given(site: Site, release: Make) -> None:
    site.world.publish(release({"home": 4}))
    await site.all(kafka={"security_protocol": "SASL_SSL", "sasl_plain_password": "secret"})
    assert site.consumer.options == {
        "bootstrap_servers": "one:9092,two:9092",
        "security_protocol": "SASL_SSL",
        "sasl_plain_password": "secret",
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
    }


@only_kafka
async def test_a_cluster_that_does_not_answer_is_asked_again_and_then_an_error(
    site: Site, release: Make, caplog: pytest.LogCaptureFixture
) -> None:
    site.world.publish(release({"home": 4}))
    site.consumer.failures = [KafkaConnectionError("refused")] * 3
    assert list(map(words, await site.all())) == ["0 r1"]
    assert [record.levelno for record in caplog.records if record.name == "stream_dp.client"] == [logging.WARNING]
    site.consumer.failures = [KafkaConnectionError("refused")]
    with pytest.raises(OutageError, match=r"no Kafka answers at one:9092,two:9092, or it refuses the login: .*refused"):
        await site.all(wait_seconds=0)


@only_kafka
async def test_a_topic_that_is_not_there_is_an_error_and_not_made(site: Site) -> None:
    with pytest.raises(BrokerError, match=r"has no topic visits\.releases\.pages\.public, or does not show it"):
        await site.all()
    assert site.world.log.partitions == {}


@only_kafka
async def test_who_leaves_the_loop_leaves_nothing_open(site: Site, release: Make) -> None:
    site.world.publish(release({"home": 4}), release({"home": 4}, day=1))
    async for record in await site.reader():
        assert words(record) == "0 r1"
        break
    async with asyncio.timeout(WITHIN_SECONDS):
        while site.consumer.running:
            await asyncio.sleep(0.01)


@pytest.mark.slow
@only_gateway
async def test_after_a_restart_of_the_gateway_it_goes_on_where_it_was(site: Site, release: Make) -> None:
    site.world.publish(release({"home": 4}), release({"home": 4}, day=1))
    async with site.world.serving() as session:
        await ready(session)
        reader = await site.reader()
        records = reader.__aiter__()
        assert [words(await anext(records)) for _ in range(2)] == ["0 r1", "1 r1"]
        site.world.publish(release({"home": 5}, day=1, revision=2, level=1))
        assert words(await anext(records)) == "1 r2"
    site.world.publish(release({"home": 5}, day=2))
    waiting = asyncio.ensure_future(anext(records))
    async with site.world.serving() as session, asyncio.timeout(WITHIN_SECONDS):
        await ready(session)
        assert words(await waiting) == "2 r1"
        site.world.publish(release({"home": 5}, day=3))
        assert words(await anext(records)) == "3 r1"
    await records.aclose()


@only_gateway
async def test_a_release_that_is_too_large_for_an_event_is_fetched(site: Site, release: Make) -> None:
    site.world.publish(release({"home": 4}))
    large = release({f"{'x' * 400} {number}": 900 for number in range(1500)}, day=1)
    async with following(await site.reader()) as records:
        assert words(await anext(records)) == "0 r1"
        site.world.publish(large, most=1 << 19)
        assert await anext(records) == large


@only_gateway
async def test_a_token_gives_its_audience_until_it_is_revoked(site: Site, release: Make) -> None:
    site.world.publish(release({"home": 4}))
    site.world.publish(release({"home": 8}, audience="staff"), audience="staff")
    entry, token = new_token(site.world.tokens, "staff", wall_clock_ms())
    async with following(await site.reader(token=token)) as records:
        assert (await anext(records)).audience == "staff"
        revoke_token(site.world.tokens, entry.id)
        with pytest.raises(AccessError, match="the token was revoked"):
            await anext(records)
    with pytest.raises(AccessError, match="does not take the token: it is wrong, or no longer good") as caught:
        await site.all(token=token)
    assert token not in str(caught.value)
    assert token not in repr(await site.reader(token=token))
    with pytest.raises(AccessError, match="needs a token"):
        await site.all(audience="staff")


@only_gateway
async def test_a_view_that_is_not_there_is_an_error(site: Site, release: Make) -> None:
    site.world.publish(release({"home": 4}))
    reader = await site.reader(audience="public", follow=False)
    with pytest.raises(AccessError, match="has no view other for audience public that this reader may read"):
        _ = [record async for record in Releases(reader.address, view="other", audience="public", follow=False)]


@dataclass
class Double:
    """A server in place of a gateway: answers by what is asked for, each once, the last one again and again."""

    answers: dict[str, list[Any]]
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        what = request.path.rpartition("/")[2]
        self.asked.append(f"{what} {request.headers.get('Last-Event-ID', '')}".strip())
        left = self.answers[what]
        made = left.pop(0) if len(left) > 1 else left[0]
        status, body, headers = made if isinstance(made, tuple) else (200, made, {})
        return web.Response(status=status, body=body, headers={"Stream-Position": "00000000-7", **headers})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/behind/v1/views/pages/{what}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/behind/"
        finally:
            await runner.cleanup()


def page(*records: Release) -> bytes:
    bodies = [b'{"record":%s,"refusal":null}' % encode(record) for record in records]
    return b'{"windows":[%s],"next":null}' % b",".join(bodies)


def event(name: str, data: bytes, at: str = "") -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), at.encode(), data)


def bye(reason: str) -> bytes:
    return event("bye", json.dumps({"reason": reason, "retry_after_s": 0}).encode())


async def read(answers: dict[str, list[Any]], **options: Any) -> tuple[list[str], list[str], Exception]:
    """What is read of a double until an error, what it was asked, and the error."""
    double, found = Double(answers), list[str]()
    async with double.serving() as address, asyncio.timeout(WITHIN_SECONDS):
        try:
            async for record in Releases(address, view="pages", **{"expired": True, **options}):
                found.append(words(record))
        except Exception as error:
            return found, double.asked, error
    return found, double.asked, Exception("none")


REVOKED = bye("revoked")


@only_gateway
@pytest.mark.parametrize("reason", ["slow", "shutdown", "something new"])
async def test_after_a_goodbye_it_comes_back_with_its_position(site: Site, release: Make, reason: str) -> None:
    sent = event("release", b'{"record":%s}' % encode(release({"home": 5}, day=1)), "00000000-9")
    found, asked, error = await read({"windows": [page(release({"home": 4}))], "events": [sent + bye(reason), REVOKED]})
    assert (found, asked) == (["0 r1", "1 r1"], ["windows", "events 00000000-7", "events 00000000-9"])
    assert isinstance(error, AccessError)


@only_gateway
async def test_a_token_that_expires_ends_it(site: Site, release: Make) -> None:
    _, _, error = await read({"windows": [page()], "events": [bye("expired")]})
    assert (type(error), str(error).partition(": ")[2]) == (AccessError, error.args[0].partition(": ")[2])
    assert "the token has expired" in str(error)


@only_gateway
async def test_a_stream_that_is_cut_off_is_resumed_and_half_an_event_is_none(site: Site, release: Make) -> None:
    sent = event("release", b'{"record":%s}' % encode(release({"home": 5}, day=1)), "00000000-9")
    streams: list[Any] = [
        b"retry: 3000\nid: 00000000-7\n\n: now\n\n" + sent[:-9],
        (503, b"", {}),
        (502, b"<html>", {}),
        sent,
        REVOKED,
    ]
    found, asked, _ = await read({"windows": [(429, b"", {"Retry-After": "0"}), page()], "events": streams})
    assert found == ["1 r1"]
    assert asked == ["windows"] * 2 + ["events 00000000-7"] * 4 + ["events 00000000-9"]


@only_gateway
async def test_a_position_that_cannot_be_resumed_begins_anew(site: Site, release: Make) -> None:
    reset = event("reset", b'{"view":"pages","reason":"too_far_behind","position":"00000000-9"}')
    pages = [page(release({"home": 5}, day=1), release({"home": 4})), page(release({"home": 6}, day=1, revision=2))]
    found, asked, _ = await read({"windows": pages, "events": [reset, REVOKED]})
    assert (found, asked[2]) == (["0 r1", "1 r1", "0 gone", "1 r2"], "windows")


@only_gateway
@pytest.mark.parametrize(
    ("answers", "kind", "said"),
    [
        ([(500, b"", {})], OutageError, "does not answer this: 500"),
        ([(400, b'{"type":"bad_request","detail":"from: write a date"}', {})], BrokerError, "from: write a date"),
        ([(302, b"{}", {"Location": "http://elsewhere.example"})], BrokerError, "302 Found"),
        ([b"<html>"], StateError, "has sent what cannot be read"),
        ([b'{"windows":[{"record":{"type":"release"}}],"next":null}'], StateError, "schema_version"),
    ],
)
async def test_an_answer_that_is_none_is_an_error(
    site: Site, answers: list[Any], kind: type[Exception], said: str
) -> None:
    found, _, error = await read({"windows": answers}, wait_seconds=0)
    assert (found, type(error)) == ([], kind)
    assert said in str(error)


@only_gateway
async def test_an_event_that_is_too_large_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.client.from_gateway.LARGEST_LINE", 1 << 16)
    _, _, error = await read({"windows": [page()], "events": [event("release", b"x" * (1 << 18))]})
    assert "an event that is too large" in str(error)


@only_gateway
async def test_nobody_there_is_an_outage(site: Site) -> None:
    with pytest.raises(OutageError, match=r"the gateway at http://127\.0\.0\.1:9 does not answer: "):
        _ = [one async for one in Releases("http://127.0.0.1:9", view="pages", follow=False, wait_seconds=0)]


async def test_events_are_those_of_the_standard() -> None:
    async def lines() -> AsyncIterator[bytes]:
        for line in (
            b": c\n",
            b"\n",
            b"event:a\r\n",
            b"data: 1\r\n",
            b"data:2\r\n",
            b"\r\n",
            b"id: x\n",
            b"data\n",
            b"\n",
            b"data: 3\n",
        ):
            yield line

    assert [tuple(one) async for one in sent_events(lines())] == [("a", b"1\n2", ""), ("", b"", "x")]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"address": "host:9092"}, "address"),
        ({"address": "https://user:secret@host"}, "address"),
        ({"address": "kafka://host:9092", "audience": "public"}, "application"),
        ({"address": "kafka://host:9092", "application": "visits"}, "audience"),
        ({"view": "../ledgers"}, "view"),
        ({"address": "http://host", "token": "sdp_x"}, "token"),
        ({"since": "yesterday"}, "since"),
        ({"since": datetime(2026, 1, 1)}, "since"),
    ],
)
def test_parameters_that_are_wrong_are_named(options: dict[str, Any], path: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Releases(**{"address": "https://host", "view": "pages", **options})
    assert [fault.path for fault in caught.value.faults] == [path]
    assert "secret" not in str(caught.value)


def test_a_program_that_reads_releases_imports_no_part_of_a_worker_or_gateway() -> None:
    program = "import sys, stream_dp.client; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WITHIN_SECONDS
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert (
        loaded & {"faust", "mode", "rocksdict", "starlette", "uvicorn", "pandas", "pyarrow", "rich", "click"} == set()
    )
    inner = {name.split(".")[1] for name in done.stdout.split() if name.startswith("stream_dp.")}
    assert inner == {"accounting", "client", "errors", "exact", "histograms", "records", "version", "windows"}
