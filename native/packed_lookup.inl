// Counting mismatches by table lookup, for any instruction set with a 16-entry byte shuffle. `Vector` gives the
// instructions: load, table (16 bytes repeated), lookup, add, high (each byte >> 4), split.
//
// Three lookups of two pixels at once fit a byte (3 * 4 = 12 mismatches in each half). Their sum goes to `total` as it
// is and its high half to `high`; at the end the low half is total - 16 * high modulo 256, exact up to kMostNibbles.

template <class Vector, int kPairs>
inline void accumulate_by_lookup(const uint8_t* tables, const uint16_t* const (&entries)[kPairs],
                                 const uint8_t* weights, int nibbles, uint16_t* const (&sums)[kPairs]) {
  using V = typename Vector::type;
  constexpr int kVectors = kBlock / Vector::bytes;
  V total[kPairs][kVectors], high[kPairs][kVectors];
  for (int p = 0; p < kPairs; ++p) {
    for (int v = 0; v < kVectors; ++v) total[p][v] = high[p][v] = Vector::zero();
  }
  int k = 0;
  for (; k + 3 <= nibbles; k += 3, weights += 3 * kBlock) {
    // One pair after the other: its sums then fit the registers, and weights are read from the first-level cache.
    for (int p = 0; p < kPairs; ++p) {
      V part[kVectors];
      for (int j = 0; j < 3; ++j) {
        const V table = Vector::table(tables + entries[p][k + j]);
        for (int v = 0; v < kVectors; ++v) {
          const V found = Vector::lookup(table, Vector::load(weights + j * kBlock + v * Vector::bytes));
          part[v] = j == 0 ? found : Vector::add(part[v], found);
        }
      }
      for (int v = 0; v < kVectors; ++v) {
        total[p][v] = Vector::add(total[p][v], part[v]);
        high[p][v] = Vector::add(high[p][v], Vector::high(part[v]));
      }
    }
  }
  for (; k < nibbles; ++k, weights += kBlock) {
    for (int p = 0; p < kPairs; ++p) {
      const V table = Vector::table(tables + entries[p][k]);
      for (int v = 0; v < kVectors; ++v) {
        const V found = Vector::lookup(table, Vector::load(weights + v * Vector::bytes));
        total[p][v] = Vector::add(total[p][v], found);
        high[p][v] = Vector::add(high[p][v], Vector::high(found));
      }
    }
  }
  for (int p = 0; p < kPairs; ++p) {
    for (int v = 0; v < kVectors; ++v) {
      const V low = Vector::minus_sixteen_times(total[p][v], high[p][v]);
      Vector::add_split(low, sums[p] + v * Vector::bytes);
      Vector::add_split(high[p][v], sums[p] + kBlock + v * Vector::bytes);
    }
  }
}
