// Times NVIDIA cuDSS 1.0 as a peer for batches of sparse systems with one pattern: the pattern of
// the 5-point Laplacian on a square grid, in natural order, with unsymmetric values that differ
// from system to system. One JSON line for each case goes to stdout.
//
//   cudss_peer [--f32] [--batch] [--reordering N] GRID:SYSTEMS ...
//
//   --f32           values of 32 bits, not of 64
//   --batch         the objects for batches that need not be uniform, not the uniform batch
//   --reordering N  CUDSS_CONFIG_REORDERING_ALG: 0 default, 1 BTF and COLAMD, 2 COLAMD, 3 AMD,
//                   4 nested dissection, 5 none; a uniform batch refuses 1 and 2
//
// A case that fails prints its line with the status, and the next one follows. To compile, with
// the include and lib folders of the wheel nvidia-cudss-cu13 here (CUDSS_BUILD, if given, is the
// last number of the wheel's version, which neither the library nor its headers know):
//
//   nvcc -O2 -std=c++17 -arch=sm_90 -DCUDSS_BUILD=35 -I include cudss_peer.cu -o cudss_peer
//       -L lib -l:libcudss.so.1 -lcudart -Xlinker --allow-shlib-undefined
//
// The last option leaves libcublas.so.13 and libnvrtc.so.13, which the library needs, to the
// loader: at run time LD_LIBRARY_PATH names the folders of all three.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

#include "cudss.h"

// What ended a case: the status by name and the call that gave it.
struct Failure {
    std::string text;
};

static std::string name_of(cudaError_t status) { return cudaGetErrorName(status); }

static std::string name_of(cudssStatus_t status) {
    switch (status) {
    case CUDSS_STATUS_SUCCESS: return "CUDSS_STATUS_SUCCESS";
    case CUDSS_STATUS_NOT_INITIALIZED: return "CUDSS_STATUS_NOT_INITIALIZED";
    case CUDSS_STATUS_ALLOC_FAILED: return "CUDSS_STATUS_ALLOC_FAILED";
    case CUDSS_STATUS_INVALID_VALUE: return "CUDSS_STATUS_INVALID_VALUE";
    case CUDSS_STATUS_NOT_SUPPORTED: return "CUDSS_STATUS_NOT_SUPPORTED";
    case CUDSS_STATUS_EXECUTION_FAILED: return "CUDSS_STATUS_EXECUTION_FAILED";
    case CUDSS_STATUS_INTERNAL_ERROR: return "CUDSS_STATUS_INTERNAL_ERROR";
    case CUDSS_STATUS_IR_FAILED: return "CUDSS_STATUS_IR_FAILED";
    }
    return "cuDSS status " + std::to_string(static_cast<int>(status));
}

static bool is_success(cudaError_t status) { return status == cudaSuccess; }
static bool is_success(cudssStatus_t status) { return status == CUDSS_STATUS_SUCCESS; }

