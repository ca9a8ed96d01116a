// Asks an echo server: many small ones, a stream with a half-close, a pause, a timeout, an abort.
import { createHash } from "node:crypto";
import { once } from "node:events";
import net from "node:net";

const port = Number(process.argv[2]);

async function connected(options = {}) {
  const socket = net.connect({ port, host: "127.0.0.1", noDelay: true, ...options });
  await once(socket, "connect");
  await ask(socket, 300);
  return socket;
}

async function ask(socket, rounds) {
  for (let n = 0; n < rounds; n++) {
    const sent = Buffer.alloc(1 + n * 7, n);
    socket.write(sent);
    let got = Buffer.alloc(0);
    while (got.length < sent.length) {
      got = Buffer.concat([got, (await once(socket, "data"))[0]]);
    }
    if (!got.equals(sent)) throw new Error(`round ${n}`);
  }
}

async function stream() {
  const socket = await connected({ allowHalfOpen: true });
  const sent = createHash("md5"), got = createHash("md5");
  socket.on("data", (data) => {
    got.update(data);
    socket.pause();
    setImmediate(() => socket.resume());
  });
  const ended = once(socket, "end");
  for (let n = 1; n <= 200; n++) {
    const part = Buffer.alloc(n * 997, n);
    sent.update(part);
    if (!socket.write(part)) await once(socket, "drain");
  }
  socket.end();
  await ended;
  console.log("stream", sent.digest("hex") === got.digest("hex"));
}

async function many() {
  const sockets = await Promise.all(Array.from({ length: 40 }, () => connected()));
  await Promise.all(sockets.map((socket) => ask(socket, 50)));
  const ended = sockets.map((socket) => once(socket, "close"));
  sockets.forEach((socket, n) => (n % 2 ? socket.end() : n % 4 ? socket.destroy() : socket.resetAndDestroy()));
  console.log("closed", (await Promise.all(ended)).map(([error]) => error).join() === Array(40).fill("false").join());
}

async function timeout() {
  const socket = await connected();
  socket.setTimeout(30);
  await once(socket, "timeout");
  socket.setTimeout(0);
  await ask(socket, 3);
  console.log("timeout", socket.bytesRead === socket.bytesWritten);
  socket.destroy();
}

await stream();
await timeout();
await many();
const kept = await connected();
console.log("idle");
await once(process.stdin, "data");
await ask(kept, 1);
console.log("done");
process.exit(0);
