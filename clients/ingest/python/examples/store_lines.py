#!/usr/bin/env python3
"""Stores each line of a file exactly once, whatever is killed meanwhile: run it again until it ends with status 0.

    store_lines.py --to HOST:PORT --producer NAME [--stream NAME] [--async] FILE

The id of a line is the offset of its end in FILE. So the server's mark says where to go on, and nothing has to be
remembered here. A last line without its line break is left for the next run. FILE may grow, and must not change otherwise.
With - instead of FILE, the lines of standard input are stored, numbered from the server's mark on."""

import argparse
import asyncio
import logging
import ssl
import sys
from typing import BinaryIO, Iterator, List, Tuple

import tidewire_ingest as tidewire
from tidewire_ingest import aio

BATCH = 100


def lines(file: BinaryIO, offset: int) -> Iterator[Tuple[int, bytes]]:
    """Whole lines, with the offsets of their ends."""
    for line in file:
        if not line.endswith(b"\n"):
            return
        offset += len(line)
        yield offset, line[:-1]


def show(args: argparse.Namespace, what: str, id: object) -> None:
    if args.progress:
        print(what, id or 0, flush=True)


def store(args: argparse.Namespace, settings: dict) -> None:  # type: ignore[type-arg]
    with tidewire.Producer(args.to, **settings) as producer:
        mark = shown = producer.acknowledged
        show(args, "mark", mark)
        if args.file == "-":
            batch: List[bytes] = []
            for _, line in lines(sys.stdin.buffer, 0):
                batch.append(line)
                if len(batch) == BATCH:
                    producer.send_many(batch)
                    batch = []
            producer.send_many(batch)
        else:
            with open(args.file, "rb") as file:
                file.seek(mark or 0)
                for offset, line in lines(file, mark or 0):
                    producer.send(line, id=offset)
                    if producer.acknowledged != shown:
                        shown = producer.acknowledged
                        show(args, "acknowledged", shown)
        producer.flush()
        show(args, "acknowledged", producer.acknowledged)


async def store_async(args: argparse.Namespace, settings: dict) -> None:  # type: ignore[type-arg]
    async with aio.Producer(args.to, **settings) as producer:
        mark = shown = producer.acknowledged
        show(args, "mark", mark)
        if args.file == "-":
            for _, line in lines(sys.stdin.buffer, 0):
                await producer.send(line)
        else:
            with open(args.file, "rb") as file:
                file.seek(mark or 0)
                for count, (offset, line) in enumerate(lines(file, mark or 0), 1):
                    await producer.send(line, id=offset)
                    if count % BATCH == 0:
                        await asyncio.sleep(0)  # A send that needs not wait gives no other task its turn.
                    if producer.acknowledged != shown:
                        shown = producer.acknowledged
                        show(args, "acknowledged", shown)
        await producer.flush()
        show(args, "acknowledged", producer.acknowledged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", default="127.0.0.1:7400", help="HOST:PORT, unix:/PATH or unix:@NAME")
    parser.add_argument("--producer", required=True)
    parser.add_argument("--stream", default="")
    parser.add_argument("--token", default="")
    parser.add_argument("--tls-ca", help="speak TLS; the authorities of the server's certificate")
    parser.add_argument("--level", default="durable", choices=[level.name.lower() for level in tidewire.Level])
    parser.add_argument("--async", dest="is_async", action="store_true", help="by asyncio")
    parser.add_argument("--progress", action="store_true", help="print the server's mark, and what is acknowledged")
    parser.add_argument("file")
    args = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s")
    settings = {
        "name": args.producer, "stream": args.stream, "token": args.token, "level": tidewire.Level[args.level.upper()],
        "sparse": args.file != "-", "tls": ssl.create_default_context(cafile=args.tls_ca) if args.tls_ca else False,
    }
    try:
        if args.is_async:
            asyncio.run(store_async(args, settings))
        else:
            store(args, settings)
    except tidewire.IngestError as e:
        sys.exit(f"store_lines: {args.to}: {e}")


if __name__ == "__main__":
    main()
