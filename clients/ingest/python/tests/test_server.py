"""Against a real server: TIDEWIRE names the program. Skipped without it."""

import asyncio
import hashlib
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from tidewire_ingest import (Begin, Closed, Level, LevelNotGranted, NotAcknowledged, Producer, Reader, Reason, Refused, Retry,
                             Unreachable, aio)

TIDEWIRE = os.environ.get("TIDEWIRE")
EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


class Server:
    def __init__(self, place, *options, listen="127.0.0.1:0"):
        words = [TIDEWIRE, "serve", "ingest", "--listen", f"ingest={listen}", "--data", os.path.join(place, "data"),
                 "--admin", "off", "--control", "off", "--workers", "1", *options]
        self.errors = open(os.path.join(place, "errors"), "w+")
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        line = self.process.stdout.readline()
        if " addr=" not in line:
            self.stop()
            self.errors.seek(0)
            raise AssertionError(f"the server does not start: {line}{self.errors.read()}")
        self.addr = line.split(" addr=")[1].split()[0]

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


@unittest.skipUnless(TIDEWIRE, "skipped: TIDEWIRE names no server's program")
class WithServer(unittest.TestCase):
    options = ()

    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="tidewire-python-")
        self.addCleanup(place.cleanup)
        self.place = place.name
        self.server = Server(self.place, *self.options)
        self.addCleanup(self.server.stop)
        self.addr = self.server.addr

    def payloads(self, **settings):
        with Reader(self.addr, **settings) as reader:
            return [record.payload for record in reader]


class Blocking(WithServer):
    def test_what_is_sent_is_read(self):
        with Producer(self.addr, name="p", stream="s") as producer:
            self.assertEqual(producer.send(b"one"), 1)
            self.assertEqual(producer.send_many(b"%d" % n for n in range(1000)), 2)
            self.assertIsNone(producer.send_many([]))
            producer.flush(30)
            self.assertEqual((producer.acknowledged, producer.unacknowledged), (1001, 0))
            self.assertEqual(producer.welcome.level, Level.DURABLE)
        with self.assertRaises(Closed):
            producer.send(b"late")
        with Reader(self.addr, stream="s") as reader:
            records = list(reader)
        self.assertEqual([r.position for r in records], list(range(1001)))
        self.assertEqual([r.payload for r in records], [b"one"] + [b"%d" % n for n in range(1000)])
        self.assertEqual({r.producer for r in records}, {"p"})
        self.assertEqual(records[-1].id, 1001)

    def test_a_producer_goes_on_behind_its_mark(self):
        for run in range(3):
            with Producer(self.addr, name="p", sparse=True) as producer:
                self.assertEqual(producer.acknowledged, 10 * run or None)
                producer.send(b"%d" % run, id=10 * run + 10)
        self.assertEqual(self.payloads(), [b"0", b"1", b"2"])

    def test_a_newer_producer_fences_the_older(self):
        older = Producer(self.addr, name="p")
        older.send(b"older")
        older.flush(30)
        with Producer(self.addr, name="p") as newer:
            self.assertEqual(newer.send(b"newer"), 2)
            newer.flush(30)
            with self.assertRaises(Refused) as refused:
                older.send(b"late")
                older.flush(30)
            self.assertEqual(refused.exception.reason, Reason.FENCED)
            with self.assertRaises(Refused):
                older.poll()
        older.abandon()

    def test_a_small_buffer_waits_for_room(self):
        with Producer(self.addr, name="p", buffer_messages=5, window_messages=3) as producer:
            for n in range(50):
                producer.send(b"%d" % n)
            producer.send_many([b"x"] * 20)
        self.assertEqual(len(self.payloads()), 70)

    def test_a_level_that_is_not_granted(self):
        with self.assertRaises(LevelNotGranted):
            Producer(self.addr, name="p", level=Level.REPLICATED)
        with Producer(self.addr, name="p", level=Level.REPLICATED, accept_lower=True) as producer:
            self.assertEqual(producer.welcome.level, Level.DURABLE)

    def test_a_cursor_is_kept(self):
        with Producer(self.addr, name="p") as producer:
            producer.send_many([b"%d" % n for n in range(10)])
        with Reader(self.addr, cursor="c") as reader:
            for record in reader:
                if record.position == 3:
                    break
            reader.commit(4)
        with Reader(self.addr, cursor="c") as reader:
            self.assertEqual([r.position for r in reader], [4, 5, 6, 7, 8, 9])
            reader.commit(10)
        self.assertEqual(self.payloads(cursor="c"), [])

    def test_where_reading_begins(self):
        with Producer(self.addr, name="p") as producer:
            producer.send_many([b"%d" % n for n in range(10)])
        self.assertEqual(self.payloads(begin=Begin.position(8)), [b"8", b"9"])
        self.assertEqual(self.payloads(begin=Begin.tail()), [])
        self.assertEqual(len(self.payloads(begin=Begin.timestamp(time.time() - 3600))), 10)
        with self.assertRaises(Refused) as refused:
            self.payloads(begin=Begin.position(11))
        self.assertEqual((refused.exception.reason, refused.exception.id), (Reason.BEYOND_THE_END, 10))
        with self.assertRaises(Refused):
            self.payloads(stream="none")

    def test_a_follower_waits(self):
        with Reader(self.addr, follow=True) as reader, Producer(self.addr) as producer:
            with self.assertRaises(TimeoutError):
                reader.read(timeout=0.05)
            producer.send(b"now")
            self.assertEqual(reader.read(timeout=30).payload, b"now")

    def test_large_payloads_and_little_credit(self):
        sizes = [0, 1, 100_000, 1_000_000, 5]
        with Producer(self.addr, name="p", window_bytes=1000) as producer:
            for size in sizes:
                producer.send(b"x" * size)
        self.assertEqual([len(payload) for payload in self.payloads(credit=1)], sizes)

    def test_a_server_that_stops_and_starts(self):
        producer = Producer(self.addr, name="p", retry=Retry(within=30, first=0.01))
        producer.send(b"before")
        producer.flush(30)
        self.server.stop()
        with self.assertRaises(NotAcknowledged):
            producer.send_many([])
            producer._session.push(b"while it is away")
            producer.flush(0.1)
        self.server = Server(self.place, listen=self.addr)
        self.addCleanup(self.server.stop)
        producer.send(b"after")
        producer.close(30)
        self.assertEqual(self.payloads(), [b"before", b"while it is away", b"after"])

    def test_nothing_listens(self):
        self.server.stop()
        with self.assertRaises(Unreachable):
            Producer(self.addr)
        with self.assertRaises(Unreachable):
            Reader(self.addr)


