// What the tests of the C library share: checks, and systems with known solutions.
#ifndef CHECK_H
#define CHECK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sparsebatch.h"

// Ends the program with the place and the library's message unless `condition` holds.
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            char message_[512] = "";                                                               \
            sb_last_error(NULL, message_, sizeof message_);                                        \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,            \
                    #condition, message_);                                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK((call) == SB_OK)

// The call is refused with this code, and its message contains this text.
#define REFUSED(call, code, text)                                                                  \
    do {                                                                                           \
        CHECK((call) == (code));                                                                   \
        char message_[512] = "";                                                                   \
        sb_last_error(NULL, message_, sizeof message_);                                            \
        if (strstr(message_, (text)) == NULL) {                                                    \
            fprintf(stderr, "%s:%d: expected \"%s\" in \"%s\"\n", __FILE__, __LINE__, (text),      \
                    message_);                                                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// Tridiagonal patterns and diagonally dominant, nonsymmetric values.
enum { N = 5, NNZ = 3 * N - 2, ITEMS = 7 };

typedef struct {
    int32_t row_ptr[N + 1], col_idx[NNZ];
    double values[ITEMS * NNZ], b[ITEMS * N];
} systems;

static inline systems tridiagonal(int base) {
    systems s;
    int entry = 0;
    for (int row = 0; row < N; ++row) {
        s.row_ptr[row] = entry + base;
        for (int col = row - 1; col <= row + 1; ++col) {
            if (col < 0 || col >= N) continue;
            s.col_idx[entry] = col + base;
            for (int item = 0; item < ITEMS; ++item) {
                double off = 0.1 * (item + 1) * (col - row) - 1.0;
                s.values[item * NNZ + entry] = col == row ? 4.0 + item + row : off;
            }
            ++entry;
        }
    }
    s.row_ptr[N] = entry + base;
    for (int place = 0; place < ITEMS * N; ++place) s.b[place] = 1.0 + 0.5 * (place % 11);
    return s;
}

// The largest |b - A x|, or |b - A^T x|, of the rows of an item.
static inline double residual(const int32_t *row_ptr, const int32_t *col_idx, int n, int base,
                              const double *values, const double *b, const double *x,
                              int transposed) {
    double *r = malloc((size_t)n * sizeof *r), largest = 0.0;
    memcpy(r, b, (size_t)n * sizeof *r);
    for (int row = 0; row < n; ++row) {
        for (int k = row_ptr[row] - base; k < row_ptr[row + 1] - base; ++k) {
            int col = col_idx[k] - base;
            if (transposed) r[col] -= values[k] * x[row];
            else r[row] -= values[k] * x[col];
        }
    }
    for (int row = 0; row < n; ++row) largest = fmax(largest, fabs(r[row]));
    free(r);
    return largest;
}

static inline sb_context *cpu_context(uint32_t threads) {
    sb_context_options options;
    sb_context *context = NULL;
    OK(sb_context_options_init(&options, sizeof options));
    options.threads = threads;
    OK(sb_context_create(&options, &context));
    return context;
}

static inline sb_solver_options solver_options(const char *method) {
    sb_solver_options options;
    OK(sb_solver_options_init(&options, sizeof options));
    options.method = method;
    return options;
}

static inline sb_batch *uniform(sb_context *context, const systems *s, int32_t layout, int base) {
    sb_batch *batch = NULL;
    OK(sb_batch_uniform(context, SB_F64, ITEMS, N, N, NNZ, s->row_ptr, s->col_idx, layout, base,
                        &batch));
    return batch;
}

#endif
