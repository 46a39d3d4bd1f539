from __future__ import annotations

from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.cli.demo import walkthrough
from stream_dp.cli.demo.runs import CARRIERS, DESTINATIONS, configuration, new_run
from stream_dp.cli.demo.walkthrough import chosen_broker, without_page
from stream_dp.config.access import Broker
from stream_dp.config.explanation import describe
from stream_dp.errors import ConfigError
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.runtime.localkafka import jars


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_CACHE", str(tmp_path))
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)


def test_two_runs_share_no_topic_and_no_folder() -> None:
    one, other = new_run("kafka://127.0.0.1:1"), new_run("kafka://127.0.0.1:1")
    names = [{topic.name for topic in Topics.of(run).all(run)} for run in (one, other)]
    names = [found | {run.views[DESTINATIONS].source.topic} for found, run in zip(names, (one, other), strict=True)]
    assert not names[0] & names[1]
    assert one.folder != other.folder
    assert one.folder.stat().st_mode & 0o077 == 0
    assert one.data_dir.parent == one.key_file.parent == one.folder


def test_copy_keeps_the_comments_and_names_the_broker() -> None:
    text = configuration("abc", "kafka://a:1,b:2")
    assert "\nbroker: kafka://a:1,b:2\n" in text
    assert "# Who is protected: one aircraft, per four weeks." in text
    assert "\nname: flights-abc\n" in text
    assert "{topic: flights-abc," in text


def test_broker_that_is_none_is_a_wrong_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_BROKER", "nowhere")
    with (
        pytest.raises(ConfigError, match="is no broker"),
        chosen_broker(lambda _: None, keep_running=False) as choice,
    ):
        new_run(choice.broker)


def test_ledger_promises_epsilon_2_and_pays_for_a_window_of_every_view_at_all_levels_but_the_finest() -> None:
    plan = new_run("memory://")
    (ledger,) = plan.ledgers.values()
    assert ledger.total.epsilon == 2
    assert {view.window.shape for view in plan.views.values()} == {ledger.periods}, "a window is a period"
    fine = sum((view.cost(len(view.levels) - 2) for view in plan.views.values()), Cost.ZERO)
    assert fine <= ledger.budget
    left = ledger.budget - fine
    assert 0 < left.epsilon < ledger.budget.epsilon / 5
    returned = sum((view.keys_at_worst for view in plan.views.values()), Cost.ZERO)  # where lists are short
    for view in plan.views.values():
        assert not view.cost(len(view.levels) - 1) - view.cost(len(view.levels) - 2) <= left + returned, (
            f"{view.name} would be sharpened to the finest level"
        )
    assert describe(plan).ledgers[0].affords_schedule


def test_ladders_have_two_levels_that_nobody_starts_with_and_the_same_names() -> None:
    run = new_run("memory://")
    ladders = [[level.name for level in run.views[name].levels] for name in (DESTINATIONS, CARRIERS)]
    assert ladders[0] == ladders[1]
    assert max(run.views[DESTINATIONS].audiences.values()) == len(ladders[0]) - 3
    assert list(run.views[DESTINATIONS].audiences) == ["public", "partner", "internal"]


def test_named_cluster_wins_and_is_never_started_or_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_BROKER", "kafka://broker:9092")
    _forbid_local_kafka(monkeypatch)
    said: list[str] = []
    with chosen_broker(said.append, keep_running=False) as choice:
        assert (choice.broker, choice.embedded) == ("kafka://broker:9092", False)
        assert "broker:9092 that STREAM_DP_BROKER names" in said[0]


def test_embedded_log_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_BROKER", "memory://")
    _forbid_local_kafka(monkeypatch)
    with chosen_broker(lambda _: None, keep_running=False) as choice:
        assert choice.embedded


def test_machine_without_java_gets_the_embedded_log_and_one_line_that_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _forbid_local_kafka(monkeypatch)
    monkeypatch.setattr(jars, "local_kafka_problem", lambda: "Java was not found on PATH: install it")
    said: list[str] = []
    with chosen_broker(said.append, keep_running=False) as choice:
        assert choice.broker == "memory://"
        assert said == [
            "Broker: the embedded log. It serves this one process and forgets everything at its end. "
            "No real Kafka: Java was not found on PATH: install it."
        ]


@pytest.mark.parametrize(
    ("started", "keep", "stopped"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_local_kafka_is_stopped_only_by_who_started_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: bool, keep: bool, stopped: bool
) -> None:
    found = localkafka.LocalKafka(tmp_path, tmp_path / "log", "127.0.0.1:5", 1, started)
    stops: list[str] = []
    monkeypatch.setattr(jars, "local_kafka_problem", lambda: None)
    monkeypatch.setattr(localkafka, "start", lambda say: found)
    monkeypatch.setattr(localkafka, "stop", lambda: stops.append("stopped"))
    with suppress(KeyboardInterrupt), chosen_broker(lambda _: None, keep_running=keep) as choice:
        assert choice.broker == "kafka://127.0.0.1:5"
        raise KeyboardInterrupt
    assert bool(stops) is stopped


@pytest.mark.parametrize(
    ("broker", "missing", "reason"),
    [
        ("kafka://127.0.0.1:5", (), None),
        ("kafka://127.0.0.1:5", ("sse_starlette",), "pip install 'stream-dp[gateway]'."),
        ("memory://", (), "`stream-dp serve` reads a real Kafka."),
    ],
)
def test_run_has_a_page_on_a_real_kafka_with_the_libraries_of_the_gateway(
    monkeypatch: pytest.MonkeyPatch, broker: str, missing: tuple[str, ...], reason: str | None
) -> None:
    monkeypatch.setattr(walkthrough, "find_spec", lambda name: None if name in missing else ModuleSpec(name, None))
    assert without_page(Broker(broker)) == (None if reason is None else f"No page of the releases: {reason}")


def test_readers_of_the_page_see_every_audience_without_a_token() -> None:
    plan = new_run("memory://")
    assert plan.serve.public == list(plan.audiences)


def _forbid_local_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("the local Kafka was touched")

    monkeypatch.setattr(localkafka, "start", never)
    monkeypatch.setattr(localkafka, "stop", never)
