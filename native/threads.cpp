// See threads.hpp.
#include "threads.hpp"

#ifdef _WIN32
#include <process.h>
#define getpid _getpid
#else
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pixeldiff {
namespace {

// A network's layers follow each other within microseconds, so whoever waits spins this long before it sleeps.
constexpr auto kSpin = std::chrono::microseconds(50);

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  bool try_run(int tasks, int helpers, const std::function<void(int)>& task) {
    std::unique_lock<std::mutex> busy(busy_, std::try_to_lock);
    if (!busy.owns_lock()) return false;
    while (static_cast<int>(workers_.size()) < helpers) {
      const int index = static_cast<int>(workers_.size());
      workers_.emplace_back([this, index, seen = round_.load()] { work(index, seen); });
    }
    task_ = &task;
    tasks_ = tasks;
    helpers_ = helpers;
    next_.store(0);
    failure_ = nullptr;
    pending_.store(static_cast<int>(workers_.size()));
    {
      std::lock_guard<std::mutex> lock(mutex_);
      round_.fetch_add(1);
    }
    if (sleeping_.load() > 0) wake_.notify_all();
    take();
    if (!spin([&] { return pending_.load(std::memory_order_acquire) == 0; })) {
      std::unique_lock<std::mutex> lock(mutex_);
      finished_.wait(lock, [&] { return pending_.load(std::memory_order_acquire) == 0; });
    }
    if (failure_) std::rethrow_exception(failure_);
    return true;
  }

 private:
  void take() {
    for (int i = next_.fetch_add(1); i < tasks_; i = next_.fetch_add(1)) {
      try {
        (*task_)(i);
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex_);
        failure_ = std::current_exception();
      }
    }
  }

  void work(int index, unsigned seen) {
    while (true) {
      wait_for_round(seen);
      seen = round_.load();
      if (index < helpers_) take();
      if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::lock_guard<std::mutex> lock(mutex_);  // not between the caller's look and its sleep
        finished_.notify_one();
      }
    }
  }

  void wait_for_round(unsigned seen) {
    if (spin([&] { return round_.load(std::memory_order_acquire) != seen; })) return;
    std::unique_lock<std::mutex> lock(mutex_);
    sleeping_.fetch_add(1);
    wake_.wait(lock, [&] { return round_.load() != seen; });
    sleeping_.fetch_sub(1);
  }

  // Whether it came true within kSpin.
  template <class Condition>
  static bool spin(const Condition& condition) {
    const auto start = std::chrono::steady_clock::now();
    for (int spins = 1; !condition(); ++spins) {
      relax();
      if (spins % 64 == 0 && std::chrono::steady_clock::now() - start > kSpin) return condition();
    }
    return true;
  }

  std::mutex busy_, mutex_;
  std::condition_variable wake_, finished_;
  std::vector<std::thread> workers_;
  std::atomic<unsigned> round_{0};
  std::atomic<int> next_{0}, pending_{0}, sleeping_{0};
  const std::function<void(int)>* task_ = nullptr;
  int tasks_ = 0, helpers_ = 0;
  std::exception_ptr failure_;
};

// A forked child has none of the parent's threads: it gets a pool of its own, the parent's is left alone.
Pool& pool() {
  static std::mutex guard;
  static int owner = 0;
  static Pool* current = nullptr;
  std::lock_guard<std::mutex> lock(guard);
  if (owner != getpid()) {
    owner = getpid();
    current = new Pool;  // never destroyed: its threads may outlive static objects
  }
  return *current;
}

thread_local bool inside = false;

}  // namespace

int hardware_threads() { return std::max(1u, std::thread::hardware_concurrency()); }

void parallel(int tasks, int threads, const std::function<void(int)>& task) {
  const int helpers = std::min(tasks, threads) - 1;
  const std::function<void(int)> marked = [&](int i) {
    inside = true;
    task(i);
  };
  struct Restore {
    bool nested = inside;
    ~Restore() { inside = nested; }
  } restore;
  if (helpers < 1 || restore.nested || !pool().try_run(tasks, helpers, marked)) {
    for (int i = 0; i < tasks; ++i) task(i);
  }
}

}  // namespace pixeldiff
