// connect-redis keeps the sessions of express; socket.io's adapters carry events from one server to the clients of another.
import { createServer } from "node:http";
import { once } from "node:events";
import { createAdapter, createShardedAdapter } from "@socket.io/redis-adapter";
import { createAdapter as createStreamsAdapter } from "@socket.io/redis-streams-adapter";
import { RedisStore } from "connect-redis";
import { createClient } from "redis";
import { Server } from "socket.io";
import { io } from "socket.io-client";

const [host, port] = process.argv.slice(2);
const clients = [];
async function connect(RESP) {
  const client = createClient({ RESP, socket: { host, port: Number(port) } });
  client.on("error", (error) => { throw error; });
  clients.push(await client.connect());
  return client;
}

const store = new RedisStore({ client: await connect(2), prefix: "session:", ttl: 60 });
const cookie = { originalMaxAge: 60000 };
for (let n = 0; n < 150; n++) await store.set(`s${n}`, { cookie, n });
await store.touch("s7", { cookie: { expires: new Date(Date.now() + 900000) } });
if ((await store.get("s7")).n !== 7 || (await store.length()) !== 150) throw new Error("sessions are lost");
if ((await store.all()).length !== 150 || (await store.ids()).length !== 150) throw new Error("not all are listed");
if ((await clients[0].ttl("session:s7")) < 100) throw new Error("it was not touched");
await store.destroy("s7");
if (await store.get("s7")) throw new Error("it was not destroyed");
await store.clear();
if (await store.length()) throw new Error("not all were cleared");

// Two servers with a client each: what one sends to all, to a room, and asks of all, has to go through the adapter.
async function rooms(name, adapter) {
  const nodes = [];
  for (let n = 0; n < 2; n++) {
    const http = createServer().listen(0, "127.0.0.1");
    await once(http, "listening");
    const server = new Server(http, { adapter: await adapter() });
    server.on("connection", (socket) => socket.on("join", async (room, ack) => { await socket.join(room); ack(); }));
    server.on("who", (answer) => answer(n));
    const socket = io(`http://127.0.0.1:${http.address().port}`, { transports: ["websocket"] });
    await once(socket, "connect");
    nodes.push({ server, socket });
  }
  const [first, second] = nodes;
  await second.socket.emitWithAck("join", "room");
  // The adapters hear of each other a little later.
  for (let tries = 0; (await first.server.fetchSockets()).length !== 2; tries++) {
    if (tries > 100) throw new Error(`${name}: the other's clients are not seen`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const heard = once(second.socket, "news");
  first.server.emit("news", name, Buffer.from([1, 2, 3]));
  const [text, bytes] = await heard;
  if (text !== name || Buffer.compare(Buffer.from(bytes), Buffer.from([1, 2, 3]))) throw new Error(`${name}: ${text}`);
  const told = once(second.socket, "told");
  first.server.to("room").emit("told", 1);
  await told;
  if ((await first.server.in("room").fetchSockets()).length !== 1) throw new Error(`${name}: rooms`);
  const answers = await first.server.serverSideEmitWithAck("who");
  if (answers.length !== 1 || answers[0] !== 1) throw new Error(`${name}: answers ${answers}`);
  for (const { server, socket } of nodes) {
    socket.disconnect();
    await server.close();
  }
}

for (const RESP of [2, 3]) {
  await rooms(`redis, RESP${RESP}`, async () => createAdapter(await connect(RESP), await connect(RESP)));
  await rooms(`sharded, RESP${RESP}`, async () => createShardedAdapter(await connect(RESP), await connect(RESP)));
}
const shared = await connect(2);
await rooms("streams", async () => createStreamsAdapter(shared, { heartbeatInterval: 1000 }));
console.log("ok");
process.exit(0);
