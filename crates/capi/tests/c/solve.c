// Solves of data in host memory: every layout, type and option, against residuals computed here.
#include "check.h"

static sb_context *context;

// Solves a batch of `tridiagonal` and checks every residual.
static void solve_and_check(sb_solver *solver, const systems *s, int base, int32_t by,
                            const double *values, double *x) {
    int64_t failed = -1;
    int transposed = by == SB_TRANSPOSED || by == SB_KEPT_TRANSPOSED;
    OK(sb_solver_solve(solver, by, SB_GUESS_ZERO, s->b, ITEMS * N, x, ITEMS * N, &failed));
    CHECK(failed == 0);
    for (int item = 0; item < ITEMS; ++item) {
        CHECK(residual(s->row_ptr, s->col_idx, N, base, values + item * NNZ, s->b + item * N,
                       x + item * N, transposed) < 1e-8);
    }
}

static void uniform_batches(void) {
    const char *methods[] = {NULL, "cg", "bicgstab", "lu", "pivoting-lu"};
    for (int base = 0; base <= 1; ++base) {
        systems s = tridiagonal(base);
        sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, base);
        int64_t nitems, nrows, nnz;
        OK(sb_batch_sizes(batch, &nitems, &nrows, &nnz));
        CHECK(nitems == ITEMS && nrows == ITEMS * N && nnz == ITEMS * NNZ);
        for (int method = 0; method < 5; ++method) {
            sb_solver_options options = solver_options(methods[method]);
            sb_solver *solver;
            double x[ITEMS * N];
            OK(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver));
            solve_and_check(solver, &s, base, SB_VALUES, s.values, x);
            OK(sb_solver_destroy(solver));
        }
        OK(sb_batch_destroy(batch));
    }
}

// Every name that the header gives for an option.
static void names_of_options(void) {
    systems s = tridiagonal(0);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    const struct {
        const char *method, *precond, *order, *precond_precision, *inner_precision, *lu_form,
            *format, *kernel;
    } named[] = {
        {.method = "auto", .precond = "auto"},
        {.method = "cg", .precond = "none"},
        {.method = "cg", .precond = "jacobi", .inner_precision = "auto"},
        {.method = "cg", .precond = "ic0", .order = "min-degree"},
        {.method = "bicgstab", .precond = "block-jacobi", .inner_precision = "working"},
        {.method = "bicgstab", .precond = "ilu0", .order = "natural"},
        {.method = "bicgstab", .precond = "ilu0", .precond_precision = "working"},
        {.method = "bicgstab", .precond = "ilu0", .precond_precision = "f32"},
        {.method = "bicgstab", .precond = "jacobi", .format = "csr", .kernel = "rows"},
        {.method = "bicgstab", .precond = "jacobi", .format = "ell", .kernel = "auto"},
        {.method = "lu", .lu_form = "by-pattern"},
        {.method = "lu", .lu_form = "by-system"},
        {.method = "pivoting-lu"},
    };
    for (size_t kind = 0; kind < sizeof named / sizeof *named; ++kind) {
        sb_solver_options options = solver_options(named[kind].method);
        sb_solver *solver;
        double x[ITEMS * N];
        options.precond = named[kind].precond;
        options.order = named[kind].order;
        options.precond_precision = named[kind].precond_precision;
        options.inner_precision = named[kind].inner_precision;
        options.lu_form = named[kind].lu_form;
        options.format = named[kind].format;
        options.kernel = named[kind].kernel;
        OK(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver));
        solve_and_check(solver, &s, 0, SB_VALUES, s.values, x);
        OK(sb_solver_destroy(solver));
    }
    const char *products[][2] = {{"auto", "auto"}, {"csr", "rows"}, {"csr", "csr-i"},
                                 {"coo", "entries"}, {"ell", "rows"}, {"dia", "rows"},
                                 {"hyb", "rows"}, {"sellp", "rows"}};
    for (size_t kind = 0; kind < sizeof products / sizeof *products; ++kind) {
        sb_spmv_options options;
        sb_spmv *spmv;
        OK(sb_spmv_options_init(&options, sizeof options));
        options.format = products[kind][0];
        options.kernel = products[kind][1];
        OK(sb_spmv_create(batch, s.values, ITEMS * NNZ, &options, &spmv));
        OK(sb_spmv_destroy(spmv));
    }
    const char *backends[] = {"cpu", "auto"};
    for (int kind = 0; kind < 2; ++kind) {
        sb_context_options options;
        sb_context *other;
        OK(sb_context_options_init(&options, sizeof options));
        options.backend = backends[kind];
        OK(sb_context_create(&options, &other));
        OK(sb_context_destroy(other));
    }
    OK(sb_batch_destroy(batch));
}

