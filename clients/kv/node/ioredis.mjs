// ioredis against the server at HOST PORT: see ../README.md.
import Redis from "ioredis";
import { assert, eventually, host, port, restarted, within } from "./common.mjs";

// It asks INFO whether the server is still loading before it lets a command through.
const r = new Redis({ host, port, connectionName: "check", enableReadyCheck: true });
r.on("error", () => {});
await types();
await pipeline();
await transaction();
await pubsub();
await streams();
await r.set("before", "restart");
await restarted();
await eventually(() => r.ping());
assert.equal(await r.set("after", "1"), "OK");
assert.equal(await r.get("after"), "1");
console.log("ok ioredis");
process.exit(0);

/** Two consumers of a group share the entries, one of which waits for the first. */
async function streams() {
  await r.del("jobs");
  await r.xgroup("CREATE", "jobs", "workers", "$", "MKSTREAM");
  const waiting = r.duplicate();
  const first = waiting.xreadgroup("GROUP", "workers", "a", "BLOCK", 5000, "STREAMS", "jobs", ">");
  await eventually(async () => assert.match(await r.client("LIST"), /cmd=xreadgroup/));
  const ids = [];
  for (let n = 0; n < 5; n++) ids.push(await r.xadd("jobs", "MAXLEN", "~", 1000, "*", "n", n));
  assert.deepEqual(await first, [["jobs", [[ids[0], ["n", "0"]]]]]);
  const [[, rest]] = await waiting.xreadgroup("GROUP", "workers", "b", "STREAMS", "jobs", ">");
  assert.deepEqual(rest.map(([id]) => id), ids.slice(1));
  assert.equal(await r.xack("jobs", "workers", ...ids.slice(1)), 4);
  assert.deepEqual(await r.xpending("jobs", "workers"), [1, ids[0], ids[0], [["a", "1"]]]);
  const [, claimed] = await r.xautoclaim("jobs", "workers", "b", 0, "0");
  assert.deepEqual(claimed, [[ids[0], ["n", "0"]]]);
  waiting.disconnect();
}

async function types() {
  await r.flushall();
  assert.equal(await r.client("GETNAME"), "check");
  assert.equal(await r.set("s", "v", "EX", 100), "OK");
  assert.equal(await r.get("s"), "v");
  assert.equal(await r.incrby("n", 5), 5);
  assert.equal(await r.rpush("l", "a", "b", "c"), 3);
  assert.deepEqual(await r.lrange("l", 0, -1), ["a", "b", "c"]);
  assert.deepEqual(await r.blpop("l", 1), ["l", "a"]);
  assert.equal(await r.hset("h", { f: "1", g: "2" }), 2);
  assert.deepEqual(await r.hgetall("h"), { f: "1", g: "2" });
  assert.equal(await r.sadd("set", "x", "y"), 2);
  assert.deepEqual((await r.smembers("set")).sort(), ["x", "y"]);
  assert.equal(await r.zadd("z", 1, "one", 2.5, "two"), 2);
  assert.deepEqual(await r.zrange("z", 0, -1, "WITHSCORES"), ["one", "1", "two", "2.5"]);
  const keys = [];
  for await (const page of r.scanStream()) keys.push(...page);
  assert.equal(new Set(keys).size, 6);
  await assert.rejects(r.lpush("s", "wrong"), /WRONGTYPE/);
}

async function pipeline() {
  const p = r.pipeline();
  for (let i = 0; i < 1000; i++) p.set(`p${i}`, i).get(`p${i}`);
  const got = await p.exec();
  for (let i = 0; i < 1000; i++) assert.deepEqual(got[2 * i + 1], [null, String(i)]);
}

async function transaction() {
  assert.deepEqual(await r.multi().incr("balance").incr("balance").exec(), [[null, 1], [null, 2]]);
  const other = r.duplicate();
  await other.watch("balance");
  await r.incr("balance");
  assert.equal(await other.multi().incr("balance").exec(), null);
  other.disconnect();
}

async function pubsub() {
  const s = r.duplicate();
  const message = within("message");
  s.on("message", (_, text) => message.ready(text));
  await s.subscribe("news");
  assert.equal(await r.publish("news", "hello"), 1);
  assert.equal(await message.promise, "hello");
  s.disconnect();
}
