"""Python's http.client against `tidewire serve http`: python3 check.py HOST PORT [AUTHORITY.pem], which speaks TLS."""

import http.client
import socket
import ssl
import sys

host, port = sys.argv[1], int(sys.argv[2])
tls = None
if len(sys.argv) > 3:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(sys.argv[3])
    connection = http.client.HTTPSConnection(host, port, timeout=30, context=tls)
else:
    connection = http.client.HTTPConnection(host, port, timeout=30)

# One connection for all of this: http.client opens another one only where the server closes.
connection.connect()
first = connection.sock
for n in range(100):
    connection.request("GET", f"/bytes/{n}")
    reply = connection.getresponse()
    body = reply.read()
    assert reply.status == 200 and len(body) == n, (reply.status, len(body))
body = bytes(range(256)) * 4000
connection.request("POST", "/echo", body=body, headers={"X-Check": "python"})
assert connection.getresponse().read() == body
# An iterator without a length is sent in chunks.
connection.request("POST", "/echo", body=(body[at:at + 1000] for at in range(0, len(body), 1000)))
reply = connection.getresponse()
assert reply.getheader("transfer-encoding") == "chunked"
assert reply.read() == body
connection.request("HEAD", "/bytes/1000")
reply = connection.getresponse()
assert reply.getheader("content-length") == "1000" and reply.read() == b""
connection.request("DELETE", "/")
reply = connection.getresponse()
reply.read()
assert reply.status == 405 and reply.getheader("allow") == "GET, HEAD, OPTIONS", reply.headers
assert connection.sock is first, "the connection was not kept"

# Pipelined, by hand.
raw = socket.create_connection((host, port), timeout=30)
with tls.wrap_socket(raw, server_hostname=host) if tls else raw as raw:
    asked = b"".join(b"GET /bytes/%d HTTP/1.1\r\nHost: h\r\n\r\n" % n for n in range(50))
    raw.sendall(asked)
    stream = raw.makefile("rb")
    for n in range(50):
        status = stream.readline()
        assert status.startswith(b"HTTP/1.1 200 "), status
        length = None
        while (line := stream.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length == n and len(stream.read(n)) == n
print("good")
