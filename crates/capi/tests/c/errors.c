// The error codes of the C library and their messages. SB_ERROR_INTERNAL is a fault of the library,
// and SB_ERROR_OUT_OF_MEMORY depends on the machine: unit tests in src/status.rs have these.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static sb_context *context;
static systems s;
static double x[ITEMS * N];

static sb_solver *solver_of(sb_batch *batch, const char *method) {
    sb_solver_options options = solver_options(method);
    sb_solver *solver;
    OK(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver));
    return solver;
}

static sb_status solve(sb_solver *solver, int32_t by) {
    return sb_solver_solve(solver, by, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N, NULL);
}

static void wrong_handles(void) {
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver *solver = solver_of(batch, NULL);
    REFUSED(sb_solver_factor(NULL), SB_ERROR_BAD_HANDLE, "solver is NULL");
    REFUSED(solve((sb_solver *)batch, SB_VALUES), SB_ERROR_BAD_HANDLE, "no living solver");
    REFUSED(solve((sb_solver *)(void *)&s, SB_VALUES), SB_ERROR_BAD_HANDLE, "another pointer");
    OK(sb_solver_destroy(solver));
    REFUSED(solve(solver, SB_VALUES), SB_ERROR_BAD_HANDLE, "was destroyed");
    REFUSED(sb_solver_destroy(solver), SB_ERROR_BAD_HANDLE, "was destroyed");
    OK(sb_solver_destroy(NULL));
    OK(sb_batch_destroy(batch));
    REFUSED(sb_batch_destroy(batch), SB_ERROR_BAD_HANDLE, "no living batch");
    // Places of handles get NULL.
    sb_context *no_context = (sb_context *)(void *)&s;
    sb_batch *made_batch = batch;
    sb_solver *made_solver = solver;
    sb_spmv *spmv = (sb_spmv *)(void *)&s;
    sb_conversion *conversion = (sb_conversion *)(void *)&s;
    sb_report *report = (sb_report *)(void *)&s;
    int64_t one = 1;
    REFUSED(sb_batch_uniform(no_context, SB_F64, 1, N, N, NNZ, s.row_ptr, s.col_idx, SB_ITEM_MAJOR,
                             0, &made_batch),
            SB_ERROR_BAD_HANDLE, "no living context");
    CHECK(made_batch == NULL);
    made_batch = batch;
    REFUSED(sb_batch_ragged(no_context, SB_F64, 1, &one, NULL, &one, s.row_ptr, s.col_idx, 0,
                            &made_batch),
            SB_ERROR_BAD_HANDLE, "no living context");
    CHECK(made_batch == NULL);
    REFUSED(sb_solver_create(batch, s.values, ITEMS * NNZ, NULL, &made_solver),
            SB_ERROR_BAD_HANDLE, "no living batch");
    CHECK(made_solver == NULL);
    REFUSED(sb_spmv_create(NULL, s.values, ITEMS * NNZ, NULL, &spmv), SB_ERROR_BAD_HANDLE,
            "batch is NULL");
    CHECK(spmv == NULL);
    REFUSED(sb_conversion_create(batch, "coo", 0, &conversion), SB_ERROR_BAD_HANDLE,
            "no living batch");
    CHECK(conversion == NULL);
    REFUSED(sb_solver_report(solver, &report), SB_ERROR_BAD_HANDLE, "no living solver");
    CHECK(report == NULL);
    REFUSED(sb_solver_create(NULL, s.values, ITEMS * NNZ, NULL, NULL), SB_ERROR_BAD_HANDLE,
            "batch is NULL");
}

static void wrong_structs_and_options(void) {
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver *solver = NULL;
    sb_context *other = NULL;
    sb_solver_options options = solver_options(NULL);
    sb_context_options context_options;
    char small[8];
    REFUSED(sb_solver_options_init((sb_solver_options *)(void *)small, 8), SB_ERROR_ARGUMENT,
            "struct_size of sb_solver_options is 8, expected");
    REFUSED(sb_context_options_init(NULL, sizeof context_options), SB_ERROR_ARGUMENT, "NULL");
    options.struct_size = 0;
    REFUSED(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver), SB_ERROR_ARGUMENT,
            "struct_size");
    CHECK(solver == NULL);
