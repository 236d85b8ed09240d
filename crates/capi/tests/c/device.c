// Solves and products of data on a GPU. Memory is that of the driver's API, so that this builds
// without CUDA. Without a GPU it is skipped, and says so; with SPARSEBATCH_REQUIRE_GPU set it fails
// then.
#include <dlfcn.h>

#include "check.h"

typedef unsigned long long pointer;

static int (*allocate)(pointer *, size_t), (*release)(pointer), (*to_device)(pointer, const void *,
        size_t),
    (*to_host)(void *, pointer, size_t), (*create_stream)(void **, unsigned),
            (*synchronise)(void *),
    (*set_context)(void *), (*retain)(void **, int), (*initialise)(unsigned);

// The driver's functions, and its primary context for this thread.
static void use_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *primary = NULL;
    CHECK(library != NULL);
    *(void **)&initialise = dlsym(library, "cuInit");
    *(void **)&allocate = dlsym(library, "cuMemAlloc_v2");
    *(void **)&release = dlsym(library, "cuMemFree_v2");
    *(void **)&to_device = dlsym(library, "cuMemcpyHtoD_v2");
    *(void **)&to_host = dlsym(library, "cuMemcpyDtoH_v2");
    *(void **)&create_stream = dlsym(library, "cuStreamCreate");
    *(void **)&synchronise = dlsym(library, "cuStreamSynchronize");
    *(void **)&set_context = dlsym(library, "cuCtxSetCurrent");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    CHECK(initialise(0) == 0 && retain(&primary, 0) == 0 && set_context(primary) == 0);
}

static pointer upload(const void *data, size_t bytes) {
    pointer place = 0;
    CHECK(allocate(&place, bytes) == 0 && to_device(place, data, bytes) == 0);
    return place;
}

#define ON_DEVICE(place) ((void *)(uintptr_t)(place))

static sb_context *context;
static systems s;
static void *stream;

static void check_solution(pointer at, const double *values, int transposed) {
    double x[ITEMS * N];
    CHECK(to_host(x, at, sizeof x) == 0);
    for (int item = 0; item < ITEMS; ++item) {
        CHECK(residual(s.row_ptr, s.col_idx, N, 0, values + item * NNZ, s.b + item * N,
                x + item * N,
                       transposed) < 1e-8);
    }
}