class Asyncio(WithServer):
    def test_what_is_sent_is_read(self):
        async def both():
            async with aio.Producer(self.addr, name="p", buffer_messages=100, window_messages=10) as producer:
                self.assertEqual(await producer.send(b"one"), 1)
                self.assertEqual(await producer.send_many([b"%d" % n for n in range(50)]), 2)
                for n in range(500):
                    await producer.send(b"%d" % n)
                await producer.flush(30)
                self.assertEqual(producer.acknowledged, 551)
            with self.assertRaises(Closed):
                await producer.send(b"late")
            async with aio.Reader(self.addr) as reader:
                return [record.payload async for record in reader]
        self.assertEqual(asyncio.run(both()), [b"one"] + [b"%d" % n for n in range(50)] + [b"%d" % n for n in range(500)])

    def test_many_at_once(self):
        async def one(name):
            async with aio.Producer(self.addr, name=name, stream=name) as producer:
                for n in range(200):
                    await producer.send(b"%d" % n)
            async with aio.Reader(self.addr, stream=name, cursor="c") as reader:
                seen = 0
                async for record in reader:
                    seen += 1
                    reader.commit(record.position + 1)
            async with aio.Reader(self.addr, stream=name, cursor="c") as reader:
                return seen, await reader.read()

        async def everything():
            return await asyncio.gather(*(one(f"s{n}") for n in range(10)))
        self.assertEqual(asyncio.run(everything()), [(200, None)] * 10)

    def test_fenced_callers_are_told(self):
        async def fenced():
            async with aio.Producer(self.addr, name="p") as older:
                async with aio.Producer(self.addr, name="p") as newer:
                    await newer.send(b"x")
                    await newer.flush(30)
                    with self.assertRaises(Refused):
                        for _ in range(1000):
                            await older.send(b"late")
                            await older.flush(30)
                older.abandon()
                raise KeyError
        with self.assertRaises(KeyError):
            asyncio.run(fenced())

    def test_a_follower_that_is_cancelled_reads_on(self):
        async def follow():
            async with aio.Reader(self.addr, follow=True) as reader, aio.Producer(self.addr) as producer:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(reader.read(), 0.05)
                await producer.send(b"now")
                return (await asyncio.wait_for(reader.read(), 30)).payload
        self.assertEqual(asyncio.run(follow()), b"now")

    def test_nothing_listens(self):
        self.server.stop()

        async def start():
            await aio.Producer(self.addr).start()
        with self.assertRaises(Unreachable):
            asyncio.run(start())


