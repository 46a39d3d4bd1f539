"""What a registry is asked for, how often, with which login, and what becomes of odd answers."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, OutageError
from stream_dp.runtime.sources import schema_registry as registry
from stream_dp.runtime.sources.schema_registry import SchemaRegistry, open_registry
from stream_dp.testing import plan_from
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.avro import unknown_schema, unusable_schema
from stream_dp.windows.events import RefusedError
from tests.support.avro import VISIT, header, written
from tests.support.counting import Entry
from tests.support.registry import FakeRegistry, basic, fake_registry
from tests.support.secured import make_certificates
from tests.support.visits import configuration


@pytest.fixture
async def fake() -> AsyncIterator[FakeRegistry]:
    async with fake_registry() as one:
        one.add(1, VISIT)
        yield one


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SURE_SECONDS", 0.05)
    monkeypatch.setattr(registry, "RETRY_SECONDS", 0.01)


def plan_of(folder: Path, given: str) -> Plan:
    changes = ("partitions: 3", "partitions: 3, format: avro"), ("erase_within: 20s", f"registry: {given}")
    return plan_from(configuration("site", *changes), folder)


def records(*values: bytes) -> list[Any]:
    return [Entry(number, b"u", value) for number, value in enumerate(values)]


async def of(plan: Plan, *values: bytes, patient: bool = False) -> list[Any]:
    async with open_registry(plan, patient=patient) as schemas:
        found = await schemas["site.visits"].of(records(*values))
        return [found[value[:5]] for value in values]


async def test_a_schema_is_asked_for_once_however_many_values_bear_its_number(
    fake: FakeRegistry, tmp_path: Path
) -> None:
    value = written(VISIT, {"user": "u", "page": "/a", "at": 5})
    async with open_registry(plan_of(tmp_path, fake.url)) as schemas:
        one = schemas["site.visits"]
        several = await asyncio.gather(*(one.of(records(value, value)) for _ in range(20)))
        assert await one.of(records(value)) == several[0]
    assert fake.asked == ["/schemas/ids/1"]
    assert several[0][header(1)](value)["page"] == "/a"


async def test_missing_schema_is_asked_for_again(fake: FakeRegistry, tmp_path: Path) -> None:
    """A record with the next number does not decide about later records, which bear it after it is registered."""
    async with open_registry(plan_of(tmp_path, fake.url)) as schemas:
        one = schemas["site.visits"]
        assert await one.of(records(header(7))) == {header(7): unknown_schema}
        assert fake.asked == ["/schemas/ids/7"] * 2
        fake.add(7, VISIT)
        assert (await one.of(records(header(7))))[header(7)] is not unknown_schema


async def test_old_record_is_refused_at_once(
    fake: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a made-up number in every chunk does not hold up a worker by more than a second in all."""
    monkeypatch.setattr(registry, "SURE_SECONDS", 2 * WITHIN_SECONDS)
    async with open_registry(plan_of(tmp_path, fake.url)) as schemas, asyncio.timeout(WITHIN_SECONDS):
        one = schemas["site.visits"]
        assert await one.find_readers({header(7)}, age_s=2 * WITHIN_SECONDS) == {header(7): unknown_schema}
    assert fake.asked == ["/schemas/ids/7"]


@pytest.mark.parametrize(
    "answer",
    [(404, {"error_code": 404, "message": "HTTP 404 Not Found"}), (404, b"no such page"), (400, {}), (422, {})],
)
async def test_rejected_number_is_missing(fake: FakeRegistry, tmp_path: Path, answer: Any) -> None:
    """A worker that waited would wait forever: the registry answers, and rejects this number again and again."""
    fake.answers["/schemas/ids/7"] = answer
    async with asyncio.timeout(WITHIN_SECONDS):
        found = await of(plan_of(tmp_path, fake.url), header(7), header(1), patient=True)
    assert found[0] is unknown_schema
    assert found[1] is not unknown_schema


