// Node's fetch and http against `tidewire serve http`: node check.mjs HOST PORT [https]. The authority to trust is then in
// NODE_EXTRA_CA_CERTS=AUTHORITY.pem.

import assert from "node:assert/strict";
import http from "node:http";
import https from "node:https";

const [host, port, scheme = "http"] = process.argv.slice(2);
const base = `${scheme}://${host}:${port}`;
const web = scheme === "https" ? https : http;

assert.equal(await (await fetch(`${base}/`)).text(), "Hello, World!");
const sizes = Array.from({ length: 200 }, (_, n) => n * 10);
const bodies = await Promise.all(
  sizes.map(async (n) => (await fetch(`${base}/bytes/${n}`)).arrayBuffer()),
);
assert.deepEqual(bodies.map((body) => body.byteLength), sizes);

const body = new Uint8Array(1_000_000).map((_, n) => n % 251);
const same = await fetch(`${base}/echo`, { method: "POST", body });
assert.deepEqual(new Uint8Array(await same.arrayBuffer()), body);

// A stream has no length, so it is sent in chunks.
const pieces = new ReadableStream({
  start(to) {
    for (let at = 0; at < body.length; at += 10_000) to.enqueue(body.slice(at, at + 10_000));
    to.close();
  },
});
const streamed = await fetch(`${base}/echo`, { method: "PUT", body: pieces, duplex: "half" });
assert.deepEqual(new Uint8Array(await streamed.arrayBuffer()), body);

const missing = await fetch(`${base}/none`);
assert.equal(missing.status, 404);
await missing.text();

// One connection, kept.
const agent = new web.Agent({ keepAlive: true, maxSockets: 1 });
const ports = new Set();
for (let n = 0; n < 20; n++) {
  await new Promise((resolve, reject) => {
    const asked = web.get(`${base}/bytes/${n}`, { agent }, (reply) => {
      ports.add(reply.socket.localPort);
      let length = 0;
      reply.on("data", (piece) => (length += piece.length));
      reply.on("end", () => (length === n ? resolve() : reject(new Error(`${length} bytes`))));
    });
    asked.on("error", reject);
  });
}
assert.equal(ports.size, 1);

// Expect: 100-continue.
await new Promise((resolve, reject) => {
  const headers = { expect: "100-continue", "content-length": 5 };
  const asked = web.request(`${base}/echo`, { method: "POST", headers, agent });
  let told = false;
  asked.on("continue", () => {
    told = true;
    asked.end("hello");
  });
  asked.on("response", (reply) => {
    reply.resume();
    reply.on("end", () => (told ? resolve() : reject(new Error("not told to go on"))));
  });
  asked.on("error", reject);
  asked.flushHeaders();
});
agent.destroy();
console.log("good");
process.exit(0);
