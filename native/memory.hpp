// Memory for maps: aligned, and in large pages where the system has them. Rows of many channels lie on more small ones
// than a CPU remembers.
#pragma once

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstddef>
#include <memory>
#include <new>

namespace pixeldiff {

#ifdef MADV_HUGEPAGE
constexpr std::align_val_t kPageAlignment{size_t{2} << 20};
#else
constexpr std::align_val_t kPageAlignment{64};
#endif

// Floats that grow on demand and keep nothing of what they held.
class Memory {
 public:
  // Allocate this many floats; throws std::bad_alloc and holds none if memory is short.
  float* room(size_t floats) {
    if (floats > size_) {
      data_.reset();  // before there is twice as much
      size_ = 0;
      const size_t bytes = floats * sizeof(float);
      data_.reset(static_cast<float*>(::operator new(bytes, kPageAlignment)));
#ifdef MADV_HUGEPAGE
      if (bytes >= static_cast<size_t>(kPageAlignment)) madvise(data_.get(), bytes, MADV_HUGEPAGE);
#endif
      size_ = floats;
    }
    return data_.get();
  }
  float* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete(p, kPageAlignment); }
  };

  std::unique_ptr<float, Free> data_;
  size_t size_ = 0;
};

}  // namespace pixeldiff