static void layouts_and_bases_give_the_same_bits(void) {
    systems s = tridiagonal(0), one = tridiagonal(1);
    sb_batch *batches[] = {uniform(context, &s, SB_ITEM_MAJOR, 0),
                           uniform(context, &s, SB_INTERLEAVED, 0),
                           uniform(context, &one, SB_ITEM_MAJOR, 1)};
    double interleaved[ITEMS * NNZ], x[3][ITEMS * N];
    for (int item = 0; item < ITEMS; ++item) {
        for (int k = 0; k < NNZ; ++k) interleaved[k * ITEMS + item] = s.values[item * NNZ + k];
    }
    const double *values[] = {s.values, interleaved, s.values};
    for (int kind = 0; kind < 3; ++kind) {
        sb_solver *solver;
        OK(sb_solver_create(batches[kind], values[kind], ITEMS * NNZ, NULL, &solver));
        OK(sb_batch_destroy(batches[kind]));
        solve_and_check(solver, &s, 0, SB_VALUES, s.values, x[kind]);
        OK(sb_solver_destroy(solver));
        CHECK(memcmp(x[0], x[kind], sizeof x[0]) == 0);
    }
}

static void shared_values(void) {
    systems s = tridiagonal(0);
    sb_batch *batch = uniform(context, &s, SB_SHARED, 0);
    sb_solver *solver;
    double x[ITEMS * N], dt = 0.5;
    int64_t failed;
    OK(sb_solver_create(batch, s.values, NNZ, NULL, &solver));
    for (int shifted = 0; shifted <= 1; ++shifted) {
        double values[NNZ];
        memcpy(values, s.values, sizeof values);
        if (shifted) {
            for (int row = 0, k = 0; row < N; ++row) {
                for (; k < s.row_ptr[row + 1]; ++k) {
                    values[k] = -values[k] + (s.col_idx[k] == row ? 1.0 / dt : 0.0);
                }
            }
            OK(sb_solver_shift(solver, s.values, NNZ, &dt, 1));
        }
        OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N,
                           &failed));
        CHECK(failed == 0);
        for (int item = 0; item < ITEMS; ++item) {
            CHECK(residual(s.row_ptr, s.col_idx, N, 0, values, s.b + item * N, x + item * N, 0) <
                  1e-8);
        }
    }
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
}

static void single_precision(void) {
    systems s = tridiagonal(0);
    float values[ITEMS * NNZ], b[ITEMS * N], x[ITEMS * N];
    for (int k = 0; k < ITEMS * NNZ; ++k) values[k] = (float)s.values[k];
    for (int k = 0; k < ITEMS * N; ++k) b[k] = (float)s.b[k];
    sb_batch *batch;
    sb_solver *solver;
    int64_t failed;
    OK(sb_batch_uniform(context, SB_F32, ITEMS, N, N, NNZ, s.row_ptr, s.col_idx, SB_ITEM_MAJOR, 0,
                        &batch));
    OK(sb_solver_create(batch, values, ITEMS * NNZ, NULL, &solver));
    OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, b, ITEMS * N, x, ITEMS * N, &failed));
    CHECK(failed == 0);
    for (int item = 0; item < ITEMS; ++item) {
        double wide[N];
        for (int row = 0; row < N; ++row) wide[row] = x[item * N + row];
        CHECK(residual(s.row_ptr, s.col_idx, N, 0, s.values + item * NNZ, s.b + item * N, wide,
                       0) < 1e-4);
    }
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
}

