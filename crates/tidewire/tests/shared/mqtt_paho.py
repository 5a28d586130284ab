"""Publishes, subscribes, retains and leaves a will with Python's usual client. Argument: HOST:PORT of the broker."""
import sys
import threading

import paho.mqtt.client as mqtt

host, port = sys.argv[1].rsplit(":", 1)


def client(name, will=None):
    try:
        made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv311)
    except AttributeError:  # before version 2
        made = mqtt.Client(client_id=name, protocol=mqtt.MQTTv311)
    if will:
        made.will_set(*will)
    connected = threading.Event()
    made.on_connect = lambda *_: connected.set()
    made.connect(host, int(port), keepalive=30)
    made.loop_start()
    assert connected.wait(30), "not connected"
    return made


MANY = 1000
got, done, subscribed = [], threading.Event(), threading.Event()
first = client("first", will=("wills/first", b"farewell", 1))
first.publish("kept", b"here", qos=1, retain=True).wait_for_publish(30)

second = client("second")


def on_message(_client, _data, message):
    got.append((message.topic, message.payload, message.retain))
    if message.topic == "wills/first":
        done.set()


second.on_message = on_message
second.on_subscribe = lambda *_: subscribed.set()
second.subscribe([("kept", 1), ("many/+", 1), ("wills/#", 0)])
assert subscribed.wait(30), "not subscribed"
sent = [first.publish(f"many/{n % 7}", str(n).encode(), qos=n % 2) for n in range(MANY)]
for each in sent:
    each.wait_for_publish(30)
first._sock_close()  # without a farewell
assert done.wait(30), f"no will among {len(got)}"
assert got[0] == ("kept", b"here", True) or got[0] == ("kept", b"here", 1), got[0]
many = [payload for topic, payload, _ in got if topic.startswith("many/")]
assert sorted(many, key=int) == [str(n).encode() for n in range(MANY)], len(many)
second.disconnect()
second.loop_stop()
first.loop_stop()
