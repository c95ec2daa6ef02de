// The float engine for a page: what web/wasm.js calls. One thread; a browser gives it a worker of its own.
//
// Nothing here can be caught: a std::exception ends the module, and web/wasm.js says so.
#include <emscripten/emscripten.h>

#include <string>

#include "float/pidinet.hpp"
#include "threads.hpp"

namespace pixeldiff {

void parallel(int tasks, int /*threads*/, const std::function<void(int)>& task) {
  for (int i = 0; i < tasks; ++i) task(i);
}

int hardware_threads() { return 1; }

}  // namespace pixeldiff

using namespace pixeldiff::pidinet;

extern "C" {

// `kinds` are 16 letters, `weights` in the order of pidinet.hpp.
EMSCRIPTEN_KEEPALIVE Network* network_open(int width, int side_channels, const char* kinds, int cdcm, int csam,
                                           int shortcuts, const float* weights, size_t count) {
  const Config config{width, side_channels, std::string(kinds, kStages * kLayers), cdcm != 0, csam != 0, shortcuts != 0};
  return new Network(config, weights, count, choose_kernels());
}

// Bytes (height, width, 3) and the value of each byte and channel (3, 256) in, edges (height, width) out.
EMSCRIPTEN_KEEPALIVE void network_run(const Network* network, const uint8_t* bytes, int height, int width,
                                      const float* table, float* edges) {
  detect(*network, {height, width, bytes, table, nullptr}, {edges, {}}, 1);
}

EMSCRIPTEN_KEEPALIVE const char* network_kernels(const Network* network) { return name_of(network->kernels()); }

}  // extern "C"
