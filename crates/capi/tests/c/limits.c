// Tolerances, iteration limits and active systems, of a solver and of one call.
#include "check.h"

static sb_context *context;
static systems s;

static sb_limits limits_of(void) {
    sb_limits limits;
    OK(sb_limits_init(&limits, sizeof limits));
    return limits;
}

static sb_solver *solver_without_ladder(sb_batch *batch, const char *method) {
    sb_solver_options options = solver_options(method);
    sb_solver *solver;
    options.fallback = 0;
    OK(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver));
    return solver;
}

// A solve with limits and active systems; the number that failed.
static int64_t solve_with(sb_solver *solver, int32_t by, int32_t guess, double *x,
                          const sb_limits *limits, const uint8_t *active) {
    int64_t failed = -1;
    OK(sb_solver_solve_with(solver, by, guess, s.b, ITEMS * N, x, ITEMS * N, limits, active,
                            active == NULL ? 0 : ITEMS, &failed));
    return failed;
}

static int64_t solve(sb_solver *solver, int32_t by, double *x) {
    int64_t failed = -1;
    OK(sb_solver_solve(solver, by, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N, &failed));
    return failed;
}

static void limits_of_a_solver_and_of_a_call(sb_batch *batch) {
    double x[ITEMS * N], before[ITEMS * N], rtol[ITEMS];
    uint32_t maxiter[ITEMS];
    int64_t iterations[2] = {0, 0};
    sb_solver *solver = solver_without_ladder(batch, "bicgstab");
    sb_limits limits = limits_of();
    CHECK(solve(solver, SB_VALUES, before) == 0);

    // Nothing changes.
    OK(sb_solver_set_limits(solver, &limits));
    OK(sb_solver_set_limits(solver, NULL));
    CHECK(solve_with(solver, SB_VALUES, SB_GUESS_ZERO, x, NULL, NULL) == 0);
    CHECK(memcmp(x, before, sizeof x) == 0);

    limits.maxiter = 0;
    CHECK(solve_with(solver, SB_VALUES, SB_GUESS_ZERO, x, &limits, NULL) == ITEMS);
    CHECK(solve_with(solver, SB_TRANSPOSED, SB_GUESS_ZERO, x, &limits, NULL) == ITEMS);
    // Those of the solver hold again.
    CHECK(solve(solver, SB_VALUES, x) == 0 && memcmp(x, before, sizeof x) == 0);
    CHECK(solve(solver, SB_TRANSPOSED, x) == 0);

    // Of each system: one may do nothing, one is done at once.
    limits = limits_of();
    for (int item = 0; item < ITEMS; ++item) maxiter[item] = 1000, rtol[item] = 1e-12;
    maxiter[2] = 0;
    rtol[3] = 2.0;
    limits.maxiter_each = maxiter;
    limits.rtol_each = rtol;
    CHECK(solve_with(solver, SB_VALUES, SB_GUESS_ZERO, x, &limits, NULL) == 1);
    for (int row = 0; row < N; ++row) CHECK(x[2 * N + row] == 0.0 && x[3 * N + row] == 0.0);

    // Of the solver.
    OK(sb_solver_set_limits(solver, &limits));
    CHECK(solve(solver, SB_VALUES, x) == 1);
    CHECK(solve(solver, SB_TRANSPOSED, x) == 1);
    limits = limits_of();
    limits.maxiter = 1000;
    for (int loose = 0; loose < 2; ++loose) {
        sb_report *report;
        uint32_t each[ITEMS];
        limits.rtol = loose ? 1e-2 : 1e-12;
        OK(sb_solver_set_limits(solver, &limits));
        CHECK(solve(solver, SB_VALUES, x) == 0);
        OK(sb_solver_report(solver, &report));
        OK(sb_report_iterations(report, each, ITEMS));
        for (int item = 0; item < ITEMS; ++item) iterations[loose] += each[item];
        OK(sb_report_destroy(report));
    }
    CHECK(iterations[1] < iterations[0]);
    limits.atol = 1e9;
    CHECK(solve_with(solver, SB_VALUES, SB_GUESS_ZERO, x, &limits, NULL) == 0);
    for (int place = 0; place < ITEMS * N; ++place) CHECK(x[place] == 0.0);

    // A refusal leaves the limits as they are.
    limits = limits_of();
    limits.rtol = -3.0;
    REFUSED(sb_solver_set_limits(solver, &limits), SB_ERROR_ARGUMENT, "rtol is -3");
    REFUSED(sb_solver_solve_with(solver, SB_VALUES, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N,
                                 &limits, NULL, 0, NULL),
            SB_ERROR_ARGUMENT, "rtol is -3");
    limits = limits_of();
    limits.atol = NAN;
    REFUSED(sb_solver_set_limits(solver, &limits), SB_ERROR_ARGUMENT, "atol is NaN");
    limits = limits_of();
    limits.maxiter = -7;
    REFUSED(sb_solver_set_limits(solver, &limits), SB_ERROR_ARGUMENT, "maxiter is -7");
    limits.maxiter = (int64_t)1 << 32;
    REFUSED(sb_solver_set_limits(solver, &limits), SB_ERROR_ARGUMENT, "maxiter is 4294967296");
    limits = limits_of();
    limits.struct_size -= 8;
    REFUSED(sb_solver_set_limits(solver, &limits), SB_ERROR_ARGUMENT, "struct_size of sb_limits");
    CHECK(solve(solver, SB_VALUES, x) == 0);
    OK(sb_solver_destroy(solver));
}

