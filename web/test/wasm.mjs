// The engine of the page in node, for tests/serve/test_page.py:
//
//     node web/test/wasm.mjs weights NETWORK OUT                       the folded weights
//     node web/test/wasm.mjs edges NETWORK RGBA OUT HEIGHT WIDTH      a map; prints the instruction set
//
// NETWORK is a .safetensors file. A wrong one is one line and exit code 1.
import { readFileSync, writeFileSync } from "node:fs";
import { read } from "../network.js";
import { Engine } from "../wasm.js";

const [what, network, ...given] = process.argv.slice(2);
try {
  const content = new Uint8Array(readFileSync(network));
  if (what === "weights") {
    writeFileSync(given[0], new Uint8Array(read(content).weights.buffer));
  } else {
    const [source, target, height, width] = given;
    const module = await WebAssembly.compile(readFileSync(new URL("../engine.wasm", import.meta.url)));
    const engine = await Engine.open(module);
    const opened = engine.network(content);
    const map = engine.edges(opened, readFileSync(source), Number(height), Number(width));
    writeFileSync(target, new Uint8Array(map.buffer));
    console.log(engine.kernels(opened));
  }
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