static void several_right_hand_sides(void) {
    systems s = tridiagonal(0);
    enum { NRHS = 3 };
    double b[ITEMS * NRHS * N], x[ITEMS * NRHS * N];
    for (int k = 0; k < ITEMS * NRHS * N; ++k) b[k] = sin(k);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver_options options = solver_options("lu");
    options.nrhs = NRHS;
    sb_solver *solver;
    int64_t failed, nsystems;
    OK(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver));
    OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, b, ITEMS * NRHS * N, x, ITEMS * NRHS * N,
                       &failed));
    CHECK(failed == 0);
    for (int system = 0; system < ITEMS * NRHS; ++system) {
        CHECK(residual(s.row_ptr, s.col_idx, N, 0, s.values + system / NRHS * NNZ, b + system * N,
                       x + system * N, 0) < 1e-8);
    }
    sb_report *report;
    OK(sb_solver_report(solver, &report));
    OK(sb_report_sizes(report, &nsystems, NULL));
    CHECK(nsystems == ITEMS * NRHS);
    OK(sb_report_destroy(report));
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
}

// Items 1 x 1, 3 x 3 and 2 x 2.
static const int64_t ragged_rows[] = {1, 3, 2}, ragged_nnz[] = {1, 5, 4};
static const int32_t ragged_ptr[] = {0, 1, 0, 2, 3, 5, 0, 2, 4};
static const int32_t ragged_col[] = {0, 0, 2, 1, 0, 2, 0, 1, 0, 1};
static const double ragged_values[] = {2, 4, 1, 5, -1, 3, 0, 2, 3, 1};

static void check_ragged(const double *values, const double *b, const double *x) {
    for (int item = 0, row = 0, k = 0; item < 3; ++item) {
        CHECK(residual(ragged_ptr + row + item, ragged_col + k, (int)ragged_rows[item], 0,
                       values + k, b + row, x + row, 0) < 1e-8);
        row += (int)ragged_rows[item];
        k += (int)ragged_nnz[item];
    }
}

static void ragged_batches(void) {
    double b[] = {1, 2, 3, 4, 5, 6}, x[6], one_x[6], values[10];
    for (int base = 0; base <= 1; ++base) {
        int32_t ptr[9], col[10];
        for (int k = 0; k < 9; ++k) ptr[k] = ragged_ptr[k] + base;
        for (int k = 0; k < 10; ++k) col[k] = ragged_col[k] + base;
        sb_batch *batch;
        sb_solver *solver;
        int64_t failed;
        OK(sb_batch_ragged(context, SB_F64, 3, ragged_rows, NULL, ragged_nnz, ptr, col, base,
                           &batch));
        OK(sb_solver_create(batch, ragged_values, 10, NULL, &solver));
        // The last item needs pivoting.
        OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, b, 6, x, 6, &failed));
        CHECK(failed == 0);
        check_ragged(ragged_values, b, x);
        if (base == 0) memcpy(one_x, x, sizeof x);
        CHECK(memcmp(one_x, x, sizeof x) == 0);
        for (int k = 0; k < 10; ++k) values[k] = 2 * ragged_values[k] + (k == 6);
        OK(sb_solver_set_values(solver, values, 10));
        OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_IN_X, b, 6, x, 6, &failed));
        CHECK(failed == 0);
        check_ragged(values, b, x);
        // I/dt - J, with a step for each item.
        double dt[] = {1.0, 0.25, 0.125};
        int diagonal[] = {0, 1, 3, 5, 6, 9}, item_of[] = {0, 1, 1, 1, 2, 2};
        for (int k = 0; k < 10; ++k) values[k] = -ragged_values[k];
        for (int k = 0; k < 6; ++k) values[diagonal[k]] += 1 / dt[item_of[k]];
        OK(sb_solver_shift(solver, ragged_values, 10, dt, 3));
        OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, b, 6, x, 6, &failed));
        CHECK(failed == 0);
        check_ragged(values, b, x);
        OK(sb_solver_destroy(solver));
        OK(sb_batch_destroy(batch));
    }
}

