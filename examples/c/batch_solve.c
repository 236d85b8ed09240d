/*
 * A time step in many zones, in C: (I/dt - J_i) x_i = b_i with one pattern, factorised once and
 * solved with twice.
 *
 *     cc batch_solve.c $(pkg-config --cflags --libs sparsebatch) -lm -o batch_solve
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <sparsebatch.h>

enum { SPECIES = 3, ENTRIES = 9, ZONES = 10000 };

/* Ends the program with the message of the library. */
static void check(sb_status status)
{
    char message[512];
    if (status == SB_OK) return;
    sb_last_error(NULL, message, sizeof message);
    fprintf(stderr, "%s: %s\n", sb_status_name(status), message);
    exit(1);
}

/* The Jacobian of Robertson's reactions at the concentrations y. */
static void jacobian(const double *y, double *values)
{
    const double k1 = 0.04, k2 = 3e7, k3 = 1e4;
    const double by_row[ENTRIES] = {
        -k1, k3 * y[2],                       k3 * y[1],
        k1,  -k3 * y[2] - 2.0 * k2 * y[1],    -k3 * y[1],
        0.0, 2.0 * k2 * y[1],                 0.0,
    };
    for (int entry = 0; entry < ENTRIES; ++entry) values[entry] = by_row[entry];
}

int main(void)
{
    const int32_t row_ptr[SPECIES + 1] = {0, 3, 6, 9};
    const int32_t col_idx[ENTRIES] = {0, 1, 2, 0, 1, 2, 0, 1, 2};
    static double values[ZONES * ENTRIES], dt[ZONES], b[ZONES * SPECIES], x[ZONES * SPECIES];
    for (int zone = 0; zone < ZONES; ++zone) {
        const double burnt = (double)zone / ZONES;
        const double y[SPECIES] = {1.0 - burnt, 2e-5 * (1.0 - burnt), burnt};
        jacobian(y, values + zone * ENTRIES);
        dt[zone] = 1e-3 * (1 + zone % 100);
        for (int k = 0; k < SPECIES; ++k) b[zone * SPECIES + k] = 1.0 + k;
    }

    sb_context *context;
    sb_batch *batch;
    sb_solver *solver;
    sb_report *report;
    sb_solver_options options;
    int64_t failed;
    check(sb_context_create(NULL, &context));
    check(sb_batch_uniform(context, SB_F64, ZONES, SPECIES, SPECIES, ENTRIES, row_ptr, col_idx,
                           SB_ITEM_MAJOR, 0, &batch));
    check(sb_solver_options_init(&options, sizeof options));
    options.method = "lu";
    check(sb_solver_create(batch, values, ZONES * ENTRIES, &options, &solver));
    check(sb_solver_shift(solver, values, ZONES * ENTRIES, dt, ZONES));
    check(sb_solver_factor(solver));
    for (int stage = 0; stage < 2; ++stage) {
        check(sb_solver_solve(solver, SB_KEPT, SB_GUESS_ZERO, b, ZONES * SPECIES, x,
                              ZONES * SPECIES, &failed));
    }

    /* The reactions keep the sum of the concentrations: the columns of J add up to 0. */
    double largest = 0.0;
    for (int zone = 0; zone < ZONES; ++zone) {
        const double *own = x + zone * SPECIES;
        const double sum = (own[0] + own[1] + own[2]) / dt[zone];
        largest = fmax(largest, fabs(sum - 6.0) / 6.0);
    }
    char text[2048];
    check(sb_solver_report(solver, &report));
    check(sb_report_text(report, text, sizeof text, NULL));
    printf("%slargest relative error of a sum: %.0e\n", text, largest);

    check(sb_report_destroy(report));
    check(sb_solver_destroy(solver));
    check(sb_batch_destroy(batch));
    check(sb_context_destroy(context));
    return failed == 0 && largest < 1e-8 ? 0 : 1;
}
