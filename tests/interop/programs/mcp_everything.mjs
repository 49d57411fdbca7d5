// The reference server of MCP's TypeScript SDK, on a free port of the loopback interface. It would listen on all
// interfaces, and on a port from its environment.
import { Server } from "node:http";
import { pathToFileURL } from "node:url";

console.log = console.info = console.warn = console.error; // stdout is for the test

const { listen } = Server.prototype;
Server.prototype.listen = function (_port, ...rest) {
  this.once("listening", () => {
    process.stdout.write(`${JSON.stringify({ ready: `http://127.0.0.1:${this.address().port}` })}\n`);
  });
  return listen.call(this, 0, "127.0.0.1", ...rest);
};
process.stdin.on("end", () => process.exit(0)).resume();
await import(pathToFileURL(process.env.MCP_EVERYTHING).href);
