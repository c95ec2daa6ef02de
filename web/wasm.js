// native/web/module.cpp as JavaScript: a network from its file, maps from pixels, thin lines. Runs in a worker and in
// node.
import { read } from "./network.js";

const SMALLEST = 16; // as in src/pixeldiff/inference/sizes.py: smaller images go on with their last row and column

// What the module of one thread asks of its surroundings: nothing but a way to give up.
const surroundings = () => ({
  env: { emscripten_notify_memory_growth() {} },
  wasi_snapshot_preview1: {
    proc_exit() {
      throw new Error("the engine gave up");
    },
    clock_time_get: () => 0, // asked by those who wait for threads
    environ_get: () => 0,
    environ_sizes_get: () => 0, // none, and memory begins with zeros
  },
});

export class Engine {
  // On one thread; `module` is a WebAssembly.Module.
  static async open(module) {
    const { exports } = await WebAssembly.instantiate(module, surroundings());
    exports._initialize();
    return new Engine(exports);
  }

  // `load` is what threads/engine.js exports. Maps are the same, to the bit.
  static async openWithThreads(load, threads) {
    const module = await load({ threads });
    const names = ["malloc", "free", "network_open", "network_run", "network_kernels", "map_nms", "map_thin"];
    const exports = Object.fromEntries(names.map((name) => [name, module[`_${name}`]]));
    return new Engine({ ...exports, memory: module.wasmMemory }, threads, [...module.PThread.unusedWorkers]);
  }

  constructor(exports, threads = 1, workers = []) {
    Object.assign(this, { exports, threads, workers });
  }

  // Lets the threads go, which would stay for ever; whoever still has this engine goes on alone.
  end() {
    this.threads = 1;
    for (const worker of this.workers) worker.terminate();
  }

  // The network in the bytes of a .safetensors file.
  network(content) {
    const { described, config, kernelSizes, weights } = read(content);
    const { width, side_channels, cdcm, csam, shortcuts } = config;
    const held = this.#with([Uint8Array.from(kernelSizes), weights], (sizes, numbers) =>
      this.exports.network_open(width, side_channels, sizes, cdcm, csam, shortcuts, numbers, weights.length),
    );
    if (!held) throw new Error("its file is damaged (it does not hold the weights of its network)");
    return { held, table: levels(described.preprocessing) };
  }

  // The instruction set that runs, by the name of native/float.
  kernels({ held }) {
    const bytes = new Uint8Array(this.exports.memory.buffer, this.exports.network_kernels(held));
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))); // a copy: shared memory is not text
  }

  // The map, one number per pixel, of RGBA bytes.
  edges({ held, table }, pixels, height, width) {
    const [rows, columns] = [Math.max(height, SMALLEST), Math.max(width, SMALLEST)];
    const map = new Float32Array(height * width);
    this.#with([table, 3 * rows * columns, 4 * rows * columns], (values, bytes, edges) => {
      const memory = new Uint8Array(this.exports.memory.buffer);
      let to = bytes;
      for (let row = 0; row < rows; row++) {
        const line = Math.min(row, height - 1) * width;
        for (let column = 0; column < columns; column++) {
          const from = 4 * (line + Math.min(column, width - 1));
          memory[to++] = pixels[from];
          memory[to++] = pixels[from + 1];
          memory[to++] = pixels[from + 2];
        }
      }
      this.exports.network_run(held, bytes, rows, columns, values, edges, this.threads);
      for (let row = 0; row < height; row++) {
        map.set(new Float32Array(this.exports.memory.buffer, edges + 4 * row * columns, width), row * width);
      }
    });
    return map;
  }

  // The crests of a map, as in native/edges/nms.cpp.
  nms(map, height, width) {
    return this.#with([map, map.byteLength], (from, to) => {
      this.exports.map_nms(from, height, width, to);
      return new Float32Array(this.exports.memory.buffer, to, map.length).slice();
    });
  }

  // Lines one pixel wide of a mask of 0 and 1, as in native/edges/thin.cpp.
  thin(mask, height, width) {
    return this.#with([mask, mask.byteLength], (from, to) => {
      this.exports.map_thin(from, height, width, to);
      return new Uint8Array(this.exports.memory.buffer, to, mask.length).slice();
    });
  }

  // Calls f with the addresses of arrays, or of so many bytes, in the module's memory.
  #with(inputs, f) {
    const places = inputs.map((input) => this.exports.malloc(input.byteLength ?? input));
    try {
      if (places.includes(0)) throw new Error("the browser has no more memory");
      inputs.forEach((input, index) => {
        if (!input.buffer) return;
        const bytes = new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
        new Uint8Array(this.exports.memory.buffer).set(bytes, places[index]);
      });
      return f(...places);
    } finally {
      for (const place of places) this.exports.free(place);
    }
  }
}

// The value of each byte of each channel, in float32 as in src/pixeldiff/image.py: (x - mean) / std.
function levels({ mean, std }) {
  const table = new Float32Array(3 * 256);
  for (let channel = 0; channel < 3; channel++) {
    const scale = Math.fround(1 / (255 * std[channel]));
    const shift = Math.fround(mean[channel] / std[channel]);
    for (let byte = 0; byte < 256; byte++) table[256 * channel + byte] = Math.fround(byte * scale) - shift;
  }
  return table;
}
