"""Answers for readers, from the boards of one audience: plain functions, without HTTP."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from stream_dp.gateway.boards import Board, BoardWindow, Window, compact, decoded
from stream_dp.records.by_kind import HistogramRelease, LookupRelease, PureTopKRelease, RankedRelease
from stream_dp.records.models import Account, PrivacyCost, Release
from stream_dp.records.table import COLUMNS, Row, absence, arrow_table, interval
from stream_dp.windows.durations import format_time, parse_moment

MOST_WINDOWS, USUAL_WINDOWS, MOST_ENTRIES = 500, 50, 2000
MOST_ITEMS, MOST_SMOOTHED, MOST_LOOKUPS = 20, 5, 10
LARGEST_ANSWER = 16 << 20
_FORMULA = ("=", "+", "-", "@", "\t")
_DRAWN_AS_TEXT = "'"


class RequestError(Exception):
    """An answer that is an error: a word for its type, what to do about it, and what else it says."""

    def __init__(self, kind: str, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.headers, self.more = kind, detail, dict(headers or {}), more


class Page(NamedTuple):
    """A range of windows, as a request asks for it."""

    from_ms: int | None
    until_ms: int | None
    limit: int
    before: Window | None = None


def moment(name: str, text: str) -> int:
    """Return the time in ms of a parameter: RFC 3339 or a date."""
    try:
        return parse_moment(text)
    except ValueError:
        raise RequestError(
            "bad_request", f'{name}: write a date, "2013-05-07", or a moment, "2013-05-07T12:00:00Z"'
        ) from None


def number(name: str, text: str, most: int) -> int:
    """Return a parameter that is a whole number from 1 on."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most):
        raise RequestError("bad_request", f"{name}: write a whole number from 1 to {most}")
    return int(text)


def cursor(window: Window) -> str:
    """Return the cursor of the windows before one."""
    return f"{window[0]}.{window[1]}"


def window_of(text: str) -> Window:
    """Return the window of a cursor."""
    start, _, end = text.partition(".")
    if not all(part.removeprefix("-").isdecimal() and part.isascii() and len(part) < 17 for part in (start, end)):
        raise RequestError("bad_request", "cursor: use `next` of an answer as it is")
    return int(start), int(end)


def views(boards: Mapping[str, Board], audiences: Iterable[str]) -> bytes:
    """Return the views of an audience; `audiences` are those that the reader may choose between."""
    listed = []
    for view, board in boards.items():
        cell = board.cells[board.order[-1]] if board.order else None
        record = None if cell is None else decoded(cell.release or cell.refusal or b"")
        release = _newest(board)
        ends_ms = None if cell is None else cell.window[1]
        about = board.edition(0 if ends_ms is None else ends_ms)
        due_ms = None if about is None else about.due_ms(ends_ms)
        newest = None if cell is None else {"start": format_time(cell.window[0]), "end": format_time(cell.window[1])}
        listed.append(
            {
                "name": view,
                "view": view,
                "audience": board.audience,
                "title": view if about is None else about.title,
                "unit": None if about is None else about.unit,
                "kind": record.kind if record is not None else None if about is None else about.kind,
                "next_due": None if due_ms is None else format_time(due_ms),
                "record": None if about is None else about.model_dump(mode="json", exclude_none=True),
                "newest": None if cell is None else {"window": newest, "state": cell.state},
                "level": None if release is None else release.level.name,
                "noise_interval_95": None if release is None else release.noise_interval_95,
                "windows": len(board.order),
                "position": board.position,
            }
        )
    return compact({"views": listed, "audiences": sorted(audiences)})


def chosen(board: Board, page: Page) -> list[Window]:
    """Return the windows of a page, newest first, and one more if there are more."""
    found = board.between(page.from_ms, page.until_ms)
    before = [window for window in reversed(found) if page.before is None or window < page.before]
    return before[: page.limit + 1]


