/* Operations of kernels that are one or few instructions, on the arrays that `source.py` declares.
   `contrada.matching.kernels.memory` has the same in Python, with their meaning. */

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* A byte is marked by its highest bit. */
#define ONES 0x0101010101010101u
#define HIGHS 0x8080808080808080u
#define LOWS 0x7F7F7F7F7F7F7F7Fu

static inline uint64_t word_at(Bytes data, int64_t at) {
    uint64_t word;
    memcpy(&word, data.at + at, 8);
    return word;
}

/* The first of eight bytes with a bit set; 8 without one. */
static inline int64_t first_marked(uint64_t marks) {
    return marks ? __builtin_ctzll(marks) >> 3 : 8;
}

static inline uint64_t without_first(uint64_t marks) { return marks & (marks - 1); }

static inline int64_t plain_bytes(Bytes data, int64_t at) {
    uint64_t word = word_at(data, at);
    uint64_t quote = word ^ (0x22 * ONES), slash = word ^ (0x5C * ONES);
    /* Behind the first byte that is marked others may be, too. */
    uint64_t marks = ((quote - ONES) & ~quote) | ((slash - ONES) & ~slash);
    return first_marked((marks | ((word - 0x20 * ONES) & ~word)) & HIGHS);
}

static inline uint64_t sign_marks(Bytes data, int64_t at, int64_t sign, int64_t other) {
    uint64_t word = word_at(data, at);
    uint64_t one = word ^ ((uint64_t)sign * ONES), two = word ^ ((uint64_t)other * ONES);
    uint64_t end = word ^ (0x0A * ONES);
    uint64_t others = (one | ((one & LOWS) + LOWS)) & (two | ((two & LOWS) + LOWS));
    return ~(others & (end | ((end & LOWS) + LOWS))) & HIGHS;
}

static inline int64_t digits_at(Bytes data, int64_t at) {
    uint64_t word = word_at(data, at) ^ (0x30 * ONES);
    return first_marked(((word + 0x76 * ONES) | word) & HIGHS);
}

static inline int64_t are_same(Bytes data, int64_t at, Bytes other, int64_t begin, int64_t size) {
    int64_t step = 0;
    for (; step + 8 <= size; step += 8)
        if (word_at(data, at + step) != word_at(other, begin + step)) return 0;
    return first_marked(word_at(data, at + step) ^ word_at(other, begin + step)) >= size - step;
}

static inline void put_bytes(Bytes data, int64_t at, Bytes out, int64_t begin, int64_t size) {
    for (int64_t step = 0; step < size; step += 8) memcpy(out.at + begin + step, data.at + at + step, 8);
}

/* Sixteen numbers at a time where all processors of the architecture can; up to fifteen are read
   behind the last one. */
static inline int64_t lanes_within(RowNumbers lanes, int64_t count, int64_t at, int64_t low, int64_t high, int64_t other, int64_t other_low, int64_t other_high) {
    const int32_t *one = lanes.at + at, *two = lanes.at + other;
    uint64_t found = 0;
#ifdef __SSE2__
    __m128i lows = _mm_set1_epi32((int32_t)low), highs = _mm_set1_epi32((int32_t)high);
    __m128i other_lows = _mm_set1_epi32((int32_t)other_low), other_highs = _mm_set1_epi32((int32_t)other_high);
    for (int64_t step = 0; step < count; step += 16) {
        __m128i beyond[4];
        for (int part = 0; part < 4; part++) {
            __m128i some = _mm_loadu_si128((const __m128i *)(one + step + 4 * part));
            __m128i others = _mm_loadu_si128((const __m128i *)(two + step + 4 * part));
            __m128i below = _mm_or_si128(_mm_cmpgt_epi32(lows, some), _mm_cmpgt_epi32(other_lows, others));
            __m128i above = _mm_or_si128(_mm_cmpgt_epi32(some, highs), _mm_cmpgt_epi32(others, other_highs));
            beyond[part] = _mm_or_si128(below, above);
        }
        __m128i first = _mm_packs_epi32(beyond[0], beyond[1]), last = _mm_packs_epi32(beyond[2], beyond[3]);
        found |= (uint64_t)(~_mm_movemask_epi8(_mm_packs_epi16(first, last)) & 0xFFFF) << step;
    }
    found &= (1ull << count) - 1;
#else
    for (int64_t n = 0; n < count; n++)
        found |= (uint64_t)((one[n] >= low) & (one[n] <= high) & (two[n] >= other_low) & (two[n] <= other_high)) << n;
#endif
    return (int64_t)found;
}

static inline int64_t first_lane(int64_t bits) { return __builtin_ctzll((uint64_t)bits); }

static inline int64_t double_bits(double number) {
    int64_t bits;
    memcpy(&bits, &number, 8);
    return bits;
}

static inline Bytes bytes_at(int64_t address, int64_t length) {
    Bytes found = {(uint8_t *)(intptr_t)address, length};
    return found;
}

#define NUMBER_AT(code, type, wide) \
    static inline wide number_at_##code(int64_t address, int64_t row) { \
        return ((type *)(intptr_t)address)[row]; \
    }
NUMBER_AT(b, int8_t, int64_t)
NUMBER_AT(h, int16_t, int64_t)
NUMBER_AT(i, int32_t, int64_t)
NUMBER_AT(q, int64_t, int64_t)
NUMBER_AT(B, uint8_t, int64_t)
NUMBER_AT(H, uint16_t, int64_t)
NUMBER_AT(I, uint32_t, int64_t)
NUMBER_AT(f, float, double)
NUMBER_AT(d, double, double)

static inline uint64_t random_word(uint64_t key, int64_t at) {
    uint64_t word = key + 0x9E3779B97F4A7C15u * (uint64_t)at;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

static inline int64_t below(uint64_t word, int64_t bound) {
    return (int64_t)(((word >> 32) * (uint64_t)bound) >> 32);
}

#define prefetch(place) __builtin_prefetch(place)
