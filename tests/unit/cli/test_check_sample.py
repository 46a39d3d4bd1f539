"""`check --sample` says what the records of a source come to, what to mend, and nothing of users and items."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from zlib import crc32

import pytest
from click.testing import CliRunner, Result
from faust.types import TP

from stream_dp.cli.check_command import check
from stream_dp.control.editions import Posted, next_record, plan_of
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.factory import partitioner
from stream_dp.runtime.kafka.control_topic import post_accepted
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.sources.survey import survey
from stream_dp.testing import plan_from
from stream_dp.windows.events import Partitioner
from tests.support.visits import configuration

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SECRETS = ("zelda", "cellar-door")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(configuration("site", ("clock: event", "clock: wall")), encoding="utf-8")
    return tmp_path / "site.yaml"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """What the command connects to, whatever the address is; the topic is there."""
    made = MemoryLog()
    made.create("site.visits", 3)

    @asynccontextmanager
    async def connect(_broker: str) -> AsyncIterator[MemoryClient]:
        yield MemoryClient(made)

    monkeypatch.setattr("stream_dp.cli.command_line.connect", connect)
    monkeypatch.setenv("STREAM_DP_BROKER", "127.0.0.1:9092")
    return made


def fill(
    log: MemoryLog, file: Path, fields: Mapping[str, object] | None = None, place: Partitioner | None = None
) -> None:
    """An event of each of some users, just now."""
    (view,) = plan_from(file.read_text(), file.parent / "plan").views.values()
    place = place or partitioner(view.source)
    assert place is not None
    for number in range(300):
        key = f"zelda{number}".encode()
        event = {"user": key.decode(), "page": f"/cellar-door/{number % 3}", "at": wall_clock_ms(), **(fields or {})}
        value = json.dumps({name: value for name, value in event.items() if value is not None}).encode()
        log.append("site.visits", place([key])[0], key, value)


def run(file: Path, *options: str) -> Result:
    result = CliRunner().invoke(check, [str(file), *options], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert not any(secret in result.output for secret in SECRETS)
    return result


def test_a_sample_that_is_right_is_told_in_numbers_and_warns_of_nothing(file: Path, log: MemoryLog) -> None:
    fill(log, file)
    result = run(file, "--sample")
    assert result.exit_code == 0, result.output
    page = result.stdout.partition("sample of source")[2]
    for words in (
        "visits (topic site.visits)",
        "The newest 300 records, 0 of them watermarks (the topic has no more).",
        "Event times mostly agree with record times.",
        "The newest record was written just now.",
        "Of 300 users 300 are where murmur2 puts them, ",
    ):
        assert words in page
    assert ["site-pages", "300", "100", "%", "counted"] in [line.split() for line in page.splitlines()]
    assert "sources.visits" not in page


def test_faults_are_warnings_with_numbers_and_remedies(file: Path, log: MemoryLog) -> None:
    fill(log, file, place=lambda keys: [crc32(key) % 3 for key in keys])
    log.append("site.visits", 0, None, b"{}")
    result = run(file, "--sample", "--strict")
    assert result.exit_code == 3
    warnings = " ".join(result.stdout.partition("warning: ")[2].split())
    assert "set partitioner: crc32" in warnings
    assert "sources.visits: null_key (1 of 301 records): they have no key" in warnings
    assert ["(any)", "1", "0.332", "%", "refused:", "null_key"] in [line.split() for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"page": None, "pages": "/cellar-door"}, "the events have 'at', 'pages', 'user'; did you mean 'pages'?"),
        (
            {"page": ["/cellar-door"]},
            "field 'page' (views.site-pages.item) is a list; set views.site-pages.items: page",
        ),
        ({"page": {"id": 7}}, "field 'page' (views.site-pages.item) is an object, not a text or a whole number"),
        ({"at": 1.5}, "field 'at' (sources.visits.time.field) is a number with a decimal point, not a whole number"),
        ({"user": "cellar-door"}, "their key differs from field 'user'"),
    ],
)
def test_what_is_wrong_with_fields_is_told_by_their_names(
    file: Path, log: MemoryLog, fields: dict[str, object], said: str
) -> None:
    fill(log, file, fields)
    assert said in " ".join(run(file, "--sample").stdout.split())


def test_a_source_that_is_not_keyed_by_user_is_read_by_the_field_of_the_user(file: Path, log: MemoryLog) -> None:
    text = file.read_text().replace("user: user, time", "key: $.visitor.id, time")
    file.write_text(text, encoding="utf-8")
    for number in range(300):
        visitor = {"id": f"zelda{number % 150}"} if number % 3 else {"name": "zelda"}
        value = {"visitor": visitor, "page": f"/cellar-door/{number // 150}", "at": wall_clock_ms()}
        log.append("site.visits", number % 3, None, json.dumps(value).encode())
    said = " ".join(run(file, "--sample").stdout.split())
    assert "site-pages 200 66.7 % counted" in said
    assert "missing_field (100 of 300 records): field '$.visitor.id' (sources.visits.key) is missing" in said
    assert "'name'" not in said  # whose records these are nobody can tell
    assert "partitioner" not in said.partition("sample of source")[2]


def test_a_key_that_another_field_repeats_names_that_field(file: Path, log: MemoryLog) -> None:
    (view,) = plan_from(file.read_text(), file.parent / "plan").views.values()
    place = partitioner(view.source)
    assert place is not None
    for number in range(40):
        key = f"zelda{number}".encode()
        value = {"user": number, "account": key.decode(), "page": "/", "at": wall_clock_ms()}
        log.append("site.visits", place([key])[0], key, json.dumps(value).encode())
    assert "their key is field 'account'; set sources.visits.user: account" in run(file, "--sample").stdout


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (lambda number: number.to_bytes(8, "big"), "their key is a whole number in 8 bytes"),
        (lambda number: b'{"id": %d}' % number, "their key is JSON, not the text of field 'user'"),
        (lambda number: b"\xff\xfe\xfd%d" % number, "their key is binary"),
        (lambda number: None, "null_key (40 of 40 records): they have no key"),
    ],
    ids=["Long", "JSON", "binary", "null"],
)
def test_key_that_is_not_the_text_of_the_user_has_a_remedy(
    file: Path, log: MemoryLog, key: Callable[[int], bytes | None], said: str
) -> None:
    for number in range(40):
        value = {"user": number, "page": "/", "at": wall_clock_ms()}
        log.append("site.visits", number % 3, key(number), json.dumps(value).encode())
    page = " ".join(run(file, "--sample").stdout.split())
    assert said in page
    assert "set sources.visits.key: user and leave sources.visits.user out" in page


def test_keys_that_may_hold_more_than_the_user_are_named(file: Path, log: MemoryLog) -> None:
    """Nothing compares them with a field, so each counts as a user of its own."""
    file.write_text(file.read_text().replace("user: user, time", "time"), encoding="utf-8")
    for number in range(40):
        value = {"page": "/", "at": wall_clock_ms()}
        log.append("site.visits", number % 3, b'{"user": 1, "order": %d}' % number, json.dumps(value).encode())
    page = " ".join(run(file, "--sample").stdout.split())
    assert "the keys are JSON. Every distinct key counts as one user; if a key holds more, set" in page
    assert "sources.visits.key: FIELD" in page


def test_sample_says_whether_size_or_time_stopped_it(
    file: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, file)
    assert "stopped" not in run(file, "--sample").stdout
    monkeypatch.setattr("stream_dp.runtime.sources.sampling.SAMPLE_BYTES", 1000)
    assert "(stopped at 16 MiB)." in run(file, "--sample").stdout
    (sample,) = json.loads(run(file, "--sample", "--json").stdout)["samples"]
    assert (sample["stopped_by"], sample["limit"]) == ("size", "16 MiB")

    async def silent(*_: object, **__: object) -> AsyncIterator[object]:
        await asyncio.Event().wait()
        yield None

    monkeypatch.setattr(MemoryClient, "follow", silent)
    monkeypatch.setattr("stream_dp.operations.check.survey", partial(survey, within_s=0.01))
    assert "No records could be read within 0.01 s." in run(file, "--sample").stdout


def test_sample_says_why_it_has_fewer_records_than_asked_for(
    file: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, file)
    sizes = [log.end(TP("site.visits", partition)) for partition in range(3)]

    def said(records: int) -> tuple[str, str]:
        (sample,) = json.loads(run(file, f"--sample={records}", "--json").stdout)["samples"]
        page = " ".join(run(file, f"--sample={records}").stdout.split())
        return sample["stopped_by"], page.partition("watermarks")[2].partition(".")[0]

    assert said(30) == ("", "")
    assert said(3 * max(sizes) + 3) == ("topic", " (the topic has no more)")
    assert said(3 * (min(sizes) + 1)) == ("partition", " (some partitions have fewer records than others)")

    async def stable(client: MemoryClient, places: Collection[TP]) -> dict[TP, int]:
        return {place: end - 1 for place, end in (await MemoryClient.ends(client, places)).items()}

    monkeypatch.setattr(MemoryClient, "stable_ends", stable)
    assert said(30) == ("", "")
    assert said(3 * max(sizes)) == ("transaction", " (an open transaction hides later records)")


def test_no_name_of_a_field_is_shown_that_may_be_somebodys_own(file: Path, log: MemoryLog) -> None:
    for number in range(40):
        fields = {f"zelda{number}": 1, "cellar-door": 2} if number == 7 else {f"zelda{number}": 1}
        log.append("site.visits", number % 3, b"k%d" % number, json.dumps(fields).encode())
    assert "field 'page' (views.site-pages.item) is missing" in " ".join(run(file, "--sample").stdout.split())


def test_json_holds_the_sample_beside_the_plan(file: Path, log: MemoryLog) -> None:
    fill(log, file, {"at": "2026-01-31T00:00:00Z"})
    whole = json.loads(run(file, "--sample", "--json").stdout)
    (sample,) = whole["samples"]
    assert (sample["records"], sample["refused"]) == (300, {"wrong_type": 300})
    assert sample["views"] == [{"view": "site-pages", "begun": False, "counted": 0, "refused": {}}]
    finding, withdrawn = sample["findings"]
    assert withdrawn["path"] == "views.site-pages.retention"
    assert "would be withdrawn as soon as they are released" in withdrawn["message"]
    assert finding["message"].endswith("set sources.visits.time.unit: iso")
    assert f"sources.visits: wrong_type (300 of 300 records): {finding['message']}" in whole["warnings"]


def test_a_bound_that_leaves_out_much_is_weighed_on_the_sample(file: Path, log: MemoryLog) -> None:
    (view,) = plan_from(file.read_text(), file.parent / "plan").views.values()
    place = partitioner(view.source)
    assert place is not None
    for number in range(600):
        user = b"zelda%d" % (number // 20)
        value = {"user": user.decode(), "page": f"/cellar-door/{number % 20}", "at": wall_clock_ms()}
        log.append("site.visits", place([user])[0], user, json.dumps(value).encode())
    said = " ".join(run(file, "--sample").stdout.split())
    assert "With items_per_user: 2, 90 % of the contributions are dropped. " in said
    assert "With items_per_user: 16, 20 % of the contributions are dropped. " in said
    assert not [secret for secret in SECRETS if secret in said]


def test_the_size_of_the_sample_is_that_of_the_option(file: Path, log: MemoryLog) -> None:
    fill(log, file)
    assert "The newest 30 records" in run(file, "--sample=30").stdout
    assert "sample of source" not in run(file).stdout


def test_an_empty_topic_is_told_of(file: Path, log: MemoryLog) -> None:
    result = run(file, "--sample")
    assert result.exit_code == 0
    assert "The topic has no record to sample." in result.stdout


@pytest.mark.parametrize(
    ("partitions", "said"),
    [(5, "sources.visits.partitions: topic site.visits has 5, not 3"), (None, "the broker has no topic site.visits")],
)
def test_other_partitions_or_no_topic_are_faults_of_the_file(
    file: Path, log: MemoryLog, partitions: int | None, said: str
) -> None:
    log.delete("site.visits")
    if partitions is not None:
        log.create("site.visits", partitions)
    result = run(file, "--sample")
    assert result.exit_code == 2
    assert said in result.stderr


# -- a file that is no longer, or not yet, what holds -------------------------------------------------------------


def hold(log: MemoryLog, *files: Path) -> None:
    """An application was started two days ago with the first file; the others were applied since, an hour each."""
    known: list[Posted] = []
    plans = [plan_from(file.read_text(), file.parent / "plan") for file in files]
    log.create(Topics.of(plans[0]).control, 1)
    began = wall_clock_ms() // DAY_MS * DAY_MS - 2 * DAY_MS
    for plan in plans:
        before = plan_of(known[-1], plans[0]).views.keys() if known else ()
        at = began + len(known) * HOUR_MS
        ends = {name: at for name in before if name not in plan.views}
        known.append(next_record(known, plan, {name: at for name in plan.views if name not in before}, ends, 0))
        assert asyncio.run(post_accepted(plan, MemoryClient(log), known[-1]))


def proposal(file: Path, *changes: tuple[str, str]) -> Path:
    text = file.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    other = file.parent / "other.yaml"
    other.write_text(text, encoding="utf-8")
    return other


def test_a_proposal_is_tried_on_the_sample_and_said_not_to_hold(file: Path, log: MemoryLog) -> None:
    hold(log, file)
    other = proposal(file, ("item: page", "item: shop"))
    fill(log, file, {"shop": "/cellar-door"})
    result = run(other, "--sample", "--json")
    assert result.stderr == (
        "note: settings 1 are in effect, and FILE differs in views.site-pages.item. The sample is read by FILE. To put "
        "FILE into effect: `stream-dp apply FILE`\n"
    )
    (sample,) = json.loads(result.stdout)["samples"]
    assert (result.exit_code, sample["findings"]) == (0, []), "what the file asks for is in the records"
    assert sample["views"] == [{"view": "site-pages", "begun": True, "counted": 300, "refused": {}}]
    assert run(file, "--sample").stderr == ""


def test_a_view_that_was_taken_out_has_not_begun_and_one_that_came_again_has(file: Path, log: MemoryLog) -> None:
    renamed = proposal(file, ("site-pages", "site-shops"))
    fill(log, file)

    def begun(asked: Path) -> bool:
        (view,) = json.loads(run(asked, "--sample", "--json").stdout)["samples"][0]["views"]
        return bool(view["begun"])

    hold(log, file, renamed)
    assert (begun(file), begun(renamed)) == (False, True)
    log.delete(Topics.of(plan_from(file.read_text(), file.parent / "plan")).control)
    hold(log, file, renamed, file)
    assert (begun(file), begun(renamed)) == (True, False)


def test_a_view_that_begins_later_is_tried_though_its_first_window_is_to_come(file: Path, log: MemoryLog) -> None:
    plan = plan_from(file.read_text(), file.parent / "plan")
    log.create(Topics.of(plan).control, 1)
    later = wall_clock_ms() // HOUR_MS * HOUR_MS + 2 * HOUR_MS
    assert asyncio.run(post_accepted(plan, MemoryClient(log), next_record((), plan, {"site-pages": later}, {}, 0)))
    fill(log, file)
    (sample,) = json.loads(run(file, "--sample", "--json").stdout)["samples"]
    assert sample["views"] == [{"view": "site-pages", "begun": False, "counted": 300, "refused": {}}]
