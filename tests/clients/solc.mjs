// The compiler for forge, which can fetch none: npm's solc, with the two options that forge uses.
import { readFileSync } from "node:fs";
import solc from "solc";

if (process.argv.includes("--version")) {
  process.stdout.write(`solc, the solidity compiler commandline interface\nVersion: ${solc.version().replace("Emscripten.clang", "Linux.g++")}\n`);
} else {
  process.stdout.write(solc.compile(readFileSync(0, "utf8")));
}