// CHECK ends the case; CHECK_QUIETLY is for clearing up, where it is too late to end anything.
#define CHECK(call)                                                                                \
    do {                                                                                           \
        const auto status_ = (call);                                                               \
        if (!is_success(status_)) throw Failure{name_of(status_) + " from " #call};                \
    } while (0)

#define CHECK_QUIETLY(call)                                                                        \
    do {                                                                                           \
        const auto status_ = (call);                                                               \
        if (!is_success(status_)) {                                                                \
            fprintf(stderr, "cudss_peer: %s from " #call "\n", name_of(status_).c_str());          \
        }                                                                                          \
    } while (0)

struct Options {
    bool f32 = false;
    bool batch = false;
    int reordering = -1; // -1 leaves the setting of the library
};

struct Case {
    int grid;
    int systems;
};

// A number that may be missing from a line of results.
struct Maybe {
    bool known = false;
    double value = 0;

    void operator=(double number) {
        known = std::isfinite(number);
        value = number;
    }
};

struct Results {
    int64_t n = 0;
    int64_t nnz = 0;
    int rounds = 0;
    Maybe refactor_and_solve_ms;
    Maybe refactor_and_solve_events_ms;
    Maybe solve_ms;
    Maybe analysis_ms;
    Maybe factor_nnz;
    Maybe max_relative_residual;
    std::string status = "success";
};

struct Pattern {
    std::vector<int> offsets;
    std::vector<int> columns;
};

// Rows with their columns in ascending order: the cells below, left, itself, right, and above.
static Pattern laplacian(int grid) {
    Pattern pattern;
    pattern.offsets.push_back(0);
    for (int row = 0; row < grid; row++) {
        for (int column = 0; column < grid; column++) {
            const int cell = row * grid + column;
            if (row > 0) pattern.columns.push_back(cell - grid);
            if (column > 0) pattern.columns.push_back(cell - 1);
            pattern.columns.push_back(cell);
            if (column + 1 < grid) pattern.columns.push_back(cell + 1);
            if (row + 1 < grid) pattern.columns.push_back(cell + grid);
            pattern.offsets.push_back(static_cast<int>(pattern.columns.size()));
        }
    }
    return pattern;
}

// SplitMix64: numbers in [0, 1) from a seed.
struct Random {
    uint64_t state;

    double next() {
        uint64_t bits = (state += 0x9e3779b97f4a7c15ull);
        bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
        bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
        return static_cast<double>((bits ^ (bits >> 31)) >> 11) * 0x1p-53;
    }
};

// The values of all systems, one system after another. Each diagonal entry exceeds the sum of the
// magnitudes of its row's other entries, so that no pivoting is needed.
template <typename T>
static std::vector<T> random_values(const Pattern &pattern, int systems, uint64_t seed) {
    Random random{seed};
    const int n = static_cast<int>(pattern.offsets.size()) - 1;
    std::vector<T> values(pattern.columns.size() * static_cast<size_t>(systems));
    size_t next = 0;
    for (int system = 0; system < systems; system++) {
        for (int row = 0; row < n; row++) {
            for (int at = pattern.offsets[row]; at < pattern.offsets[row + 1]; at++) {
                const double number = random.next();
                const bool diagonal = pattern.columns[at] == row;
                values[next++] = static_cast<T>(diagonal ? 4.5 + number / 2 : -0.5 - number / 2);
            }
        }
    }
    return values;
}

// ||b - A x|| / ||b|| of one system, in f64.
template <typename T>
static double relative_residual(const Pattern &pattern, const T *values, const T *x, const T *b) {
    const size_t n = pattern.offsets.size() - 1;
    double of_residual = 0;
    double of_b = 0;
    for (size_t row = 0; row < n; row++) {
        double residual = b[row];
        for (int at = pattern.offsets[row]; at < pattern.offsets[row + 1]; at++) {
            residual -= static_cast<double>(values[at]) * x[pattern.columns[at]];
        }
        of_residual += residual * residual;
        of_b += static_cast<double>(b[row]) * b[row];
    }
    return std::sqrt(of_residual / of_b);
}

// An array on the GPU.
template <typename E> struct Array {
    E *data = nullptr;
    size_t count = 0;

    explicit Array(size_t count) : count(count) { CHECK(cudaMalloc(&data, bytes())); }
    explicit Array(const std::vector<E> &host) : Array(host.size()) { upload(host); }
    ~Array() { CHECK_QUIETLY(cudaFree(data)); }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;

    size_t bytes() const { return count * sizeof(E); }

    void upload(const std::vector<E> &host) {
        CHECK(cudaMemcpy(data, host.data(), bytes(), cudaMemcpyHostToDevice));
    }

    std::vector<E> download() const {
        std::vector<E> host(count);
        CHECK(cudaMemcpy(host.data(), data, bytes(), cudaMemcpyDeviceToHost));
        return host;
    }
};

// An array on the GPU of where each system's part begins, a given number of entries apart.
template <typename E> static std::vector<void *> places(E *first, size_t apart, int systems) {
    std::vector<void *> pointers;
    for (int system = 0; system < systems; system++) pointers.push_back(first + apart * system);
    return pointers;
}

// What cuDSS and CUDA hold for a case.
struct Session {
    cudaStream_t stream = nullptr;
    cudaEvent_t start = nullptr;
    cudaEvent_t stop = nullptr;
    cudssHandle_t handle = nullptr;
    cudssConfig_t config = nullptr;
    cudssData_t data = nullptr;
    cudssMatrix_t matrix = nullptr;
    cudssMatrix_t solution = nullptr;
    cudssMatrix_t rhs = nullptr;

    Session() = default;
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    ~Session() {
        if (matrix) CHECK_QUIETLY(cudssMatrixDestroy(matrix));
        if (solution) CHECK_QUIETLY(cudssMatrixDestroy(solution));
        if (rhs) CHECK_QUIETLY(cudssMatrixDestroy(rhs));
        if (data) CHECK_QUIETLY(cudssDataDestroy(handle, data));
        if (config) CHECK_QUIETLY(cudssConfigDestroy(config));
        if (handle) CHECK_QUIETLY(cudssDestroy(handle));
        if (stop) CHECK_QUIETLY(cudaEventDestroy(stop));
        if (start) CHECK_QUIETLY(cudaEventDestroy(start));
        if (stream) CHECK_QUIETLY(cudaStreamDestroy(stream));
    }

    void open() {
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaEventCreate(&start));
        CHECK(cudaEventCreate(&stop));
        CHECK(cudssCreate(&handle));
        CHECK(cudssSetStream(handle, stream));
        CHECK(cudssConfigCreate(&config));
        CHECK(cudssDataCreate(handle, &data));
    }

    void analyse() {
        CHECK(cudssExecute(handle, CUDSS_PHASE_ANALYSIS, config, data, matrix, solution, rhs));
    }
    void factorize() {
        CHECK(cudssExecute(handle, CUDSS_PHASE_FACTORIZATION, config, data, matrix, solution, rhs));
    }
    void refactorize() {
        const int phase = CUDSS_PHASE_REFACTORIZATION;
        CHECK(cudssExecute(handle, phase, config, data, matrix, solution, rhs));
    }
    void solve() {
        CHECK(cudssExecute(handle, CUDSS_PHASE_SOLVE, config, data, matrix, solution, rhs));
    }

    // All that cuDSS gives for a parameter, as many numbers as it has; none if it gives nothing.
    template <typename E> std::vector<E> get(cudssDataParam_t parameter) const {
        size_t bytes = 0;
        if (!is_success(cudssDataGet(handle, data, parameter, nullptr, 0, &bytes))) return {};
        if (bytes == 0 || bytes % sizeof(E) != 0) return {};
        std::vector<E> numbers(bytes / sizeof(E));
        if (!is_success(cudssDataGet(handle, data, parameter, numbers.data(), bytes, &bytes))) {
            return {};
        }
        return numbers;
    }
};

struct Round {
    double wall_ms;
    double events_ms;
};

static double median(std::vector<double> numbers) {
    std::sort(numbers.begin(), numbers.end());
    const size_t half = numbers.size() / 2;
    return numbers.size() % 2 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

// One round: by the wall clock between two synchronisations, and by events in the stream.
template <typename Work> static Round time_round(const Session &session, Work work) {
    using Clock = std::chrono::steady_clock;
    CHECK(cudaDeviceSynchronize());
    const auto begin = Clock::now();
    CHECK(cudaEventRecord(session.start, session.stream));
    work();
    CHECK(cudaEventRecord(session.stop, session.stream));
    CHECK(cudaDeviceSynchronize());
    const auto end = Clock::now();
    float events_ms = 0;
    CHECK(cudaEventElapsedTime(&events_ms, session.start, session.stop));
    return {std::chrono::duration<double, std::milli>(end - begin).count(), events_ms};
}

// The medians of 11 rounds after 3 that do not count. Where a round takes more than a second there
// are fewer: 1 that does not count, and at least 3 that do. `before_last` precedes the last round
// and is not timed.
template <typename Work, typename Before>
static Round time_rounds(const Session &session, Work work, Before before_last, int *count) {
    double seconds = time_round(session, work).wall_ms / 1e3;
    for (int warm_up = 1; warm_up < 3 && seconds <= 1; warm_up++) {
        seconds = time_round(session, work).wall_ms / 1e3;
    }
    const int rounds = seconds <= 1 ? 11 : std::max(3, static_cast<int>(11 / seconds));
    std::vector<double> wall;
    std::vector<double> events;
    for (int round = 0; round < rounds; round++) {
        if (round + 1 == rounds) before_last();
        const Round taken = time_round(session, work);
        wall.push_back(taken.wall_ms);
        events.push_back(taken.events_ms);
    }
    if (count) *count = rounds;
    return {median(wall), median(events)};
}

template <typename T>
static void run_case(const Case &the_case, const Options &options, Results &results) {
    const int systems = the_case.systems;
    const Pattern pattern = laplacian(the_case.grid);
    const int n = static_cast<int>(pattern.offsets.size()) - 1;
    const int nnz = static_cast<int>(pattern.columns.size());
    results.n = n;
    results.nnz = nnz;

    // The factorization that comes first sees other values than the rounds do: the residual at the
    // end then also says that the rounds factorized their own values.
    std::vector<T> values = random_values<T>(pattern, systems, 1);
    std::vector<T> b(static_cast<size_t>(n) * systems);
    Random random{3};
    for (T &entry : b) entry = static_cast<T>(2 * random.next() - 1);

    Array<int> offsets_d(pattern.offsets);
    Array<int> columns_d(pattern.columns);
    Array<T> values_d(values);
    Array<T> b_d(b);
    Array<T> x_d(b.size());
    CHECK(cudaMemset(x_d.data, 0, x_d.bytes()));

    // For --batch: sizes on the host, and on the GPU the pointers to each system's arrays.
    const size_t listed = options.batch ? systems : 1;
    const std::vector<int> sizes(listed, n);
    const std::vector<int> nonzeros(listed, nnz);
    const std::vector<int> ones(listed, 1);
    const int lists = static_cast<int>(listed);
    Array<void *> offsets_list(places(offsets_d.data, 0, lists));
    Array<void *> columns_list(places(columns_d.data, 0, lists));
    Array<void *> values_list(places(values_d.data, nnz, lists));
    Array<void *> b_list(places(b_d.data, n, lists));
    Array<void *> x_list(places(x_d.data, n, lists));

    // The session goes before the arrays that it points to.
    Session session;
    session.open();
    const cudaDataType_t type = std::is_same<T, float>::value ? CUDA_R_32F : CUDA_R_64F;
    const cudaDataType_t index = CUDA_R_32I;
    const cudssLayout_t layout = CUDSS_LAYOUT_COL_MAJOR;
    const cudssMatrixType_t general = CUDSS_MTYPE_GENERAL;
    const cudssMatrixViewType_t full = CUDSS_MVIEW_FULL;
    const cudssIndexBase_t zero = CUDSS_BASE_ZERO;
    if (options.batch) {
        CHECK(cudssMatrixCreateBatchCsr(&session.matrix, systems, sizes.data(), sizes.data(),
                                        nonzeros.data(), offsets_list.data, nullptr,
                                        columns_list.data, values_list.data, index, index, type,
                                        general, full, zero));
        CHECK(cudssMatrixCreateBatchDn(&session.rhs, systems, sizes.data(), ones.data(),
                                       sizes.data(), b_list.data, index, type, layout));
        CHECK(cudssMatrixCreateBatchDn(&session.solution, systems, sizes.data(), ones.data(),
                                       sizes.data(), x_list.data, index, type, layout));
    } else {
        // The objects describe one system; the arrays hold all of them, one after another.
        CHECK(cudssMatrixCreateCsr(&session.matrix, n, n, nnz, offsets_d.data, nullptr,
                                   columns_d.data, values_d.data, index, index, type, general, full,
                                   zero));
        CHECK(cudssMatrixCreateDn(&session.rhs, n, 1, n, b_d.data, type, layout));
        CHECK(cudssMatrixCreateDn(&session.solution, n, 1, n, x_d.data, type, layout));
        const int size = systems;
        CHECK(cudssConfigSet(session.config, CUDSS_CONFIG_UBATCH_SIZE, &size, sizeof size));
    }
    if (options.reordering >= 0) {
        const auto chosen = static_cast<cudssReorderingAlg_t>(options.reordering);
        CHECK(cudssConfigSet(session.config, CUDSS_CONFIG_REORDERING_ALG, &chosen, sizeof chosen));
    }

    results.analysis_ms = time_round(session, [&] { session.analyse(); }).wall_ms;
    const std::vector<int64_t> factors = session.get<int64_t>(CUDSS_DATA_LU_NNZ);
    if (!factors.empty()) results.factor_nnz = static_cast<double>(factors[0]);
    session.factorize();
    CHECK(cudaDeviceSynchronize());

    values = random_values<T>(pattern, systems, 2);
    values_d.upload(values);
    // Solutions that no solve writes stay NaN.
    const auto spoil = [&] { CHECK(cudaMemset(x_d.data, 0xff, x_d.bytes())); };
    const auto refactorize_and_solve = [&] {
        session.refactorize();
        session.solve();
    };
    const auto both = time_rounds(session, refactorize_and_solve, spoil, &results.rounds);
    results.refactor_and_solve_ms = both.wall_ms;
    results.refactor_and_solve_events_ms = both.events_ms;
    const std::vector<T> x = x_d.download();
    for (const int info : session.get<int>(CUDSS_DATA_INFO)) {
        if (info != 0) {
            results.status = "CUDSS_DATA_INFO is " + std::to_string(info);
            break;
        }
    }

    // Up to 50 systems, from the first to the last; and whether each entry of x is a number.
    const int checked = std::min(systems, 50);
    double largest = 0;
    for (int check = 0; check < checked; check++) {
        const int64_t steps = std::max(checked - 1, 1);
        const size_t system = static_cast<size_t>(int64_t{check} * (systems - 1) / steps);
        const double residual = relative_residual(pattern, &values[system * nnz], &x[system * n],
                                                  &b[system * n]);
        if (!(residual <= largest)) largest = residual;
        if (std::isnan(largest)) break;
    }
    results.max_relative_residual = largest;
    const auto strays = std::count_if(x.begin(), x.end(), [](T entry) {
        return !std::isfinite(entry);
    });
    if (strays > 0) {
        results.status = std::to_string(strays) + " entries of x are not finite";
    }

    const auto alone = time_rounds(session, [&] { session.solve(); }, [] {}, nullptr);
    results.solve_ms = alone.wall_ms;
}

static Results try_case(const Case &the_case, const Options &options) {
    Results results;
    try {
        if (options.f32) {
            run_case<float>(the_case, options, results);
        } else {
            run_case<double>(the_case, options, results);
        }
    } catch (const Failure &failure) {
        results.status = failure.text;
        // An error that the next case must not see.
        (void)cudaGetLastError();
    } catch (const std::exception &error) {
        results.status = error.what();
    }
    return results;
}

static std::string library_version() {
    int major = 0;
    int minor = 0;
    int patch = 0;
    CHECK_QUIETLY(cudssGetProperty(MAJOR_VERSION, &major));
    CHECK_QUIETLY(cudssGetProperty(MINOR_VERSION, &minor));
    CHECK_QUIETLY(cudssGetProperty(PATCH_LEVEL, &patch));
    std::string version =
        std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
#ifdef CUDSS_BUILD
    version += "." + std::to_string(CUDSS_BUILD);
#endif
    return version;
}

static void print_number(const char *key, const Maybe &number, const char *format) {
    printf("\"%s\":", key);
    if (number.known) {
        printf(format, number.value);
    } else {
        printf("null");
    }
    printf(",");
}

// A string of JSON: statuses may hold quotes.
static std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') out += '\\';
        out += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
    }
    return out + "\"";
}

