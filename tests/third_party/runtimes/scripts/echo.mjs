// node's net: an echo server by pipes, or by a cluster of two workers.
import cluster from "node:cluster";
import net from "node:net";

const port = Number(process.argv[2]);
if (process.argv[3] === "cluster" && cluster.isPrimary) {
  cluster.fork();
  cluster.fork();
  process.on("SIGTERM", () => cluster.disconnect(() => process.exit(0)));
} else {
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    socket.on("error", () => {});
    socket.pipe(socket);
  });
  server.listen(port, "127.0.0.1");
  if (!cluster.isWorker) process.on("SIGTERM", () => process.exit(0));
  else process.on("SIGTERM", () => {});
}
