// Operations for instruction sets that have no instructions of their own for them; `Own` gives at_least.

template <class Own>
struct Scalar {
  template <bool kOneMinus>
  static void compare(const float* centre, const ptrdiff_t* plus, const ptrdiff_t* minus, uint8_t* quads) {
    for (int i = 0; i < 8; ++i) {
      const unsigned mask = Own::at_least(*reinterpret_cast<const Floats*>(centre + plus[i]),
                                          *reinterpret_cast<const Floats*>(centre + minus[kOneMinus ? 0 : i]));
      quads[i] = static_cast<uint8_t>(mask & 15);
      quads[8 + i] = static_cast<uint8_t>(mask >> 4);
    }
  }
  static uint64_t extract(uint64_t word, uint64_t mask) {
    uint64_t bits = 0;
    for (int place = 0; mask; mask &= mask - 1) bits |= (word >> __builtin_ctzll(mask) & 1) << place++;
    return bits;
  }
};
