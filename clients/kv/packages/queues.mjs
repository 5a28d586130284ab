// Bull and Bee-Queue, whose scripts differ from BullMQ's, do their jobs.
import BeeQueue from "bee-queue";
import Bull from "bull";

const [host, port] = process.argv.slice(2);
const redis = { host, port: Number(port) };

const bull = new Bull("bull", { redis });
bull.process(4, async (job) => {
  if (job.data.fails && job.attemptsMade < 1) throw new Error("once");
  return job.data.n * 2;
});
const jobs = await bull.addBulk(Array.from({ length: 30 }, (_, n) => ({ data: { n } })));
jobs.push(await bull.add({ n: 30 }, { delay: 200 }), await bull.add({ n: 31, fails: true }, { attempts: 2 }));
const results = await Promise.all(jobs.map((job) => job.finished()));
if (!results.every((result, n) => result === 2 * n)) throw new Error(`bull: ${results}`);
const counts = await bull.getJobCounts();
if (counts.completed !== 32 || counts.failed || counts.waiting) throw new Error(JSON.stringify(counts));
await bull.obliterate({ force: true });
await bull.close();

const bee = new BeeQueue("bee", { redis, activateDelayedJobs: true });
bee.process(4, async (job) => job.data.n + 1);
let done = 0;
const all = new Promise((resolve) => bee.on("job succeeded", () => ++done === 21 && resolve()));
await bee.saveAll(Array.from({ length: 20 }, (_, n) => bee.createJob({ n })));
await bee.createJob({ n: 20 }).delayUntil(Date.now() + 200).save();
await all;
const health = await bee.checkHealth();
if (health.succeeded !== 21 || health.waiting || health.failed) throw new Error(JSON.stringify(health));
await bee.close();
console.log("ok");
process.exit(0);
