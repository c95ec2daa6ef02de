// Where the edges come from on a page without a server: ONNX Runtime in the browser. Nothing is uploaded.
//
// The interface is that of src/pixeldiff/serve/page/engine.js; mean, deviation and the smallest size are those of
// pixeldiff/image.py and pixeldiff/runtime/edges.py.
import * as ort from "onnxruntime-web";

export const promise = "Edges of a picture, found on your own machine. Nothing is uploaded.";
export const canThin = false;
export const canVector = false;

const MEAN = [0.485, 0.456, 0.406];
const STD = [0.229, 0.224, 0.225];
const SMALLEST = 16;
const MOST_PIXELS = 8e6; // what a browser's memory bears
const sessions = new Map();

export async function models() {
  const answer = await fetch("models/index.json");
  if (!answer.ok) throw new Error("The list of networks is missing; build the page again.");
  return answer.json();
}

export async function edges(blob, { model }, bitmap) {
  const { width, height } = bitmap;
  if (width * height > MOST_PIXELS) {
    throw new Error(`a browser's memory is enough for ${MOST_PIXELS / 1e6} megapixels; scale the picture down`);
  }
  const session = await opened(model);
  const size = [Math.max(height, SMALLEST), Math.max(width, SMALLEST)];
  const image = new ort.Tensor("float32", normalised(pixelsOf(bitmap), width, height, size), [1, 3, ...size]);
  const { edges: found } = await session.run({ image }, ["edges"]);
  const map = await found.getData();
  const levels = new Uint8ClampedArray(width * height);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      levels[row * width + column] = Math.round(255 * map[row * size[1] + column]);
    }
  }
  found.dispose();
  return { width, height, levels };
}

export async function svg() {
  return null;
}

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
function normalised(pixels, width, height, [rows, columns]) {
  const planes = new Float32Array(3 * rows * columns);
  for (let channel = 0; channel < 3; channel++) {
    const scale = 1 / (255 * STD[channel]);
    const shift = MEAN[channel] / STD[channel];
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
