"""Releases for programs: read from Kafka or from a gateway, as typed records or as a table.

    async for record in Releases("https://releases.example.org", view="destinations"):
        print(record)

* `Releases`: the newest record of every window, then what is new.
* `Expired`: a window that is no longer there.
* `to_pandas`, `to_arrow`: records as a table.
"""

from stream_dp.client.frames import to_arrow, to_pandas
from stream_dp.client.reading import Expired, Releases

__all__ = ["Expired", "Releases", "to_arrow", "to_pandas"]
