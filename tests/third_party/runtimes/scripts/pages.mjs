// node's http or http2: GET /N gives N bytes, a POST what was sent.
import http from "node:http";
import http2 from "node:http2";

const [port, kind] = process.argv.slice(2);
const server = (kind === "http2" ? http2 : http).createServer((request, response) => {
  if (request.method === "POST") request.pipe(response);
  else response.end(Buffer.alloc(Number(request.url.slice(1)), "x"));
});
server.listen(Number(port), "127.0.0.1");
process.on("SIGTERM", () => process.exit(0));
