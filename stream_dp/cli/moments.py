"""Moments as options of commands take them."""

from __future__ import annotations

import click

from stream_dp.windows.durations import parse_time


class Moment(click.ParamType):
    """A date or a moment as RFC 3339 text, in ms since epoch; a date is where it begins in UTC."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The moment, if the text is one."""
        text = str(value)
        try:
            return parse_time(text if "T" in text else f"{text}T00:00:00Z")
        except ValueError as error:
            self.fail(f'{text!r}: write a date, "2013-05-07", or {error}', param, ctx)


MOMENT = Moment()
