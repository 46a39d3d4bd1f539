"""Acceptance of settings: the control topic alone decides which posted settings are in effect.

Posted settings need a verdict, which one worker gives: the owner of the control partition. Before a worker counts,
charges, releases or announces anything by accepted settings, it states in the topic that it uses them (`Use`). Every
reader of the topic up to the same offset applies the same rules, in the order of the log:

1. A verdict counts only if its settings have none yet and all settings before them have one. Refused settings are never
   in effect.
2. A verdict that takes an acceptance back counts only if its settings are the newest accepted ones and no statement of
   their use comes before it. They are refused from then on. Nothing was counted, charged, released or announced by
   them; only empty topics may be left.
3. A statement of use counts only if its settings are accepted at that place. A worker that reads its own statement back
   and finds that it does not count must not use the settings.
4. A verdict counts only if its judge had read every verdict and statement before it that counts. So no verdict rests on
   settings that were taken back, or on the belief that no worker runs when one has started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile

import msgspec
from msgspec.structs import replace as replace_fields

from stream_dp.control.control_records import decode_control
from stream_dp.control.editions import Posted

VERDICTS = b"verdicts/"
"""Prefix of the keys of verdicts on settings. Each verdict has a key of its own, so compaction keeps it."""
USES = b"uses/"
"""Prefix of the keys of statements of use. Each has a key of its own, too."""


class Verdict(msgspec.Struct, tag_field="type", tag="verdict", frozen=True):
    """Verdict of a worker on posted settings.

    Attributes:
        number: number of the settings.
        at_ms: when the worker gave the verdict, in ms; in a verdict that was read, when the broker appended it.
        reason: why the settings are refused; empty if they are accepted.
        latest_ms: an acceptance that the broker appends later than this counts as a refusal; None: no such limit.
        seen: number of verdicts and statements that its judge had read (`SettingsHistory.decisions`); None: it rests
            on none of them.
        takes_back: it takes back the acceptance of its settings.
    """

    number: int
    at_ms: int
    reason: str = ""
    latest_ms: int | None = None
    seen: int | None = None
    takes_back: bool = False

    @property
    def is_acceptance(self) -> bool:
        """True if the settings are accepted."""
        return not self.reason


class Use(msgspec.Struct, tag_field="type", tag="use", frozen=True):
    """Statement of a worker that it uses settings.

    Attributes:
        number: number of the settings.
    """

    number: int


TOO_LATE = "they were accepted too late for their first windows; apply them again"


def encode_decision(decision: Verdict | Use) -> bytes:
    """Return a verdict or a statement as the value of a control record."""
    return msgspec.json.encode(decision)


def decode_verdict(key: bytes | None, value: bytes | None, appended_ms: int) -> Verdict | None:
    """Return the verdict that a control record holds, None if it holds something else.

    Args:
        key: of the record.
        value: of the record.
        appended_ms: its timestamp.
    """
    verdict = decode_control(key, value, VERDICTS, Verdict)
    if verdict is None:
        return None
    is_late = verdict.latest_ms is not None and appended_ms > verdict.latest_ms
    reason = TOO_LATE if is_late and verdict.is_acceptance else verdict.reason
    return replace_fields(verdict, at_ms=appended_ms, reason=reason)


def decode_use(key: bytes | None, value: bytes | None) -> Use | None:
    """Return the statement of use that a control record holds, None if it holds something else."""
    return decode_control(key, value, USES, Use)


@dataclass(frozen=True)
class SettingsHistory:
    """Settings of an application and the verdicts on them, as the control topic has them up to some offset.

    Attributes:
        posted: all settings, in the order of their numbers, which begin with 1.
        verdicts: the verdict on each that counts, by number; for settings that were taken back, the one that did so.
        used: highest number of settings that a worker has used; 0 if none has used any.
        decisions: number of verdicts and statements that count.
    """

    posted: Sequence[Posted] = ()
    verdicts: Mapping[int, Verdict] = field(default_factory=dict)
    used: int = 0
    decisions: int = 0

    @classmethod
    def from_records(cls, records: Iterable[Posted | Verdict | Use]) -> SettingsHistory:
        """Return the history that control records add up to.

        Args:
            records: settings, verdicts and statements of use, in the order of the log.
        """
        posted: dict[int, Posted] = {}
        verdicts: dict[int, Verdict] = {}
        used = 0
        decisions = 0
        for record in records:
            match record:
                case Posted():
                    posted.setdefault(record.number, record)
                case Use() if _is_accepted(record.number, verdicts):
                    used = max(used, record.number)
                    decisions += 1
                case Verdict() if record.number in posted and record.seen in (None, decisions):
                    if _can_follow(record, verdicts, used):
                        verdicts[record.number] = record
                        decisions += 1
        numbered = [posted[number] for number in takewhile(posted.__contains__, count(1))]
        return cls(numbered, verdicts, used, decisions)

    @property
    def accepted(self) -> list[Posted]:
        """The accepted settings, oldest first; the last ones are in effect."""
        verdicts = [(one, self.verdicts.get(one.number)) for one in self.posted]
        return [
            replace_fields(one, accepted_ms=verdict.at_ms)
            for one, verdict in verdicts
            if verdict is not None and verdict.is_acceptance
        ]

    @property
    def in_use(self) -> list[Posted]:
        """The accepted settings that cannot be taken back any more, oldest first."""
        return [one for one in self.accepted if one.number <= self.used]

    @property
    def waiting(self) -> list[Posted]:
        """The settings without a verdict, oldest first."""
        return [one for one in self.posted if one.number not in self.verdicts]

    @property
    def next_number(self) -> int:
        """The number that the next posted settings get."""
        return len(self.posted) + 1

    def is_in_use(self, number: int) -> bool:
        """Return True if settings are accepted and cannot be taken back any more.

        Refused settings never are, even if a worker has used later ones.
        """
        return number <= self.used and self.state(number) == "accepted"

    def state(self, number: int) -> str:
        """Return the state of the settings with a number: `accepted`, `refused` or `waiting`."""
        verdict = self.verdicts.get(number)
        if verdict is None:
            return "waiting"
        return "accepted" if verdict.is_acceptance else "refused"

    def reason(self, number: int) -> str:
        """Return why the settings with a number are refused; empty if they are not."""
        return self.verdicts[number].reason if number in self.verdicts else ""


def _is_accepted(number: int, verdicts: Mapping[int, Verdict]) -> bool:
    return number in verdicts and verdicts[number].is_acceptance


def _can_follow(verdict: Verdict, verdicts: Mapping[int, Verdict], used: int) -> bool:
    """Return True if a verdict on posted settings counts after others (rules 1 and 2)."""
    number = verdict.number
    if not verdict.takes_back:
        return number not in verdicts and (number == 1 or number - 1 in verdicts)
    newest = max((one.number for one in verdicts.values() if one.is_acceptance), default=0)
    return number == newest > used and not verdict.is_acceptance