static void solves(void) {
    pointer values = upload(s.values, sizeof s.values), b = upload(s.b, sizeof s.b);
    double zeros[ITEMS * N] = {0}, dt[ITEMS], shifted[ITEMS * NNZ], host_x[ITEMS * N];
    pointer x = upload(zeros, sizeof zeros), steps;
    const char *methods[] = {NULL, "bicgstab", "lu"};
    int64_t rows = ITEMS * N, failed;
    for (int item = 0; item < ITEMS; ++item) {
        dt[item] = 0.01 * (item + 1);
        for (int row = 0, k = 0; row < N; ++row) {
            for (; k < s.row_ptr[row + 1]; ++k) {
                double diagonal = s.col_idx[k] == row ? 1 / dt[item] : 0.0;
                shifted[item * NNZ + k] = -s.values[item * NNZ + k] + diagonal;
            }
        }
    }
    steps = upload(dt, sizeof dt);
    for (int method = 0; method < 3; ++method) {
        sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
        sb_solver_options options = solver_options(methods[method]);
        sb_solver *solver;
        sb_report *report;
        sb_device_outcomes outcomes;
        uint8_t statuses[ITEMS];
        options.space = SB_DEVICE;
        options.stream = stream;
        OK(sb_solver_create(batch, ON_DEVICE(values), ITEMS * NNZ, &options, &solver));
        REFUSED(sb_solver_finish(solver, &failed), SB_ERROR_NOT_FACTORED, "sb_solver_enqueue");
        OK(sb_solver_enqueue(solver, SB_VALUES, SB_GUESS_ZERO, ON_DEVICE(b), rows, ON_DEVICE(x),
                rows));
        REFUSED(sb_solver_shift(solver, ON_DEVICE(values), ITEMS * NNZ, ON_DEVICE(steps), ITEMS),
                SB_ERROR_ARGUMENT, "expected a call of sb_solver_finish before");
        OK(sb_solver_finish(solver, &failed));
        CHECK(failed == 0);
        check_solution(x, s.values, 0);
        OK(sb_solver_device_outcomes(solver, &outcomes));
        CHECK(outcomes.len == ITEMS);
        CHECK(to_host(statuses, (pointer)(uintptr_t)outcomes.statuses, ITEMS) == 0);
        for (int item = 0; item < ITEMS; ++item) CHECK(statuses[item] == 0);
        OK(sb_solver_report(solver, &report));
        OK(sb_report_destroy(report));
        OK(sb_solver_prepare_guesses(solver));
        OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_IN_X, ON_DEVICE(b), rows, ON_DEVICE(x), rows,
                           &failed));
        CHECK(failed == 0);
        // Limits of a call, and systems that are left out; 7.0 is the guess of item 1, whose
        // right-hand side is 0 in the last of these solves.
        const uint8_t active[ITEMS] = {1, 0, 1, 1, 1, 1, 1};
        sb_limits limits;
        OK(sb_limits_init(&limits, sizeof limits));
        limits.atol = 1e9;
        OK(sb_solver_solve_with(solver, SB_VALUES, SB_GUESS_ZERO, ON_DEVICE(b), rows, ON_DEVICE(x),
                                rows, &limits, NULL, 0, &failed));
        CHECK(failed == 0 && to_host(host_x, x, sizeof host_x) == 0 && host_x[0] == 0.0);
        OK(sb_solver_enqueue(solver, SB_VALUES, SB_GUESS_ZERO, ON_DEVICE(b), rows, ON_DEVICE(x),
                             rows));
        REFUSED(sb_solver_set_limits(solver, &limits), SB_ERROR_ARGUMENT, "sb_solver_finish");
        OK(sb_solver_finish(solver, &failed));
        check_solution(x, s.values, 0);
        for (int zero = 0; zero < 2; ++zero) {
            double guesses[ITEMS * N] = {0}, given_b[ITEMS * N];
            memcpy(given_b, s.b, sizeof given_b);
            for (int row = N; row < 2 * N; ++row) {
                guesses[row] = 7.0;
                if (zero) given_b[row] = 0.0;
            }
            CHECK(to_device(x, guesses, sizeof guesses) == 0);
            CHECK(to_device(b, given_b, sizeof given_b) == 0);
            OK(sb_solver_solve_with(solver, SB_VALUES, SB_GUESS_IN_X, ON_DEVICE(b), rows,
                                    ON_DEVICE(x), rows, NULL, active, ITEMS, &failed));
            CHECK(failed == 0 && to_host(host_x, x, sizeof host_x) == 0);
            for (int row = N; row < 2 * N; ++row) CHECK(host_x[row] == 7.0);
            for (int item = 0; item < ITEMS; ++item) {
                if (!active[item]) continue;
                CHECK(residual(s.row_ptr, s.col_idx, N, 0, s.values + item * NNZ, s.b + item * N,
                               host_x + item * N, 0) < 1e-8);
            }
        }
        CHECK(to_device(b, s.b, sizeof s.b) == 0);
        OK(sb_solver_factor(solver));
        OK(sb_solver_solve(solver, SB_KEPT, SB_GUESS_ZERO, ON_DEVICE(b), rows, ON_DEVICE(x), rows,
                &failed));
        CHECK(failed == 0);
        check_solution(x, s.values, 0);
        OK(sb_solver_solve(solver, SB_KEPT_TRANSPOSED, SB_GUESS_ZERO, ON_DEVICE(b), rows,
                ON_DEVICE(x), rows,
                           &failed));
        CHECK(failed == 0);
        check_solution(x, s.values, 1);
        REFUSED(sb_solver_shift(solver, ON_DEVICE(values), NNZ, ON_DEVICE(steps), ITEMS),
                SB_ERROR_ARGUMENT, "jacobian has 13 entries, expected 91");
        REFUSED(sb_solver_shift(solver, ON_DEVICE(values), ITEMS * NNZ, ON_DEVICE(steps), 1),
                SB_ERROR_ARGUMENT, "dt has 1 entries, expected 7");
        OK(sb_solver_shift(solver, ON_DEVICE(values), ITEMS * NNZ, ON_DEVICE(steps), ITEMS));
        OK(sb_solver_solve(solver, SB_NEAR, SB_GUESS_ZERO, ON_DEVICE(b), rows, ON_DEVICE(x), rows,
                &failed));
        check_solution(x, shifted, 0);
        OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, ON_DEVICE(b), rows, ON_DEVICE(x),
                rows, &failed));
        check_solution(x, shifted, 0);
        REFUSED(sb_solver_solve(solver, SB_TRANSPOSED, SB_GUESS_ZERO, ON_DEVICE(b), rows,
                ON_DEVICE(x), rows,
                                &failed),
                SB_ERROR_UNSUPPORTED, "SB_KEPT_TRANSPOSED");
        // Memory of the wrong kind, and lengths.
        REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, s.b, rows, ON_DEVICE(x), rows,
                &failed),
                SB_ERROR_ARGUMENT, "b lies in host memory");
        REFUSED(sb_solver_set_values(solver, s.values, ITEMS * NNZ), SB_ERROR_ARGUMENT,
                "in host memory");
        REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, ON_DEVICE(b), rows - 1,
                ON_DEVICE(x), rows,
                                &failed),
                SB_ERROR_ARGUMENT, "b has 34 entries, expected 35");
        REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, ON_DEVICE(b), rows, ON_DEVICE(b),
                rows,
                                &failed),
                SB_ERROR_ARGUMENT, "");
        OK(sb_solver_destroy(solver));
        // Data in host memory, solved by the GPU.
        options.space = SB_HOST;
        OK(sb_solver_create(batch, s.values, ITEMS * NNZ, &options, &solver));
        OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, s.b, rows, host_x, rows, &failed));
        CHECK(failed == 0);
        REFUSED(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, ON_DEVICE(b), rows, host_x, rows,
                &failed),
                SB_ERROR_ARGUMENT, "b lies on the GPU");
        OK(sb_solver_destroy(solver));
        OK(sb_batch_destroy(batch));
    }
    CHECK(release(values) == 0 && release(b) == 0 && release(x) == 0 && release(steps) == 0);
}

