"""`stream-dp init`: a first file from events and answers, which plans as it stands and pays for every window."""

from __future__ import annotations

import asyncio
import io
import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.explanation import describe
from stream_dp.config.planner import load_plan
from stream_dp.config.shares import asked
from stream_dp.errors import BrokerError
from stream_dp.kinds.noise_levels import TruncatedLevel
from stream_dp.kinds.public_lists import ReleaseSettings
from stream_dp.operations.event_columns import guess, topic_rows
from stream_dp.operations.event_tables import BadRow, Row
from stream_dp.operations.first_file import Answers, best_pair, first_file, zone_note
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.windows.durations import format_time, parse_time
from tests.support.published import Call

DAY_MS = 86_400_000
ORDERS = [("customer", "product", "at")] + [
    (f"c{user}", ("tea", "coffee")[user % 2], f"2024-01-{day:02}T12:00:00Z")
    for day in range(1, 29)
    for user in range(9)
]


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "Web_orders.csv"
    file.write_text("".join(",".join(row) + "\n" for row in ORDERS), encoding="utf-8")
    return file


def test_a_file_that_is_written_plans_and_pays_for_every_window_of_a_period(orders: Path, call: Call) -> None:
    said = call("init", orders.name, "--yes", "--epsilon", "20", "--window", "1w", "--items-per-user", "2")
    assert (said.code, said.out.splitlines()[1]) == (0, "Wrote web-orders.yaml. Next:")
    plan = load_plan(orders.with_name("web-orders.yaml"), {})
    (view,) = plan.views.values()
    assert "plan web-orders.yaml --events Web_orders.csv --grid items_per_user=1,3,10 --until 2024-01-30" in said.out
    assert "worker web-orders.yaml --backfill" in said.out
    assert (view.source.user_field, view.item_field, view.source.time_field) == ("customer", "product", "at")
    assert (view.source.time_unit, view.window.clock, view.window.first_ms) == ("iso", "event", 1_704_067_200_000)
    assert (view.items_per_user, [level.name for level in view.levels]) == (2, ["overview", "detailed"])
    assert asked(view, view.ledger.periods.longest) <= view.ledger.budget
    assert call("check", "web-orders.yaml").code == 0


def test_with_few_windows_of_a_user_each_of_them_may_cost_more(orders: Path, call: Call) -> None:
    common = ("init", orders.name, "--yes", "--epsilon", "20", "--window", "1d", "--period", "4w")
    said = call(*common, "--name", "whole")
    assert "--grid windows_per_user=2,9,28" in said.out
    said = call(*common, "--name", "few", "--windows-per-user", "4")
    assert (said.code, "windows_per_user" in said.out) == (0, False)
    (whole,), (few,) = (load_plan(orders.with_name(name), {}).views.values() for name in ("whole.yaml", "few.yaml"))
    assert (whole.windows_per_user, few.windows_per_user) == (None, 4)
    assert whole.affords is not None
    assert few.affords is not None
    assert few.affords > 2 * whole.affords, "sqrt(7) times as much, in a pool"
    assert asked(few, few.ledger.periods.longest) <= few.ledger.budget


def test_what_it_asks_is_answered_from_the_keyboard(orders: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("product\nbuyers of teas\ncustomer\n\n1w\n1w\nshop\n8\n\n"))
    said = call("init", orders.name)
    assert said.code == 0, said.err
    assert "Columns: customer, product, at" in said.out
    (view,) = load_plan(orders.with_name("shop.yaml"), {}).views.values()
    assert (view.source.user_field, view.item_field, view.ledger.population) == (
        "product",
        "customer",
        "buyers of teas",
    )
    assert (view.ledger.total.epsilon, view.items_per_user) == (Fraction(8), 3)


def test_columns_that_are_guessed_are_named(orders: Path, call: Call) -> None:
    """A wrong guess would protect a price, say, and publish customers."""
    orders.write_text("Kunde;Preis;Zeit;time\na;1,50;x;2024-01-01\nb;2,50;y;2024-01-01\n", encoding="utf-8")
    said = call("init", orders.name, "--yes")
    assert "Column 'Kunde' names the users, who are protected. The values of 'Preis' are counted" in said.out
    named = ("--user", "Kunde", "--item", "Preis", "--time", "time", "--out", "other.yaml")
    assert "names the users" not in call("init", orders.name, "--yes", *named).out


