"""Predicts the public decisions of an application from its transcript alone (sections 1 to 4, 6, 8 and 9).

Sections are those of the design "The public transcript: what decides everything that is public". The simulator is
written from it and from the pages for operators, not from the product: it uses the parsed plan (`stream_dp.config`,
with the shapes of windows, costs and shares that a plan consists of) and nothing else. It is slow and simple on
purpose.

Where to read what:

| module | subject |
|---|---|
| `transcript` | the input |
| `predictions` | the output; record numbers, planned slots, voided records |
| `clock` | rising ticks, times of effect, `closed(w)`, the catch-up clock, lost windows, declared losses |
| `editions` | accepted settings, editions, since when a window is counted |
| `ledger` | the sequence of one ledger: tick by tick, stage by stage |
| `releasing` | one window, one step of a level, what became free, lowerings |
| `raising` | grants, unlocks, leftovers |
| `expiry`, `announcements` | tombstones; records about views |
| `budgets` | periods, charges, what fits |
| `levels` | who may see which level |
| `lists` | the list of a window |
| `windows` | windows, panes and running totals |
| `tapes`, `stories` | transcripts for tests, by hand and at random |

What a recording of a real run must hold
----------------------------------------

* The whole control topic in order, uncompacted: the offset of a record is its place. Each `Settings` has its parsed
  plan and the first window of every edition that it begins; each verdict has its append time.
* For every partition number, all ticks in order, as the broker stamped them, each with the end of the control topic
  and the sources whose end it names. Watermarks of committed records stand before the first tick about their source
  whose end is after them. One gap marker is between each two ticks about a source between which records may be
  missing. No source offsets.
* Which partition is the ledger's own, by population.
* For each ledger and list topic, every version that was stored, with the tick that it was stored with.
* Accepted losses, in the ledger's own partition, before the first tick after them.
* To compare: the release topics with numbers and planned slots, repetitions left out, and the account entries. The
  charge of a first release goes into `price`. Other results are not needed.

The simulator stops a ledger at the first event that the end of the transcript leaves open (`Prediction.until_ms`);
compare up to there.

Choices where the document is silent
------------------------------------

Clocks:

1. A control record takes effect for the counter of a source at the first rising tick about that source. A declared
   loss takes effect at any tick.
2. A watermark counts as heard at the first tick about its source after it. A partition without any watermark is
   idle from its first tick on, and then shows the time of the tick less `idle`.
3. A further silence never makes a catch-up end earlier. The limit of ten times `catch_up` goes by the setting.
4. A silence goes by ticks about the source, also between ticks with unequal distances in other partitions.
5. Two views are in one group if source, clock, grace, idle, catch-up and `max_ahead` are equal.
6. "Complete from the first window that starts after the tick": strictly after, because ticks are cut to seconds.
7. A definition that another one had replaced counts again when it comes back, for the windows that it had lost.
8. A source that the settings no longer name does not become new again.

Windows and budgets:

9. A budget is asked before a loss is known: a lost window that does not fit is refused with `budget`. A lost window
   charges nothing and begins no period.
10. The reason and level of running totals are those of the first pane; after a lost pane the rest of the window is
    lost. A grant covers all panes or none.
11. A window that nobody may see has no record, and counts as decided for expiry.
12. A draw begins its period, whatever it costs. A new period that overlaps others begins with everything they were
    charged. A window is charged to every begun period that overlaps it.
13. What is kept for each view is shared out over the views by name. When a `topk` is short of budget the simulator
    refuses it: how many keys the rest would draw is not in the plan.

Levels:

14. A step is free if it costs nothing, for whatever reason (as with Gaussian noise).
15. A withdrawal that takes effect at the tick that would carry out a grant prevents it, with and without `at`.
16. A free release needs the whole level: an audience does not get a level in between.
17. A grant with a level that a window's ladder lacks is passed over, and the grant before it holds.
18. Windows of a retired key are passed over by grants, unlocks and leftovers, without a refusal.
19. Each unlock is an event of its own, even when two for one window are due at one tick.
20. Leftovers begin with the first of their times after the settings that bring them. The run at a time leaves out
    periods that ended before the time before it. Unlocks to come are priced as after the step that is asked for.
21. A voided record keeps its number and revision. The audience does not have the level, so a later event can
    release it again. Its slot still holds back later records of its topic.
22. A refusal is voided like a release when its audience may see nothing of the window any more.

Expiry and records about views:

23. "Starts more than the retention behind it" is more than the retention after its end.
24. The newest published window is the one of the view that starts last and that some audience has.
25. A window whose records were all voided has no tombstone. A lowering can void a record whose tombstone was
    decided before; the tombstone leaves all the same.
26. A record about a view has one content per audience, view and edition; it is posted when this changes. It is
    taken back with the last window of its edition, or when the edition never begins.
27. Editions of a view count on when it is taken out and put back.

Not predicted
-------------

How many keys a `topk` draws when it is short of budget; the keys and the content of lists, which are known by
version only; whether settings are acceptable, which their verdict says; watermarks that are refused as implausible,
which a recording leaves out; the moment at which a record leaves; what a record contributes (section 10).

Questions to the document, and the decision taken
-------------------------------------------------

* Section 3 has no order between two unlocks for one window that are due at one tick; the pages for operators say
  that only the finest is published. Decision: by time, one after the other, as the order in the table of stages
  says (19).
* Section 2 says that a source without a leader passes over a tick, and that control records take effect at "the
  first rising tick". Decision: (1).
* Section 9 says that a further silence begins the catch-up anew, which could end it earlier, and "at most ten times
  `catch_up`", which has a different length after each silence. Decision: (3).
* Section 3 fixes what a grant of `retained` windows covers by the tick at which it is carried out, but not what it
  covers of a window of running totals that has begun. Decision: the whole window, by the tick of its first pane
  (10).
* Section 6 measures completeness by watermark from the clock, while `max_ahead` refuses by the tick. A record
  between the two may have been read before the view existed. Decision: as section 6 says.
* A view that moves to another ledger keeps its audiences' levels by no rule. Decision: each ledger knows the
  windows that it decided.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from stream_dp.accounting import Cost
from tests.transcript.clock import Clocks, Declaration, Partition
from tests.transcript.editions import History
from tests.transcript.ledger import Ledger
from tests.transcript.lists import Lists
from tests.transcript.predictions import Prediction
from tests.transcript.releasing import Price
from tests.transcript.transcript import DeclaredLoss, Tick, Transcript, TranscriptError


def worst_case(_view: str, _start_ms: int, _level: str) -> Cost | None:
    """Price every first release at its worst case."""
    return None


def simulate(transcript: Transcript, price: Price = worst_case) -> Mapping[str, Prediction]:
    """Predict what each ledger decides.

    Args:
        transcript: the transcript.
        price: from view, start and level to what a first release cost; None for the worst case.

    Returns:
        By population, the records and account entries in order.

    Raises:
        TranscriptError: no run can have this transcript.
    """
    partitions = {number: Partition.from_events(events) for number, events in transcript.partitions.items()}
    history = History(transcript.control)
    losses = [Declaration(at, one) for at, one in enumerate(transcript.control) if isinstance(one, DeclaredLoss)]
    clocks = Clocks(partitions, losses)
    lists = Lists(transcript.lists)
    ledgers: dict[str, Ledger] = {}
    for population, number in sorted(transcript.ledgers.items()):
        if number not in partitions:
            raise TranscriptError(f"the ledger of {population} has no partition {number}")
        ledgers[population] = Ledger(population, transcript, history, partitions[number], clocks, lists.version, price)
    lists.ledgers = ledgers
    for population, tick in _in_order(ledgers):
        ledgers[population].move(tick.time_ms, tick.control_end)
    return {population: ledger.prediction for population, ledger in ledgers.items()}


def _in_order(ledgers: Mapping[str, Ledger]) -> Iterator[tuple[str, Tick]]:
    """All ticks of all ledgers by time, so that lists made of releases of another ledger are decided before."""

    def ticks(population: str) -> Iterator[tuple[int, str, Tick]]:
        for tick in ledgers[population].partition.ticks:
            yield tick.time_ms, population, tick

    for _, population, tick in heapq.merge(*(ticks(population) for population in ledgers)):
        yield population, tick
