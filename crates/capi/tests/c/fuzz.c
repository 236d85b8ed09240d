// Calls in random order with random but bounded arguments, by two threads that share all objects:
// living, destroyed, foreign and null handles, wrong lengths, options and sizes of structs.
//
//     fuzz [SECONDS [SEED]]      default: 30 35
//
// No call may crash or find a fault of the library, each returns a code of the header, and a solve
// afterwards gives the same bits as one before. Arrays have at least the length that a call says,
// and strings end: the library trusts those.
#include <pthread.h>
#include <time.h>

#include "check.h"

enum { ROOM = 4096, SLOTS = 12, KINDS = 6, ARRAYS = 5, CODES = 12 };
enum { CONTEXT, BATCH, SOLVER, SPMV, REPORT, CONVERSION };

// Arrays that are read: good values of `tridiagonal`, random ones, 0, NaN, and ones.
static double inputs[ARRAYS][ROOM];
static uint8_t masks[ROOM];

// Handles that are shared by the threads; destroyed ones stay for a while.
static void *objects[KINDS][SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static time_t end;

typedef struct {
    uint64_t state;
    uint64_t calls[CODES];
    double x[ROOM];
    int32_t indices[ROOM];
} thread;

static uint64_t draw(thread *t) {
    t->state ^= t->state << 13;
    t->state ^= t->state >> 7;
    t->state ^= t->state << 17;
    return t->state;
}

static int64_t below(thread *t, int64_t bound) { return (int64_t)(draw(t) % (uint64_t)bound); }

static int chance(thread *t, int percent) { return below(t, 100) < percent; }

// A handle: mostly of the kind, else NULL, of another kind, or an address.
static void *handle(thread *t, int kind) {
    if (chance(t, 2)) return NULL;
    if (chance(t, 1)) return &objects;
    if (chance(t, 3)) kind = (int)below(t, KINDS);
    pthread_mutex_lock(&lock);
    void *found = objects[kind][below(t, SLOTS)];
    pthread_mutex_unlock(&lock);
    return found;
}

// Notes what a call returned.
static sb_status told(thread *t, sb_status status) {
    if (status < 0 || status >= CODES || status == SB_ERROR_INTERNAL) {
        char message[512];
        sb_last_error(NULL, message, sizeof message);
        fprintf(stderr, "code %d: %s\n", (int)status, message);
        abort();
    }
    ++t->calls[status];
    return status;
}

static sb_status destroy(int kind, void *object) {
    switch (kind) {
    case CONTEXT: return sb_context_destroy(object);
    case BATCH: return sb_batch_destroy(object);
    case SOLVER: return sb_solver_destroy(object);
    case SPMV: return sb_spmv_destroy(object);
    case REPORT: return sb_report_destroy(object);
    default: return sb_conversion_destroy(object);
    }
}

// Keeps a new object in a slot, in place of one that is destroyed.
static void keep(thread *t, int kind, sb_status status, void *object) {
    CHECK((told(t, status) == SB_OK) == (object != NULL));
    if (object == NULL) return;
    pthread_mutex_lock(&lock);
    void **slot = &objects[kind][below(t, SLOTS)];
    void *before = *slot;
    *slot = object;
    pthread_mutex_unlock(&lock);
    told(t, destroy(kind, before));
}

// The length that is right, or another one within the room of arrays.
static int64_t length(thread *t, int64_t right) {
    if (chance(t, 85) && right <= ROOM) return right;
    return below(t, 40) == 0 ? INT64_MIN : below(t, ROOM / 8) - 2;
}

static const void *input(thread *t) {
    if (chance(t, 2)) return NULL;
    const char *array = (const char *)inputs[chance(t, 80) ? 0 : below(t, ARRAYS)];
    return chance(t, 1) ? array + 1 : array;
}

static const char *name(thread *t) {
    const char *names[] = {
        NULL,   "auto",    "cg",   "bicgstab",   "lu",  "pivoting-lu",  "none", "jacobi",
        "ilu0", "ic0",     "csr",  "ell",        "coo", "block-jacobi", "rows", "natural",
        "f32",  "working", "nope", "min-degree", "",    "\xff\xfe",
    };
    return names[below(t, (int64_t)(sizeof names / sizeof *names))];
}

static double tolerance(thread *t) {
    const double all[] = {SB_DEFAULT, 1e-8, 0.0, 1e3, -2.0, NAN, INFINITY, 1e-300};
    return all[below(t, 8)];
}

static void new_context(thread *t) {
    sb_context_options options;
    sb_context *made = NULL;
    told(t, sb_context_options_init(&options, sizeof options - (chance(t, 5) ? 8 : 0)));
    OK(sb_context_options_init(&options, sizeof options));
    if (chance(t, 5)) options.struct_size = (size_t)below(t, 100);
    if (chance(t, 10)) options.backend = name(t);
    if (chance(t, 5)) options.ordinal = (int32_t)below(t, 5) - 2;
    options.threads = (uint32_t)below(t, 3);
    sb_status status = sb_context_create(chance(t, 5) ? NULL : &options, &made);
    keep(t, CONTEXT, status, made);
}

static int32_t number(thread *t, int32_t below_this) {
    return (int32_t)(chance(t, 97) ? below(t, below_this) : below(t, 9) - 4);
}

static void new_batch(thread *t) {
    sb_context *context = handle(t, CONTEXT);
    sb_batch *made = NULL;
    int32_t base = number(t, 2);
    systems s = tridiagonal(base == 1);
    const int32_t *col_idx = s.col_idx;
    int64_t nnz = NNZ;
    if (chance(t, 10)) {
        for (int entry = 0; entry < 64; ++entry) t->indices[entry] = number(t, N);
        col_idx = t->indices;
        nnz = below(t, 60) - 2;
    }
    sb_status status;
    if (chance(t, 60)) {
        int64_t rows = chance(t, 97) ? N : below(t, N + 2) - 1;
        status = sb_batch_uniform(context, number(t, 2), below(t, ITEMS + 1), rows,
                                  chance(t, 97) ? rows : N + 1, nnz, s.row_ptr, col_idx,
                                  number(t, 3), base, &made);
    } else {
        int64_t sizes[ITEMS], entries[ITEMS];
        int32_t pointers[ITEMS * (N + 1)], columns[ITEMS * NNZ];
        int64_t items = below(t, ITEMS + 1);
        for (int item = 0; item < ITEMS; ++item) {
            sizes[item] = chance(t, 99) ? N : below(t, N + 2) - 1;
            entries[item] = chance(t, 99) ? NNZ : below(t, NNZ + 2) - 1;
            memcpy(pointers + item * (N + 1), s.row_ptr, sizeof s.row_ptr);
            memcpy(columns + item * NNZ, s.col_idx, sizeof s.col_idx);
        }
        for (int item = 0; item < ITEMS; ++item) {
            // The arrays are as long as the sizes say.
            if (sizes[item] > N) sizes[item] = N;
            if (entries[item] > NNZ) entries[item] = NNZ;
        }
        status = sb_batch_ragged(context, number(t, 2), items, sizes, chance(t, 90) ? NULL : sizes,
                                 entries, pointers, columns, base, &made);
    }
    keep(t, BATCH, status, made);
}

static int64_t values_of(thread *t, sb_batch *batch) {
    int64_t nnz = 0;
    told(t, sb_batch_sizes(batch, NULL, NULL, &nnz));
    return length(t, chance(t, 75) ? nnz : NNZ);
}

// Arrays of limits have room for all systems: at most ITEMS items and 3 right-hand sides.
static sb_solver_options random_options(thread *t) {
    sb_solver_options options;
    OK(sb_solver_options_init(&options, sizeof options));
    if (chance(t, 3)) options.struct_size = (size_t)below(t, 400);
    if (chance(t, 70)) options.method = name(t);
    if (chance(t, 20)) options.precond = name(t);
    if (chance(t, 5)) options.order = name(t);
    if (chance(t, 5)) options.precond_precision = name(t);
    if (chance(t, 5)) options.inner_precision = name(t);
    if (chance(t, 5)) options.lu_form = name(t);
    if (chance(t, 10)) options.format = name(t);
    if (chance(t, 10)) options.kernel = name(t);
    if (chance(t, 10)) options.block_size = below(t, 200) - 3;
    if (chance(t, 30)) options.nrhs = below(t, 5) - 1;
    if (chance(t, 20)) options.rtol = tolerance(t);
    if (chance(t, 20)) options.atol = tolerance(t);
    if (chance(t, 10)) options.maxiter = (uint32_t)below(t, 2000);
    if (chance(t, 10)) options.max_restarts = (uint32_t)below(t, 9);
    if (chance(t, 5)) options.rtol_each = inputs[below(t, ARRAYS)];
    if (chance(t, 5)) options.floor = tolerance(t);
    options.fallback = number(t, 2);
    options.history = number(t, 2);
    if (chance(t, 3)) options.space = number(t, 2);
    if (chance(t, 3)) options.vectors = number(t, 2);
    return options;
}

static void new_solver(thread *t) {
    sb_batch *batch = handle(t, BATCH);
    sb_solver_options options = random_options(t);
    const sb_solver_options *given = chance(t, 10) ? NULL : &options;
    sb_solver *made = NULL;
    int64_t nvalues = values_of(t, batch);
    if (chance(t, 5)) {
        told(t, sb_solver_memory(batch, input(t), nvalues, given, NULL, NULL, NULL));
    }
    sb_status status = sb_solver_create(batch, input(t), nvalues, given, &made);
    keep(t, SOLVER, status, made);
}

static sb_limits random_limits(thread *t) {
    sb_limits limits;
    OK(sb_limits_init(&limits, sizeof limits));
    if (chance(t, 5)) limits.struct_size = (size_t)below(t, 80);
    if (chance(t, 30)) limits.rtol = tolerance(t);
    if (chance(t, 30)) limits.atol = tolerance(t);
    if (chance(t, 30)) limits.maxiter = below(t, 900) - 2;
    if (chance(t, 10)) limits.atol_each = inputs[below(t, ARRAYS)];
    return limits;
}

static int64_t rows(thread *t) {
    return length(t, N * (chance(t, 60) ? ITEMS : 1 + below(t, ITEMS)) * (1 + below(t, 3) / 2));
}

static void use_solver(thread *t) {
    sb_solver *solver = handle(t, SOLVER);
    sb_limits limits = random_limits(t);
    sb_device_outcomes outcomes;
    sb_report *report = NULL;
    int32_t keeps, by = number(t, 5), guess = number(t, 2);
    int64_t failed = 0, nb = rows(t), nx = chance(t, 95) ? nb : rows(t);
    void *x = chance(t, 98) ? t->x : NULL;
    switch (below(t, 12)) {
    case 0: told(t, sb_solver_set_values(solver, input(t), length(t, ITEMS * NNZ))); break;
    case 1:
        told(t, sb_solver_shift(solver, input(t), length(t, ITEMS * NNZ), input(t),
                                chance(t, 50) ? 1 : length(t, ITEMS)));
        break;
    case 2: told(t, sb_solver_factor(solver)); break;
    case 3: told(t, sb_solver_keeps_factors(solver, chance(t, 97) ? &keeps : NULL)); break;
    case 4: told(t, sb_solver_set_limits(solver, chance(t, 97) ? &limits : NULL)); break;
    case 5:
        told(t, sb_solver_solve_with(solver, by, guess, input(t), nb, x, nx, &limits,
                                     chance(t, 70) ? masks : NULL,
                                     chance(t, 70) ? length(t, ITEMS) : 0, &failed));
        break;
    case 6:
        told(t, sb_solver_enqueue(solver, by, guess, input(t), nb, x, nx));
        told(t, sb_solver_finish(solver, &failed));
        break;
    case 7:
        told(t, sb_solver_device_outcomes(solver, &outcomes));
        told(t, sb_solver_prepare_guesses(solver));
        if (chance(t, 20)) told(t, sb_solver_stop(solver));
        break;
    case 8:;
        sb_status status = sb_solver_report(solver, chance(t, 97) ? &report : NULL);
        keep(t, REPORT, status, report);
        break;
    default: told(t, sb_solver_solve(solver, by, guess, input(t), nb, x, nx, &failed));
    }
}

static void use_report(thread *t) {
    sb_report *report = handle(t, REPORT);
    int64_t nsystems = 0, needed = 0;
    size_t bytes = 0;
    uint8_t codes[ROOM];
    char text[600];
    told(t, sb_report_sizes(report, &nsystems, NULL));
    int64_t len = length(t, nsystems);
    told(t, sb_report_statuses(report, codes, len));
    for (int64_t system = 0; system < len && system < nsystems; ++system) {
        sb_outcome_name(codes[system]);
    }
    told(t, sb_report_rungs(report, codes, len));
    sb_rung_name(codes[0]);
    told(t, sb_report_iterations(report, (uint32_t *)t->indices, len));
    told(t, sb_report_restarts(report, (uint32_t *)t->indices, len));
    told(t, sb_report_residual_norms(report, t->x, len));
    told(t, sb_report_rhs_norms(report, t->x, len));
    told(t, sb_report_accepted_by_floor(report, codes, len));
    told(t, sb_report_singular(report, codes, len));
    told(t, sb_report_history(report, below(t, 30) - 1, t->x, below(t, ROOM) - 1, &needed));
    told(t, sb_report_advice(report, below(t, 30) - 1, text, (size_t)below(t, 600)));
    told(t, sb_report_text(report, text, (size_t)below(t, 600), chance(t, 90) ? &bytes : NULL));
    told(t, sb_report_times(report, t->x, NULL));
}

static void use_products(thread *t) {
    sb_spmv *spmv = handle(t, SPMV);
    sb_batch *batch = handle(t, BATCH);
    sb_spmv_options options;
    sb_spmv *made = NULL;
    char text[300];
    int64_t nx = rows(t);
    switch (below(t, 4)) {
    case 0:
        OK(sb_spmv_options_init(&options, sizeof options));
        if (chance(t, 3)) options.struct_size = (size_t)below(t, 100);
        if (chance(t, 30)) options.format = name(t);
        if (chance(t, 20)) options.kernel = name(t);
        if (chance(t, 20)) options.nrhs = below(t, 5) - 1;
        if (chance(t, 3)) options.space = number(t, 2);
        sb_status status = sb_spmv_create(batch, input(t), values_of(t, batch),
                                          chance(t, 10) ? NULL : &options, &made);
        keep(t, SPMV, status, made);
        break;
    case 1: told(t, sb_spmv_set_values(spmv, input(t), length(t, ITEMS * NNZ))); break;
    case 2: told(t, sb_spmv_text(spmv, text, (size_t)below(t, 300), NULL)); break;
    default:
        told(t, sb_spmv_apply(spmv, tolerance(t), input(t), nx, tolerance(t), t->x,
                              chance(t, 95) ? nx : rows(t)));
    }
}

static void use_conversion(thread *t) {
    sb_conversion *conversion = handle(t, CONVERSION), *made = NULL;
    int64_t nrow = 0, ncol = 0;
    if (chance(t, 40)) {
        sb_status status = sb_conversion_create(handle(t, BATCH), name(t), number(t, 2), &made);
        keep(t, CONVERSION, status, made);
        return;
    }
    told(t, sb_conversion_sizes(conversion, &nrow, &ncol));
    told(t, sb_conversion_indices(conversion, t->indices, length(t, nrow), t->indices + ROOM / 2,
                                  nrow <= ROOM / 2 ? ncol : 0));
    told(t, sb_conversion_values(conversion, input(t), length(t, ITEMS * NNZ), t->x,
                                 length(t, ITEMS * ncol)));
    told(t, sb_conversion_values_back(conversion, input(t), length(t, ITEMS * ncol), t->x,
                                      length(t, ITEMS * NNZ)));
}

static void *calls_at_random(void *own) {
    thread *t = own;
    while (time(NULL) < end) {
        int64_t kind = below(t, 100);
        char message[40];
        if (kind < 1) new_context(t);
        else if (kind < 8) new_batch(t);
        else if (kind < 22) new_solver(t);
        else if (kind < 70) use_solver(t);
        else if (kind < 78) use_report(t);
        else if (kind < 88) use_products(t);
        else if (kind < 92) use_conversion(t);
        else if (kind < 96) {
            told(t, sb_last_error(handle(t, CONTEXT), message, (size_t)below(t, 40)));
            sb_status_name(number(t, CODES));
        } else {
            // The handle stays in its slot.
            int of = (int)below(t, KINDS);
            if (of != CONTEXT || chance(t, 20)) told(t, destroy(of, handle(t, of)));
        }
    }
    return NULL;
}

// A solve whose bits are known.
static void solve(double *x) {
    systems s = tridiagonal(0);
    sb_context *context = cpu_context(1);
    sb_batch *batch = uniform(context, &s, SB_ITEM_MAJOR, 0);
    sb_solver *solver;
    int64_t failed;
    OK(sb_solver_create(batch, s.values, ITEMS * NNZ, NULL, &solver));
    OK(sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, s.b, ITEMS * N, x, ITEMS * N, &failed));
    CHECK(failed == 0);
    for (int item = 0; item < ITEMS; ++item) {
        CHECK(residual(s.row_ptr, s.col_idx, N, 0, s.values + item * NNZ, s.b + item * N,
                       x + item * N, 0) < 1e-8);
    }
    OK(sb_solver_destroy(solver));
    OK(sb_batch_destroy(batch));
    OK(sb_context_destroy(context));
}