#define WRONG(field, value, text)                                                                  \
    do {                                                                                           \
        options = solver_options(NULL);                                                            \
        options.field = (value);                                                                   \
        REFUSED(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver),                 \
                SB_ERROR_ARGUMENT, (text));                                                        \
    } while (0)
    WRONG(method, "gmres", "method is gmres, expected auto cg");
    WRONG(precond, "ilu", "precond is ilu, expected");
    WRONG(order, "\xff", "order is no text");
    WRONG(precond_precision, "single", "precond_precision is single, expected working f32");
    WRONG(inner_precision, "half", "half");
    WRONG(lu_form, "by-row", "lu_form is by-row, expected by-pattern by-system");
    WRONG(format, "bsr", "bsr");
    WRONG(kernel, "fast", "fast");
    WRONG(block_size, -1, "block_size is -1");
    WRONG(nrhs, 0, "nrhs is 0");
    WRONG(nrhs, -5, "nrhs is -5");
    WRONG(rtol, -0.5, "rtol is -0.5, expected a number that is not negative");
    WRONG(atol, NAN, "atol is NaN");
    WRONG(floor, -2.0, "floor is -2");
    WRONG(fallback, 2, "fallback is 2, expected 0 or 1");
    WRONG(history, -1, "history is -1");
    WRONG(space, 7, "space is 7");
    WRONG(vectors, SB_INTERLEAVED, "vectors is 1");
    REFUSED(sb_solver_create(batch, s.values, ITEMS * NNZ, NULL, NULL), SB_ERROR_ARGUMENT,
            "solver is NULL");
    OK(sb_context_options_init(&context_options, sizeof context_options));
    context_options.backend = "tpu";
    REFUSED(sb_context_create(&context_options, &other), SB_ERROR_ARGUMENT, "backend is tpu");
    context_options.backend = "auto";
    context_options.ordinal = -1;
    REFUSED(sb_context_create(&context_options, &other), SB_ERROR_ARGUMENT, "ordinal is -1");
    OK(sb_batch_destroy(batch));
}

static void *refuse_to_allocate(size_t bytes, void *stream, void *data) {
    (void)bytes, (void)stream, (void)data;
    return NULL;
}

static void release_nothing(void *address, size_t bytes, void *stream, void *data) {
    (void)address, (void)bytes, (void)stream, (void)data;
}

static void wrong_allocators(void) {
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver_options options = solver_options(NULL);
    sb_spmv_options products;
    sb_solver *solver = NULL;
    sb_spmv *spmv = NULL;
    int64_t bytes = -1;
    OK(sb_spmv_options_init(&products, sizeof products));
    options.allocate = refuse_to_allocate;
    REFUSED(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver), SB_ERROR_ARGUMENT,
            "release is NULL");
    options.release = release_nothing;
    REFUSED(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver), SB_ERROR_ARGUMENT,
            "expected space SB_DEVICE");
    products.release = release_nothing;
    REFUSED(sb_spmv_create(batch, s.values, ITEMS * NNZ, &products, &spmv), SB_ERROR_ARGUMENT,
            "allocate is NULL");
    CHECK(solver == NULL && spmv == NULL);
    REFUSED(sb_solver_memory(batch, s.values, ITEMS * NNZ, NULL, &bytes, NULL, NULL),
            SB_ERROR_UNSUPPORTED, "needs a context on a GPU");
    CHECK(bytes == -1);
    OK(sb_batch_destroy(batch));
}