def test_option_is_named_where_nobody_answers(orders: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    said = call("init", orders.name)
    assert (said.code, "--user: nobody answers" in said.err) == (2, True), said.err


def test_a_file_that_is_there_stays_and_a_column_that_is_not_there_is_named(orders: Path, call: Call) -> None:
    orders.with_name("web-orders.yaml").write_text("mine", encoding="utf-8")
    assert "web-orders.yaml exists" in call("init", orders.name, "--yes").err
    assert orders.with_name("web-orders.yaml").read_text(encoding="utf-8") == "mine"
    said = call("init", orders.name, "--yes", "--user", "costumer", "--out", "other.yaml")
    assert (said.code, "there is no column 'costumer'" in said.err) == (2, True)
    assert call("init").code == 2


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([{"user_id": "7", "page": "/a", "ts": "1700000000"}], ("user_id", "page", "ts", "s")),
        ([{"page": "/a", "time": 1_700_000_000_000, "who": one} for one in "abc"], ("who", "page", "time", "ms")),
        (
            [{"date": f"2024-02-0{day}", "flight": f"LH{day}", "tail": "D-1"} for day in (1, 2)],
            ("flight", "tail", "date", "iso"),
        ),
        ([BadRow("it is torn"), {"user": "a", "page": "x"}], ("user", "page", "", "ms")),
    ],
)
def test_columns_are_guessed_by_their_names_and_values(rows: list[Row | BadRow], found: tuple[str, ...]) -> None:
    one = guess(rows)
    assert (one.user, one.item, one.time, one.times.get(one.time, ("ms",))[0]) == found


def test_times_without_offset_are_in_the_zone_that_is_named(orders: Path, call: Call) -> None:
    """The zone is written into the file, so workers and `feed` read the times alike; the days are local, too."""
    orders.write_text(orders.read_text().replace("12:00:00Z", "00:30:00"), encoding="utf-8")
    common = ("init", orders.name, "--yes", "--epsilon", "20", "--window", "1d", "--period", "4w")
    said = call(*common, "--name", "utc")
    assert "Times in column 'at' have no offset, so they are read as UTC." in said.out
    said = call(*common, "--name", "berlin", "--zone", "Europe/Berlin")
    assert said.code == 0, said.err
    assert "no offset" not in said.out
    utc, berlin = (load_plan(orders.with_name(f"{name}.yaml"), {}).views["counts"] for name in ("utc", "berlin"))
    assert (utc.source.time_zone, berlin.source.time_zone) == ("UTC", "Europe/Berlin")
    assert format_time(utc.window.first_ms or 0) == "2024-01-01T00:00:00Z"
    assert format_time(berlin.window.first_ms or 0) == "2023-12-31T23:00:00Z", "local midnight"
    assert "after the clocks change they begin at another local time" in said.out
    said = call(*common, "--name", "other", "--zone", "Europe/Atlantis")
    assert (said.code, "no time zone has this name" in said.err) == (2, True)


def test_zone_of_times_with_offset_is_left_out(orders: Path, call: Call) -> None:
    assert call("init", orders.name, "--yes", "--epsilon", "20", "--zone", "Europe/Berlin").code == 0
    assert load_plan(orders.with_name("web-orders.yaml"), {}).views["counts"].source.time_zone == "UTC"


@pytest.mark.parametrize(
    ("zone", "window", "period", "starts", "noted"),
    [
        ("Europe/Berlin", "1w", "1w", ["2024-01-28T23:00:00Z"], False),
        ("Europe/Berlin", "1w", "4w", ["2024-01-28T23:00:00Z"] * 2, True),
        ("Asia/Kolkata", "1w", "4w", ["2024-01-28T18:30:00Z"] * 2, False),
        ("Europe/Berlin", "1d", "1mo", ["2024-01-31T23:00:00Z"], False),
        ("Europe/Berlin", "1d", "4w", ["2024-01-28T23:00:00Z"] * 2, True),
        ("Europe/Berlin", "1h", "1mo", ["2024-02-01T00:00:00Z"], True),
        ("UTC", "1w", "4w", ["2024-01-29T00:00:00Z"] * 2, False),
    ],
)
def test_windows_begin_at_local_midnight(
    zone: str, window: str, period: str, starts: list[str], *, noted: bool
) -> None:
    """Weeks begin on Mondays. Where lengths are fixed, clock changes move the later starts, and `init` says so."""
    thursday_ms = parse_time("2024-02-01T10:00:00Z")
    given = answers(window=window, period=period, epsilon="20", first_ms=thursday_ms, window_zone=zone)
    text, plan = first_file(given)
    assert re.findall(r"start: (\S+?Z)", text) == starts
    assert bool(zone_note(given)) == noted
    view = plan.views["counts"]
    if zone == "Europe/Berlin" and not noted:  # also in summer
        july_ms = view.window.shape.start_of(parse_time("2024-07-10T12:00:00Z"))
        assert format_time(july_ms).endswith("T22:00:00Z")


@pytest.mark.parametrize("window", ["1d", "1w"])
def test_windows_of_a_topic_begin_at_local_midnight(window: str) -> None:
    view = first_file(answers(window=window, epsilon="20", window_zone="Asia/Kolkata"))[1].views["counts"]
    assert format_time(view.window.shape.start_of(parse_time("2024-07-10T12:00:00Z"))).endswith("T18:30:00Z")