int main(int argc, char **argv) {
    static thread threads[2];
    static double before[ITEMS * N], after[ITEMS * N];
    long seconds = argc > 1 ? atol(argv[1]) : 30, seed = argc > 2 ? atol(argv[2]) : 35;
    systems s = tridiagonal(0);
    thread chosen = {.state = (uint64_t)seed * 2654435761u + 1};
    for (int place = 0; place < ROOM; ++place) {
        inputs[0][place] = s.values[place % (ITEMS * NNZ)];
        inputs[1][place] = (double)below(&chosen, 2000) / 500.0 - 2.0;
        inputs[3][place] = place % 5 == 0 ? NAN : 1.0;
        inputs[4][place] = 1.0;
        masks[place] = place % 3 != 0;
    }
    solve(before);
    end = time(NULL) + seconds;
    pthread_t running[2];
    for (int k = 0; k < 2; ++k) {
        threads[k].state = draw(&chosen);
        CHECK(pthread_create(&running[k], NULL, calls_at_random, &threads[k]) == 0);
    }
    for (int k = 0; k < 2; ++k) CHECK(pthread_join(running[k], NULL) == 0);
    for (int kind = 0; kind < KINDS; ++kind) {
        for (int slot = 0; slot < SLOTS; ++slot) {
            sb_status status = destroy(kind, objects[kind][slot]);
            CHECK(status == SB_OK || status == SB_ERROR_BAD_HANDLE);
        }
    }
    solve(after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    printf("fuzz: seed %ld, calls by code:", seed);
    for (int code = 0; code < CODES; ++code) {
        uint64_t calls = threads[0].calls[code] + threads[1].calls[code];
        if (calls > 0) printf(" %s %llu", sb_status_name(code), (unsigned long long)calls);
    }
    puts("; all passed");
    return 0;
}