static void wrong_arrays(void) {
    static double room[ITEMS * N + 1];
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0), *none = NULL;
    sb_solver *solver = solver_of(batch, "lu");
    sb_spmv *spmv;
    int64_t nb = ITEMS * N, negative[] = {-1}, one[] = {1};
    REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, s.b, nb - 1, x, nb, NULL),
            SB_ERROR_ARGUMENT, "b has 34 entries, expected 35");
    REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, s.b, nb, x, nb + 1, NULL),
            SB_ERROR_ARGUMENT, "has 36 entries, expected 35");
    REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, s.b, -nb, x, nb, NULL),
            SB_ERROR_ARGUMENT, "b is -35, expected a number");
    REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, NULL, nb, x, nb, NULL),
            SB_ERROR_ARGUMENT, "b is NULL, expected an array of 35");
    REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, x + 1, nb, x, nb, NULL),
            SB_ERROR_ARGUMENT, "x and b overlap");
    REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, (char *)room + 4, nb, x, nb, NULL),
            SB_ERROR_ARGUMENT, "expected a multiple of 8");
    REFUSED(sb_solver_solve(solver, 9, SB_GUESS_ZERO, s.b, nb, x, nb, NULL), SB_ERROR_ARGUMENT,
            "by is 9");
    REFUSED(sb_solver_solve(solver, SB_VALUES, 7, s.b, nb, x, nb, NULL), SB_ERROR_ARGUMENT,
            "guess is 7");
    REFUSED(sb_solver_set_values(solver, s.values, 3), SB_ERROR_ARGUMENT,
            "values has 3 entries, expected 91");
    REFUSED(sb_solver_shift(solver, s.values, ITEMS * NNZ, s.b, 2), SB_ERROR_ARGUMENT,
            "dt has 2 entries, expected 7");
    REFUSED(sb_solver_create(batch, s.values, 5, NULL, &solver), SB_ERROR_ARGUMENT,
            "values has 5 entries, expected 91");
    OK(sb_spmv_create(batch, s.values, ITEMS * NNZ, NULL, &spmv));
    REFUSED(sb_spmv_apply(spmv, 1, s.b, 3, 0, x, nb), SB_ERROR_ARGUMENT, "x has 3 entries");
    REFUSED(sb_spmv_apply(spmv, 1, x, nb, 0, x, nb), SB_ERROR_ARGUMENT, "y and x overlap");
    REFUSED(sb_spmv_set_values(spmv, s.values, 1), SB_ERROR_ARGUMENT, "values has 1 entries");
    OK(sb_spmv_destroy(spmv));

#define UNIFORM(dtype, nitems, rows, cols, nnz, layout, base)                                      \
    sb_batch_uniform(context, dtype, nitems, rows, cols, nnz, s.row_ptr, s.col_idx, layout, base,  \
                     &none)
    REFUSED(UNIFORM(2, 1, N, N, NNZ, 0, 0), SB_ERROR_ARGUMENT, "dtype is 2");
    REFUSED(UNIFORM(SB_F64, -1, N, N, NNZ, 0, 0), SB_ERROR_ARGUMENT, "nitems is -1");
    REFUSED(UNIFORM(SB_F64, 1, -N, N, NNZ, 0, 0), SB_ERROR_ARGUMENT, "nrows is -5");
    REFUSED(UNIFORM(SB_F64, 1, N, N, NNZ, 5, 0), SB_ERROR_ARGUMENT, "layout is 5");
    REFUSED(UNIFORM(SB_F64, 1, N, N, NNZ, 0, 2), SB_ERROR_ARGUMENT, "index_base is 2");
    CHECK(none == NULL);
    REFUSED(sb_batch_ragged(context, SB_F64, 1, negative, NULL, one, s.row_ptr, s.col_idx, 0,
            &none),
            SB_ERROR_ARGUMENT, "nrows is -1");
    // Rectangular matrices multiply, but are not solved with.
    OK(UNIFORM(SB_F64, 1, N, N + 1, NNZ, 0, 0));
    REFUSED(sb_solver_create(none, s.values, NNZ, NULL, &solver), SB_ERROR_ARGUMENT,
            "expected a square matrix");
    OK(sb_batch_destroy(none));
    OK(sb_batch_destroy(batch));
}

