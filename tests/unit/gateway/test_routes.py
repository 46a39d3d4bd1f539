"""Answers of the gateway: forms, pages, credentials and limits; what must fail is in `test_tampering`."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.plan import Plan, ViewWords
from stream_dp.gateway import web
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.tokens import RequestRate
from stream_dp.gateway.web import SECURITY
from stream_dp.records.codec import encode, topic_key
from stream_dp.releases.announcements import view_record
from tests.support.gateway import NOW, ask, gateway_of, token_of
from tests.support.published import lookup_table_of

Make = Callable[..., Any]
WINDOWS = "/v1/views/pages/windows"
STREAM = {"accept": "text/event-stream"}


@pytest.fixture
def gateway(tmp_path: Path, release: Make, refusal: Make) -> Gateway:
    public = [release({"home": 900 + day, "about": 40}, day=day) for day in range(3)]
    public += [release({"home": 901, "=cmd()": 60}, day=1, revision=2, level=1), refusal(day=3), release({}, day=4)]
    staff = [release({"home": 910}, audience="staff", level=1)]
    gateway = gateway_of(
        tmp_path,
        {
            ("pages", "public"): public,
            ("pages", "staff"): staff,
            ("searches", "staff"): [release({"x": 5}, view="searches", audience="staff")],
        },
    )
    gateway.requests = gateway.failures = RequestRate(1, 1000, lambda: 0)
    return gateway


async def test_the_views_of_an_audience_are_listed_with_what_is_newest(gateway: Gateway) -> None:
    answer = await ask(gateway.app(), "/v1/views")
    (view,) = answer.json["views"]
    assert (view["name"], view["kind"], view["windows"]) == ("pages", "histogram", 5)
    assert view["newest"]["state"] == "empty"
    assert (view["position"], answer.headers["stream-position"]) == ("00000000-5", "pages.00000000-5")
    assert answer.json["audiences"] == ["public"]


async def test_the_record_of_the_view_says_what_is_counted_and_when_the_next_window_is_due(
    tmp_path: Path, visits: Plan, release: Make
) -> None:
    view = replace(visits.views["pages"].begun(0), words=ViewWords("Pages seen", "people"))
    about = view_record(view, view.editions[0], "public")
    gateway = gateway_of(tmp_path, {("pages", "public"): [about]})
    board = gateway.boards.by_name["pages", "public"]
    (found,) = (await ask(gateway.app(), "/v1/views")).json["views"]
    assert (found["title"], found["unit"], found["kind"], found["newest"]) == (
        "Pages seen",
        "people",
        "histogram",
        None,
    )
    assert (found["next_due"], found["record"]["type"]) == ("1970-01-02T00:05:00Z", "view")
    record = release({"home": 60}, day=3)
    board.take(topic_key(record), encode(record), 1, NOW)
    board.take(b"pages/public/later", b'{"schema_version":1,"type":"later"}', 2, NOW)
    (found,) = (await ask(gateway.app(), "/v1/views")).json["views"]
    assert (found["next_due"], found["windows"], board.unreadable) == ("1970-01-06T00:05:00Z", 1, 0)
    board.take(topic_key(about), None, 3, NOW)
    (found,) = (await ask(gateway.app(), "/v1/views")).json["views"]
    assert (found["title"], found["unit"], found["next_due"], found["record"]) == ("pages", None, None, None)


async def test_windows_come_newest_first_page_by_page(gateway: Gateway) -> None:
    app, states, target = gateway.app(), [], f"{WINDOWS}?limit=2"
    while target:
        answer = (await ask(app, target)).json
        states += [window["state"] for window in answer["windows"]]
        target = answer["next"] and f"{WINDOWS}?limit=2&cursor={answer['next']}"
    assert states == ["empty", "refused", "released", "sharper", "released"]
    some = (await ask(app, f"{WINDOWS}?from=1970-01-02&until=1970-01-03T00:00:00Z&revisions=all")).json
    assert [(one["state"], one["record"]["revision"]) for one in some["windows"]] == [("sharper", 2), ("replaced", 1)]
    assert some["next"] is None


async def test_one_window_is_found_by_its_start_and_revision(gateway: Gateway) -> None:
    app, target = gateway.app(), f"{WINDOWS}/1970-01-02"
    assert (await ask(app, target)).json["record"]["revision"] == 2
    assert (await ask(app, f"{target}?end=1970-01-03&revision=1")).json["state"] == "replaced"
    assert (await ask(app, f"{target}?end=1970-01-04")).status == 404
    assert (await ask(app, f"{target}?revision=3")).json["type"] == "not_found"


async def test_a_window_that_memory_dropped_is_gone(gateway: Gateway) -> None:
    gateway.boards.by_name["pages", "public"].forget_oldest()
    answer = await ask(gateway.app(), f"{WINDOWS}/1970-01-01")
    assert (answer.status, answer.json["type"]) == (404, "gone")


async def test_a_series_never_has_a_count_without_its_interval(gateway: Gateway) -> None:
    answer = await ask(gateway.app(), "/v1/views/pages/series?item=home&item=about&smooth=3&diff=1")
    home, about = answer.json["series"]
    assert [one["state"] for one in home["windows"]] == ["released", "sharper", "released", "refused", "hidden"]
    assert [one["state"] for one in about["windows"]] == ["released", "hidden", "released", "refused", "hidden"]
    for one in [*home["windows"], *about["windows"]]:
        assert ("count" in one) == ("interval" in one)
        assert ("shown_from" in one) == (one["state"] == "hidden")
    assert home["windows"][3]["reason"] == "budget"
    derived = home["post_processing"]
    assert (derived["smooth"][3], derived["smooth"][4], about["post_processing"]["smooth"][1]) == (None, None, None)
    assert 900 <= derived["smooth"][0] <= 901
    first, second, *rest = derived["diff"]
    assert (first, second["difference"], rest[1:]) == (None, 1, [None, None])
    assert second["interval"][0] < 1 < second["interval"][1]


async def test_a_key_that_a_ranked_list_left_out_is_unranked_and_no_change_is_computed(
    tmp_path: Path, release: Make
) -> None:
    """A key may be among the first by its noise, so no interval of a change holds for all that are shown."""
    ranked = [release({"home": 900, "faq": 800}, day=day).model_copy(update={"rank": 2}) for day in (0, 1)]
    gateway = gateway_of(tmp_path, {("pages", "public"): ranked})
    home, about = (await ask(gateway.app(), "/v1/views/pages/series?item=home&item=about&diff=1")).json["series"]
    absent = about["windows"][0]
    assert (absent["state"], absent["rank"]) == ("unranked", 2)
    assert not {"shown_from", "count"} & absent.keys()
    assert home["windows"][0]["count"] == 900
    assert home["post_processing"]["diff"][1] is None


async def test_a_lookup_table_answers_for_every_key_that_is_asked_for(tmp_path: Path, release: Make) -> None:
    gateway = gateway_of(tmp_path, {("pages", "public"): [lookup_table_of(release({}, day=day)) for day in (0, 1)]})
    target = "/v1/views/pages/series?item=home&item=nobody"
    home, nobody = (await ask(gateway.app(), f"{target}&diff=1&smooth=3")).json["series"]
    assert home["post_processing"]["diff"][1]["difference"] == 0
    assert [one["windows"][0]["count"] for one in (home, nobody)] == [30, 0]
    assert [one["windows"][0]["state"] for one in (home, nobody)] == ["released", "released"]
    rows = csv.DictReader(io.StringIO((await ask(gateway.app(), target, accept="text/csv")).body.decode()))
    assert [(row["item"], row["count"]) for row in rows] == [("home", "30"), ("nobody", "0")] * 2
    assert (await ask(gateway.app(), "/v1/views")).json["views"][0]["newest"]["state"] == "released"


async def test_a_series_of_answers_is_cut_into_short_pages(tmp_path: Path, release: Make) -> None:
    """Each answer takes a millisecond or more of the event loop."""
    gateway = gateway_of(tmp_path, {("pages", "public"): [lookup_table_of(release({}, day=day)) for day in range(7)]})
    target, seen = "/v1/views/pages/series?item=home&item=faq", list[int]()
    following: str | None = ""
    while following is not None:
        answer = (await ask(gateway.app(), target + (following and f"&cursor={following}"))).json
        seen.append(len(answer["series"][0]["windows"]))
        following = answer["next"]
    assert seen == [5, 2]


async def test_csv_has_a_row_with_empty_numbers_for_a_refused_window_and_no_formulas(gateway: Gateway) -> None:
    answer = await ask(gateway.app(), WINDOWS, accept="text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert [row["state"] for row in rows] == [
        "empty",
        "refused",
        *["released"] * 2,
        *["sharper"] * 2,
        *["released"] * 2,
    ]
    assert [rows[1][name] for name in ("item", "count", "low_95", "high_95")] == [""] * 4
    assert rows[5]["item"] == "'=cmd()"
    series = await ask(gateway.app(), "/v1/views/pages/series?item=about", accept="text/csv;q=0.9, text/html")
    assert [row["state"] for row in csv.DictReader(io.StringIO(series.body.decode()))][1] == "hidden"


async def test_arrow_has_the_columns_and_the_record_beside_them(gateway: Gateway) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    answer = await ask(gateway.app(), WINDOWS, accept="application/vnd.apache.arrow.stream")
    table = pyarrow.ipc.open_stream(answer.body).read_all()
    assert (table.num_rows, table.column("count")[1].as_py()) == (8, None)
    assert json.loads(table.schema.metadata[b"record"])["view"] == "pages"


@pytest.mark.parametrize("target", ["/v1/views", WINDOWS, f"{WINDOWS}/1970-01-02", "/v1/ledgers", "/v1/schema"])
async def test_what_has_not_changed_is_304_in_each_form_by_itself(gateway: Gateway, target: str) -> None:
    app = gateway.app()
    plain, zipped = await ask(app, target), await ask(app, target, accept_encoding="gzip")
    assert plain.headers["etag"] != zipped.headers["etag"]
    again = await ask(app, target, if_none_match=f'"x", {plain.headers["etag"]}')
    assert (again.status, again.body) == (304, b"")
    if "content-encoding" in zipped.headers:
        assert gzip.decompress(zipped.body) == plain.body
    else:
        assert len(plain.body) <= 1024


async def test_a_body_is_compressed_once_and_a_large_one_whenever_it_is_asked_for(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, compress, made = gateway.app(), gzip.compress, list[bytes]()

    def counted(body: bytes, level: int, *, mtime: int) -> bytes:
        made.append(body)
        return compress(body, level, mtime=mtime)

    web._kept.cache_clear()
    monkeypatch.setattr(gzip, "compress", counted)
    answers = [await ask(app, WINDOWS, accept_encoding="gzip") for _ in range(3)]
    assert {gzip.decompress(one.body) for one in answers} == {made[0]}
    assert len(made) == 1
    monkeypatch.setattr(web, "KEPT_TO", len(made[0]) - 1)
    for _ in range(2):
        await ask(app, WINDOWS, accept_encoding="gzip")
    assert len(made) == 3


async def test_a_change_of_the_view_changes_the_tag(gateway: Gateway, release: Make) -> None:
    app, board = gateway.app(), gateway.boards.by_name["pages", "public"]
    tag = (await ask(app, WINDOWS)).headers["etag"]
    record = release({"home": 1000}, day=9)
    board.take(topic_key(record), encode(record), 6, NOW)
    assert (await ask(app, WINDOWS, if_none_match=tag)).status == 200


async def test_the_ledger_says_what_the_audience_was_told_at_most(gateway: Gateway) -> None:
    (entry,) = (await ask(gateway.app(), "/v1/ledgers")).json["ledgers"]
    assert (entry["ledger"], entry["budget"]["epsilon"]["exact"]) == ("visitors", "30")
    assert set(entry["privacy"]) == {"period"}


async def test_a_token_gives_its_audience_and_nothing_else(gateway: Gateway) -> None:
    app, token = gateway.app(), token_of(gateway, "staff")
    bearer = {"authorization": f"Bearer {token}"}
    assert [one["name"] for one in (await ask(app, "/v1/views", **bearer)).json["views"]] == ["pages", "searches"]
    assert (await ask(app, "/v1/views?audience=public", **bearer)).status == 404
    both = await ask(app, "/v1/views?audience=public", cookie=f"sdp-staff={token}")
    assert (both.status, both.json["audiences"]) == (200, ["public", "staff"])
    assert (await ask(app, f"{WINDOWS}?audience=staff", cookie=f"sdp-staff={token}")).json["windows"][0]["record"][
        "audience"
    ] == "staff"


async def test_every_answer_has_the_strict_headers(gateway: Gateway) -> None:
    app = gateway.app()
    for target in ("/", "/v1/views", "/nothing", "/v1/views?x=1", "/livez", "/openapi.json"):
        headers = (await ask(app, target)).headers
        assert {name: headers[name.lower()] for name in SECURITY} == SECURITY
        assert "server" not in headers
    assert (await ask(app, "/v1/views")).headers["cache-control"] == "public, max-age=1"
    private = await ask(app, "/v1/views", authorization=f"Bearer {token_of(gateway, 'staff')}")
    assert private.headers["cache-control"] == "private, max-age=0, must-revalidate"
    assert "Cookie" in private.headers["vary"]


async def test_the_session_puts_the_token_into_a_cookie_and_takes_it_out(gateway: Gateway) -> None:
    app, token = gateway.app(), token_of(gateway, "staff", NOW + 90_000)
    own = {"origin": "http://localhost", "content_type": "application/json"}
    answer = await ask(app, "/v1/session", "POST", json.dumps({"token": token}).encode(), **own)
    cookie = answer.headers["set-cookie"]
    assert (answer.status, cookie.split(";")[0]) == (204, f"sdp-staff={token}")
    assert {"HttpOnly", "Max-Age=90", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    answer = await ask(app, "/v1/session", "DELETE", cookie=f"sdp-staff={token}", **own)
    assert (answer.status, "Max-Age=0" in answer.headers["set-cookie"]) == (204, True)


async def test_pages_of_other_origins_may_ask_only_if_they_are_listed(tmp_path: Path, release: Make) -> None:
    records = {("pages", "public"): [release({"home": 900})]}
    app = gateway_of(tmp_path, records, origins=("https://a.example",)).app()
    listed, other = [await ask(app, "/v1/views", origin=f"https://{name}.example") for name in "ab"]
    assert listed.headers["access-control-allow-origin"] == "https://a.example"
    assert "access-control-allow-origin" not in other.headers
    assert "access-control-allow-credentials" not in listed.headers


async def test_a_gateway_that_has_not_read_says_so_and_one_whose_broker_is_silent_warns(gateway: Gateway) -> None:
    app = gateway.app()
    gateway.boards.silent = True
    assert (await ask(app, "/v1/views")).headers["warning"].startswith("110")
    assert (await ask(app, "/readyz")).json["type"] == "broker_silent"
    gateway.boards.silent = gateway.boards.started = False
    answer = await ask(app, "/v1/views")
    assert (answer.status, answer.json["type"], answer.headers["retry-after"]) == (503, "starting", "1")
    assert (await ask(app, "/livez")).status == 200


async def test_who_asks_too_often_waits_and_others_do_not(gateway: Gateway) -> None:
    app = gateway.app()
    gateway.requests = RequestRate(20, 3, lambda: 0)
    gateway.failures = RequestRate(1, 2, lambda: 0)
    assert [(await ask(app, "/v1/views")).status for _ in range(4)] == [200, 200, 200, 429]
    assert (await ask(app, "/v1/views", client="10.0.0.2")).status == 200
    wrong = {"authorization": "Bearer x", "client": "10.0.0.3"}
    answers = [await ask(app, "/v1/views", **wrong) for _ in range(3)]
    assert [one.status for one in answers] == [401, 401, 429]
    assert answers[2].headers["retry-after"] == "2"
