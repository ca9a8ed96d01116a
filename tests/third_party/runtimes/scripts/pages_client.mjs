// node's clients of http (an agent that keeps connections, and fetch) and of http2.
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";

const [port, kind] = process.argv.slice(2);
const base = `http://127.0.0.1:${port}`;
const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
const session = kind === "http2" ? http2.connect(base) : null;

async function asked(path, body) {
  const method = body ? "POST" : "GET";
  const request = session ? session.request({ ":path": path, ":method": method }) : http.request(base + path, { agent, method });
  const answered = session ? request : once(request, "response").then(([response]) => response);
  request.end(body);
  let length = 0;
  for await (const part of await answered) length += part.length;
  return length;
}

let total = 0;
for (let n = 0; n < 300; n++) total += await asked(`/${n * 100}`);
console.log("get", total);
console.log("post", await asked("/", Buffer.alloc(5_000_000)));
const all = await Promise.all(Array.from({ length: 20 }, (_, n) => asked(`/${n * 25000}`)));
console.log("at once", all.reduce((a, b) => a + b));
if (!session) {
  total = 0;
  for (let n = 0; n < 300; n++) total += (await (await fetch(`${base}/${n * 100}`)).arrayBuffer()).byteLength;
  console.log("fetch", total);
}
console.log("idle");
await once(process.stdin, "data");
console.log(await asked("/5"));
console.log("done");
process.exit(0);