static void no_matrices(void) {
    int32_t col_idx[NNZ];
    sb_batch *batch;
    memcpy(col_idx, s.col_idx, sizeof col_idx);
    col_idx[0] = 3;
    REFUSED(sb_batch_uniform(context, SB_F64, 1, N, N, NNZ, s.row_ptr, col_idx, SB_ITEM_MAJOR, 0,
                             &batch),
            SB_ERROR_FORMAT, "expected strictly ascending indices");
    // Indices from 0, said to be from 1.
    REFUSED(sb_batch_uniform(context, SB_F64, 1, N, N, NNZ, s.row_ptr, s.col_idx, SB_ITEM_MAJOR, 1,
                             &batch),
            SB_ERROR_FORMAT, "row_ptr[0] is -1, expected 0");
    int64_t rows[] = {1, 1}, nnz[] = {1, 1};
    int32_t ptr[] = {0, 1, 0, 1}, col[] = {0, 7};
    REFUSED(sb_batch_ragged(context, SB_F64, 2, rows, NULL, nnz, ptr, col, 0, &batch),
            SB_ERROR_FORMAT, "item 1: col_idx[0] is 7");
    // One full row: ELL would pad all others to its length.
    enum { WIDE = 4000 };
    int32_t *wide_ptr = malloc((WIDE + 1) * sizeof *wide_ptr);
    int32_t *wide_col = malloc(2 * WIDE * sizeof *wide_col);
    double *values = calloc(2 * WIDE, sizeof *values);
    wide_ptr[0] = 0;
    for (int row = 0; row < WIDE; ++row) {
        wide_ptr[row + 1] = WIDE + row;
        wide_col[row] = row;
        wide_col[WIDE + row] = row;
    }
    sb_spmv_options options;
    sb_spmv *spmv;
    OK(sb_spmv_options_init(&options, sizeof options));
    options.format = "ell";
    OK(sb_batch_uniform(context, SB_F64, 1, WIDE, WIDE, 2 * WIDE - 1, wide_ptr, wide_col,
                        SB_ITEM_MAJOR, 0, &batch));
    REFUSED(sb_spmv_create(batch, values, 2 * WIDE - 1, &options, &spmv), SB_ERROR_FORMAT,
            "the limit is");
    OK(sb_batch_destroy(batch));
    free(wide_ptr), free(wide_col), free(values);
}

static void not_supported(void) {
    sb_batch *batch = uniform(context, &s, SB_SHARED, 0);
    sb_solver_options options = solver_options(NULL);
    sb_solver *solver, *on_device = NULL;
    sb_device_outcomes outcomes;
    OK(sb_solver_create(batch, s.values, NNZ, NULL, &solver));
    REFUSED(sb_solver_shift(solver, s.values, NNZ, s.b, ITEMS), SB_ERROR_UNSUPPORTED, "give one");
    REFUSED(sb_solver_enqueue(solver, SB_VALUES, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N),
            SB_ERROR_UNSUPPORTED, "use sb_solver_solve");
    REFUSED(sb_solver_finish(solver, NULL), SB_ERROR_UNSUPPORTED, "use sb_solver_solve");
    REFUSED(sb_solver_device_outcomes(solver, &outcomes), SB_ERROR_UNSUPPORTED, "sb_report");
    OK(sb_solver_prepare_guesses(solver));
    OK(sb_solver_destroy(solver));
    options.space = SB_DEVICE;
    REFUSED(sb_solver_create(batch, s.values, NNZ, &options, &on_device), SB_ERROR_UNSUPPORTED,
            "needs a context on a GPU");
    OK(sb_batch_destroy(batch));
}

