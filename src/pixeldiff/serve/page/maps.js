// Images and maps as numbers: the arithmetic of the command, so that the page's lines are its lines.
//
// inputSize and thinLines are pixeldiff/inference/sizes.py, reduce is Pillow's smooth bilinear, resize is
// pixeldiff/image.py, nms and thin are native/edges/nms.cpp and native/edges/thin.cpp. Every step is rounded to 32 bits
// as there; tests/serve/test_page.py compares the numbers. A map is a Float32Array of height x width values in [0, 1].

const f32 = Math.fround;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// Height and width at which the network runs; maxSize is the longer side or "none".
export function inputSize(height, width, maxSize) {
  const longer = Math.max(height, width);
  if (maxSize === "none" || longer <= Number(maxSize)) return [height, width];
  return [height, width].map((side) => Math.max(1, evenRound((side * maxSize) / longer)));
}

// Half goes to the even neighbor.
function evenRound(value) {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + (low % 2) : Math.round(value);
}

// The levels of a map, halves up: the one rule of pixeldiff/edgemap.py.
export function to8Bit(map) {
  const levels = new Uint8Array(map.length); // a loop: a tenth of what Uint8Array.from takes
  for (let k = 0; k < map.length; k++) levels[k] = f32(f32(255 * clamp(map[k], 0, 1)) + 0.5);
  return levels;
}

// Levels made smaller, the strongest of each step x step; with their width and height.
export function strongest(levels, width, height, step) {
  if (step === 1) return [levels, width, height];
  const [columns, rows] = [Math.ceil(width / step), Math.ceil(height / step)];
  const small = new Uint8Array(rows * columns);
  levels.forEach((level, index) => {
    const to = Math.floor(index / width / step) * columns + Math.floor((index % width) / step);
    if (level > small[to]) small[to] = level;
  });
  return [small, columns, rows];
}

// RGBA bytes made smaller: across, then down, in whole numbers of 2^-22.
export function reduce(pixels, height, width, rows, columns) {
  const across = spans(width, columns);
  const narrow = new Uint8ClampedArray(4 * height * columns);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < columns; x++) {
      blend(pixels, 4 * (y * width + across[x].first), 4, across[x].weights, narrow, 4 * (y * columns + x));
    }
  }
  const down = spans(height, rows);
  const small = new Uint8ClampedArray(4 * rows * columns);
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      blend(narrow, 4 * (down[y].first * columns + x), 4 * columns, down[y].weights, small, 4 * (y * columns + x));
    }
  }
  return small;
}

function blend(source, at, step, weights, target, to) {
  for (let channel = 0; channel < 3; channel++) {
    let sum = 2 ** 21;
    for (let k = 0; k < weights.length; k++) sum += weights[k] * source[at + channel + k * step];
    target[to + channel] = sum >> 22;
  }
  target[to + 3] = 255;
}

// For each of `to` new pixels the old ones under its triangle, and their weights.
function spans(from, to) {
  const scale = from / to;
  return Array.from({ length: to }, (_, index) => {
    const center = (index + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - scale + 0.5));
    const last = Math.min(from, Math.trunc(center + scale + 0.5));
    const triangle = (k) => Math.max(0, 1 - Math.abs((k + first - center + 0.5) / scale));
    const weights = Array.from({ length: last - first }, (_, k) => triangle(k));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return { first, weights: weights.map((weight) => Math.trunc(0.5 + (weight / total) * 2 ** 22)) };
  });
}

// A map at another size: bilinear, pixel centers at half.
export function resize(map, height, width, rows, columns) {
  if (height === rows && width === columns) return map;
  const [above, below, down] = between(rows, height);
  const [left, right, along] = between(columns, width);
  const result = new Float32Array(rows * columns);
  const [upper, lower] = [new Float32Array(columns), new Float32Array(columns)];
  const fill = (line, row) => {
    for (let x = 0; x < columns; x++) {
      const [one, other] = [map[row * width + left[x]], map[row * width + right[x]]];
      line[x] = f32(f32(one * f32(1 - along[x])) + f32(other * along[x]));
    }
  };
  for (let y = 0; y < rows; y++) {
    fill(upper, above[y]);
    fill(lower, below[y]);
    const rest = f32(1 - down[y]);
    for (let x = 0; x < columns; x++) result[y * columns + x] = f32(upper[x] * rest) + f32(lower[x] * down[y]);
  }
  return result;
}

