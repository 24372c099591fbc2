// Plain passes of exact block steps for the Crammer-Singer machine, in single precision: no working set, no second
// order, no certificate. benches/plain_passes.py compiles it for the processor of the machine.
//
// Rows are CSR. Weights are d x m, with m padded to a multiple of 8 and a score of -1e30 for the padding. The dual
// variables of a row are a point of the simplex, at first the vertex of its label. A visit moves them to the optimum of
// the row's block: the projection of score + q alpha onto the simplex of size q, by the method of Michelot (1986). A row
// that does not move waits for one pass, then three, then seven.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 8
// The number of classes is then a constant in each copy of the loops.
#define INLINE static inline __attribute__((always_inline))
#define MAX_CLASSES 1024
#define LONGEST_WAIT 7

#define SEED 88172645463325252ULL
static uint64_t state;

static uint32_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 32;
}

static void shuffle(int *order, int n) {
    for (int i = n - 1; i > 0; i--) {
        int other = (uint64_t)next_random() * (i + 1) >> 32, kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

// The threshold tau for which the sum over max(0, b - tau) is `size`.
INLINE float threshold(const float *b, int m, float size) {
    float tau = -1e30f;
    for (int k = 0; k < m; k++) tau = b[k] - size > tau ? b[k] - size : tau;
    // The number of entries above falls from round to round, except for rounding errors.
    for (int round = 0, count = -1; round <= m; round++) {
        float sum = 0.0f, above = 0.0f;
        for (int k = 0; k < m; k++) {
            float on = b[k] > tau ? 1.0f : 0.0f;
            sum += on * b[k];
            above += on;
        }
        if ((int)above == count) return tau;
        count = (int)above;
        tau = (sum - size) / above;
    }
    return tau;
}

INLINE void run(const int *start, const int *column, const float *value, const int *label, int n, int m, float C,
                int passes, float *weights, float *alpha, int padded) {
    state = SEED;
    int *order = malloc(4 * n), *wait = calloc(n, 4), *left = calloc(n, 4);
    float *square = calloc(n, 4);
    for (int i = 0; i < n; i++) {
        order[i] = i;
        alpha[(size_t)i * padded + label[i]] = 1.0f;
        for (int t = start[i]; t < start[i + 1]; t++) square[i] += C * value[t] * value[t];
    }
    for (int pass = 0; pass < passes; pass++) {
        shuffle(order, n);
        for (int position = 0; position < n; position++) {
            int i = order[position];
            if (position + 1 < n) {
                int soon = order[position + 1];
                __builtin_prefetch(alpha + (size_t)soon * padded);
                __builtin_prefetch(column + start[soon]);
                __builtin_prefetch(value + start[soon]);
                for (int t = start[soon]; t < start[soon + 1] && t < start[soon] + 8; t++)
                    __builtin_prefetch(weights + (size_t)column[t] * padded);
            }
            if (left[i] > 0) {
                left[i]--;
                continue;
            }
            if (square[i] <= 0.0f) continue;
            float b[MAX_CLASSES] = {0}, moved = 0.0f, *own = alpha + (size_t)i * padded;
            for (int t = start[i]; t < start[i + 1]; t++) {
                const float *w = weights + (size_t)column[t] * padded;
                if (t + 8 < start[i + 1]) __builtin_prefetch(weights + (size_t)column[t + 8] * padded);
                for (int k = 0; k < padded; k++) b[k] += value[t] * w[k];
            }
            for (int k = 0; k < padded; k++) b[k] += square[i] * own[k] + (k == label[i] ? 0.0f : 1.0f);
            for (int k = m; k < padded; k++) b[k] = -1e30f;
            float tau = threshold(b, padded, square[i]);
            for (int k = 0; k < padded; k++) {
                float now = b[k] > tau ? (b[k] - tau) / square[i] : 0.0f, step = own[k] - now;
                own[k] = now;
                b[k] = C * step;
                moved += step * step;
            }
            if (moved > 0.0f) {
                wait[i] = 0;
                for (int t = start[i]; t < start[i + 1]; t++) {
                    float *w = weights + (size_t)column[t] * padded;
                    for (int k = 0; k < padded; k++) w[k] += value[t] * b[k];
                }
            } else {
                wait[i] = wait[i] < LONGEST_WAIT ? 2 * wait[i] + 1 : LONGEST_WAIT;
                left[i] = wait[i];
            }
        }
    }
    free(order), free(wait), free(left), free(square);
}

void fit(const int *start, const int *column, const float *value, const int *label, int n, int m, float C, int passes,
         float *weights, float *alpha) {
#define RUN(padded) run(start, column, value, label, n, m, C, passes, weights, alpha, padded)
    switch ((m + LANES - 1) / LANES) {
        case 1: RUN(8); break;
        case 2: RUN(16); break;
        case 3: RUN(24); break;
        case 4: RUN(32); break;
        default: RUN((m + LANES - 1) / LANES * LANES);
    }
}