static void active_systems(sb_batch *batch) {
    const char *methods[] = {NULL, "bicgstab", "lu", "pivoting-lu"};
    const int32_t by[] = {SB_VALUES, SB_KEPT, SB_NEAR, SB_TRANSPOSED, SB_KEPT_TRANSPOSED};
    const uint8_t active[ITEMS] = {1, 0, 1, 1, 0, 0, 1};
    for (int method = 0; method < 4; ++method) {
        sb_solver *solver = solver_without_ladder(batch, methods[method]);
        OK(sb_solver_factor(solver));
        for (int kind = 0; kind < 5; ++kind) {
            double all[ITEMS * N], x[ITEMS * N];
            CHECK(solve(solver, by[kind], all) == 0);
            for (int place = 0; place < ITEMS * N; ++place) x[place] = NAN;
            CHECK(solve_with(solver, by[kind], SB_GUESS_ZERO, x, NULL, active) == 0);
            for (int place = 0; place < ITEMS * N; ++place) {
                CHECK(x[place] == (active[place / N] ? all[place] : 0.0));
            }
            // Guesses of systems that are left out stay, whatever they are; a right-hand side of
            // zeros changes nothing of that.
            double zero_b[ITEMS * N];
            int64_t failed;
            memcpy(zero_b, s.b, sizeof zero_b);
            for (int row = 0; row < N; ++row) {
                zero_b[N + row] = 0.0;
                x[N + row] = 7.0 + row;
                x[4 * N + row] = INFINITY;
                x[5 * N + row] = -2.5;
            }
            OK(sb_solver_solve_with(solver, by[kind], SB_GUESS_IN_X, zero_b, ITEMS * N, x,
                                    ITEMS * N, NULL, active, ITEMS, &failed));
            CHECK(failed == 0);
            for (int row = 0; row < N; ++row) {
                CHECK(x[N + row] == 7.0 + row && x[4 * N + row] == INFINITY);
                CHECK(x[5 * N + row] == -2.5);
            }
        }
        OK(sb_solver_destroy(solver));
    }
}

