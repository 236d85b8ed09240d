// Ranks of MPI, started by scripts/mpi-tests.sh: shares of items, one report, errors of one rank.
#include <mpi.h>
#include <unistd.h>

#include "../c/check.h"

enum { ALL = 12 };

static systems s;
static int rank, size;

static sb_solver *solver_of(sb_batch *batch, int64_t nitems, const sb_solver_options *options) {
    sb_solver *solver = NULL;
    OK(sb_solver_create(batch, s.values, nitems * NNZ, options, &solver));
    return solver;
}

static void ranks_are_those_of_the_communicator(sb_ranks *ranks) {
    int32_t place[5];
    OK(sb_ranks_place(ranks, &place[0], &place[1], &place[2], &place[3], &place[4]));
    CHECK(place[0] == rank && place[1] == size && place[2] < place[3] && place[3] <= size);
    CHECK(place[4] >= 1);
    OK(sb_ranks_place(ranks, NULL, NULL, NULL, NULL, NULL));
}

// Every rank solves its share; rank 0 has the report of all, in the order of the items.
static void one_report_of_all(sb_context *context, sb_ranks *ranks) {
    double costs[ALL], x[ITEMS * N];
    int64_t first[ALL + 1], failed, systems = -1, converged = -1;
    uint8_t active[ITEMS], statuses[ALL];
    sb_batch *batch;
    sb_report *own, *whole = (sb_report *)1;
    for (int item = 0; item < ALL; ++item) costs[item] = 1.0 + item % 3;
    OK(sb_ranks_shares(costs, ALL, size, first));
    CHECK(first[0] == 0 && first[size] == ALL);
    int64_t nitems = first[rank + 1] - first[rank];
    // The test has values for so many items.
    if (nitems > ITEMS) nitems = ITEMS;
    OK(sb_batch_uniform(context, SB_F64, nitems, N, N, NNZ, s.row_ptr, s.col_idx, SB_ITEM_MAJOR, 0,
                        &batch));
    sb_solver_options options = solver_options("bicgstab");
    sb_solver *solver = solver_of(batch, nitems, &options);
    OK(sb_ranks_check_solver(ranks, solver));
    for (int item = 0; item < ITEMS; ++item) active[item] = item != 0;
    OK(sb_solver_solve_with(solver, SB_VALUES, SB_GUESS_ZERO, s.b, nitems * N, x, nitems * N, NULL,
                            active, nitems, &failed));
    CHECK(failed == 0);
    OK(sb_solver_report(solver, &own));
    OK(sb_ranks_report(ranks, own, &whole));
    CHECK((whole != NULL) == (rank == 0));
    int64_t most[2] = {nitems, nitems > 0}, sum[2];
    MPI_Reduce(most, sum, 2, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        OK(sb_report_sizes(whole, &systems, &converged));
        // The first system of each rank was not active.
        CHECK(systems == sum[0] && converged == sum[0] - sum[1]);
        OK(sb_report_statuses(whole, statuses, systems));
        for (int r = 0, at = 0; r < size; ++r) {
            int64_t count = first[r + 1] - first[r];
            if (count > ITEMS) count = ITEMS;
            for (int item = 0; item < count; ++item, ++at)
                CHECK(statuses[at] == (item == 0 ? SB_INACTIVE : 0));
        }
        OK(sb_report_destroy(whole));
    }
    OK(sb_report_destroy(own));
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
}