def windows(board: Board, page: Page, *, with_replaced: bool) -> bytes:
    """Return the windows of a page as JSON; fewer than asked for where the answer would be too large."""
    found, bodies, size, following = chosen(board, page), [], 0, None
    for index, window in enumerate(found):
        cell = board.cells[window]
        made = [cell.body(board.topic), *([cell.replaced(board.topic)] if with_replaced else [])]
        entry = [body for body in made if body is not None]
        size += sum(map(len, entry))
        if index and (index == page.limit or size > LARGEST_ANSWER):
            following = cursor(found[index - 1])
            break
        if size > LARGEST_ANSWER:
            following = cursor(window)
            raise RequestError(
                "too_large", f"the window of {format_time(window[0])} is larger than an answer; next: {following}"
            )
        bodies += entry
    return b'{"windows":[%s],"next":%s}' % (b",".join(bodies), compact(following))


def one(board: Board, start: str, end: str | None, revision: str | None) -> tuple[BoardWindow, bytes]:
    """Return a window, and it as JSON."""
    start_ms, end_ms = moment("start", start), None if end is None else moment("end", end)
    wanted = None if revision is None else number("revision", revision, 10**6)
    cell = board.find(start_ms, end_ms)
    if cell is None:
        if board.is_gone(start_ms, end_ms):
            raise RequestError("gone", "The gateway no longer has this window; its topic does.")
        raise RequestError("not_found", "")
    if wanted in (None, cell.revision or cell.refused_revision):
        return cell, cell.body(board.topic)
    replaced = cell.replaced(board.topic)
    if replaced is not None and json.loads(replaced)["record"]["revision"] == wanted:
        return cell, replaced
    if wanted is not None and wanted < cell.revision:
        raise RequestError("gone", "The gateway no longer has this revision.")
    raise RequestError("not_found", "")


def series(board: Board, items: Sequence[str], page: Page, smooth: int | None, diff: int | None) -> bytes:
    """Return the counts of some items by window, in order of time; derived numbers are apart, and named."""
    found = chosen(board, page)
    cells = [board.cells[window] for window in reversed(found[: page.limit])]
    read = [(cell, cell.newest) for cell in cells]
    answer = [
        {
            "item": item,
            "view": board.view,
            "windows": [_entry(cell, release, item) for cell, release in read],
            "post_processing": {
                **({} if smooth is None else {"smooth": _smooth(read, item, smooth)}),
                **({} if diff is None else {"diff": _differences(read, item)}),
            },
        }
        for item in items
    ]
    following = cursor(found[page.limit - 1]) if len(found) > page.limit else None
    return compact({"series": answer, "next": following})


def most_entries(board: Board) -> int:
    """Return the most counts of a series: few where each is computed, which takes milliseconds of the event loop."""
    return MOST_LOOKUPS if isinstance(_newest(board), LookupRelease) else MOST_ENTRIES


def _newest(board: Board) -> Release | None:
    """Return the release of the newest window that has one."""
    cells = map(board.cells.__getitem__, reversed(board.order))
    return next((cell.newest for cell in cells if cell.release is not None), None)


def _entry(cell: BoardWindow, release: Release | None, item: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "start": format_time(cell.window[0]),
        "end": format_time(cell.window[1]),
        "state": cell.state,
    }
    if release is None:
        refused = cell.refused
        if refused is not None:
            asked = {name: amount.decimal for name, amount in refused.requested if amount is not None}
            entry |= {"reason": refused.reason, "asked": asked}
        return entry
    entry |= {"level": release.level.name, "revision": release.revision, "edition": release.edition}
    found = release.entry(item)
    if found is None and release.shows(item):
        return entry
    if found is None:
        entry["state"] = absence(release)
        if isinstance(release, RankedRelease) and release.rank is not None:
            return entry | {"rank": release.rank}
        return entry | ({"shown_from": release.minimum_count} if isinstance(release, HistogramRelease) else {})
    return entry | {"count": found.count, "interval": interval(release, found)}


_Read = Sequence[tuple[BoardWindow, Release | None]]


