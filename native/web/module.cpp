// The float engine, non-maximum suppression and thinning for a page: what web/wasm.js calls, in a worker, because it
// blocks. Built twice: for one thread, and with threads for pages that may share memory.
//
// Nothing here can be caught: a std::exception ends the module, and web/wasm.js says so.
#include <emscripten/emscripten.h>

#include <algorithm>
#include <vector>

#include "edges/nms.hpp"
#include "edges/thin.hpp"
#include "float/pidinet.hpp"

using namespace pixeldiff::pidinet;

extern "C" {

// `kernel_sizes` are 3 or 5 for each of 16 layers, `weights` in the order of pidinet.hpp. Null unless there are as many
// weights as the network has.
EMSCRIPTEN_KEEPALIVE Network* network_open(int width, int side_channels, const uint8_t* kernel_sizes, int cdcm,
                                           int csam, int shortcuts, const float* weights, size_t count) {
  const std::vector<int> sizes(kernel_sizes, kernel_sizes + kStages * kLayers);
  const Config config{width, side_channels, kinds_of(sizes), cdcm != 0, csam != 0, shortcuts != 0};
  if (count != weight_count(config)) return nullptr;
  return new Network(config, weights, count, choose_kernels());
}

// Bytes (height, width, 3) and the value of each byte and channel (3, 256) in, edges (height, width) out.
EMSCRIPTEN_KEEPALIVE void network_run(const Network* network, const uint8_t* bytes, int height, int width,
                                      const float* table, float* edges, int threads) {
  detect(*network, {height, width, bytes, table, nullptr}, {edges, {}}, threads);
}

EMSCRIPTEN_KEEPALIVE const char* network_kernels(const Network* network) { return name_of(network->kernels()); }

// The crests of a map (height, width), with the benchmark's radius; 0 elsewhere.
EMSCRIPTEN_KEEPALIVE void map_nms(const float* map, int height, int width, float* crests) {
  const std::vector<float> result = pixeldiff::nms(map, height, width, 1);
  std::copy(result.begin(), result.end(), crests);
}

// Lines one pixel wide, 1, of the non-zero pixels of a mask (height, width).
EMSCRIPTEN_KEEPALIVE void map_thin(const uint8_t* mask, int height, int width, uint8_t* lines) {
  std::fill_n(lines, static_cast<size_t>(height) * width, uint8_t{0});
  for (int32_t pixel : pixeldiff::thin(mask, height, width)) lines[pixel] = 1;
}

}  // extern "C"
