// The page's arithmetic on files of numbers, for tests/serve/test_page.py:
//
//     node web/test/maps.mjs thin|resize|reduce|to8Bit IN OUT HEIGHT WIDTH [ROWS COLUMNS]
//     node web/test/maps.mjs inputSize '[[height, width, maxSize], ...]'
import { readFileSync, writeFileSync } from "node:fs";
import * as maps from "../../src/pixeldiff/serve/page/maps.js";

const [what, ...given] = process.argv.slice(2);
if (what === "inputSize") {
  console.log(JSON.stringify(JSON.parse(given[0]).map((one) => maps.inputSize(...one))));
} else {
  const [source, target, ...sizes] = given;
  const bytes = new Uint8Array(readFileSync(source));
  const numbers = what === "thin" || what === "reduce" ? bytes : new Float32Array(bytes.buffer);
  writeFileSync(target, new Uint8Array(maps[what](numbers, ...sizes.map(Number)).buffer));
}