static void kept_and_transposed_matrices(void) {
    systems s = tridiagonal(0);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    const char *methods[] = {"lu", "bicgstab"};
    for (int method = 0; method < 2; ++method) {
        sb_solver_options options = solver_options(methods[method]);
        sb_solver *solver;
        int32_t keeps;
        double x[ITEMS * N], again[ITEMS * N], near_values[ITEMS * NNZ];
        OK(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver));
        solve_and_check(solver, &s, 0, SB_TRANSPOSED, s.values, x);
        solve_and_check(solver, &s, 0, SB_VALUES, s.values, x);
        OK(sb_solver_factor(solver));
        OK(sb_solver_keeps_factors(solver, &keeps));
        CHECK(keeps == (method == 0));
        // Other values do not change what is kept.
        for (int k = 0; k < ITEMS * NNZ; ++k) near_values[k] = 1.001 * s.values[k];
        OK(sb_solver_set_values(solver, near_values, ITEMS * NNZ));
        solve_and_check(solver, &s, 0, SB_KEPT, s.values, again);
        CHECK(memcmp(x, again, sizeof x) == 0);
        solve_and_check(solver, &s, 0, SB_KEPT_TRANSPOSED, s.values, again);
        solve_and_check(solver, &s, 0, SB_NEAR, near_values, again);
        solve_and_check(solver, &s, 0, SB_VALUES, near_values, again);
        OK(sb_solver_destroy(solver));
    }
    OK(sb_batch_destroy(batch));
}

static void shifted_matrices(void) {
    systems s = tridiagonal(0);
    double dt[ITEMS], values[ITEMS * NNZ], interleaved[ITEMS * NNZ], x[2][ITEMS * N];
    for (int item = 0; item < ITEMS; ++item) dt[item] = 0.01 * (item + 1);
    for (int steps = 1; steps <= ITEMS; steps += ITEMS - 1) {
        for (int item = 0; item < ITEMS; ++item) {
            for (int row = 0, k = 0; row < N; ++row) {
                for (; k < s.row_ptr[row + 1]; ++k) {
                    double step = dt[steps == 1 ? 0 : item], entry = s.values[item * NNZ + k];
                    interleaved[k * ITEMS + item] = entry;
                    values[item * NNZ + k] = -entry + (s.col_idx[k] == row ? 1 / step : 0.0);
                }
            }
        }
        for (int kind = 0; kind < 2; ++kind) {
            sb_batch *batch = uniform(context, &s, kind ? SB_INTERLEAVED : SB_ITEM_MAJOR, 0);
            sb_solver *solver;
            const double *jacobian = kind ? interleaved : s.values;
            OK(sb_solver_create(batch, jacobian, ITEMS * NNZ, NULL, &solver));
            // Twice: into an array of the solver's own, and into that again.
            for (int time = 0; time < 2; ++time) {
                OK(sb_solver_shift(solver, jacobian, ITEMS * NNZ, dt, steps));
                solve_and_check(solver, &s, 0, SB_VALUES, values, x[kind]);
            }
            OK(sb_solver_destroy(solver));
            OK(sb_batch_destroy(batch));
        }
        CHECK(memcmp(x[0], x[1], sizeof x[0]) == 0);
    }
}

