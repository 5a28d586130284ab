// rate-limit-redis lets so many through and no more; redlock lets one at a time in.
import Redis from "ioredis";
import { RedisStore } from "rate-limit-redis";
import Redlock from "redlock";

const [host, port] = process.argv.slice(2);
const redis = new Redis({ host, port: Number(port) });
const store = new RedisStore({ sendCommand: (command, ...args) => redis.call(command, ...args) });
await store.init({ windowMs: 60000 });
const hits = await Promise.all(Array.from({ length: 20 }, () => store.increment("client")));
const total = Math.max(...hits.map((hit) => hit.totalHits));
if (total !== 20 || !hits.every((hit) => hit.resetTime instanceof Date)) throw new Error(`${total} hits`);
await store.decrement("client");
await store.resetKey("client");
if ((await store.increment("client")).totalHits !== 1) throw new Error("it was not reset");

const redlock = new Redlock([redis], { retryCount: 100, retryDelay: 20 });
let inside = 0;
let most = 0;
await Promise.all(
  Array.from({ length: 5 }, () =>
    redlock.using(["lock"], 2000, async () => {
      most = Math.max(most, ++inside);
      await new Promise((resolve) => setTimeout(resolve, 20));
      inside--;
    }),
  ),
);
if (most !== 1) throw new Error(`${most} were inside at once`);
redis.disconnect();
console.log("ok");
