// Where the edges come from on a page without a server: our own engine in a worker. Nothing is uploaded.
//
// The interface is that of src/pixeldiff/serve/page/engine.js.
import { inputSize, reduce } from "../src/pixeldiff/serve/page/maps.js";

export const promise = "Edges of an image, detected on your machine. Nothing is uploaded.";
export const canVector = false;

const MOST_PIXELS = 16e6; // for the network: what a browser's memory bears
const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
const waiting = new Map(); // of every image under way, who wants its map
let images = 0;
let list = null;

worker.onmessage = ({ data: { id, map, error } }) => {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (error) reject(new Error(error));
  else resolve(map);
};
worker.onerror = () => {
  for (const { reject } of waiting.values()) reject(new Error("the engine does not start in this browser"));
  waiting.clear();
};

export function models() {
  list ??= fetch("models/index.json").then(async (answer) => {
    if (!answer.ok) throw new Error("The list of networks is missing; build the page again.");
    const found = await answer.json();
    worker.postMessage({ model: found.find((one) => one.default).name }); // while an image is looked for
    return found;
  });
  return list;
}

export async function edges(blob, { model, nms, max_size }, bitmap) {
  const { width, height } = bitmap;
  const [rows, columns] = inputSize(height, width, max_size);
  if (rows * columns > MOST_PIXELS) {
    throw new Error(`a browser's memory is enough for ${MOST_PIXELS / 1e6} megapixels; detect at a smaller size`);
  }
  let pixels = pixelsOf(bitmap);
  if (rows !== height || columns !== width) pixels = reduce(pixels, height, width, rows, columns);
  const map = await ran({ model, pixels, rows, columns, height, width, nms });
  return { width, height, map, inputSize: [columns, rows] };
}

function ran(job) {
  return new Promise((resolve, reject) => {
    waiting.set(++images, { resolve, reject });
    worker.postMessage({ id: images, ...job }, [job.pixels.buffer]);
  });
}

export const svg = async () => null;
export const png = async () => null;

// Transparent images lie on white, as in the Python reader.
function pixelsOf(bitmap) {
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "white";
  pen.fillRect(0, 0, bitmap.width, bitmap.height);
  pen.drawImage(bitmap, 0, 0);
  return pen.getImageData(0, 0, bitmap.width, bitmap.height).data;
}
