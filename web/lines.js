// Thin lines at the image's size, as in src/pixeldiff/inference/sizes.py; non-maximum suppression and thinning are the
// engine's.
import { resize } from "../src/pixeldiff/serve/page/maps.js";

// A map after non-maximum suppression, at the image's size; the lines of a downscaled image are drawn again.
export function thinLines(engine, map, height, width, rows, columns) {
  const lines = engine.nms(map, height, width);
  if (height === rows && width === columns) return lines;
  const mask = Uint8Array.from(lines, (value) => value >= Math.fround(1 / 510));
  const drawn = drawLines(engine.thin(mask, height, width), height, width, rows, columns);
  return resize(map, height, width, rows, columns).map((value, index) => value * drawn[index]);
}

// Straight from each pixel of a line to the next ones beside or below it.
function drawLines(field, height, width, rows, columns) {
  const [tall, wide] = [rows / height, columns / width];
  const count = Math.ceil(Math.max(tall, wide));
  const drawn = new Uint8Array(rows * columns);
  const set = (y, x) => y < height && x >= 0 && x < width && field[y * width + x];
  field.forEach((value, index) => {
    if (!value) return;
    const [y, x] = [Math.trunc(index / width), index % width];
    for (const [down, right] of [[0, 1], [1, 0], [1, 1], [1, -1]]) {
      if (!set(y + down, x + right)) continue;
      for (let k = 0; k <= count; k++) {
        const part = k === count ? 1 : k * (1 / count);
        const row = Math.trunc((y + part * down + 0.5) * tall);
        drawn[row * columns + Math.trunc((x + part * right + 0.5) * wide)] = 1;
      }
    }
  });
  return drawn;
}