def test_population_is_named_after_its_column(orders: Path, call: Call) -> None:
    orders.write_text("Kunde;Preis;time\na;1,50;2024-01-01\nb;2,50;2024-01-01\n", encoding="utf-8")
    assert call("init", orders.name, "--yes", "--epsilon", "20").code == 0
    view = load_plan(orders.with_name("web-orders.yaml"), {}).views["counts"]
    assert view.ledger.population == "users (Kunde)"


def answers(**changes: object) -> Answers:
    usual = {
        **{"name": "shop", "broker": "127.0.0.1:9092", "topic": "orders", "partitions": 2, "population": "users: all"},
        **{"user": "us'er", "item": "page: #1", "time": "", "time_unit": "ms"},
        **{"window": "1d", "period": "4w", "epsilon": "4", "delta": "1e-5", "items_per_user": 2},
    }
    return Answers(**(usual | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--window", "abc"], "views.counts.window.size"),
        (["--window", "0s"], "views.counts.window.size"),
        (["--period", "abc"], "ledgers.promise.period"),
        (["--window", "3d", "--period", "1w"], "views.counts.window.size"),
        (["--window", "1w", "--period", "1q"], "weeks do not fill 1q: one would be in two periods. Give 13w"),
        (["--epsilon", "0"], "epsilon '0' is no number above 0"),
        (["--epsilon", "-1"], "epsilon '-1' is no number above 0"),
        (["--epsilon", "much"], "epsilon 'much' is no number above 0"),
        (["--delta", "-1"], "delta '-1' is no number above 0"),
        (["--delta", "1"], "delta above 0 and below 1"),
        (["--time", "product"], "column 'product' has no times"),
        (["--user", "product"], "must be three columns"),
        (["--out", "nodir/x.yaml"], "cannot be written: No such file"),
        (["--items-per-user", "10001"], "views.counts.items_per_user"),
    ],
    ids=" ".join,
)
def test_a_wrong_answer_is_named_and_nothing_is_written(orders: Path, call: Call, words: list[str], fault: str) -> None:
    said = call("init", orders.name, "--yes", *words)
    assert (said.code, fault in said.err) == (2, True), said.err
    assert [file.name for file in orders.parent.iterdir()] == [orders.name]


@pytest.mark.parametrize(
    ("window", "period", "starts"),
    [
        ("1w", "4w", ["2024-01-29T00:00:00Z"] * 2),
        ("1d", "1w", ["2024-01-29T00:00:00Z"]),
        ("1mo", "1q", ["2024-02-01T00:00:00Z"]),
        pytest.param("1mo", "1y", ["2024-02-01T00:00:00Z"], marks=pytest.mark.slow),
        pytest.param("1d", "4w", ["2024-02-01T00:00:00Z"] * 2, marks=pytest.mark.slow),
    ],
)
def test_windows_of_a_calendar_begin_where_it_says(tmp_path: Path, window: str, period: str, starts: list[str]) -> None:
    first_ms = 1_706_781_600_000  # 2024-02-01T10:00:00Z, a Thursday
    text, plan = first_file(answers(window=window, period=period, epsilon="20", first_ms=first_ms))
    view = plan.views["counts"]
    assert re.findall(r"start: (\S+?Z)", text) == starts
    assert view.window.first_ms is not None
    assert view.window.first_ms <= first_ms < view.window.first_ms + 92 * DAY_MS
    assert asked(view, view.ledger.periods.longest) <= view.ledger.budget


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "The first line must name the columns"),
        ("user:item:at\na:b:2024-01-01\n", "A CSV separates its columns with commas, semicolons, tabs or |"),
        ("user,item,at\na,b,1700000000.5\n", "no column has times"),
    ],
)
def test_events_that_cannot_be_used_are_refused_with_the_reason(
    orders: Path, call: Call, text: str, fault: str
) -> None:
    orders.write_text(text, encoding="utf-8")
    said = call("init", orders.name, "--yes")
    assert (said.code in (1, 2), fault in said.err) == (True, True), said.err


def test_names_of_any_kind_are_written_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(first_file(answers())[0], encoding="utf-8")
    (view,) = load_plan(tmp_path / "shop.yaml", {}).views.values()
    assert (view.source.user_field, view.item_field, view.ledger.population) == ("us'er", "page: #1", "users: all")