// Layouts whose matrices are not shifted on a device.
static void shifts_that_are_not_supported(void) {
    pointer values = upload(s.values, sizeof s.values), steps = upload(s.b, ITEMS * sizeof *s.b);
    const int32_t layouts[] = {SB_SHARED, SB_INTERLEAVED};
    const int64_t nvalues[] = {NNZ, ITEMS * NNZ};
    const char *messages[] = {"a shift of shared values", "a shift of interleaved values"};
    for (int layout = 0; layout < 2; ++layout) {
        sb_batch *batch = uniform(context, &s, layouts[layout], 0);
        sb_solver_options options = solver_options("bicgstab");
        sb_solver *solver;
        options.space = SB_DEVICE;
        options.stream = stream;
        OK(sb_solver_create(batch, ON_DEVICE(values), nvalues[layout], &options, &solver));
        REFUSED(sb_solver_shift(solver, ON_DEVICE(values), nvalues[layout], ON_DEVICE(steps),
                                ITEMS),
                SB_ERROR_UNSUPPORTED, messages[layout]);
        OK(sb_solver_destroy(solver));
        OK(sb_batch_destroy(batch));
    }
    CHECK(release(values) == 0 && release(steps) == 0);
}

static void products(void) {
    pointer values = upload(s.values, sizeof s.values), x = upload(s.b, sizeof s.b);
    double y[ITEMS * N];
    pointer on_device = upload(s.b, sizeof s.b);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_spmv_options options;
    sb_spmv *spmv;
    char text[256];
    OK(sb_spmv_options_init(&options, sizeof options));
    options.space = SB_DEVICE;
    options.stream = stream;
    OK(sb_spmv_create(batch, ON_DEVICE(values), ITEMS * NNZ, &options, &spmv));
    OK(sb_spmv_set_values(spmv, ON_DEVICE(values), ITEMS * NNZ));
    OK(sb_spmv_apply(spmv, 1.0, ON_DEVICE(x), ITEMS * N, 0.0, ON_DEVICE(on_device), ITEMS * N));
    CHECK(synchronise(stream) == 0 && to_host(y, on_device, sizeof y) == 0);
    for (int item = 0; item < ITEMS; ++item) {
        CHECK(residual(s.row_ptr, s.col_idx, N, 0, s.values + item * NNZ, y + item * N,
                s.b + item * N, 0) <
              1e-12);
    }
    OK(sb_spmv_text(spmv, text, sizeof text, NULL));
    CHECK(strncmp(text, "format: packed", 14) == 0);
    OK(sb_spmv_destroy(spmv));
    options.format = "ell";
    REFUSED(sb_spmv_create(batch, ON_DEVICE(values), ITEMS * NNZ, &options, &spmv),
            SB_ERROR_UNSUPPORTED,
            "leave them NULL");
    OK(sb_batch_destroy(batch));
    CHECK(release(values) == 0 && release(x) == 0 && release(on_device) == 0);
}

