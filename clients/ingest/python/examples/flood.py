#!/usr/bin/env python3
"""Sends batches of 100 lines of 100 bytes as fast as they are acknowledged, and prints messages a second.

    flood.py --to HOST:PORT --producer NAME [--stream NAME] [--level LEVEL] --count N [--async]"""

import argparse
import asyncio
import time

from tidewire_ingest import Level, Producer, aio

BATCH = [b"x" * 100] * 100


def flood(args: argparse.Namespace, settings: dict) -> None:  # type: ignore[type-arg]
    with Producer(args.to, **settings) as producer:
        for _ in range(args.count // 100):
            producer.send_many(BATCH)


async def flood_async(args: argparse.Namespace, settings: dict) -> None:  # type: ignore[type-arg]
    async with aio.Producer(args.to, **settings) as producer:
        for _ in range(args.count // 100):
            await producer.send_many(BATCH)
            await asyncio.sleep(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", default="127.0.0.1:7400")
    parser.add_argument("--producer", default="")
    parser.add_argument("--stream", default="")
    parser.add_argument("--level", default="durable")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--async", dest="is_async", action="store_true")
    args = parser.parse_args()
    settings = {"name": args.producer, "stream": args.stream, "level": Level[args.level.upper()]}
    began = time.monotonic()
    if args.is_async:
        asyncio.run(flood_async(args, settings))
    else:
        flood(args, settings)
    print(f"{args.count / (time.monotonic() - began):.0f}")


if __name__ == "__main__":
    main()