def test_weeks_of_a_topic_that_has_no_history_begin_with_a_period() -> None:
    text, plan = first_file(answers(window="1w", epsilon="20"))
    assert "period: 4w\n    start: 2024-01-01T00:00:00Z\n" in text
    assert plan.views["counts"].window.first_ms is None


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """16 weeks of loans of 12 books; a reader comes every fourth week, and 35 have a book in a week."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"card {reader * 4 + week % 4},book {reader % 12},{format_time(1_704_067_200_000 + week * 7 * DAY_MS + reader)}"
        for week in range(16)
        for reader in range(420)
    ]
    file = tmp_path / "loans.csv"
    file.write_text("\n".join(["card,book,borrowed", *rows]) + "\n", encoding="utf-8")
    return file


def test_two_views_are_written_where_they_show_clearly_more(library: Path, call: Call) -> None:
    words = ("init", library.name, "--yes", "--window", "1w", "--items-per-user", "1")
    said = call(*words)
    assert "One view would show about " in said.out
    assert "one finds keys, once in 4w, the other counts them every 1w." in said.out
    plan = load_plan(library.with_name("loans.yaml"), {})
    assert [view.kind.name for view in plan.views.values()] == ["histogram", "catalogue"]
    assert [view.share for view in plan.views.values()] == [Fraction(1, 2)] * 2
    total = sum((asked(view, view.ledger.periods.longest) for view in plan.views.values()), Cost.ZERO)
    assert total <= plan.views["counts"].ledger.budget
    assert "counts: " not in call("check", "loans.yaml").out.replace("found and counts: ", ""), "no warning"
    assert "--grid split=1/4,1/2,3/4 --goal useful" in said.out
    assert "worker" not in said.out, "past windows have no list"
    said = call(*words, "--one-view", "--name", "one")
    assert [*load_plan(library.with_name("one.yaml"), {}).views] == ["counts"]
    assert "worker one.yaml --backfill" in said.out


def test_two_views_are_asked_for_or_written_without_events(
    library: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ("--population", "readers", "--window", "1w", "--period", "4w", "--epsilon", "1", "--items-per-user", "1")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n\nloans\nn\n"))
    said = call("init", library.name, *answers)
    assert "Write two views?" in said.out
    assert [*load_plan(library.with_name("loans.yaml"), {}).views] == ["counts"]


def test_a_list_of_two_views_is_retained_where_there_is_no_history() -> None:
    text, plan, why = best_pair(
        answers(window="1d", epsilon="20"), first_file(answers(window="1d", epsilon="20"))[1], None
    )
    assert why == ""
    found, counts = plan.views.values()
    assert (found.window.shape.words, counts.kind.made_of) == ("28d", ReleaseSettings("found", "public", 4))
    assert "retention: 1830d" in text
    assert not [one for one in describe(plan).warnings if "retained" in one]


@pytest.mark.parametrize(("window", "pooled"), [("1d", True), ("4w", False)])
def test_the_pool_is_taken_where_it_affords_more(tmp_path: Path, window: str, *, pooled: bool) -> None:
    (tmp_path / "shop.yaml").write_text(first_file(answers(window=window))[0], encoding="utf-8")
    (view,) = load_plan(tmp_path / "shop.yaml", {}).views.values()
    assert (view.ledger.pool is not None) == pooled
    assert view.affords is not None
    if not pooled:
        assert view.affords == 4
    else:
        assert view.affords > Fraction(4, 28)


@pytest.mark.parametrize(("window", "ends"), [("1d", False), ("4w", True)])
def test_one_level_has_the_noise_that_shows_keys_of_the_fewest_users(
    tmp_path: Path, window: str, *, ends: bool
) -> None:
    """In one window of a period noise that ends; in 28, Gaussian noise in a pool."""
    text = first_file(answers(window=window, one_level=True))[0]
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")
    (view,) = load_plan(tmp_path / "shop.yaml", {}).views.values()
    assert [level.name for level in view.levels] == ["detailed"]
    assert isinstance(view.levels[0], TruncatedLevel) == ends == (view.ledger.pool is None)
    assert ("with one level and no pool, truncated-laplace shows keys of fewer users" in text) == ends
    assert (view.kind.least_shown(0) or 0) < (
        first_file(answers(window=window))[1].views["counts"].kind.least_shown(-1) or 0
    )


def test_the_newest_records_of_a_topic_are_looked_at() -> None:
    log = MemoryLog()
    log.create("orders", 2)
    for number in range(3):
        log.append("orders", number % 2, b"u%d" % number, json.dumps({"page": f"/{number}"}).encode())
    log.append("orders", 0, b"u", b"\xff no json")
    log.append("orders", 1, b"u", None)
    client = MemoryClient(log)
    rows, partitions = asyncio.run(topic_rows(client, "orders"))
    pages = sorted(row["page"] for row in rows if not isinstance(row, BadRow))
    assert (pages, len(rows), partitions) == (["/0", "/1", "/2"], 5, 2)
    with pytest.raises(BrokerError, match="there is no topic visits"):
        asyncio.run(topic_rows(client, "visits"))