static void reports_of_active_systems(sb_batch *batch) {
    uint8_t active[ITEMS] = {1, 0, 1, 1, 0, 0, 1}, statuses[ITEMS];
    double x[ITEMS * N];
    int64_t nsystems, nconverged;
    char text[2048];
    sb_report *report;
    sb_solver *solver = solver_without_ladder(batch, "bicgstab");
    sb_limits limits = limits_of();
    uint32_t maxiter[ITEMS] = {0, 0, 1000, 1000, 0, 1000, 1000};
    limits.maxiter_each = maxiter;
    CHECK(solve_with(solver, SB_VALUES, SB_GUESS_ZERO, x, &limits, active) == 1);
    OK(sb_solver_report(solver, &report));
    OK(sb_report_sizes(report, &nsystems, &nconverged));
    CHECK(nsystems == ITEMS && nconverged == 3);
    OK(sb_report_statuses(report, statuses, ITEMS));
    CHECK(statuses[0] == 1 && statuses[2] == 0);
    for (int item = 0; item < ITEMS; ++item) CHECK(active[item] == (statuses[item] != SB_INACTIVE));
    CHECK(strcmp(sb_outcome_name(SB_INACTIVE), "Inactive") == 0);
    OK(sb_report_text(report, text, sizeof text, NULL));
    CHECK(strncmp(text, "3 of 4 systems converged\nnot active: 3 systems\n", 47) == 0);
    CHECK(strstr(text, "statuses: Converged 3, MaxIterations 1\n") != NULL);
    CHECK(strstr(text, "first that failed: system 0, MaxIterations") != NULL);
    OK(sb_report_advice(report, 0, text, sizeof text));
    CHECK(text[0] != '\0');
    OK(sb_report_advice(report, 1, text, sizeof text));
    CHECK(text[0] == '\0');
    OK(sb_report_destroy(report));

    REFUSED(sb_solver_solve_with(solver, SB_VALUES, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N,
                                 NULL, active, ITEMS - 1, NULL),
            SB_ERROR_ARGUMENT, "active has 6 entries, expected 7");
    REFUSED(sb_solver_solve_with(solver, SB_VALUES, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N,
                                 NULL, NULL, ITEMS, NULL),
            SB_ERROR_ARGUMENT, "active is NULL, expected an array of 7");
    active[3] = 2;
    REFUSED(sb_solver_solve_with(solver, SB_VALUES, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N,
                                 NULL, active, ITEMS, NULL),
            SB_ERROR_ARGUMENT, "active has a 2, expected 0 and 1");
    OK(sb_solver_destroy(solver));
}

// Ragged items with two right-hand sides: [2], and [4 0; 0 5].
static void active_right_hand_sides_of_ragged_items(void) {
    const int64_t rows[] = {1, 2}, nnz[] = {1, 2};
    const int32_t row_ptr[] = {0, 1, 0, 1, 2}, col_idx[] = {0, 0, 1};
    const double values[] = {2, 4, 5}, b[] = {2, 4, 4, 5, 8, 10};
    const double expected[] = {1, -1, -1, -1, 2, 2};
    const uint8_t active[] = {1, 0, 0, 1};
    double x[] = {-1, -1, -1, -1, -1, -1};
    sb_solver_options options = solver_options(NULL);
    sb_batch *batch;
    sb_solver *solver;
    options.nrhs = 2;
    OK(sb_batch_ragged(context, SB_F64, 2, rows, NULL, nnz, row_ptr, col_idx, 0, &batch));
    OK(sb_solver_create(batch, values, 3, &options, &solver));
    OK(sb_solver_solve_with(solver, SB_VALUES, SB_GUESS_IN_X, b, 6, x, 6, NULL, active, 4, NULL));
    for (int place = 0; place < 6; ++place) CHECK(fabs(x[place] - expected[place]) < 1e-9);
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
}

int main(void) {
    s = tridiagonal(0);
    context = cpu_context(0);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    limits_of_a_solver_and_of_a_call(batch);
    active_systems(batch);
    reports_of_active_systems(batch);
    active_right_hand_sides_of_ragged_items();
    OK(sb_batch_destroy(batch));
    OK(sb_context_destroy(context));
    puts("limits: all passed");
    return 0;
}