// What is wrong on the last rank is the error of all, and all go on.
static void errors_of_one_rank(sb_context *context, sb_ranks *ranks) {
    int last = size - 1;
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver_options options = solver_options("cg");
    if (rank == last) options.maxiter = 7;
    sb_solver *solver = solver_of(batch, ITEMS, &options);
    if (size == 1) OK(sb_ranks_check_solver(ranks, solver));
    else REFUSED(sb_ranks_check_solver(ranks, solver), SB_ERROR_RANKS, "maxiter is 7");

    REFUSED(sb_ranks_check_solver(ranks, rank == last ? NULL : solver), SB_ERROR_RANKS,
            "SB_ERROR_BAD_HANDLE, solver is NULL");
    sb_report *whole;
    REFUSED(sb_ranks_report(ranks, NULL, rank == last ? NULL : &whole), SB_ERROR_RANKS,
            "SB_ERROR_");
    OK(sb_ranks_agree(ranks, SB_OK, NULL));
    sb_status own = rank == last ? SB_ERROR_OUT_OF_MEMORY : SB_OK;
    REFUSED(sb_ranks_agree(ranks, own, "no memory for the zones"), SB_ERROR_RANKS,
            "SB_ERROR_OUT_OF_MEMORY, no memory for the zones");
    REFUSED(sb_ranks_agree(ranks, own, NULL), SB_ERROR_RANKS, "SB_ERROR_OUT_OF_MEMORY");
    REFUSED(sb_ranks_agree(ranks, own, "\xff"), SB_ERROR_RANKS, "message is no text in UTF-8");
    OK(sb_ranks_agree(ranks, SB_OK, "\xff"));
    REFUSED(sb_ranks_agree(ranks, own, NULL), SB_ERROR_RANKS, "SB_ERROR_OUT_OF_MEMORY");
    char message[512], name[32];
    OK(sb_last_error(context, message, sizeof message));
    snprintf(name, sizeof name, "rank %d on ", last);
    CHECK(size == 1 || strstr(message, name) == message);
    OK(sb_ranks_agree(ranks, SB_OK, "not read"));
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
}

// The rows `first` to `end` of a tridiagonal matrix of GRID rows with `off` beside its diagonal of 3.
enum { GRID = 101 };

static sb_batch *rows_of(sb_context *context, int first, int end, double lower, double *values) {
    int32_t row_ptr[GRID + 1], col_idx[3 * GRID];
    sb_batch *batch = NULL;
    int entry = 0;
    for (int row = first; row < end; ++row) {
        row_ptr[row - first] = entry + 1;
        for (int col = row - 1; col <= row + 1; ++col) {
            if (col < 0 || col >= GRID) continue;
            values[entry] = col == row ? 3.0 : col < row ? lower : -1.0;
            col_idx[entry++] = col + 1;
        }
    }
    row_ptr[end - first] = entry + 1;
    OK(sb_batch_uniform(context, SB_F64, 1, end - first, GRID, entry, row_ptr, col_idx,
                        SB_ITEM_MAJOR, 1, &batch));
    return batch;
}

static int64_t entries_of(int first, int end) {
    return 3 * (int64_t)(end - first) - (end > first && first == 0) - (end > first && end == GRID);
}

// The own elements of A x, of which all ranks know x.
static void product_of_all(int first, int end, double lower, const double *x, double *y) {
    for (int row = first; row < end; ++row) {
        y[row - first] = 3.0 * x[row] + (row > 0 ? lower * x[row - 1] : 0.0) -
                         (row + 1 < GRID ? x[row + 1] : 0.0);
    }
}