static void a_system_with_a_nan_fails_alone(void) {
    systems s = tridiagonal(0);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver *solver;
    double x[ITEMS * N], with[ITEMS * N], saved = s.values[3 * NNZ + 2];
    int64_t failed, nsystems, nconverged;
    OK(sb_solver_create(batch, s.values, ITEMS * NNZ, NULL, &solver));
    solve_and_check(solver, &s, 0, SB_VALUES, s.values, x);
    s.values[3 * NNZ + 2] = NAN;
    OK(sb_solver_set_values(solver, s.values, ITEMS * NNZ));
    OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, s.b, ITEMS * N, with, ITEMS * N,
                       &failed));
    CHECK(failed == 1);
    CHECK(memcmp(x, with, 3 * N * sizeof *x) == 0);
    CHECK(memcmp(x + 4 * N, with + 4 * N, (ITEMS - 4) * N * sizeof *x) == 0);
    for (int row = 0; row < N; ++row) CHECK(with[3 * N + row] == 0.0);

    sb_report *report;
    uint8_t statuses[ITEMS], rungs[ITEMS], flags[ITEMS];
    uint32_t iterations[ITEMS], restarts[ITEMS];
    double norms[ITEMS], rhs_norms[ITEMS], plan = -1, time = -1;
    OK(sb_solver_report(solver, &report));
    OK(sb_solver_destroy(solver));
    OK(sb_report_sizes(report, &nsystems, &nconverged));
    CHECK(nsystems == ITEMS && nconverged == ITEMS - 1);
    OK(sb_report_statuses(report, statuses, ITEMS));
    OK(sb_report_rungs(report, rungs, ITEMS));
    OK(sb_report_iterations(report, iterations, ITEMS));
    OK(sb_report_restarts(report, restarts, ITEMS));
    OK(sb_report_residual_norms(report, norms, ITEMS));
    OK(sb_report_rhs_norms(report, rhs_norms, ITEMS));
    OK(sb_report_accepted_by_floor(report, flags, ITEMS));
    OK(sb_report_singular(report, flags, ITEMS));
    for (int item = 0; item < ITEMS; ++item) {
        CHECK(strcmp(sb_outcome_name(statuses[item]), item == 3 ? "NonFinite" : "Converged") == 0);
        CHECK(sb_rung_name(rungs[item]) != NULL);
        CHECK(flags[item] == 0 && restarts[item] == 0);
        CHECK(item == 3 || norms[item] <= 1e-10 * rhs_norms[item]);
    }
    CHECK(isnan(norms[3]));
    char text[2048], advice[128];
    size_t needed;
    OK(sb_report_text(report, text, sizeof text, &needed));
    CHECK(needed == strlen(text) + 1);
    CHECK(strstr(text, "6 of 7 systems converged\nsolver: ") == text);
    CHECK(strstr(text, "first that failed: system 3, NonFinite; try: look for NaN") != NULL);
    OK(sb_report_advice(report, 3, advice, sizeof advice));
    CHECK(strncmp(advice, "look for NaN", 12) == 0);
    OK(sb_report_advice(report, 0, advice, sizeof advice));
    CHECK(advice[0] == '\0');
    OK(sb_report_times(report, &plan, &time));
    CHECK(plan >= 0 && time >= 0);
    OK(sb_report_destroy(report));
    OK(sb_batch_destroy(batch));
    s.values[3 * NNZ + 2] = saved;
}

static void limits_of_each_system_and_histories(void) {
    systems s = tridiagonal(0);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver_options options = solver_options("bicgstab");
    double rtol[ITEMS], x[ITEMS * N], history[64];
    uint32_t maxiter[ITEMS], iterations[ITEMS];
    uint8_t statuses[ITEMS];
    for (int item = 0; item < ITEMS; ++item) {
        rtol[item] = item == 2 ? 1e-2 : 1e-10;
        maxiter[item] = item == 4 ? 1 : 100;
    }
    options.rtol_each = rtol;
    options.maxiter_each = maxiter;
    options.fallback = 0;
    options.history = 1;
    options.precond = "jacobi";
    sb_solver *solver;
    sb_report *report;
    int64_t failed, needed;
    OK(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver));
    OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N, &failed));
    CHECK(failed == 1);
    OK(sb_solver_report(solver, &report));
    OK(sb_report_statuses(report, statuses, ITEMS));
    OK(sb_report_iterations(report, iterations, ITEMS));
    CHECK(strcmp(sb_outcome_name(statuses[4]), "MaxIterations") == 0 && iterations[4] == 1);
    CHECK(iterations[2] < iterations[1]);
    OK(sb_report_history(report, 1, history, 64, &needed));
    CHECK(needed >= iterations[1] && needed < 64 && history[needed - 1] < history[0]);
    OK(sb_report_history(report, 1, NULL, 0, &needed));
    OK(sb_report_destroy(report));
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
}

