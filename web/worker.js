// The engine off the page's own thread: {id, model, pixels, rows, columns} in, {id, map} or {id, error} out.
import { Engine } from "./wasm.js";

let engine = null;
const networks = new Map();

async function bytesOf(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address} is missing; build the page again`);
  return new Uint8Array(await answer.arrayBuffer());
}

function opened(model) {
  engine ??= bytesOf("../engine.wasm").then(WebAssembly.compile).then(Engine.open);
  if (!networks.has(model)) {
    const network = Promise.all([engine, bytesOf(`../models/${model}.safetensors`)])
      .then(([own, content]) => ({ own, network: own.network(content) }))
      .catch((error) => {
        throw new Error(`the network ${model} cannot be opened (${error.message})`);
      });
    networks.set(model, network);
  }
  return networks.get(model);
}

onmessage = async ({ data: { id, model, pixels, rows, columns } }) => {
  try {
    const { own, network } = await opened(model);
    if (!pixels) return; // only to be ready for the first picture
    const map = own.edges(network, pixels, rows, columns);
    postMessage({ id, map }, [map.buffer]);
  } catch (error) {
    engine = null; // one that gave up does not come back; the next picture gets another
    networks.clear();
    if (pixels) postMessage({ id, error: error.message });
  }
};
