// One small pool of threads for all kernels; callers wait, so a call returns when its work is done.
#pragma once

#include <functional>

namespace pixeldiff {

// Runs task(0) .. task(tasks - 1) on at most `threads` threads, the caller among them. A call from inside a task, or
// while another caller has the pool, runs on the caller's thread alone.
void parallel(int tasks, int threads, const std::function<void(int)>& task);

// Threads the machine has.
int hardware_threads();

}  // namespace pixeldiff