async def test_registry_with_codes_of_its_own_is_recognised(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.answers["/schemas/ids/7"] = 404, b""
    fake.answers[f"/schemas/ids/{registry.MAX_NUMBER}"] = 404, b""
    fake.answers["/schemas/types"] = 200, ["AVRO"]
    async with asyncio.timeout(WITHIN_SECONDS):
        assert await of(plan_of(tmp_path, fake.url), header(7), patient=True) == [unknown_schema]


async def test_number_that_no_registry_has_is_not_asked_for(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.broken = 404, b""
    async with asyncio.timeout(WITHIN_SECONDS):
        assert await of(plan_of(tmp_path, fake.url), header(1 << 31), patient=True) == [unknown_schema]
    assert not fake.asked


async def test_a_schema_that_one_copy_of_the_registry_does_not_have_yet_is_not_missing(
    fake: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "SURE_SECONDS", 0.5)
    async with open_registry(plan_of(tmp_path, fake.url)) as schemas:
        asking = asyncio.create_task(schemas["site.visits"].of(records(header(7))))
        while not fake.asked:
            await asyncio.sleep(0.01)
        fake.add(7, VISIT)
        assert (await asking)[header(7)] is not unknown_schema


async def test_many_schemas_are_not_all_kept(
    fake: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MOST_READINGS", 3)
    for number in range(1, 21):
        fake.add(number, VISIT)
    async with open_registry(plan_of(tmp_path, fake.url)) as schemas:
        one = schemas["site.visits"]
        for number in range(1, 21):
            assert len(await one.of(records(header(number), header(1)))) == 1 + (number > 1)
        assert len(one._known) == 3
        assert len(await one.of(records(*map(header, range(1, 21))))) == 20


@pytest.mark.parametrize(
    "broken",
    [
        (500, {}),
        (503, b""),
        (404, b"no such page"),
        (404, {"message": "x"}),
        (200, b"x"),
        (200, {}),
        (301, b""),
        (429, {}),
    ],
)
async def test_what_is_no_answer_of_a_registry_is_waited_for(fake: FakeRegistry, tmp_path: Path, broken: Any) -> None:
    plan = plan_of(tmp_path, fake.url)
    fake.broken = broken
    with pytest.raises(
        OutageError, match=f"the schema registry at .*: it answers {broken[0]} .*, which is not an answer"
    ):
        await of(plan, header(1))
    asking = asyncio.create_task(of(plan, header(1), patient=True))
    while len(fake.asked) < 5:
        await asyncio.sleep(0.01)
    assert not asking.done()
    fake.broken = None
    (read,) = await asking
    assert read not in (unknown_schema, unusable_schema)


async def test_the_log_says_once_a_minute_that_a_registry_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    refused: asyncio.Queue[int] = asyncio.Queue()
    tell = SchemaRegistry._tell

    def told(self: SchemaRegistry, error: OutageError) -> None:
        tell(self, error)
        refused.put_nowait(len(caplog.messages))

    monkeypatch.setattr(SchemaRegistry, "_tell", told)
    asking = asyncio.create_task(of(plan_of(tmp_path, "http://127.0.0.1:9"), header(1), patient=True))
    assert [await refused.get() for _ in range(5)] == [1] * 5
    assert caplog.messages[0].startswith("the schema registry at http://127.0.0.1:9 is unavailable")
    monkeypatch.setattr(registry, "SAY_SECONDS", 0)
    assert [await refused.get() for _ in range(3)] == [2, 3, 4]
    asking.cancel()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"schema": "{}", "schemaType": "PROTOBUF"}, "it is not in Avro"),
        ({"schema": 5}, "it is not in Avro"),
        ({"schema": '"string"'}, "not one of a record"),
        ({"schema": json.dumps(VISIT), "references": [{"name": "x"}]}, "in a way that is not known"),
        ({"schema": json.dumps(VISIT), "references": [{"subject": "a", "version": 1}]}, "refers to itself"),
        ({"schema": json.dumps(VISIT), "references": [{"subject": "c", "version": 1}]}, "one that is not there"),
        ({"schema": json.dumps({**VISIT, "doc": "x" * (1 << 18)})}, "it is too long"),
        ({"schema": "x" * (1 << 22)}, "it is too long"),
    ],
)
async def test_a_schema_that_cannot_be_used_is_told_of_once(
    fake: FakeRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: Any, why: str
) -> None:
    fake.answers["/schemas/ids/1"] = 200, answer
    around = {"schema": json.dumps(VISIT), "references": [{"subject": "b", "version": 1}]}
    fake.answers["/subjects/a/versions/1"] = 200, around
    fake.answers["/subjects/b/versions/1"] = 200, {**around, "references": [{"subject": "a", "version": 1}]}
    fake.answers["/subjects/c/versions/1"] = 404, {"error_code": 40401}
    async with open_registry(plan_of(tmp_path, fake.url)) as schemas:
        for _ in range(3):
            found = await schemas["site.visits"].of(records(header(1)))
            assert found == {header(1): unusable_schema}
    (said,) = caplog.messages
    assert said.startswith("sources.visits: records with schema 1 of the registry are refused, since")
    assert why in said
    with pytest.raises(RefusedError, match="unusable_schema"):
        found[header(1)](header(1))


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    make_certificates(tmp_path)
    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "password").chmod(0o600)
    return tmp_path


async def test_a_login_goes_over_tls_to_a_registry_whose_certificate_is_trusted(certificates: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates / "broker.pem")
    async with fake_registry(tls) as fake:
        fake.add(1, VISIT)
        login = "username: me, password: {file: password}"
        trusted = plan_of(certificates, f"{{url: '{fake.url}/', tls: {{ca: ca.pem}}, {login}}}")
        assert (await of(trusted, header(1)))[0] is not unknown_schema
        assert fake.logins == [basic("me", "s3cret")]
        assert "s3cret" not in repr(trusted)
        for tls_part in ("", "tls: {ca: other-ca.pem}, "):
            mistrusted = plan_of(certificates, f"{{url: '{fake.url}', {tls_part}{login}}}")
            with pytest.raises(ConfigError, match=r"registry\.tls\.ca: its certificate is not trusted"):
                await of(mistrusted, header(1), patient=True)
        assert len(fake.asked) == 1
        for status in (401, 403):
            fake.broken = status, {}
            with pytest.raises(ConfigError, match=f"registry: {fake.url} refuses the login"):
                await of(trusted, header(1), patient=True)
        (certificates / "password").unlink()
        with pytest.raises(ConfigError, match=r"registry\.password: .*password cannot be read: No such file"):
            await of(trusted, header(1))


async def test_an_application_without_avro_asks_no_registry(tmp_path: Path) -> None:
    async with open_registry(plan_from(configuration("site"), tmp_path)) as schemas:
        assert schemas == {}
