// The engine off the page's own thread: {id, model, pixels, rows, columns, height, width, nms} in, {id, map} or
// {id, error} out. The pixels are rows x columns, the map is height x width.
import { resize } from "../src/pixeldiff/serve/page/maps.js";
import { thinLines } from "./lines.js";
import { Engine } from "./wasm.js";

const MOST_THREADS = 8; // each is a worker; more would have few rows of an image each

let engine = null;
const networks = new Map();

async function bytesOf(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address} is missing; build the page again`);
  return new Uint8Array(await answer.arrayBuffer());
}

const openAlone = () => bytesOf("../engine.wasm").then(WebAssembly.compile).then(Engine.open);

// Browsers share memory between threads only on pages that are isolated from others: see docs/guide/engine.md.
function openEngine() {
  const threads = Math.min(navigator.hardwareConcurrency, MOST_THREADS);
  if (!(crossOriginIsolated && threads > 1)) return openAlone();
  const loader = new URL("../threads/engine.js", location.href).href;
  return import(/* @vite-ignore */ loader).then((module) => Engine.openWithThreads(module.default, threads)).catch(openAlone);
}

function opened(model) {
  engine ??= openEngine();
  if (!networks.has(model)) {
    const network = Promise.all([engine, bytesOf(`../models/${model}.safetensors`)])
      .then(([loaded, content]) => ({ loaded, network: loaded.network(content) }))
      .catch((error) => {
        throw new Error(`the network ${model} cannot be opened (${error.message})`);
      });
    networks.set(model, network);
  }
  return networks.get(model);
}

onmessage = async ({ data: { id, model, pixels, rows, columns, height, width, nms } }) => {
  try {
    const { loaded, network } = await opened(model);
    if (!pixels) return; // only to be ready for the first image
    const small = loaded.edges(network, pixels, rows, columns);
    const size = [rows, columns, height, width];
    const map = nms ? thinLines(loaded, small, ...size) : resize(small, ...size);
    postMessage({ id, map }, [map.buffer]);
  } catch (error) {
    engine?.then((loaded) => loaded.end(), () => {});
    engine = null; // it does not recover; the next image gets a new one
    networks.clear();
    if (pixels) postMessage({ id, error: error.message ?? "the engine gave up" });
  }
};
