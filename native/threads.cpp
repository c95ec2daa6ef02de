// See threads.hpp.
#include "threads.hpp"

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if (defined(__unix__) || defined(__APPLE__)) && !defined(__EMSCRIPTEN__)
#include <pthread.h>
#define PIXELDIFF_FORKS
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace pixeldiff {
namespace {

// A network's layers follow each other within microseconds, so a thread that waits spins this long before it sleeps.
constexpr auto kSpin = std::chrono::microseconds(50);

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns whether the condition came true within kSpin.
template <class Condition>
bool spin(const Condition& condition) {
  const auto start = std::chrono::steady_clock::now();
  for (int spins = 1; !condition(); ++spins) {
    relax();
    if (spins % 64 == 0 && std::chrono::steady_clock::now() - start > kSpin) return condition();
  }
  return true;
}

#ifdef __linux__
// Linux often wakes a thread on the core of its waker, although another core is idle. The waker computes there, so the
// thread would wait until the waker has done all the work.
class Sleeper {
 public:
  // Note the calling thread.
  void note() { thread_ = static_cast<pid_t>(syscall(SYS_gettid)); }

  // Run `wake` while the noted thread may not use the caller's core.
  template <class Wake>
  void wake_elsewhere(const Wake& wake) const {
    const int here = sched_getcpu();
    cpu_set_t allowed;
    bool moved = here >= 0 && here < CPU_SETSIZE && sched_getaffinity(thread_, sizeof(allowed), &allowed) == 0 &&
                 CPU_ISSET(here, &allowed) && CPU_COUNT(&allowed) > 1;
    if (moved) {
      cpu_set_t others = allowed;
      CPU_CLR(here, &others);
      moved = sched_setaffinity(thread_, sizeof(others), &others) == 0;
    }
    wake();
    if (moved) sched_setaffinity(thread_, sizeof(allowed), &allowed);
  }

 private:
  pid_t thread_ = 0;
};
#else
class Sleeper {
 public:
  void note() {}
  template <class Wake>
  void wake_elsewhere(const Wake& wake) const {
    wake();
  }
};
#endif

// A thread of the pool as its callers see it. A call sets kCalled; the helper takes it up (kWorking), or the caller
// takes it back.
class Helper {
 public:
  void call() {
    state_.store(State::kCalled);
    if (!asleep_.load()) return;
    Sleeper sleeper;
    {
      std::lock_guard<std::mutex> lock(mutex_);  // not between the helper's look and its sleep
      sleeper = sleeper_;
    }
    sleeper.wake_elsewhere([&] { wake_.notify_one(); });
  }

  // Return whether the helper had not begun, and now never will.
  bool take_back() {
    State called = State::kCalled;
    return state_.compare_exchange_strong(called, State::kIdle);
  }

  bool idle() const { return state_.load() == State::kIdle; }

  void wait_for_call() {
    for (State called = State::kCalled; !state_.compare_exchange_strong(called, State::kWorking);
         called = State::kCalled) {
      if (!spin([&] { return state_.load() == State::kCalled; })) sleep();
    }
  }

  void finish() { state_.store(State::kIdle); }

 private:
  enum class State { kIdle, kCalled, kWorking };

  void sleep() {
    std::unique_lock<std::mutex> lock(mutex_);
    sleeper_.note();
    asleep_.store(true);
    wake_.wait(lock, [&] { return state_.load() == State::kCalled; });
    asleep_.store(false);
  }

  std::atomic<State> state_{State::kIdle};
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  Sleeper sleeper_;
};

class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  bool try_run(int tasks, int helpers, const std::function<void(int)>& task) {
    std::unique_lock<std::mutex> busy(busy_, std::try_to_lock);
    if (!busy.owns_lock()) return false;
    helpers = start(helpers);
    task_ = &task;
    tasks_ = tasks;
    next_.store(0);
    failure_ = nullptr;
    for (int i = 0; i < helpers; ++i) helpers_[i]->call();
    take();
    for (int i = 0; i < helpers; ++i) {
      Helper& helper = *helpers_[i];
      if (!helper.take_back() && !spin([&] { return helper.idle(); })) sleep_until_idle(helper);
    }
    if (failure_) std::rethrow_exception(failure_);
    return true;
  }

 private:
  // Have `wanted` helpers, or as many as the system allows; return how many of those there are.
  int start(int wanted) {
    while (static_cast<int>(helpers_.size()) < wanted) {
      helpers_.push_back(std::make_unique<Helper>());
      try {
        std::thread([this, &helper = *helpers_.back()] { work(helper); }).detach();
      } catch (const std::system_error&) {
        helpers_.pop_back();
        break;
      }
    }
    return std::min(wanted, static_cast<int>(helpers_.size()));
  }

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

  void work(Helper& helper) {
    while (true) {
      helper.wait_for_call();
      take();
      helper.finish();
      if (!caller_asleep_.load()) continue;
      std::lock_guard<std::mutex> lock(mutex_);  // not between the caller's look and its sleep
      finished_.notify_one();
    }
  }

  void sleep_until_idle(const Helper& helper) {
    std::unique_lock<std::mutex> lock(mutex_);
    caller_asleep_.store(true);
    finished_.wait(lock, [&] { return helper.idle(); });
    caller_asleep_.store(false);
  }

  std::mutex busy_, mutex_;
  std::condition_variable finished_;
  std::vector<std::unique_ptr<Helper>> helpers_;
  std::atomic<int> next_{0};
  std::atomic<bool> caller_asleep_{false};
  const std::function<void(int)>* task_ = nullptr;
  int tasks_ = 0;
  std::exception_ptr failure_;
};

Pool* pool = new Pool;  // never destroyed: its threads may outlive static objects

// A forked child has none of the parent's threads, and mutexes as some thread of the parent left them: it starts anew.
#ifdef PIXELDIFF_FORKS
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
#endif

thread_local bool inside = false;

}  // namespace

int hardware_threads() { return std::max(1u, std::thread::hardware_concurrency()); }

int useful_threads(int wanted) {
  const int all = hardware_threads();
  return wanted > 0 ? std::min(wanted, all) : all;
}

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
  if (helpers < 1 || restore.nested || !pool->try_run(tasks, helpers, marked)) {
    for (int i = 0; i < tasks; ++i) task(i);
  }
}

}  // namespace pixeldiff