@unittest.skipUnless(TIDEWIRE, "skipped: TIDEWIRE names no server's program")
class Doors(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="tidewire-python-")
        self.addCleanup(place.cleanup)
        self.place = place.name

    def serve(self, *options, **more):
        server = Server(self.place, *options, **more)
        self.addCleanup(server.stop)
        return server

    def round_trip(self, addr, **settings):
        with Producer(addr, name="p", **settings) as producer:
            producer.send(b"hello")

        async def rest():
            async with aio.Producer(addr, name="p", **settings) as producer:
                await producer.send(b"again")
            async with aio.Reader(addr, cursor="a", **settings) as reader:
                seen = [record.payload async for record in reader]
                reader.commit(1)
                return seen
        self.assertEqual(asyncio.run(rest()), [b"hello", b"again"])
        with Reader(addr, cursor="a", **settings) as reader:
            self.assertEqual([record.payload for record in reader], [b"again"])
            reader.commit(2)
        with Reader(addr, cursor="a", **settings) as reader:
            self.assertEqual(list(reader), [])

    def test_unix_sockets(self):
        path = os.path.join(self.place, "socket")
        self.serve(listen=f"unix:{path}")
        self.round_trip(f"unix:{path}")

    def test_tokens(self):
        secret, config = "a secret", os.path.join(self.place, "tidewire.toml")
        with open(config, "w") as file:
            digest = hashlib.sha256(secret.encode()).hexdigest()
            file.write(f'[[ingest-tokens]]\nname = "t"\nsha256 = "{digest}"\nrights = ["write", "read"]\n')
        server = self.serve("--config", config)
        for token in ("", "another"):
            with self.assertRaises(Refused) as refused:
                Producer(server.addr, name="p", token=token)
            self.assertEqual(refused.exception.reason, Reason.UNAUTHORISED)
        self.assertNotIn("another", repr(refused.exception))
        self.round_trip(server.addr, token=secret)

    @unittest.skipUnless(shutil.which("openssl"), "skipped: no openssl to make certificates with")
    def test_tls(self):
        cert, key = os.path.join(self.place, "cert.pem"), os.path.join(self.place, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key,
                        "-out", cert], check=True, capture_output=True)
        server = self.serve("--tls-cert", cert, "--tls-key", key)
        self.round_trip(server.addr, tls=ssl.create_default_context(cafile=cert))
        with self.assertRaises(Unreachable) as refused:
            Producer(server.addr, name="p", tls=True, retry=Retry(at_first=True))
        self.assertIn("certificate", str(refused.exception))
        with self.assertRaises(Unreachable):
            Producer(server.addr, name="p", retry=Retry(attempts=1))


class Examples(WithServer):
    def example(self, name, *words, stdin=b""):
        done = subprocess.run([sys.executable, str(EXAMPLES / name), "--to", self.addr, *words], input=stdin, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout

    def test_each_line_of_a_file_is_stored_once(self):
        path = os.path.join(self.place, "file")
        for flags in ([], ["--async"]):
            stream = "by" + "".join(flags)
            with open(path, "wb") as file:
                file.write(b"one\n\nthree\nfour without its end")
            for _ in range(2):
                self.example("store_lines.py", "--producer", "p", "--stream", stream, *flags, path)
            with open(path, "ab") as file:
                file.write(b", which came\nfive\n")
            self.example("store_lines.py", "--producer", "p", "--stream", stream, *flags, path)
            want = b"one\n\nthree\nfour without its end, which came\nfive\n"
            self.assertEqual(self.example("read_lines.py", "--stream", stream, *flags), want)
            self.assertEqual(self.example("read_lines.py", "--stream", stream, "--cursor", "c", *flags), want)
            self.assertEqual(self.example("read_lines.py", "--stream", stream, "--cursor", "c", *flags), b"")

    def test_standard_input(self):
        self.example("store_lines.py", "--producer", "p", "-", stdin=b"one\ntwo\n")
        self.assertEqual(self.example("read_lines.py", "--positions"), b"0 one\n1 two\n")


class Cuts(WithServer):
    """A proxy that cuts each connection after some bytes, in the middle of whatever it is."""

    def test_nothing_is_lost_or_doubled(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        threading.Thread(target=self.proxy, args=(listener,), daemon=True).start()
        addr = "127.0.0.1:%d" % listener.getsockname()[1]
        retry = Retry(first=0.001, longest=0.01, at_first=True)
        want = [b"%d" % n for n in range(3000)]
        with Producer(addr, name="p", stream="blocking", retry=retry) as producer:
            for payload in want:
                producer.send(payload)

        async def send():
            async with aio.Producer(addr, name="p", stream="asyncio", retry=retry) as producer:
                for payload in want:
                    await producer.send(payload)
        asyncio.run(send())

        async def read():
            async with aio.Reader(addr, stream="asyncio", retry=retry) as reader:
                return [record.payload async for record in reader]
        self.assertEqual(self.payloads(stream="blocking"), want)
        self.assertEqual(self.payloads(stream="asyncio"), want)
        self.assertEqual(asyncio.run(read()), want)
        with Reader(addr, stream="blocking", retry=retry, credit=5000) as reader:
            self.assertEqual([record.payload for record in reader], want)

    def proxy(self, listener):
        host, _, port = self.addr.rpartition(":")
        budget = 3000
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            budget = 3000 + (budget * 7919) % 50021
            try:
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                continue
            pair = [threading.Thread(target=self.carry, args=(a, b, budget), daemon=True) for a, b in ((near, far), (far, near))]
            for thread in pair:
                thread.start()

    @staticmethod
    def carry(source, sink, budget):
        try:
            while budget > 0 and (data := source.recv(min(budget, 4096))):
                sink.sendall(data)
                budget -= len(data)
        except OSError:
            pass
        for sock in (source, sink):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
