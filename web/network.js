// Trained edge networks as their .safetensors files hold them, folded for the engine.
//
// The rule is that of src/pixeldiff/inference/edge_file.py: the file lists its tensors in the order of
// native/float/pidinet.hpp; a tensor with a kind is multiplied by the folding matrix of that kind, in float64.
// tests/serve/test_page.py compares the numbers.
const TAPS = 9; // weights of a 3x3 kernel
// Where a radial 5x5 kernel is not zero: the weights of the outer pixels and, negated, of the inner ones.
const OUTER = [0, 2, 4, 10, 14, 20, 22, 24];
const INNER = [6, 7, 8, 11, 13, 16, 17, 18];

// {described, config, kernelSizes, weights}: the file's description, the network's config, 3 or 5 for each layer, and
// all folded weights in a row.
export function read(content) {
  const { table, described, data } = split(content);
  const { tensors, folding } = described.engine ?? {};
  if (!Array.isArray(tensors) || !folding) throw damaged("it does not list its tensors for the engine");
  for (const [kind, matrix] of Object.entries(folding)) checkMatrix(kind, matrix);
  const [parts, kernelSizes] = [[], []];
  for (const [name, kind] of tensors.filter(Array.isArray)) {
    const tensor = tensorOf(table[name], data);
    if (!tensor) throw damaged(`no tensor ${name}`);
    if (kind && (!Object.hasOwn(folding, kind) || tensor.length % TAPS)) throw damaged(`no kernels ${name}`);
    parts.push(kind ? folded(tensor, folding[kind]) : tensor);
    if (kind) kernelSizes.push(Math.sqrt(folding[kind].length));
  }
  if (kernelSizes.length !== 16) throw damaged("not 16 layers of kernels");
  const weights = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    weights.set(part, at);
    at += part.length;
  }
  if (!weights.every(Number.isFinite)) throw damaged("numbers that are not finite");
  return { described, config: described.config, kernelSizes, weights };
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

function tensorOf(place, data) {
  const shape = place?.shape;
  const [start, stop] = place?.data_offsets ?? [];
  if (place?.dtype !== "F32" || !Array.isArray(shape)) return null;
  const bytes = 4 * shape.reduce((product, size) => product * size, 1);
  if (!(start >= 0 && stop <= data.length && stop - start === bytes)) return null;
  return new Float32Array(data.slice(start, stop).buffer); // a copy: a file need not align them
}

// 9 rows of 9 finite numbers for 3x3 kernels; 25 rows for radial 5x5 kernels, which the engine runs as differences.
function checkMatrix(kind, matrix) {
  const isRow = (row) => Array.isArray(row) && row.length === TAPS && row.every(Number.isFinite);
  if (![9, 25].includes(matrix?.length) || !matrix.every(isRow)) throw damaged(`no folding matrix of ${kind}`);
  if (matrix.length === 9) return;
  const negated = (row, column) => {
    const place = INNER.indexOf(row);
    return place < 0 ? 0 : -matrix[OUTER[place]][column];
  };
  const isRadial = (row, index) => OUTER.includes(index) || row.every((value, column) => value === negated(index, column));
  if (!matrix.every(isRadial)) throw damaged(`${kind} kernels are neither 3x3 nor radial`);
}

// Plain kernels, matrix times kernel.
function folded(tensor, matrix) {
  const result = new Float32Array((tensor.length / TAPS) * matrix.length);
  let to = 0;
  for (let at = 0; at < tensor.length; at += TAPS) {
    for (const row of matrix) {
      let sum = 0;
      for (let k = 0; k < TAPS; k++) sum += row[k] * tensor[at + k];
      result[to++] = sum;
    }
  }
  return result;
}
