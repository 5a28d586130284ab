"""Every frame that a producer or a reader may be sent, or sends, as docs/formats/protocol-vectors.txt has it."""

import pathlib
import re
import unittest

from tidewire_ingest import _codec as codec
from tidewire_ingest._errors import Level, ProtocolError, reason_name

VECTORS = pathlib.Path(__file__).resolve().parents[4] / "docs" / "formats" / "protocol-vectors.txt"
ADMINISTRATION = ("frame=admin-welcome", "frame=stream", "frame=place", "frame=done", "hello=administer")


def vectors(direction):
    for line in VECTORS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, of, raw, fields = line.split(" ", 3)
            if of == direction and not fields.startswith(ADMINISTRATION):
                yield name, bytes.fromhex(raw), fields


def parsed(fields):
    found = {}
    for key, quoted, bare in re.findall(r'(\w+)=(?:"([^"]*)"|(\S*))', fields):
        found[key] = quoted if not bare else bare
    return found


def shown(frame):
    """As the vectors write it."""
    def flag(name, is_set):
        return f" {name}=true" if is_set else ""
    if isinstance(frame, codec.Welcome):
        last = "none" if frame.last_id is None else frame.last_id
        return (f"frame=welcome level={frame.level.name.lower()} payload_max={frame.payload_max} "
                f"window_messages={frame.window_messages} keepalive_ms={frame.keepalive_ms} window_bytes={frame.window_bytes} "
                f"last_id={last}{flag('forgotten', frame.forgotten)}")
    if isinstance(frame, codec.Ack):
        why = f' why="{frame.why}"' if frame.why else ""
        return f"frame=ack id={frame.id} keep_alive={str(frame.keep_alive).lower()}{why}"
    if isinstance(frame, codec.Refusal):
        return (f'frame=refusal id={frame.id} reason={reason_name(frame.code).replace(" ", "-")} '
                f'retry_after_ms={frame.retry_after_ms} text="{frame.text}" closes={str(frame.closes).lower()}')
    if isinstance(frame, codec.ReaderWelcome):
        return (f"frame=reader-welcome first={frame.first} next={frame.next} start={frame.start} "
                f"body_max={frame.body_max}{flag('skipped', frame.skipped)}")
    if isinstance(frame, codec.Batch):
        return (f'frame=batch first={frame.first} timestamp_us={frame.timestamp_us} count={frame.records} '
                f'producer="{frame.producer}" messages={bytes(frame.messages).hex()}')
    if isinstance(frame, codec.End):
        return f"frame=end next={frame.next}{flag('short', frame.short)}"
    return f"frame=unknown kind={frame.kind}"


class Vectors(unittest.TestCase):
    def test_frames_of_the_server(self):
        seen = 0
        for name, raw, fields in vectors("server"):
            with self.subTest(name):
                seen += 1
                if fields == "malformed":
                    if raw[0] < 7:
                        with self.assertRaises(ProtocolError):
                            codec.decode(raw, 0, 1 << 20)
                    continue
                frame, end = codec.decode(raw, 0, 1 << 20)
                self.assertEqual(shown(frame), fields)
                self.assertEqual(end, len(raw))
                for cut in range(len(raw)):
                    self.assertIsNone(codec.decode(raw[:cut], 0, 1 << 20))
        self.assertGreater(seen, 50)

    def test_hellos(self):
        seen = 0
        for name, raw, fields in vectors("hello"):
            if fields == "malformed":
                continue
            with self.subTest(name):
                seen += 1
                has = parsed(fields)
                token, stream = has["token"], has["stream"]
                if has["hello"] == "produce":
                    level = 0 if has["level"] == "default" else Level[has["level"].upper()]
                    made = codec.produce_hello(
                        level=level, sparse=has["sparse"] == "true", adopt=has["adopt"] == "true",
                        window_messages=int(has["window_messages"]), window_bytes=int(has["window_bytes"]),
                        first_id=int(has["first_id"]), stream=stream, producer=has["producer"], token=token)
                else:
                    begin, _, at = has["begin"].partition(":")
                    made = codec.subscribe_hello(
                        begin=1 + ["position", "tail", "timestamp", "cursor"].index(begin), at=int(at or 0),
                        follow=has["follow"] == "true", may_be_absent=has.get("may_be_absent") == "true",
                        credit=int(has["credit"]), stream=stream, cursor=has["cursor"], token=token)
                self.assertEqual(made.hex(), raw.hex())
        self.assertGreater(seen, 10)

    def test_frames_of_a_reader(self):
        made = {"credit": codec.credit_frame, "commit-cursor": codec.cursor_frame}
        seen = 0
        for name, raw, fields in vectors("reader"):
            has = parsed(fields)
            if has.get("frame") in made:
                seen += 1
                number = int(has.get("bytes") or has["position"])
                self.assertEqual(made[has["frame"]](number), raw, name)
        self.assertEqual(seen, 2)
