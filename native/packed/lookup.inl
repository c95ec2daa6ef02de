// Counting mismatches by table lookup, for any instruction set with a 16-entry byte shuffle. `Vector` gives the
// instructions: load, table (16 bytes repeated), lookup, add, high (each byte >> 4), split<add>.
//
// Three lookups of two pixels at once fit a byte (3 * 4 = 12 mismatches in each half). Their sum goes to `total` as it
// is and its high half to `high`; at the end the low half is total - 16 * high modulo 256, exact up to kMostNibbles.

// Up to three entries of one pair against kBlocks blocks of outputs.
template <class Vector, int kCount, int kBlocks, int kVectors>
inline void look_up(const uint8_t* tables, const uint16_t* entries, const uint8_t* const (&weights)[kBlocks],
                    size_t offset, typename Vector::type (&total)[kBlocks][kVectors],
                    typename Vector::type (&high)[kBlocks][kVectors]) {
  typename Vector::type part[kBlocks][kVectors];
  for (int j = 0; j < kCount; ++j) {
    const auto table = Vector::table(tables + entries[j]);
    for (int b = 0; b < kBlocks; ++b) {
      for (int v = 0; v < kVectors; ++v) {
        const auto found = Vector::lookup(table, Vector::load(weights[b] + offset + j * kBlock + v * Vector::bytes));
        part[b][v] = j == 0 ? found : Vector::add(part[b][v], found);
      }
    }
  }
  for (int b = 0; b < kBlocks; ++b) {
    for (int v = 0; v < kVectors; ++v) {
      total[b][v] = Vector::add(total[b][v], part[b][v]);
      high[b][v] = Vector::add(high[b][v], Vector::high(part[b][v]));
    }
  }
}

// Two blocks at once use each table four times (AVX2) while all sums stay in registers.
template <class Vector>
struct Lookup {
  template <int kBlocks>
  static void accumulate(const uint8_t* tables, const uint16_t* entries, const Run* runs, const Run* end,
                         const uint8_t* const (&weights)[kBlocks], bool fresh, uint16_t* const (&sums)[kBlocks]) {
    constexpr int kVectors = kBlock / Vector::bytes;
    typename Vector::type total[kBlocks][kVectors], high[kBlocks][kVectors];
    for (int b = 0; b < kBlocks; ++b) {
      for (int v = 0; v < kVectors; ++v) total[b][v] = high[b][v] = Vector::zero();
    }
    for (size_t line = 0; runs < end; line += runs++->nibbles) {
      const uint16_t* run = entries + runs->offset;
      // What is left over by threes comes first: after the loop it would cost registers in it.
      size_t k = runs->nibbles % 3;
      if (k == 2) look_up<Vector, 2>(tables, run, weights, line * kBlock, total, high);
      if (k == 1) look_up<Vector, 1>(tables, run, weights, line * kBlock, total, high);
      for (; k < runs->nibbles; k += 3) {
        look_up<Vector, 3>(tables, run + k, weights, (line + k) * kBlock, total, high);
      }
    }
    for (int b = 0; b < kBlocks; ++b) {
      for (int v = 0; v < kVectors; ++v) {
        const auto low = Vector::minus_sixteen_times(total[b][v], high[b][v]);
        fresh ? Vector::template split<false>(low, sums[b] + v * Vector::bytes)
              : Vector::template split<true>(low, sums[b] + v * Vector::bytes);
        fresh ? Vector::template split<false>(high[b][v], sums[b] + kBlock + v * Vector::bytes)
              : Vector::template split<true>(high[b][v], sums[b] + kBlock + v * Vector::bytes);
      }
    }
  }
};