def _smooth(read: _Read, item: str, width: int) -> list[int | None]:
    """Means of neighbours by precision and distance, within one edition and never over a window without a count."""
    counts = [None if release is None else release.count_of(item) for _, release in read]
    found: list[int | None] = []
    for at, (_, middle) in enumerate(read):
        if middle is None or counts[at] is None:
            found.append(None)
            continue
        total = weights = Fraction(0)
        for step in (-1, 1):
            for distance in range(0 if step > 0 else 1, width // 2 + 1):
                other = at + step * distance
                release = read[other][1] if 0 <= other < len(read) else None
                count = counts[other] if release is not None else None
                if release is None or count is None or release.edition != middle.edition:
                    break
                weight = Fraction(1, max(1, release.noise_interval_95) ** 2 * (1 + distance))
                total, weights = total + weight * count, weights + weight
        found.append(round(total / weights))
    return found


def _differences(read: _Read, item: str) -> list[dict[str, Any] | None]:
    """Difference to the window before, with an interval that holds for all shown keys of both together, at 95 %."""
    found: list[dict[str, Any] | None] = [None] if read else []
    for (_, former), (_, latter) in pairwise(read):
        before, after = _two_sided(former, item), _two_sided(latter, item)
        if former is None or latter is None or before is None or after is None or former.edition != latter.edition:
            found.append(None)
            continue
        together = sum(_two_sided(former, entry.item) is not None for entry in latter.items) or 1  # no list of keys
        half = sum(_half_width(release, together) for release in (former, latter))
        change = after - before
        found.append({"difference": change, "interval": [change - half, change + half], "together": together})
    return found


def _two_sided(release: Release | None, item: str) -> int | None:
    """Return the count of an item that is read two-sided; None where other keys decide which are shown."""
    found = None if release is None else release.entry(item)
    if found is None:
        return None
    if isinstance(release, RankedRelease) and (release.rank is not None or not release.is_two_sided(found)):
        return None
    return found.count


def _half_width(release: Release, together: int) -> int:
    """Half width that holds for all shown keys of a release, and for another release as well, at 95 %."""
    if isinstance(release, PureTopKRelease):  # which keys are shown depends on the noise of their counts
        return _wider(release.within_95, 1)
    return _wider(release.noise_interval_95, together)


def _wider(half_width: int, together: int) -> int:
    """Return the half width at 1 - 0.05/2m for one at 0.95: exponential tails: ln(40 m) / ln(20) of it, up."""
    sixteenths = next(k for k in range(16, 1 << 12) if 20**k >= (40 * together) ** 16)
    return -(-half_width * sixteenths // 16)


def ledgers(boards: Iterable[Board]) -> bytes:
    """Return by ledger and period the budget, and the largest loss that records of the audience name."""
    found: dict[tuple[str, int], tuple[Account, PrivacyCost]] = {}
    for board in boards:
        for key, value in board.ledgers.items():
            record = decoded(value)
            loss = record.privacy.period
            if key not in found or not loss.cost <= found[key][1].cost:
                found[key] = record.ledger, loss
    listed = [
        {
            "ledger": account.name,
            "population": account.population,
            "period": account.period.model_dump(mode="json"),
            "budget": account.budget.model_dump(mode="json", exclude_none=True),
            "privacy": {"period": loss.model_dump(mode="json", exclude_none=True)},
        }
        for _, (account, loss) in sorted(found.items())
    ]
    return compact({"ledgers": listed})


def as_csv(table: Iterable[Row]) -> bytes:
    """Return a table as CSV; a text that a spreadsheet would take for a formula is marked as text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in table:
        writer.writerow(
            [_DRAWN_AS_TEXT + cell if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in row]
        )
    return out.getvalue().encode()


def as_arrow(table: Iterable[Row], metadata: Mapping[str, str]) -> bytes:
    """Return a table as a stream of Arrow.

    Raises:
        RequestError: pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: PLC0415 - an extra
    except ImportError:
        raise RequestError(
            "not_acceptable", "This gateway has no Arrow; ask for application/json or text/csv."
        ) from None
    made, out = arrow_table(table, metadata), io.BytesIO()
    with pyarrow.ipc.new_stream(out, made.schema) as writer:
        writer.write_table(made)
    return out.getvalue()


def record_metadata(cells: Sequence[BoardWindow]) -> dict[str, str]:
    """Return the fields of the newest record that are no columns, for the schema of Arrow."""
    newest = next((cell.newest for cell in cells if cell.release is not None), None)
    if newest is None:
        return {}
    data = newest.model_dump(mode="json", exclude_none=True, exclude={"items"})
    return {"record": json.dumps(data, ensure_ascii=False)}