static void products(void) {
    systems s = tridiagonal(1);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 1);
    const char *formats[] = {NULL, "ell", "coo"};
    for (int format = 0; format < 3; ++format) {
        sb_spmv_options options;
        sb_spmv *spmv;
        double x[ITEMS * N], y[ITEMS * N], twice[ITEMS * NNZ];
        char text[512];
        size_t needed;
        OK(sb_spmv_options_init(&options, sizeof options));
        options.format = formats[format];
        OK(sb_spmv_create(batch, s.values, ITEMS * NNZ, &options, &spmv));
        for (int k = 0; k < ITEMS * N; ++k) x[k] = cos(k), y[k] = NAN;
        // Where beta is 0, y is not read.
        OK(sb_spmv_apply(spmv, 1.0, x, ITEMS * N, 0.0, y, ITEMS * N));
        for (int item = 0; item < ITEMS; ++item) {
            CHECK(residual(s.row_ptr, s.col_idx, N, 1, s.values + item * NNZ, y + item * N,
                           x + item * N, 0) < 1e-12);
        }
        double first = y[1];
        for (int k = 0; k < ITEMS * NNZ; ++k) twice[k] = 2 * s.values[k];
        OK(sb_spmv_set_values(spmv, twice, ITEMS * NNZ));
        OK(sb_spmv_apply(spmv, 0.5, x, ITEMS * N, 3.0, y, ITEMS * N));
        CHECK(fabs(y[1] - 4 * first) < 1e-12);
        OK(sb_spmv_text(spmv, text, sizeof text, &needed));
        CHECK(needed == strlen(text) + 1 && strncmp(text, "format: ", 8) == 0);
        CHECK(format == 0 || strncmp(text + 8, formats[format], 3) == 0);
        OK(sb_spmv_destroy(spmv));
    }
    OK(sb_batch_destroy(batch));
}

static void conversions(void) {
    systems s = tridiagonal(0);
    const int32_t layouts[] = {SB_ITEM_MAJOR, SB_INTERLEAVED, SB_SHARED};
    for (int kind = 0; kind < 3; ++kind) {
        sb_batch *batch = uniform(context, &s, layouts[kind], 0);
        int64_t nvalues = kind == 2 ? NNZ : ITEMS * NNZ, items = kind == 2 ? 1 : ITEMS, nslots,
                width;
        int32_t row_idx[NNZ], col_idx[3 * N];
        double slots[ITEMS * 3 * N], back[ITEMS * NNZ];
        sb_conversion *conversion;
        OK(sb_conversion_create(batch, "coo", 1, &conversion));
        OK(sb_conversion_sizes(conversion, &nslots, &width));
        CHECK(nslots == NNZ && width == 0);
        OK(sb_conversion_indices(conversion, row_idx, NNZ, col_idx, NNZ));
        for (int row = 0; row < N; ++row) {
            for (int k = s.row_ptr[row]; k < s.row_ptr[row + 1]; ++k) {
                CHECK(row_idx[k] == row + 1 && col_idx[k] == s.col_idx[k] + 1);
            }
        }
        OK(sb_conversion_destroy(conversion));

        OK(sb_conversion_create(batch, "ell", 0, &conversion));
        OK(sb_batch_destroy(batch));
        OK(sb_conversion_sizes(conversion, &nslots, &width));
        CHECK(nslots == 3 * N && width == 3);
        OK(sb_conversion_indices(conversion, NULL, 0, col_idx, nslots));
        for (int k = 0; k < items * 3 * N; ++k) slots[k] = NAN;
        OK(sb_conversion_values(conversion, s.values, nvalues, slots, items * nslots));
        // Entry k of each row of item 2, whatever the layout of the values means.
        int item = kind == 2 ? 0 : 2;
        for (int row = 0; row < N; ++row) {
            for (int k = 0; k < 3; ++k) {
                int entry = s.row_ptr[row] + k, slot = k * N + row;
                int is_entry = entry < s.row_ptr[row + 1];
                CHECK(col_idx[slot] == (is_entry ? s.col_idx[entry] : -1));
                double found = kind == 1 ? slots[slot * ITEMS + item] : slots[item * 3 * N + slot];
                double value = 0.0;
                int place = kind == 1 ? entry * ITEMS + item : item * NNZ + entry;
                if (is_entry) value = s.values[place];
                CHECK(found == value);
            }
        }
        OK(sb_conversion_values_back(conversion, slots, items * nslots, back, nvalues));
        CHECK(memcmp(back, s.values, (size_t)nvalues * sizeof *back) == 0);
        OK(sb_conversion_destroy(conversion));
    }
}