// Rows that are none, and files: refused on all ranks, or read by all.
static void errors_of_one_matrix(sb_context *context, sb_ranks *ranks) {
    const char *path = "one_matrix.mtx";
    sb_distributed *matrix = (sb_distributed *)1;
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    REFUSED(sb_distributed_create(ranks, batch, s.values, ITEMS * NNZ, NULL, &matrix),
            SB_ERROR_RANKS, "batch has 7 items, expected one");
    CHECK(matrix == NULL);
    OK(sb_batch_destroy(batch));
    double values[3 * GRID];
    batch = rows_of(context, 0, rank == 0 ? GRID : 0, -1.0, values);
    REFUSED(sb_distributed_create(ranks, batch, values, 1, NULL, &matrix), SB_ERROR_RANKS,
            "values has 1 entries");
    REFUSED(sb_distributed_create(ranks, batch, values, rank == 0 ? 3 * GRID - 2 : 0, NULL,
                                  rank == 0 ? NULL : &matrix),
            SB_ERROR_RANKS, "matrix is NULL");
    sb_spmv_options on_device;
    OK(sb_spmv_options_init(&on_device, sizeof on_device));
    on_device.space = SB_DEVICE;
    REFUSED(sb_distributed_create(ranks, batch, values, rank == 0 ? 3 * GRID - 2 : 0,
                                  rank == 0 ? &on_device : NULL, &matrix),
            SB_ERROR_RANKS, "expected space SB_HOST");
    OK(sb_distributed_create(ranks, batch, values, rank == 0 ? 3 * GRID - 2 : 0, NULL, &matrix));
    OK(sb_distributed_destroy(matrix));
    OK(sb_batch_destroy(batch));
    REFUSED(sb_distributed_read(ranks, SB_F64, "no such file.mtx", NULL, &matrix), SB_ERROR_RANKS,
            "no such file.mtx");
    REFUSED(sb_distributed_read(ranks, SB_F64, NULL, NULL, &matrix), SB_ERROR_RANKS,
            "path is NULL");
    REFUSED(sb_distributed_read(ranks, 5, path, NULL, &matrix), SB_ERROR_RANKS, "dtype is 5");
    if (rank == 0) {
        FILE *file = fopen(path, "w");
        CHECK(file != NULL);
        fprintf(file, "%%%%MatrixMarket matrix coordinate real general\n4 4 5\n");
        fprintf(file, "1 1 2\n2 2 2\n3 3 2\n4 4 2\n1 4 1\n");
        CHECK(fclose(file) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t first, own, nnz, failed;
    float b[4] = {3, 2, 2, 2}, x[4];
    OK(sb_distributed_read(ranks, SB_F32, path, NULL, &matrix));
    OK(sb_distributed_sizes(matrix, NULL, NULL, &nnz, &first, &own, NULL, NULL));
    CHECK(nnz == 5);
    OK(sb_distributed_solve(matrix, NULL, 0, 0, SB_GUESS_ZERO, b + first, own, x, own, &failed,
                            NULL));
    CHECK(failed == 0);
    for (int64_t row = 0; row < own; ++row) CHECK(fabsf(x[row] - 1.0f) < 1e-4f);
    OK(sb_distributed_destroy(matrix));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) remove(path);
}

// The first rank has a third of the rows, the last one none where there are others.
static int first_row(int of) {
    int parts = size > 1 ? size - 1 : 1;
    if (of >= parts) return GRID;
    return of == 0 ? 0 : 34 + (of - 1) * (GRID - 34) / (parts - 1);
}

// One matrix over all ranks, some of which have few rows: products, CG, BiCGStab, a file.
static void one_matrix_of_all(void) {
    sb_context *context = cpu_context(0);
    sb_ranks *ranks = NULL;
    OK(sb_ranks_create(context, MPI_Comm_c2f(MPI_COMM_WORLD), 20.0, &ranks));
    int first = first_row(rank), end = first_row(rank + 1);
    int own = end - first;
    double values[3 * GRID], x[GRID], y[GRID], found[GRID];
    for (int col = 0; col < GRID; ++col) x[col] = 1.0 + col % 7;
    for (int symmetric = 0; symmetric < 2; ++symmetric) {
        double lower = symmetric ? -1.0 : -0.5;
        sb_batch *batch = rows_of(context, first, end, lower, values);
        sb_distributed *matrix = NULL;
        sb_report *report = NULL;
        int64_t sizes[7], failed = 7, systems, converged;
        OK(sb_distributed_create(ranks, batch, values, entries_of(first, end), NULL, &matrix));
        OK(sb_batch_destroy(batch));
        OK(sb_distributed_sizes(matrix, &sizes[0], &sizes[1], &sizes[2], &sizes[3], &sizes[4],
                                &sizes[5], &sizes[6]));
        CHECK(sizes[0] == GRID && sizes[1] == GRID && sizes[2] == 3 * GRID - 2);
        CHECK(sizes[3] == first && sizes[4] == own && sizes[5] == first && sizes[6] == own);
        product_of_all(first, end, lower, x, y);
        OK(sb_distributed_apply(matrix, x + first, own, found, own));
        for (int row = 0; row < own; ++row) CHECK(found[row] == y[row]);
        sb_solver_options options = solver_options("auto");
        const char *preconds[] = {"jacobi", "ilu0"};
        for (int k = 0; k < 4; ++k) {
            options.precond = preconds[k % 2];
            // Pipelined CG, and LU of the blocks.
            int pipelined = symmetric && k == 2, block_lu = k == 3;
            if (block_lu) options.precond = NULL;
            OK(sb_distributed_solve(matrix, &options, pipelined, block_lu, SB_GUESS_ZERO, y, own,
                                    found, own, &failed, &report));
            CHECK(failed == 0 && report != NULL);
            for (int row = 0; row < own; ++row) CHECK(fabs(found[row] - x[first + row]) < 1e-8);
            OK(sb_report_sizes(report, &systems, &converged));
            CHECK(systems == 1 && converged == 1);
            char text[600];
            OK(sb_report_text(report, text, sizeof text, NULL));
            CHECK(strstr(text, symmetric ? "solver: cg" : "solver: bicgstab") != NULL);
            OK(sb_report_destroy(report));
        }
        options = solver_options("cg");
        options.maxiter = 1;
        OK(sb_distributed_solve(matrix, &options, 0, 0, SB_GUESS_IN_X, y, own, found, own, &failed,
                                NULL));
        CHECK(failed <= 1);
        // What is wrong on one rank is the error of all.
        int64_t nx = rank == 0 ? own - 1 : own;
        REFUSED(sb_distributed_apply(matrix, x + first, nx, found, own), SB_ERROR_RANKS, "x has ");
        options = solver_options(rank == 0 ? "lu" : "cg");
        REFUSED(sb_distributed_solve(matrix, &options, 0, 0, SB_GUESS_ZERO, y, own, found, own,
                                     &failed, &report),
                SB_ERROR_RANKS, "method is ");
        CHECK(report == NULL);
        REFUSED(sb_distributed_solve(matrix, NULL, rank == 0 ? 2 : 0, 0, SB_GUESS_ZERO, y, own,
                                     found, own, NULL, NULL),
                SB_ERROR_RANKS, "pipelined is 2");
        REFUSED(sb_distributed_solve(matrix, NULL, 0, 0, rank == 0 ? 5 : 0, y, own, found, own,
                                     NULL, NULL),
                SB_ERROR_RANKS, "guess is 5");
        OK(sb_distributed_destroy(matrix));
    }
    errors_of_one_matrix(context, ranks);
    OK(sb_ranks_destroy(ranks));
    OK(sb_context_destroy(context));
}

// The last rank does not come: the others end within their limit.
static void a_rank_that_does_not_come(sb_context *context) {
    sb_ranks *none = (sb_ranks *)1;
    if (size > 1 && rank < size - 1) {
        REFUSED(sb_ranks_create(context, MPI_Comm_c2f(MPI_COMM_WORLD), 0.2, &none), SB_ERROR_RANKS,
                rank == 0 ? "came within" : "did not answer");
        CHECK(none == NULL);
    }
}

// Half of the ranks, by the handle of their communicator, which is as it was afterwards.
static void ranks_of_half_the_job(sb_context *context) {
    MPI_Comm half;
    sb_ranks *ranks = NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    OK(sb_ranks_create(context, MPI_Comm_c2f(half), 20.0, &ranks));
    ranks_are_those_of_the_communicator(ranks);
    OK(sb_ranks_agree(ranks, SB_OK, NULL));
    OK(sb_ranks_destroy(ranks));
    MPI_Barrier(half);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "sleeps") == 0) {
        // For others that wait for this rank.
        MPI_Init(&argc, &argv);
        sleep(60);
        return 1;
    }
    sb_context *context = cpu_context(1);
    sb_ranks *ranks = NULL;
    REFUSED(sb_ranks_create(context, 0, 1.0, &ranks), SB_ERROR_ARGUMENT, "MPI does not run");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    s = tridiagonal(0);
    if (argc > 1 && strcmp(argv[1], "late") == 0) {
        a_rank_that_does_not_come(context);
        // Ranks that gave up have sent messages that nobody reads.
        fflush(NULL);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "halves") == 0) {
        ranks_of_half_the_job(context);
        OK(sb_context_destroy(context));
        MPI_Finalize();
        return 0;
    }
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    OK(sb_ranks_create(context, MPI_Comm_c2f(comm), 20.0, &ranks));
    MPI_Comm_free(&comm);
    ranks_are_those_of_the_communicator(ranks);
    one_report_of_all(context, ranks);
    errors_of_one_rank(context, ranks);
    one_matrix_of_all();
    OK(sb_ranks_destroy(ranks));
    REFUSED(sb_ranks_agree(ranks, SB_OK, NULL), SB_ERROR_BAD_HANDLE, "ranks is no living ranks");
    OK(sb_context_destroy(context));
    MPI_Finalize();
    return 0;
}