function between(wanted, source) {
  const [low, high, part] = [new Int32Array(wanted), new Int32Array(wanted), new Float32Array(wanted)];
  for (let k = 0; k < wanted; k++) {
    const position = clamp((k + 0.5) * (source / wanted) - 0.5, 0, source - 1);
    low[k] = Math.floor(position);
    high[k] = Math.min(low[k] + 1, source - 1);
    part[k] = position - low[k];
  }
  return [low, high, part];
}

// A map after non-maximum suppression, at the image's size; lines of a reduced image are drawn anew.
export function thinLines(map, height, width, rows, columns) {
  const lines = nms(map, height, width);
  if (height === rows && width === columns) return lines;
  const drawn = drawnLines(lines.map((value) => value >= f32(1 / 510)), height, width, rows, columns);
  return resize(map, height, width, rows, columns).map((value, index) => value * drawn[index]);
}

// Straight from each pixel of a line to the next ones beside or below it.
function drawnLines(lines, height, width, rows, columns) {
  const field = thin(Uint8Array.from(lines), height, width);
  const [tall, wide] = [rows / height, columns / width];
  const count = Math.ceil(Math.max(tall, wide));
  const drawn = new Uint8Array(rows * columns);
  const set = (y, x) => y < height && x >= 0 && x < width && field[y * width + x];
  field.forEach((own, index) => {
    if (!own) return;
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

// Non-maximum suppression: only the crest of each edge keeps its value.
export function nms(map, height, width) {
  const edges = triangle(map, height, width, 1);
  const smooth = triangle(edges, height, width, 4);
  const kept = new Float32Array(height * width);
  const line = () => new Float32Array(width);
  let [before, here, after] = [line(), line(), line()]; // rows of the derivative down
  const [dx, dxx, dxy] = [line(), line(), line()];
  alongY(smooth, 0, height, width, here);
  for (let y = 0; y < height; y++) {
    if (y + 1 < height) alongY(smooth, y + 1, height, width, after);
    alongX(smooth.subarray(y * width, (y + 1) * width), dx);
    alongX(dx, dxx);
    alongX(here, dxy);
    const inside = y > 0 && y < height - 1;
    const [top, bottom] = [y > 0 ? before : here, y < height - 1 ? after : here];
    for (let x = 0; x < width; x++) {
      const dyy = f32((inside ? 0.5 : 1) * f32(bottom[x] - top[x]));
      if (isCrest(edges, height, width, y, x, dxy[x] > 0 ? -dyy : dyy, f32(dxx[x] + f32(1e-5)))) {
        kept[y * width + x] = f32(edges[y * width + x] * fade(y, height)) * fade(x, width);
      }
    }
    [before, here, after] = [here, after, before];
  }
  return kept;
}

const fade = (index, length) => Math.min(1, f32(Math.min(index, length - 1 - index) / 5));

function isCrest(edges, height, width, y, x, rise, run) {
  const value = f32(edges[y * width + x] * f32(1.01));
  let [cosine, sine] = [0, 1];
  if (run !== 0 || rise === 0) {
    const tangent = f32(rise / run);
    cosine = Number.isFinite(tangent) ? f32(1 / f32(Math.sqrt(f32(1 + f32(tangent * tangent))))) : 1;
    sine = Number.isFinite(tangent) ? f32(tangent * cosine) : 0;
  }
  return (
    value >= bilinear(edges, height, width, f32(y + sine), f32(x + cosine)) &&
    value >= bilinear(edges, height, width, f32(y - sine), f32(x - cosine))
  );
}

function bilinear(map, height, width, y, x) {
  y = clamp(y, 0, height - 1);
  x = clamp(x, 0, width - 1);
  const [top, left] = [Math.trunc(y), Math.trunc(x)];
  const [dy, dx] = [f32(y - top), f32(x - left)];
  const right = Math.min(left + 1, width - 1);
  const [upper, lower] = [top * width, Math.min(top + 1, height - 1) * width];
  const above = f32(map[upper + left] + f32(dx * f32(map[upper + right] - map[upper + left])));
  const below = f32(map[lower + left] + f32(dx * f32(map[lower + right] - map[lower + left])));
  return f32(above + f32(dy * f32(below - above)));
}

// Index i of a line of n pixels that is mirrored at both ends (the border pixel twice).
function mirrored(i, n) {
  i = ((i % (2 * n)) + 2 * n) % (2 * n);
  return i < n ? i : 2 * n - 1 - i;
}

// Weights 1 .. r, r + 1, r .. 1 down and across, normalized.
function triangle(map, height, width, radius) {
  const weights = Array.from({ length: 2 * radius + 1 }, (_, k) =>
    f32((radius + 1 - Math.abs(k - radius)) / (radius + 1) ** 2),
  );
  const result = new Float32Array(height * width);
  const line = new Float32Array(width + 2 * radius);
  for (let y = 0; y < height; y++) {
    line.fill(0);
    for (let k = -radius; k <= radius; k++) {
      const source = mirrored(y + k, height) * width;
      const weight = weights[k + radius];
      for (let x = 0; x < width; x++) line[radius + x] = line[radius + x] + f32(weight * map[source + x]);
    }
    for (let k = 1; k <= radius; k++) {
      line[radius - k] = line[radius + mirrored(-k, width)];
      line[radius + width - 1 + k] = line[radius + mirrored(width - 1 + k, width)];
    }
    const row = result.subarray(y * width, (y + 1) * width);
    for (let k = 0; k <= 2 * radius; k++) {
      for (let x = 0; x < width; x++) row[x] = row[x] + f32(weights[k] * line[x + k]);
    }
  }
  return result;
}

// Central differences, one-sided at the ends; 0 along a side of one pixel.
function alongX(source, target) {
  const last = source.length - 1;
  if (last === 0) return target.fill(0);
  for (let x = 1; x < last; x++) target[x] = 0.5 * f32(source[x + 1] - source[x - 1]);
  target[0] = source[1] - source[0];
  target[last] = source[last] - source[last - 1];
}

function alongY(source, y, height, width, target) {
  const [above, below] = [Math.max(y - 1, 0) * width, Math.min(y + 1, height - 1) * width];
  const factor = y === 0 || y === height - 1 ? 1 : 0.5;
  for (let x = 0; x < width; x++) target[x] = factor * f32(source[below + x] - source[above + x]);
}

// Guo-Hall thinning of a mask of 0 and 1: two kinds of rounds in turn, each takes all its pixels at once.
export function thin(mask, height, width) {
  const stride = width + 2; // a frame of zeros
  const field = new Uint8Array((height + 2) * stride);
  for (let y = 0; y < height; y++) field.set(mask.subarray(y * width, (y + 1) * width), (y + 1) * stride + 1);
  const steps = [1, 1 - stride, -stride, -1 - stride, -1, stride - 1, stride, stride + 1];
  const goes = (pixel, round) => {
    let code = 0;
    for (let k = 0; k < 8; k++) code |= field[pixel + steps[k]] << k;
    return (DELETABLE[code] >> round) & 1;
  };
  let left = [];
  field.forEach((set, pixel) => set && left.push(pixel));
  for (let changed = true; changed; ) {
    changed = false;
    for (const round of [0, 1]) {
      const gone = left.filter((pixel) => goes(pixel, round));
      for (const pixel of gone) field[pixel] = 0;
      if (gone.length) left = left.filter((pixel) => field[pixel]);
      changed ||= gone.length > 0;
    }
  }
  const result = new Uint8Array(height * width);
  for (let y = 0; y < height; y++) {
    result.set(field.subarray((y + 1) * stride + 1, (y + 1) * stride + 1 + width), y * width);
  }
  return result;
}

// Bit s of DELETABLE[neighbors]: the pixel goes in round s.
const DELETABLE = Uint8Array.from({ length: 256 }, (_, code) => {
  const x = (i) => (code >> ((i - 1) % 8)) & 1;
  let [crossings, one, other] = [0, 0, 0];
  for (let i = 1; i <= 7; i += 2) {
    crossings += !x(i) && (x(i + 1) || x(i + 2)) ? 1 : 0;
    one += x(i) | x(i + 1);
    other += x(i + 1) | x(i + 2);
  }
  const least = Math.min(one, other);
  if (crossings !== 1 || least < 2 || least > 3) return 0;
  const east = (x(2) || x(3) || !x(8)) && x(1);
  const west = (x(6) || x(7) || !x(4)) && x(5);
  return (east ? 0 : 1) | (west ? 0 : 2);
});
