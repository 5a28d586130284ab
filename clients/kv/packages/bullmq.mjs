// BullMQ: jobs with delays, priorities, retries and a flow are done; its scripts use keys that they do not declare.
import { Worker, Queue, QueueEvents, FlowProducer } from "bullmq";

const [host, port] = process.argv.slice(2);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const queue = new Queue("work", { connection });
const events = new QueueEvents("work", { connection });
await events.waitUntilReady();
const done = [];
const worker = new Worker(
  "work",
  async (job) => {
    if (job.name === "flaky" && job.attemptsMade < 1) throw new Error("once");
    done.push(job.name);
    return job.data.n * 2;
  },
  { connection, concurrency: 4 },
);
const jobs = await queue.addBulk(
  Array.from({ length: 50 }, (_, n) => ({ name: "plain", data: { n } })),
);
jobs.push(await queue.add("later", { n: 100 }, { delay: 200 }));
jobs.push(await queue.add("first", { n: 101 }, { priority: 1 }));
jobs.push(await queue.add("flaky", { n: 102 }, { attempts: 3, backoff: 50 }));
const flow = new FlowProducer({ connection });
const tree = await flow.add({
  name: "parent",
  queueName: "work",
  data: { n: 1 },
  children: [1, 2, 3].map((n) => ({ name: "child", queueName: "work", data: { n } })),
});
jobs.push(tree.job);
const results = await Promise.all(jobs.map((job) => job.waitUntilFinished(events, 20000)));
if (results[7] !== 14 || results.at(-1) !== 2) throw new Error(`results: ${results}`);
if (done.length !== 57) throw new Error(`${done.length} were done`);
const counts = await queue.getJobCounts();
if (counts.completed !== 57 || counts.failed) throw new Error(JSON.stringify(counts));
await queue.pause();
await queue.resume();
await worker.close();
await queue.obliterate({ force: true });
await Promise.all([queue.close(), events.close(), flow.close()]);
console.log("ok");
process.exit(0);
