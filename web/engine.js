// Where the edges come from on a page without a server: ONNX Runtime in the browser. Nothing is uploaded.
//
// The interface is that of src/pixeldiff/serve/page/engine.js; the smallest size is that of pixeldiff/runtime/sizes.py.
// How a network sees pictures (mean and deviation) is said by its own file; the build copies it into models/index.json.
import * as ort from "onnxruntime-web";
import { reduce, resize, seenSize, thinLines } from "../src/pixeldiff/serve/page/maps.js";

export const promise = "Edges of a picture, found on your own machine. Nothing is uploaded.";
export const canVector = false;

const SMALLEST = 16;
const MOST_PIXELS = 8e6; // for the network: what a browser's memory bears
const sessions = new Map();
let list = null;

export function models() {
  list ??= fetch("models/index.json").then((answer) => {
    if (!answer.ok) throw new Error("The list of networks is missing; build the page again.");
    return answer.json();
  });
  return list;
}

export async function edges(blob, { model, thin, size }, bitmap) {
  const { width, height } = bitmap;
  const [rows, columns] = seenSize(height, width, size);
  if (rows * columns > MOST_PIXELS) {
    throw new Error(`a browser's memory is enough for ${MOST_PIXELS / 1e6} megapixels; let the network see less`);
  }
  const session = await opened(model);
  let pixels = pixelsOf(bitmap);
  if (rows !== height || columns !== width) pixels = reduce(pixels, height, width, rows, columns);
  const { preprocessing } = (await models()).find((one) => one.name === model);
  const own = await ran(session, preprocessing, pixels, rows, columns);
  const map = (thin ? thinLines : resize)(own, rows, columns, height, width);
  return { width, height, map, seen: [columns, rows] };
}

async function ran(session, preprocessing, pixels, rows, columns) {
  const size = [Math.max(rows, SMALLEST), Math.max(columns, SMALLEST)];
  const image = new ort.Tensor("float32", normalised(preprocessing, pixels, columns, rows, size), [1, 3, ...size]);
  const { edges: found } = await session.run({ image }, ["edges"]);
  const padded = await found.getData();
  const map = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    map.set(padded.subarray(row * size[1], row * size[1] + columns), row * columns);
  }
  found.dispose();
  return map;
}

export const svg = async () => null;
export const png = async () => null;

async function opened(model) {
  if (!sessions.has(model)) {
    const executionProviders = navigator.gpu ? ["webgpu", "wasm"] : ["wasm"];
    sessions.set(model, ort.InferenceSession.create(`models/${model}.onnx`, { executionProviders }));
  }
  try {
    return await sessions.get(model);
  } catch (error) {
    sessions.delete(model);
    throw new Error(`the network ${model} cannot be opened (${error.message})`);
  }
}

// Transparent pictures lie on white, as in the Python reader.
function pixelsOf(bitmap) {
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "white";
  pen.fillRect(0, 0, bitmap.width, bitmap.height);
  pen.drawImage(bitmap, 0, 0);
  return pen.getImageData(0, 0, bitmap.width, bitmap.height).data;
}

// RGBA to (x - mean) / std in planes; small pictures go on with their last row and column.
function normalised({ mean, std }, pixels, width, height, [rows, columns]) {
  const planes = new Float32Array(3 * rows * columns);
  for (let channel = 0; channel < 3; channel++) {
    const scale = 1 / (255 * std[channel]);
    const shift = mean[channel] / std[channel];
    let at = channel * rows * columns;
    for (let row = 0; row < rows; row++) {
      const line = Math.min(row, height - 1) * width;
      for (let column = 0; column < columns; column++) {
        planes[at++] = pixels[4 * (line + Math.min(column, width - 1)) + channel] * scale - shift;
      }
    }
  }
  return planes;
}
