"""Send many messages in one request, by hand and by themselves."""

import asyncio
import sys

from roquet.client import Message, Producer


async def main(namesrv: str) -> None:
    readings = [Message("Readings", f"{number / 10:.1f} °C".encode()) for number in range(1_000)]

    # By hand: as few requests as the size allows, one result for each message.
    async with Producer(namesrv, group="station") as producer:
        results = await producer.send_batch(readings)
        print(len(results), "stored by hand")

    # By themselves: what is sent within some milliseconds goes together.
    async with Producer(namesrv, group="station", linger_ms=5) as producer:
        results = await asyncio.gather(*(producer.send(reading) for reading in readings))
        print(len(results), "stored by themselves")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
