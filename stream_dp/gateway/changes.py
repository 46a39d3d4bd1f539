"""What a change of settings or a grant means, for the console: worked out from settings and reports, never releases."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.grant_records import Change, Grant
from stream_dp.control.settings_change import Lasting, day
from stream_dp.errors import ConfigError, Fault
from stream_dp.gateway.api import RequestError, moment
from stream_dp.operations import plain
from stream_dp.operations.assignments import tuned
from stream_dp.operations.settings_changes import Basis, Prepared, Wish, prepare
from stream_dp.windows import durations
from stream_dp.windows.durations import format_duration, format_time

MOST_VALUES = 9
"""Of a curve."""
Text = Annotated[str, msgspec.Meta(max_length=1000)]
Assignments = Annotated[list[Text], msgspec.Meta(max_length=64)]


class Question(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A change of settings that is asked about: those of a view, as `stream-dp tune` takes them."""

    view: Text
    assignments: Assignments
    start_from: Text | None = msgspec.field(name="from", default=None)
    backfill: bool = False

    def wanted(self, before: Plan) -> Plan:
        """Return the wanted plan."""
        return tuned(before, self.view, self.assignments)

    def wish(self, note: str = "", expect: int | None = None) -> Wish:
        """Return from when on it is to hold."""
        from_ms = None if self.start_from is None else moment("from", self.start_from)
        return Wish(from_ms, self.backfill, note, expect)


class CurveQuestion(Question, forbid_unknown_fields=True, kw_only=True):
    """The same for several values of one setting."""

    setting: Text
    values: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=MOST_VALUES)]


class Consent(Question, forbid_unknown_fields=True, kw_only=True):
    """Consent to a change: to the plan that was shown, on the settings that were in effect then."""

    plan: Text
    settings: Annotated[int, msgspec.Meta(ge=1)]
    note: Text = ""
    application: Text | None = None