static void print_line(const Case &the_case, const Options &options, const Results &results) {
    printf("{\"library\":\"cuDSS\",\"version\":%s,", quoted(library_version()).c_str());
    const long long n = static_cast<long long>(the_case.grid) * the_case.grid;
    printf("\"case\":\"lap2d %lld\",\"n\":%lld,", n, n);
    printf("\"nnz\":%lld,\"batch\":%d,", static_cast<long long>(results.nnz), the_case.systems);
    printf("\"precision\":\"%s\",", options.f32 ? "f32" : "f64");
    printf("\"kind\":\"%s\",", options.batch ? "batch objects" : "uniform batch");
    if (options.reordering >= 0) printf("\"reordering\":%d,", options.reordering);
    printf("\"rounds\":%d,", results.rounds);
    print_number("refactor_and_solve_ms", results.refactor_and_solve_ms, "%.4f");
    print_number("refactor_and_solve_events_ms", results.refactor_and_solve_events_ms, "%.4f");
    print_number("solve_ms", results.solve_ms, "%.4f");
    print_number("analysis_ms", results.analysis_ms, "%.3f");
    print_number("factor_nnz", results.factor_nnz, "%.0f");
    print_number("max_relative_residual", results.max_relative_residual, "%.3e");
    printf("\"status\":%s}\n", quoted(results.status).c_str());
    fflush(stdout);
}

