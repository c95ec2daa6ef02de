// The float engine for a page: what web/wasm.js calls, in a worker, because it blocks. Built twice: for one thread, and
// with threads for pages that may share memory.
//
// Nothing here can be caught: a std::exception ends the module, and web/wasm.js says so.
#include <emscripten/emscripten.h>

#include <string>

#include "float/pidinet.hpp"

using namespace pixeldiff::pidinet;

extern "C" {

// `kinds` are 16 letters, `weights` in the order of pidinet.hpp.
EMSCRIPTEN_KEEPALIVE Network* network_open(int width, int side_channels, const char* kinds, int cdcm, int csam,
                                           int shortcuts, const float* weights, size_t count) {
  const Config config{width,     side_channels, std::string(kinds, kStages * kLayers),
                      cdcm != 0, csam != 0,     shortcuts != 0};
  return new Network(config, weights, count, choose_kernels());
}

// Bytes (height, width, 3) and the value of each byte and channel (3, 256) in, edges (height, width) out.
EMSCRIPTEN_KEEPALIVE void network_run(const Network* network, const uint8_t* bytes, int height, int width,
                                      const float* table, float* edges, int threads) {
  detect(*network, {height, width, bytes, table, nullptr}, {edges, {}}, threads);
}

EMSCRIPTEN_KEEPALIVE const char* network_kernels(const Network* network) { return name_of(network->kernels()); }

}  // extern "C"
