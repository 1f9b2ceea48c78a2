// Lets a test drive a client that runs here: one JSON object a line in, one out, by its id. What waits does not hold up
// what is asked meanwhile.
import { createInterface } from "node:readline";

const plain = (_, value) => (typeof value === "bigint" ? Number(value) : value);

export function serve(acts) {
  createInterface({ input: process.stdin }).on("line", async (line) => {
    const { id, act, ...given } = JSON.parse(line);
    let answer;
    try {
      answer = { id, result: await acts[act](given) };
    } catch (error) {
      answer = { id, error: String(error?.shortMessage ?? error?.message ?? error), code: error?.code, all: String(error) };
    }
    process.stdout.write(JSON.stringify(answer, plain) + "\n");
  });
  process.stdout.write(JSON.stringify({ id: 0, result: "ready" }) + "\n");
}

export const ABI = [
  { type: "function", name: "answer", stateMutability: "view", inputs: [], outputs: [{ type: "uint256", name: "" }] },
];
