"""Print the newest releases of a view, then each one that comes.

python read_releases.py https://releases.example.org destinations
python read_releases.py kafka://127.0.0.1:9092 destinations public flights

A token for a gateway is read from the variable TOKEN. With --until-end it ends when everything has been printed.
"""

import asyncio
import os
import sys

from stream_dp.client import Releases
from stream_dp.errors import StreamDPError
from stream_dp.records import Release


async def main(address: str, view: str, audience: str = "", application: str = "", *, follow: bool = True) -> None:
    """Print releases and refusals until the program is stopped."""
    token = os.environ.get("TOKEN")
    reader = Releases(
        address, view=view, audience=audience, application=application, token=token, follow=follow, since="1970-01-01"
    )
    async for record in reader:
        if not isinstance(record, Release):
            print(record.window.start, "refused:", record.reason, flush=True)
            continue
        counts = []
        for entry in record.items[:5]:
            low, high = record.interval(entry)
            counts.append(f"{entry.item} {max(0, low)} to {max(0, high)}")
        print(record.window.start, f"revision {record.revision}:", ", ".join(counts) or "nothing", flush=True)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--until-end"]
    try:
        asyncio.run(main(*words, follow="--until-end" not in sys.argv))
    except StreamDPError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
