#!/usr/bin/env python3
"""Prints the messages of a stream, a line each.

    read_lines.py --to HOST:PORT [--stream NAME] [--cursor NAME] [--follow] [--async]

With a cursor the server remembers how far this reader is: each run prints what came since. What was printed and not yet
committed when the reader was killed is printed again."""

import argparse
import asyncio
import logging
import ssl
import sys

import tidewire_ingest as tidewire
from tidewire_ingest import aio


def show(args: argparse.Namespace, record: tidewire.Record) -> None:
    place = b"%d " % record.position if args.positions else b""
    sys.stdout.buffer.write(place + record.payload + b"\n")


def read(args: argparse.Namespace, settings: dict) -> None:  # type: ignore[type-arg]
    with tidewire.Reader(args.to, **settings) as reader:
        for count, record in enumerate(reader, 1):
            show(args, record)
            if args.cursor and (count % 100 == 0 or record.position + 1 >= reader.welcome.next):
                sys.stdout.buffer.flush()
                reader.commit(record.position + 1)


async def read_async(args: argparse.Namespace, settings: dict) -> None:  # type: ignore[type-arg]
    async with aio.Reader(args.to, **settings) as reader:
        count = 0
        async for record in reader:
            count += 1
            show(args, record)
            if args.cursor and (count % 100 == 0 or record.position + 1 >= reader.welcome.next):
                sys.stdout.buffer.flush()
                reader.commit(record.position + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", default="127.0.0.1:7400", help="HOST:PORT, unix:/PATH or unix:@NAME")
    parser.add_argument("--stream", default="")
    parser.add_argument("--cursor", default="")
    parser.add_argument("--token", default="")
    parser.add_argument("--tls-ca", help="speak TLS; the authorities of the server's certificate")
    parser.add_argument("--follow", action="store_true", help="wait for more at the tail")
    parser.add_argument("--positions", action="store_true", help="print each message's position in front of it")
    parser.add_argument("--async", dest="is_async", action="store_true", help="by asyncio")
    args = parser.parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s")
    settings = {
        "stream": args.stream, "cursor": args.cursor, "token": args.token, "follow": args.follow,
        "tls": ssl.create_default_context(cafile=args.tls_ca) if args.tls_ca else False,
    }
    try:
        if args.is_async:
            asyncio.run(read_async(args, settings))
        else:
            read(args, settings)
        sys.stdout.buffer.flush()
    except tidewire.IngestError as e:
        sys.exit(f"read_lines: {args.to}: {e}")


if __name__ == "__main__":
    main()
