// One pool of threads for all kernels; callers wait, so a call returns when its work is done.
#pragma once

#include <functional>

namespace pixeldiff {

// Runs task(0) .. task(tasks - 1) on at most `threads` threads, the caller among them. Only the helpers that the call
// asks for are woken, and one that has not begun when the tasks run out is not waited for. A call from inside a task,
// or while another caller has the pool, runs on the caller's thread alone.
void parallel(int tasks, int threads, const std::function<void(int)>& task);

// Threads that the machine runs at once.
int hardware_threads();

// Threads for a call that asks for `wanted`, or for all with 0: more than the machine has would only wait.
int useful_threads(int wanted);

}  // namespace pixeldiff
