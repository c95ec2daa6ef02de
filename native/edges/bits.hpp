// A set of small integers, 64 to a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pixeldiff {

class Bits {
 public:
  explicit Bits(size_t size) : words_((size + 63) / 64, 0) {}

  void set(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void reset(size_t i) { words_[i / 64] &= ~(uint64_t{1} << (i % 64)); }
  bool test(size_t i) const { return (words_[i / 64] >> (i % 64)) & 1; }

  Bits& operator|=(const Bits& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
    return *this;
  }

  int64_t count() const {
    int64_t total = 0;
    for (uint64_t word : words_) {
      for (; word; word &= word - 1) ++total;
    }
    return total;
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace pixeldiff