static int usage() {
    fprintf(stderr, "usage: cudss_peer [--f32] [--batch] [--reordering N] GRID:SYSTEMS ...\n");
    return 2;
}

int main(int argc, char **argv) {
    Options options;
    std::vector<Case> cases;
    for (int at = 1; at < argc; at++) {
        const std::string word = argv[at];
        Case the_case{};
        char rest = 0;
        if (word == "--f32") {
            options.f32 = true;
        } else if (word == "--batch") {
            options.batch = true;
        } else if (word == "--reordering" && at + 1 < argc) {
            const char *number = argv[++at];
            if (sscanf(number, "%d%c", &options.reordering, &rest) != 1) return usage();
            if (options.reordering < CUDSS_REORDERING_ALG_DEFAULT) return usage();
            if (options.reordering > CUDSS_REORDERING_ALG_NONE) return usage();
        } else if (sscanf(word.c_str(), "%d:%d%c", &the_case.grid, &the_case.systems, &rest) == 2) {
            // Five entries for each row must fit into indices of 32 bits.
            const bool fits = the_case.grid >= 1 && the_case.grid <= 20000;
            if (!fits || the_case.systems < 1) return usage();
            cases.push_back(the_case);
        } else {
            return usage();
        }
    }
    if (cases.empty()) return usage();

    // A small case first, so that no time of analysis holds the start of the libraries.
    const Results first = try_case({32, 2}, options);
    if (first.status != "success") {
        fprintf(stderr, "cudss_peer: the first small case: %s\n", first.status.c_str());
    }
    for (const Case &the_case : cases) print_line(the_case, options, try_case(the_case, options));
    return 0;
}