static void wrong_conversions(void) {
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0), *ragged;
    sb_conversion *conversion = NULL;
    int64_t one[] = {1};
    int32_t ptr[] = {0, 1}, col[] = {0};
    REFUSED(sb_conversion_create(batch, "csr", 0, &conversion), SB_ERROR_ARGUMENT,
            "expected coo or ell");
    REFUSED(sb_conversion_create(batch, NULL, 0, &conversion), SB_ERROR_ARGUMENT, "format is NULL");
    REFUSED(sb_conversion_create(batch, "coo", 3, &conversion), SB_ERROR_ARGUMENT,
            "index_base is 3");
    OK(sb_batch_ragged(context, SB_F64, 1, one, NULL, one, ptr, col, 0, &ragged));
    REFUSED(sb_conversion_create(ragged, "coo", 0, &conversion), SB_ERROR_UNSUPPORTED,
            "one by one");
    OK(sb_conversion_create(batch, "ell", 0, &conversion));
    REFUSED(sb_conversion_indices(conversion, NULL, 0, col, 1), SB_ERROR_ARGUMENT,
            "col_idx has 1 entries, expected 15");
    REFUSED(sb_conversion_values(conversion, s.values, 1, x, 1), SB_ERROR_ARGUMENT,
            "values has 1 entries, expected 91");
    REFUSED(sb_conversion_values_back(conversion, s.values, 105, x, 7), SB_ERROR_ARGUMENT,
            "values has 7 entries, expected 91");
    OK(sb_conversion_destroy(conversion));
    OK(sb_batch_destroy(ragged));
    OK(sb_batch_destroy(batch));
}

static void no_gpu(void) {
    sb_context_options options;
    sb_context *gpu = NULL;
    OK(sb_context_options_init(&options, sizeof options));
    options.backend = "gpu";
    options.ordinal = 99;
    REFUSED(sb_context_create(&options, &gpu), SB_ERROR_GPU, "run on the CPU");
    CHECK(gpu == NULL);
    options.backend = "auto";
    OK(sb_context_create(&options, &gpu));
    OK(sb_context_destroy(gpu));
}

static void not_factored_and_stopped(void) {
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver *solver = solver_of(batch, "lu");
    sb_report *report = NULL;
    uint8_t status;
    REFUSED(solve(solver, SB_KEPT), SB_ERROR_NOT_FACTORED, "sb_solver_factor");
    REFUSED(solve(solver, SB_KEPT_TRANSPOSED), SB_ERROR_NOT_FACTORED, "sb_solver_factor");
    REFUSED(sb_solver_report(solver, &report), SB_ERROR_NOT_FACTORED, "no report");
    OK(sb_solver_stop(solver));
    REFUSED(solve(solver, SB_VALUES), SB_ERROR_STOPPED, "0 of 7 systems had ended");
    OK(solve(solver, SB_VALUES));
    OK(sb_solver_report(solver, &report));
    REFUSED(sb_report_statuses(report, &status, 1), SB_ERROR_ARGUMENT,
            "out has 1 entries, expected 7");
    REFUSED(sb_report_advice(report, 7, NULL, 0), SB_ERROR_ARGUMENT, "expected a number below 7");
    REFUSED(sb_report_history(report, -1, NULL, 0, NULL), SB_ERROR_ARGUMENT, "system is -1");
    OK(sb_report_destroy(report));
    OK(sb_solver_destroy(solver));
    // No entry on the diagonal of row 1.
    int32_t ptr[] = {0, 1, 2}, col[] = {0, 0};
    OK(sb_batch_destroy(batch));
    OK(sb_batch_uniform(context, SB_F64, 1, 2, 2, 2, ptr, col, SB_ITEM_MAJOR, 0, &batch));
    OK(sb_solver_create(batch, s.values, 2, NULL, &solver));
    REFUSED(sb_solver_shift(solver, s.values, 2, s.b, 1), SB_ERROR_ARGUMENT,
            "no entry on the diagonal of row 1");
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
}

// A batch that takes a while.
enum { LARGE = 300000 };

static void *solve_large(void *solver) {
    double *b = malloc(LARGE * N * sizeof *b), *large_x = malloc(LARGE * N * sizeof *large_x);
    for (int k = 0; k < LARGE * N; ++k) b[k] = 1.0;
    OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, b, LARGE * N, large_x, LARGE * N, NULL));
    free(b), free(large_x);
    return NULL;
}

