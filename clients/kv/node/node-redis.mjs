// node-redis against the server at HOST PORT: see ../README.md.
import { createClient, WatchError } from "redis";
import { assert, eventually, host, port, restarted, within } from "./common.mjs";

for (const RESP of [2, 3]) {
  const r = createClient({ RESP, name: "check", socket: { host, port } });
  r.on("error", () => {});
  await r.connect();
  await types(r);
  await pipeline(r);
  await transaction(r);
  await pubsub(r);
  r.destroy();
}
const r = createClient({ socket: { host, port } });
r.on("error", () => {});
await r.connect();
await r.set("before", "restart");
await restarted();
await eventually(() => r.ping());
assert.equal(await r.set("after", "1"), "OK");
assert.equal(await r.get("after"), "1");
console.log("ok node-redis");
process.exit(0);

async function types(r) {
  await r.flushAll();
  assert.equal(await r.clientGetName(), "check");
  assert.equal(await r.set("s", "v", { EX: 100 }), "OK");
  assert.equal(await r.get("s"), "v");
  assert.equal(await r.incrBy("n", 5), 5);
  assert.equal(await r.rPush("l", ["a", "b", "c"]), 3);
  assert.deepEqual(await r.lRange("l", 0, -1), ["a", "b", "c"]);
  assert.equal((await r.blPop("l", 1)).element, "a");
  assert.equal(await r.hSet("h", { f: "1", g: "2" }), 2);
  assert.deepEqual({ ...(await r.hGetAll("h")) }, { f: "1", g: "2" });
  assert.equal(await r.sAdd("set", ["x", "y"]), 2);
  assert.equal([...(await r.sMembers("set"))].length, 2);
  assert.equal(await r.zAdd("z", [{ score: 1, value: "one" }, { score: 2.5, value: "two" }]), 2);
  assert.deepEqual((await r.zRangeWithScores("z", 0, -1)).map((m) => [m.value, m.score]), [["one", 1], ["two", 2.5]]);
  let keys = 0;
  for await (const page of r.scanIterator({ MATCH: "*" })) keys += page.length;
  assert.equal(keys, 6);
  await assert.rejects(r.lPush("s", "wrong"), /^Error: WRONGTYPE|WRONGTYPE/);
}

async function pipeline(r) {
  const all = [];
  for (let i = 0; i < 1000; i++) all.push(r.set(`p${i}`, String(i)), r.get(`p${i}`));
  const got = await Promise.all(all);
  for (let i = 0; i < 1000; i++) assert.equal(got[2 * i + 1], String(i));
}

async function transaction(r) {
  assert.deepEqual(await r.multi().incr("balance").incr("balance").exec(), [1, 2]);
  const other = r.duplicate();
  other.on("error", () => {});
  await other.connect();
  await other.watch("balance");
  await r.incr("balance");
  await assert.rejects(other.multi().incr("balance").exec(), WatchError);
  other.destroy();
}

async function pubsub(r) {
  const s = r.duplicate();
  s.on("error", () => {});
  await s.connect();
  const message = within("message");
  await s.subscribe("news", message.ready);
  assert.equal(await r.publish("news", "hello"), 1);
  assert.equal(await message.promise, "hello");
  s.destroy();
}