// What an allocator of the program has given out, and after how many calls it refuses.
typedef struct {
    size_t bytes, most;
    int calls, refuse_from;
} arena;

static void *allocate_from(size_t bytes, void *on, void *data) {
    arena *own = data;
    pointer place = 0;
    CHECK(on == stream);
    if (own->calls++ >= own->refuse_from || allocate(&place, bytes) != 0) return NULL;
    own->bytes += bytes;
    if (own->bytes > own->most) own->most = own->bytes;
    return ON_DEVICE(place);
}

static void release_to(void *address, size_t bytes, void *on, void *data) {
    arena *own = data;
    CHECK(on == stream && release((pointer)(uintptr_t)address) == 0);
    own->bytes -= bytes;
}

static void memory_of_the_program(void) {
    pointer values = upload(s.values, sizeof s.values), b = upload(s.b, sizeof s.b);
    double zeros[ITEMS * N] = {0};
    pointer x = upload(zeros, sizeof zeros);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver_options options = solver_options("lu");
    sb_spmv_options products;
    sb_solver *solver = NULL;
    sb_spmv *spmv = NULL;
    arena own = {0, 0, 0, 1 << 20};
    int64_t bytes, with_guesses, most, failed;
    options.space = SB_DEVICE;
    options.stream = stream;
    options.allocate = allocate_from;
    options.release = release_to;
    options.allocator_data = &own;
    OK(sb_solver_memory(batch, s.values, ITEMS * NNZ, &options, &bytes, &with_guesses, &most));
    CHECK(0 < bytes && bytes <= with_guesses && bytes <= most);
    OK(sb_solver_create(batch, ON_DEVICE(values), ITEMS * NNZ, &options, &solver));
    CHECK(own.bytes == (size_t)bytes);
    OK(sb_solver_prepare_guesses(solver));
    CHECK(own.bytes == (size_t)with_guesses);
    OK(sb_solver_factor(solver));
    OK(sb_solver_solve(solver, SB_KEPT, SB_GUESS_ZERO, ON_DEVICE(b), ITEMS * N, ON_DEVICE(x),
                       ITEMS * N, &failed));
    CHECK(failed == 0);
    check_solution(x, s.values, 0);
    OK(sb_solver_destroy(solver));
    CHECK(own.bytes == 0);
    // From every call on it may refuse: nothing is lost, and nothing ends the program.
    int needed = own.calls;
    for (int from = 0; from < needed; ++from) {
        own.calls = 0, own.refuse_from = from;
        sb_status status = sb_solver_create(batch, ON_DEVICE(values), ITEMS * NNZ, &options,
                                            &solver);
        if (status == SB_OK) {
            status = sb_solver_prepare_guesses(solver);
            if (status == SB_OK) status = sb_solver_factor(solver);
            if (from == 0) CHECK(status != SB_OK);
            OK(sb_solver_destroy(solver));
        }
        if (status != SB_OK) {
            char message[512];
            OK(sb_last_error(context, message, sizeof message));
            CHECK(status == SB_ERROR_OUT_OF_MEMORY && strstr(message, "returned NULL") != NULL);
        }
        CHECK(own.bytes == 0);
    }
    OK(sb_spmv_options_init(&products, sizeof products));
    products.space = SB_DEVICE;
    products.stream = stream;
    products.allocate = allocate_from;
    products.release = release_to;
    products.allocator_data = &own;
    own.calls = own.refuse_from = 0;
    REFUSED(sb_spmv_create(batch, ON_DEVICE(values), ITEMS * NNZ, &products, &spmv),
            SB_ERROR_OUT_OF_MEMORY, "returned NULL");
    own.refuse_from = 1 << 20;
    OK(sb_spmv_create(batch, ON_DEVICE(values), ITEMS * NNZ, &products, &spmv));
    CHECK(own.bytes > 0);
    OK(sb_spmv_destroy(spmv));
    CHECK(own.bytes == 0);
    OK(sb_batch_destroy(batch));
    CHECK(release(values) == 0 && release(b) == 0 && release(x) == 0);
}

