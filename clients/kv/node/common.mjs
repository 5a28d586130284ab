// What both clients have in common: waiting for the restart, and failing loudly.
import { once } from "node:events";
import { strict as assert } from "node:assert";

export { assert };
export const [host, port] = [process.argv[2], Number(process.argv[3])];

/** Says that the server may be restarted and waits until it was. */
export async function restarted() {
  console.log("restart");
  await once(process.stdin, "data");
}

/** Retries until `attempt` succeeds; at most 10 s. */
export async function eventually(attempt) {
  for (let i = 0; i < 100; i++) {
    try {
      return await attempt();
    } catch {
      await new Promise((done) => setTimeout(done, 100));
    }
  }
  throw new Error("the client did not reconnect");
}

/** Resolves with what `ready` is called with; rejects after 5 s. */
export function within(what) {
  let ready;
  const promise = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${what} in 5 s`)), 5000);
    ready = (value) => {
      clearTimeout(timer);
      resolve(value);
    };
  });
  return { promise, ready };
}

process.on("unhandledRejection", (e) => {
  console.error(e);
  process.exit(1);
});
