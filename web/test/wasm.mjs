// The engine of the page in node, for tests/serve/test_page.py:
//
//     node web/test/wasm.mjs weights NETWORK OUT                       the folded weights
//     node web/test/wasm.mjs edges NETWORK RGBA OUT HEIGHT WIDTH      a map; prints the instruction set
//     node web/test/wasm.mjs nms|thin|thinLines IN OUT HEIGHT WIDTH [ROWS COLUMNS]
//
// NETWORK is a .safetensors file. A wrong one is one line and exit code 1.
import { readFileSync, writeFileSync } from "node:fs";
import { thinLines } from "../lines.js";
import { read } from "../network.js";
import { Engine } from "../wasm.js";

const [what, ...words] = process.argv.slice(2);
const bytesOf = (path) => new Uint8Array(readFileSync(path));
const write = (path, array) => writeFileSync(path, new Uint8Array(array.buffer));
const open = async () => Engine.open(await WebAssembly.compile(bytesOf(new URL("../engine.wasm", import.meta.url))));
try {
  if (what === "weights") {
    write(words[1], read(bytesOf(words[0])).weights);
  } else if (what === "edges") {
    const [network, source, target, height, width] = words;
    const engine = await open();
    const opened = engine.network(bytesOf(network));
    write(target, engine.edges(opened, bytesOf(source), Number(height), Number(width)));
    console.log(engine.kernels(opened));
  } else {
    const [source, target, ...sizes] = words;
    const engine = await open();
    const bytes = bytesOf(source);
    const values = what === "thin" ? bytes : new Float32Array(bytes.buffer);
    const size = sizes.map(Number);
    write(target, what === "thinLines" ? thinLines(engine, values, ...size) : engine[what](values, ...size));
  }
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
