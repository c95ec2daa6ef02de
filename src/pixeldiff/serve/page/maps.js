// Images and maps as numbers: the arithmetic of the command, so that the page draws the same lines.
//
// inputSize is pixeldiff/inference/sizes.py, reduce is Pillow's smooth bilinear, resize is pixeldiff/image.py, thin is
// native/edges/thin.cpp. Every step is rounded to 32 bits as there; tests/serve/test_page.py compares the numbers. A map
// is a Float32Array of height x width values in [0, 1].

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
