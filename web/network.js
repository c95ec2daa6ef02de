// Trained edge networks as their .safetensors files hold them, folded for the engine.
//
// The same as src/pixeldiff/inference/edge_file.py: a width, a pattern and three switches say which tensors there must be,
// in the order of native/float/pidinet.hpp. tests/serve/test_page.py compares the numbers.
const KINDS = { c: central, a: angular, r: radial, v: (kernel) => kernel };
const STAGES = [1, 2, 4, 4]; // times the width

// {described, config, weights}: what the file says, what the network is made from, all its folded weights in a row.
export function read(content) {
  const { table, described, data } = split(content);
  const config = described.config;
  const letters = config?.pattern;
  if (described.family !== "pidinet" || !/^[carv]{16}$/.test(letters)) throw damaged("no network of this page");
  const parts = [];
  for (const [name, shape, kind] of layers(config)) {
    const tensor = tensorOf(table[name], shape, data);
    if (!tensor) throw damaged(`no tensor ${name} of ${shape.join(" x ")} numbers`);
    parts.push(kind ? folded(tensor, KINDS[kind]) : tensor);
  }
  const weights = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    weights.set(part, at);
    at += part.length;
  }
  if (!weights.every(Number.isFinite)) throw damaged("numbers that are not finite");
  return { described, config, weights };
}

// What a file says of its network.
export const describe = (content) => split(content).described;

const damaged = (what) => new Error(`its file is damaged (${what})`);

// The length of the header, 8 bytes; the header: where every tensor is; the tensors.
function split(content) {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const length = view.byteLength < 8 ? Infinity : Number(view.getBigUint64(0, true));
  if (8 + length > view.byteLength) throw damaged("cut short");
  try {
    const { __metadata__: metadata, ...table } = JSON.parse(new TextDecoder().decode(content.subarray(8, 8 + length)));
    return { table, described: JSON.parse(metadata.pixeldiff), data: content.subarray(8 + length) };
  } catch {
    throw damaged("its header says nothing of a network");
  }
}

function tensorOf(place, shape, data) {
  const bytes = 4 * shape.reduce((product, size) => product * size, 1);
  const [start, stop] = place?.data_offsets ?? [];
  if (place?.dtype !== "F32" || String(place.shape) !== String(shape)) return null;
  if (!(start >= 0 && stop <= data.length && stop - start === bytes)) return null;
  return new Float32Array(data.slice(start, stop).buffer); // a copy: a file need not align them
}

// [name, shape, kind of kernel] of every tensor, in the engine's order.
function* layers({ width, side_channels, pattern, cdcm, csam, shortcuts }) {
  yield ["stem.weight", [width, 3, 3, 3], pattern[0]];
  let before = width;
  for (const [stage, factor] of STAGES.entries()) {
    const channels = factor * width;
    for (let block = 0, layer = stage ? 4 * stage : 1; layer < 4 * stage + 4; block++, layer++) {
      const name = `stages.${stage}.${block}`;
      yield [`${name}.depthwise.weight`, [before, 1, 3, 3], pattern[layer]];
      yield [`${name}.pointwise.weight`, [channels, before, 1, 1]];
      if (shortcuts && stage && !block) {
        yield [`${name}.shortcut.weight`, [channels, before, 1, 1]];
        yield [`${name}.shortcut.bias`, [channels]];
      }
      before = channels;
    }
    yield* side(`sides.${stage}`, channels, cdcm && side_channels, csam);
  }
  yield ["fusion.weight", [1, 4, 1, 1]];
  yield ["fusion.bias", [1]];
}

function* side(name, channels, dilated, csam) {
  if (dilated) {
    yield [`${name}.dilate.squeeze.weight`, [dilated, channels, 1, 1]];
    yield [`${name}.dilate.squeeze.bias`, [dilated]];
    for (let view = 0; view < 4; view++) yield [`${name}.dilate.views.${view}.weight`, [dilated, dilated, 3, 3]];
  }
  const kept = dilated || channels;
  if (csam) {
    yield [`${name}.attend.squeeze.weight`, [4, kept, 1, 1]];
    yield [`${name}.attend.squeeze.bias`, [4]];
    yield [`${name}.attend.attend.weight`, [1, 4, 3, 3]];
  }
  yield [`${name}.reduce.weight`, [1, kept, 1, 1]];
  yield [`${name}.reduce.bias`, [1]];
}

// Pixel differences as plain kernels: sum w_i (x_i - x'_i), see src/pixeldiff/weights/pairs.py.
function folded(tensor, fold) {
  const kernels = [];
  for (let at = 0; at < tensor.length; at += 9) kernels.push(fold(tensor.subarray(at, at + 9)));
  const result = new Float32Array(kernels.length * kernels[0].length);
  kernels.forEach((kernel, index) => result.set(kernel, index * kernel.length));
  return result;
}

// x_p - x_center. The center's own weight, which rests, stays out of the sum: taken off again it would turn a last bit.
function central(kernel) {
  const others = kernel.reduce((total, weight, place) => (place === 4 ? total : total + weight), 0);
  return Array.from(kernel, (weight, place) => (place === 4 ? -others : weight));
}

// x_p minus the next pixel clockwise; the center rests.
function angular(kernel) {
  const ring = [0, 1, 2, 5, 8, 7, 6, 3];
  const result = new Array(9).fill(0);
  ring.forEach((place, index) => (result[place] = kernel[place] - kernel[ring[(index + 7) % 8]]));
  return result;
}

// The pixel twice as far minus the pixel itself; the center rests.
function radial(kernel) {
  const result = new Array(25).fill(0);
  kernel.forEach((weight, place) => {
    if (place === 4) return;
    const [y, x] = [Math.floor(place / 3) - 1, (place % 3) - 1];
    result[5 * (2 * y + 2) + 2 * x + 2] += weight;
    result[5 * (y + 2) + x + 2] -= weight;
  });
  return result;
}