static void two_calls_of_a_solver(void) {
    sb_batch *batch;
    sb_solver *solver;
    int busy = 0;
    OK(sb_batch_uniform(context, SB_F64, LARGE, N, N, NNZ, s.row_ptr, s.col_idx, SB_SHARED, 0,
                        &batch));
    OK(sb_solver_create(batch, s.values, NNZ, NULL, &solver));
    for (int attempt = 0; attempt < 50 && !busy; ++attempt) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, solve_large, solver) == 0);
        for (int look = 0; look < 1000 && !busy; ++look) {
            int32_t keeps;
            busy = sb_solver_keeps_factors(solver, &keeps) == SB_ERROR_BUSY;
            if (!busy) usleep(50);
        }
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(busy);
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
}

static double large_b[LARGE * N], large_x[LARGE * N];

static void *solve_into_large_x(void *solver) {
    OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, large_b, LARGE * N, large_x, LARGE * N,
                       NULL));
    return NULL;
}

// A solver that is destroyed in the middle of a solve: x is complete when its handle is gone.
static void destroying_waits_for_the_call_that_runs(void) {
    sb_batch *batch;
    int busy = 0;
    OK(sb_batch_uniform(context, SB_F64, LARGE, N, N, NNZ, s.row_ptr, s.col_idx, SB_SHARED, 0,
                        &batch));
    for (int place = 0; place < LARGE * N; ++place) large_b[place] = 1.0;
    for (int attempt = 0; attempt < 50 && !busy; ++attempt) {
        pthread_t thread;
        sb_solver *solver;
        int32_t keeps;
        OK(sb_solver_create(batch, s.values, NNZ, NULL, &solver));
        memset(large_x, 0, sizeof large_x);
        CHECK(pthread_create(&thread, NULL, solve_into_large_x, solver) == 0);
        for (int look = 0; look < 1000 && !busy; ++look) {
            busy = sb_solver_keeps_factors(solver, &keeps) == SB_ERROR_BUSY;
            if (!busy) usleep(50);
        }
        // A thread that has not begun by then would find no solver.
        if (!busy) CHECK(pthread_join(thread, NULL) == 0);
        OK(sb_solver_destroy(solver));
        for (int place = 0; place < LARGE * N; ++place) CHECK(large_x[place] != 0.0);
        if (busy) CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(busy);
    OK(sb_batch_destroy(batch));
}

static void *message_of_new_thread(void *unused) {
    char message[64] = "not empty";
    (void)unused;
    OK(sb_last_error(NULL, message, sizeof message));
    CHECK(message[0] == '\0');
    return NULL;
}

static void messages(void) {
    sb_context *other = cpu_context(1);
    sb_batch *batch = NULL;
    char message[512], cut[6];
    pthread_t thread;
    CHECK(sb_batch_uniform(other, SB_F64, -1, 0, 0, 0, NULL, NULL, 0, 0, &batch) != SB_OK);
    CHECK(sb_solver_factor(NULL) != SB_OK);
    OK(sb_last_error(other, message, sizeof message));
    CHECK(strncmp(message, "nitems is -1", 12) == 0);
    OK(sb_last_error(NULL, message, sizeof message));
    CHECK(strcmp(message, "solver is NULL") == 0);
    OK(sb_last_error(NULL, cut, sizeof cut));
    CHECK(strcmp(cut, "solve") == 0);
    CHECK(pthread_create(&thread, NULL, message_of_new_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(sb_status_name(SB_ERROR_BUSY), "SB_ERROR_BUSY") == 0);
    CHECK(sb_status_name(99) == NULL && sb_outcome_name(99) == NULL && sb_rung_name(99) == NULL);
    OK(sb_context_destroy(other));
    REFUSED(sb_last_error(other, message, sizeof message), SB_ERROR_BAD_HANDLE,
            "no living context");
}

static void forked_processes(void) {
    sb_context *threads = cpu_context(2);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_batch *with_threads = uniform(threads, &s, SB_ITEM_MAJOR, 0);
    sb_solver *solver = solver_of(batch, "lu"), *other = solver_of(with_threads, "lu");
    OK(solve(solver, SB_VALUES));
    OK(solve(other, SB_VALUES));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        REFUSED(solve(solver, SB_VALUES), SB_ERROR_FORKED, "create a context");
        REFUSED(solve(other, SB_VALUES), SB_ERROR_FORKED, "create a context");
        sb_context *own = cpu_context(2);
        sb_batch *own_batch = uniform(own, &s, SB_ITEM_MAJOR, 0);
        sb_solver *own_solver = solver_of(own_batch, "lu");
        OK(solve(own_solver, SB_VALUES));
        OK(sb_context_destroy(threads));
        // At an exit valgrind would call what the parent's threads have lost.
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(sb_solver_destroy(solver));
    OK(sb_solver_destroy(other));
    OK(sb_batch_destroy(batch));
    OK(sb_batch_destroy(with_threads));
    OK(sb_context_destroy(threads));
}

static void too_many_systems(void) {
    sb_batch *batch;
    sb_solver *solver = NULL;
    int32_t ptr[] = {0, 1}, col[] = {0};
    double value = 2.0;
    OK(sb_batch_uniform(context, SB_F64, INT64_MAX / 16, 1, 1, 1, ptr, col, SB_SHARED, 0, &batch));
    REFUSED(sb_solver_create(batch, &value, 1, NULL, &solver), SB_ERROR_FORMAT,
            "the largest supported is");
    CHECK(solver == NULL);
    OK(sb_batch_destroy(batch));
}

// A library without MPI says so, and divides items all the same.
static void ranks_without_mpi(void) {
    sb_ranks *ranks = (sb_ranks *)1;
    int64_t first[3];
    double costs[] = {1.0, 1.0, 4.0};
    REFUSED(sb_ranks_create(context, 0, 1.0, &ranks), SB_ERROR_UNSUPPORTED, "install-mpi.sh");
    CHECK(ranks == NULL);
    REFUSED(sb_ranks_create(context, 0, -1.0, &ranks), SB_ERROR_ARGUMENT, "seconds is -1");
    REFUSED(sb_ranks_create(NULL, 0, 1.0, &ranks), SB_ERROR_BAD_HANDLE, "context is NULL");
    REFUSED(sb_ranks_create(context, 0, 1.0, NULL), SB_ERROR_ARGUMENT, "ranks");
    REFUSED(sb_ranks_place(NULL, NULL, NULL, NULL, NULL, NULL), SB_ERROR_BAD_HANDLE, "ranks is NULL");
    REFUSED(sb_ranks_agree(NULL, SB_OK, NULL), SB_ERROR_BAD_HANDLE, "ranks is NULL");
    REFUSED(sb_ranks_check_solver(NULL, NULL), SB_ERROR_BAD_HANDLE, "ranks is NULL");
    REFUSED(sb_ranks_report(NULL, NULL, NULL), SB_ERROR_BAD_HANDLE, "ranks is NULL");
    OK(sb_ranks_destroy(NULL));
    OK(sb_ranks_shares(costs, 3, 2, first));
    CHECK(first[0] == 0 && first[1] == 2 && first[2] == 3);
    costs[1] = -1.0;
    REFUSED(sb_ranks_shares(costs, 3, 2, first), SB_ERROR_ARGUMENT, "-1 for item 1");
    REFUSED(sb_ranks_shares(costs, 1, 0, first), SB_ERROR_ARGUMENT, "nranks is 0");
    REFUSED(sb_ranks_shares(NULL, 1, 1, first), SB_ERROR_ARGUMENT, "costs is NULL");
    REFUSED(sb_ranks_shares(costs, 1, 1, NULL), SB_ERROR_ARGUMENT, "first is NULL");
}

int main(void) {
    s = tridiagonal(0);
    context = cpu_context(0);
    wrong_handles();
    wrong_structs_and_options();
    wrong_allocators();
    wrong_arrays();
    no_matrices();
    not_supported();
    wrong_conversions();
    no_gpu();
    not_factored_and_stopped();
    two_calls_of_a_solver();
    destroying_waits_for_the_call_that_runs();
    messages();
    forked_processes();
    too_many_systems();
    ranks_without_mpi();
    OK(sb_context_destroy(context));
    puts("errors: all passed");
    return 0;
}