static void threads_do_not_change_bits(void) {
    systems s = tridiagonal(0);
    double x[3][ITEMS * N];
    for (uint32_t threads = 0; threads < 3; ++threads) {
        sb_context *own = cpu_context(threads);
        sb_batch *batch = uniform(own, &s, SB_ITEM_MAJOR, 0);
        sb_solver *solver;
        int32_t has_gpu = -1;
        OK(sb_context_has_gpu(own, &has_gpu));
        CHECK(has_gpu == 0);
        // Objects keep what they need of a context.
        OK(sb_context_destroy(own));
        OK(sb_solver_create(batch, s.values, ITEMS * NNZ, NULL, &solver));
        OK(sb_batch_destroy(batch));
        solve_and_check(solver, &s, 0, SB_VALUES, s.values, x[threads]);
        OK(sb_solver_destroy(solver));
        CHECK(memcmp(x[0], x[threads], sizeof x[0]) == 0);
    }
}

static void empty_batches(void) {
    systems s = tridiagonal(0);
    int32_t zero = 0;
    sb_batch *batch;
    sb_solver *solver;
    int64_t failed = -1;
    OK(sb_batch_uniform(context, SB_F64, 0, N, N, NNZ, s.row_ptr, s.col_idx, SB_ITEM_MAJOR, 0,
                        &batch));
    OK(sb_solver_create(batch, NULL, 0, NULL, &solver));
    OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, NULL, 0, NULL, 0, &failed));
    CHECK(failed == 0);
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
    OK(sb_batch_uniform(context, SB_F64, 3, 0, 0, 0, &zero, NULL, SB_ITEM_MAJOR, 0, &batch));
    OK(sb_batch_destroy(batch));
    OK(sb_batch_ragged(context, SB_F32, 0, NULL, NULL, NULL, NULL, NULL, 1, &batch));
    OK(sb_batch_destroy(batch));
}

int main(void) {
    CHECK(sb_abi_version() == SB_ABI_VERSION);
    CHECK(strlen(sb_version()) >= 5);
    context = cpu_context(0);
    uniform_batches();
    names_of_options();
    layouts_and_bases_give_the_same_bits();
    shared_values();
    single_precision();
    several_right_hand_sides();
    ragged_batches();
    kept_and_transposed_matrices();
    shifted_matrices();
    a_system_with_a_nan_fails_alone();
    limits_of_each_system_and_histories();
    products();
    conversions();
    threads_do_not_change_bits();
    empty_batches();
    OK(sb_context_destroy(context));
    puts("solve: all passed");
    return 0;
}
