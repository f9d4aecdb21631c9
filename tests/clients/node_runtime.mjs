// Runs the steps of a test in Node: a line of JSON `{code, given}` is answered by one with its result.
import { createInterface } from "node:readline";

const [, , client, ws] = process.argv;
globalThis.contrada = await import(client);
globalThis.runtime = ws ? { WebSocket: (await import(ws)).WebSocket } : {};
for await (const line of createInterface({ input: process.stdin })) {
  const { code, given } = JSON.parse(line);
  let answer;
  try {
    answer = { result: await (0, eval)(`(${code})`)(given) ?? null };
  } catch (error) {
    answer = { error: String(error?.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
