"""Every state of the readers' page: what happens to its gateway, where it is, and what its visitor does there.

The tests of numbers, of accessibility and of narrow screens all go through this list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from stream_dp.windows.durations import format_time
from tests.browser.served_reader import ServedReader
from tests.browser.shop import EMPTY, LAST, LOST, start_of

Page = Any


def at(view: str, day: int, audience: str = "public") -> str:
    """Return the address of a window of a day."""
    start, end = (format_time(start_of(number)).removesuffix("T00:00:00Z") for number in (day, day + 1))
    return f"{audience}/{view}/{start}..{end}"


def nothing(_: Page, __: ServedReader) -> None:
    """Look only."""


def opened(page: Page) -> None:
    """Open everything that may be opened."""
    for summary in page.query_selector_all("details:not([open]) > summary"):
        summary.click()


def compare(page: Page, _: ServedReader) -> None:
    """Compare audiences."""
    page.click("#compare")
    page.wait_for_selector(".compare .range")


def smooth(page: Page, _: ServedReader) -> None:
    """Draw the smoothed line."""
    page.check("#smooth")
    page.wait_for_selector(".note.post")


def interrupt(page: Page, served: ServedReader) -> None:
    """Lose the gateway."""
    page.wait_for_selector("#live:not(.off)")
    served.network.cut()
    page.wait_for_selector("#banner .bar")


def mend(served: ServedReader) -> AbstractContextManager[None]:
    """Have the network again behind a state."""

    @contextmanager
    def mended() -> Iterator[None]:
        try:
            yield
        finally:
            served.network.mend()

    return mended()


def wrong_token(page: Page, _: ServedReader) -> None:
    """Give a token that is none."""
    page.fill("#token", "sdp_wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#wrong:not(:empty)")


@dataclass(frozen=True)
class State:
    """A state of the page.

    Attributes:
        name: in words.
        address: of the page.
        shows: what is in it, and in no other state by chance.
        act: of the visitor.
        setup: what the gateway is like meanwhile.
        wait: what shows that the page is drawn.
    """

    name: str
    address: str
    shows: str
    act: Callable[[Page, ServedReader], None] = nothing
    setup: Callable[[ServedReader], AbstractContextManager[Any]] = lambda _: nullcontext()
    wait: str = ".strip"

    @contextmanager
    def on(self, page: Page, served: ServedReader) -> Iterator[Page]:
        """Bring a page into the state."""
        with self.setup(served):
            page.goto("about:blank")
            page.goto(f"{served.url}#/{self.address}")
            page.wait_for_selector(self.wait)
            self.act(page, served)
            opened(page)
            page.locator("main, #banner").get_by_text(self.shows).first.wait_for()
            yield page


STATES = {
    state.name: state
    for state in (
        State("released", at("destinations", LAST), "How many aircraft had each key."),
        State("sharper", at("destinations", 0), "More precise than before"),
        State("empty", at("destinations", EMPTY), "Nothing stands out in this window"),
        State("refused", at("short", LAST), "This window was refused"),
        State("sharper refused", at("short", 0), "Nothing was taken back"),
        State("lost", at("lost", LOST), "they will not come back"),
        State("former edition", at("destinations", 1), "counted differently (edition 2)"),
        State("no window", "public/fresh", "The first window has not ended yet", wait=".card"),
        State("known keys", at("known", LAST), "keys that were known before are always shown"),
        State("noise that ends", at("ends", 1), "A key is shown from"),
        State("gap", "public/leaders", "Who leads, and how sure that is"),
        State("sharper gap", at("leaders", 1), "Dashed: the interval before it became more precise"),
        State("subset", at("largest", 1), "These keys are in no order."),
        State("catalogue", at("airlines", 1), "of a public list."),
        State("ranked", at("ranked", 1), "Only the 3 keys with the largest noisy counts are shown."),
        State("ranked histogram", at("first", 1), "Only the 3 keys with the largest noisy counts are shown."),
        State("Gaussian", at("gaussian", 1), "Gaussian"),
        State("running", "public/totals", "A total may be lower than the one before"),
        State("topk", at("busiest", 1), "The order is that of the selection."),
        State("pure topk", at("found", LAST), "At most 4 keys are shown"),
        State("lookup", at("table", LAST), "This view lists no keys"),
        State("one key", f"{at('destinations', LAST)}?item=SML", "SML"),
        State("smooth", at("airlines", LAST), "It was not released, costs no privacy", smooth),
        State("compare", at("destinations", 1), "The same window for your audiences", compare),
        State("hostile key", at("lost", 0), "<img src=x"),
        State("other audience", at("destinations", LAST, "partner"), "95 % sure"),
        State("no such window", "public/destinations/2020-01-01..2020-01-02", "This window is not here", wait=".card"),
        State("no such view", "public/secret", "There is nothing here that you may read", wait=".card"),
        State("interrupted", at("destinations", 1), "nothing of it is wrong", interrupt, mend),
        State("silent broker", at("destinations", 1), "Kafka does not answer", setup=ServedReader.silent_broker),
        State("token", "", "You need a token", setup=ServedReader.closed, wait="#token"),
        State("wrong token", "", "This token is not known", wrong_token, ServedReader.closed, "#token"),
    )
}
