"""What the topic `<app>-accounts` holds: one entry for every call of a ledger, for operators alone.

What a selection has cost depends on the data, and what a ledger has left depends on all selections that it paid for. So
an entry tells of views that an audience may not read, and stands inside the trust boundary; what an audience is told of
its own costs is in `records.models`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stream_dp.records.models import Account, Interval, Price, PublicRecord


class Reader(PublicRecord):
    """An audience that a call is for."""

    audience: str = Field(description="The audience.")
    revision: int = Field(ge=1, description="Revision of the record that the audience got.")
    level: str = Field(description="Name of the level that it is about.")
    charged: Price = Field(
        description="What the ledger paid for it: what it tells beyond the finest release that anyone had of the "
        "window, the audiences before it in this entry included. Zero of a refusal."
    )
    told: Price = Field(
        description="What it tells the audience, alone, beyond what it had of the window. Zero of a refusal."
    )


class Kept(PublicRecord):
    """What a period keeps for a view."""

    view: str = Field(description="The view.")
    price: Price = Field(description="What no other view may take, in the entries of the caps.")


class Entry(PublicRecord):
    """A call of a ledger: a window, or a sharper revision of it for one audience, that was charged or refused."""

    schema_version: Literal[1] = Field(description="Version of this form.")
    code_version: str = Field(description="Version of the stream-dp that made the entry.")
    type: Literal["charge", "refusal"] = Field(description="charge: it was paid and released; refusal: it was not.")
    ledger: Account = Field(description="The account.")
    view: str = Field(description="The view.")
    edition: int = Field(ge=1, description="Number of the settings of the view that the window was made with.")
    window: Interval = Field(description="The window.")
    asked: Price = Field(description="What the call asked the ledger for: its cost at worst.")
    left: Price = Field(description="What the ledger had left behind the call, in the entries of the caps.")
    left_for_view: Price = Field(
        description="What of that the view may take: the rest is kept for other views of the ledger. A call that asks "
        "for more is refused."
    )
    kept: tuple[Kept, ...] = Field(
        description="What the period keeps for each view. It is fixed when a period begins: a view that is not named "
        "came later and may take what nobody holds."
    )
    readers: tuple[Reader, ...] = Field(
        min_length=1, description="The audiences that the call is for, coarsest level first."
    )
