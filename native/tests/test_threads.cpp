// See test_threads.hpp.
#include "test_threads.hpp"

#if (defined(__unix__) || defined(__APPLE__)) && !defined(PIXELDIFF_EMULATED)
#include <sys/wait.h>
#include <unistd.h>
#define PIXELDIFF_FORKS
#endif

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "threads.hpp"

using namespace pixeldiff;

namespace {

std::mt19937 random_engine(3);

int below(int n) { return static_cast<int>(random_engine() % static_cast<unsigned>(n)); }

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "failed in threads: %s\n", what);
  std::exit(1);
}

void test_every_task_runs_once() {
  for (int round = 0; round < 200; ++round) {
    const int tasks = below(20);
    std::vector<std::atomic<int>> done(tasks);  // nested tasks share one, and may run beside each other
    parallel(tasks, 1 + below(4), [&](int i) { parallel(2, 2, [&](int) { done[i] += 1; }); });
    for (const auto& count : done) check(count == 2, "every task runs once, nested ones too");
  }
}

void test_no_more_threads_than_asked_for() {
  for (const int threads : {5, 2, 1, 3}) {
    std::mutex mutex;
    std::set<std::thread::id> seen;
    parallel(100, threads, [&](int) {
      std::lock_guard<std::mutex> lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    check(static_cast<int>(seen.size()) <= threads, "a call runs on at most so many threads");
  }
}

// Both tasks wait for each other, so the helper must come, also after it slept.
void test_a_sleeping_helper_comes() {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> here{0};
    parallel(2, 2, [&](int) {
      here += 1;
      while (here < 2) std::this_thread::yield();
    });
    if (round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void test_failures_reach_the_caller() {
  for (const int threads : {1, 2, 4}) {
    std::string message;
    try {
      parallel(8, threads, [&](int i) {
        if (i == 5) throw std::runtime_error("the sixth");
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    check(message == "the sixth", "what a task throws, the call throws");
  }
}

void test_callers_do_not_meet() {
  std::vector<std::thread> callers;
  std::atomic<int> done{0};
  for (int k = 0; k < 4; ++k) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) parallel(5, 3, [&](int) { done += 1; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  check(done == 4 * 100 * 5, "several callers at once all get their work done");
}

#ifdef PIXELDIFF_FORKS
void test_forked_children_have_a_pool() {
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
#ifdef __SANITIZE_ADDRESS__
  parallel(4, 3, [](int) {});  // a child would inherit the sanitizer's allocator as busy threads left it: locked
#else
  for (int k = 0; k < 2; ++k) {
    busy.emplace_back([&] {
      while (!stop) parallel(4, 3, [](int) {});
    });
  }
#endif
  int failed = 0;
  for (int round = 0; round < 100; ++round) {
    const pid_t child = fork();
    check(child >= 0, "a process can be forked");
    if (!child) {
      alarm(20);  // a child that is stuck ends here
      std::atomic<int> here{0};
      parallel(2, 2, [&](int) {
        here += 1;
        while (here < 2) std::this_thread::yield();
      });
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  stop = true;
  for (std::thread& caller : busy) caller.join();
  check(failed == 0, "a forked process has helpers of its own");
}
#endif

}  // namespace

void test_threads() {
  test_every_task_runs_once();
  test_no_more_threads_than_asked_for();
  test_a_sleeping_helper_comes();
  test_failures_reach_the_caller();
  test_callers_do_not_meet();
#ifdef PIXELDIFF_FORKS
  test_forked_children_have_a_pool();
#endif
  check(useful_threads(0) == hardware_threads() && useful_threads(1) == 1 &&
            useful_threads(1 << 20) == hardware_threads(),
        "a call gets no more threads than the machine runs at once");
  std::puts("threads: all tasks done");
}