static void more_than_the_memory(void) {
    // Values of one matrix, and guesses for 2^24 items of 4,000 rows.
    enum { ROWS = 4000 };
    static int32_t row_ptr[ROWS + 1], col_idx[ROWS];
    static double values[ROWS];
    for (int row = 0; row < ROWS; ++row) row_ptr[row + 1] = row + 1, col_idx[row] = row,
            values[row] = 2.0;
    pointer on_device = upload(values, sizeof values);
    sb_batch *batch;
    sb_solver *solver = NULL;
    sb_solver_options options = solver_options("bicgstab");
    options.space = SB_DEVICE;
    options.stream = stream;
    OK(sb_batch_uniform(context, SB_F64, 1 << 24, ROWS, ROWS, ROWS, row_ptr, col_idx, SB_SHARED, 0,
            &batch));
    sb_status status = sb_solver_create(batch, ON_DEVICE(on_device), ROWS, &options, &solver);
    if (status == SB_OK) {
        // Nothing that grows with the batch was needed before guesses are kept.
        status = sb_solver_prepare_guesses(solver);
        OK(sb_solver_destroy(solver));
    }
    CHECK(status == SB_ERROR_OUT_OF_MEMORY);
    OK(sb_batch_destroy(batch));
    CHECK(release(on_device) == 0);
}

int main(void) {
    sb_context_options options;
    OK(sb_context_options_init(&options, sizeof options));
    options.backend = "gpu";
    if (sb_context_create(&options, &context) != SB_OK) {
        char message[512];
        OK(sb_last_error(NULL, message, sizeof message));
        printf("device: skipped (%s)\n", message);
        return getenv("SPARSEBATCH_REQUIRE_GPU") != NULL;
    }
    int32_t has_gpu;
    OK(sb_context_has_gpu(context, &has_gpu));
    CHECK(has_gpu == 1);
    s = tridiagonal(0);
    use_driver();
    CHECK(create_stream(&stream, 1) == 0);
    solves();
    shifts_that_are_not_supported();
    products();
    memory_of_the_program();
    more_than_the_memory();
    OK(sb_context_destroy(context));
    puts("device: all passed");
    return 0;
}