class GrantConsent(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A grant that is asked about, or, with what it was said to mean, consented to."""

    grant: dict[str, Any]
    plan: Text | None = None


def answer_plan(basis: Basis, question: Question, now_ms: int) -> dict[str, Any]:
    """Return what a change would mean, or its faults.

    Args:
        basis: what is known.
        question: the change.
        now_ms: the wall clock.
    """
    try:
        return meaning(prepare(basis, question.wanted, now_ms, question.wish()), question.view)
    except ConfigError as error:
        return {"settings": basis.number, "plan": None, "faults": plain(error.faults)}


def answer_curve(basis: Basis, question: CurveQuestion, now_ms: int) -> dict[str, Any]:
    """Return what a change would mean with each value of one setting.

    Args:
        basis: what is known.
        question: the change, the setting and its values.
        now_ms: the wall clock.
    """
    points = []
    for value in question.values:
        one = Question(
            view=question.view,
            assignments=[*question.assignments, f"{question.setting}={value}"],
            start_from=question.start_from,
            backfill=question.backfill,
        )
        found = answer_plan(basis, one, now_ms)
        points.append({"value": value, **{name: part for name, part in found.items() if name not in _NOT_OF_CURVES}})
    return {"settings": basis.number, "setting": question.setting, "points": points}


_NOT_OF_CURVES = {"settings", "plan", "change"}


def meaning(change: Prepared, view: str) -> dict[str, Any]:
    """Return what a change means; `plan` names it.

    Args:
        change: the change.
        view: that it is about.
    """
    found, posted = change.proposal, change.posted
    own = next((one for one in found.views if one.view == view), None)
    before, after = change.before.views.get(view), change.after.views.get(view)
    answer = {
        "settings": change.number,
        "begins": None if own is None else format_time(own.at_ms),
        "same_question": own is None or own.goes_on,
        "levels": list(_levels(before, after)),
        "view_day": _both(*(None if one is None else plain(day([one])) for one in (before, after))),
        "ledgers": [
            {
                "ledger": one.ledger,
                "day": _both(plain(one.day_before), plain(one.day_after)),
                "pays_until": _both(_until(one.lasts_before), _until(one.lasts_after)),
            }
            for one in found.ledgers
        ],
        "removes": removed(change),
        "warnings": list(found.warnings),
        "reverts": list(change.reverts),
        "faults": [],
    }
    told = Prepared.as_json(change)
    shown = [answer, *(told[name] for name in ("differs", "views", "former_editions"))]
    made = [posted.sections, posted.fingerprints, posted.begins, posted.ends]
    return {"plan": _digest([shown, made]), **answer, "change": told}


def _digest(shown: object) -> str:
    return hashlib.sha256(msgspec.json.encode(shown, order="sorted")).hexdigest()


def _both(before: object, after: object) -> dict[str, Any]:
    return {"before": before, "after": after}


def _until(lasts: Lasting | None) -> dict[str, Any] | None:
    """Return how long a budget lasts, without the time from now on: that is another one in the next moment."""
    if lasts is None:
        return None
    into = format_duration(lasts.for_ms) if lasts.until_ms is None else None
    until = None if lasts.until_ms is None else durations.moment(lasts.until_ms)
    return {"until": until, "into_period": into, "is_whole": lasts.is_whole}


def _levels(before: ViewPlan | None, after: ViewPlan | None) -> Iterator[dict[str, Any]]:
    """The noise of each level before and after, and from which counts on keys are shown."""
    former, latter = _accuracy(before), _accuracy(after)
    for name in dict.fromkeys([*latter, *former]):
        was, becomes = former.get(name, {}), latter.get(name, {})
        fields = dict.fromkeys([*becomes, *was])
        yield {
            "level": name,
            "audiences": becomes.get("audiences", []),
            **{one: _both(was.get(one), becomes.get(one)) for one in fields if one != "audiences"},
        }


def _accuracy(view: ViewPlan | None) -> dict[str, dict[str, Any]]:
    if view is None:
        return {}
    details = view.kind.explain("").details
    shown = {"minimum_count": details.get("minimum_counts", {}), "two_sided_from": details.get("two_sided_from", {})}
    return {
        level.name: {
            "audiences": [name for name, index in view.audiences.items() if index == at],
            "epsilon": None if level.pure_epsilon is None else str(level.pure_epsilon),
            "noise_interval_95": level.interval_of(view.window.shape.summands),
            "noise": level.noise.model_dump(include={"distribution", "scale", "largest"}, exclude_none=True),
            **{name: by_level.get(level.name) for name, by_level in shown.items()},
        }
        for at, level in enumerate(view.levels)
    }


def removed(change: Prepared) -> list[str]:
    """Return the levels, audiences and views that a change removes, which asks for the application's name."""
    before, after = change.before, change.after
    found = [f"view {name}" for name in before.views if name not in after.views]
    found += [f"audience {name}" for name in before.audiences if name not in after.audiences]
    for name, was in before.views.items():
        becomes = after.views.get(name)
        if becomes is not None:
            gone = [one for one in was.audiences if one in after.audiences and one not in becomes.audiences]
            found += [f"audience {one} of view {name}" for one in gone]
            names = {level.name for level in becomes.levels}
            found += [f"level {level.name} of view {name}" for level in was.levels if level.name not in names]
    return found


def check_name(removes: Sequence[str], question: Consent, plan: Plan) -> None:
    """Refuse a consent that has to name the application and does not.

    Args:
        removes: what is removed.
        question: the consent.
        plan: of the file.
    """
    grave = [*removes, *(["earlier windows of new views: --backfill"] if question.backfill else [])]
    if grave and question.application != plan.name:
        words = f"write the name of the application to agree to this: {', '.join(grave)}"
        raise refused([Fault("application", words)])


def refused(faults: Sequence[Fault]) -> RequestError:
    """Return the answer to a change that is impossible."""
    return RequestError("faults", "Nothing was changed.", faults=plain(faults))


def grant_meaning(grant: Grant, changes: Sequence[Change], plan: Plan) -> dict[str, Any]:
    """Return what a grant means; `plan` names it.

    Args:
        grant: the grant.
        changes: its effect on each view.
        plan: in effect.
    """
    views = plan.newest
    answer = {
        "id": grant.id,
        "grant": grant.model_dump(exclude={"type"}),
        "changes": [
            {
                **plain(one),
                "noise_interval_95": _both(_noise(views[one.view], one.before), _noise(views[one.view], one.after)),
            }
            for one in changes
        ],
    }
    return {"plan": _digest(answer), **answer}


def _noise(view: ViewPlan, level: str) -> int | None:
    found = (one.interval_of(view.window.shape.summands) for one in view.levels if one.name == level)
    return next(found, None)
