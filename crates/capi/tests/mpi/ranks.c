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
    OK(sb_ranks_destroy(ranks));
    REFUSED(sb_ranks_agree(ranks, SB_OK, NULL), SB_ERROR_BAD_HANDLE, "ranks is no living ranks");
    OK(sb_context_destroy(context));
    MPI_Finalize();
    return 0;
}
