/* Operations of kernels that are one or few instructions, on the arrays that `source.py` declares.
   `contrada.matching.kernels.memory` has the same in Python, with their meaning. */

#include <string.h>

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
