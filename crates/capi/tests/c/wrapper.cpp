// sparsebatch.hpp: objects, exceptions, vectors.
#include "sparsebatch.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);           \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

// The status of the error that `work` throws; SB_OK where it throws none.
template <class Work> sb_status thrown(Work work) {
    try {
        work();
    } catch (const sparsebatch::error &error) {
        CHECK(error.what()[0] != '\0');
        return error.status();
    }
    return SB_OK;
}

// Two items [4 1; 1 3] and [2 0; 0 5] with the solutions 1.
template <class T> void two_items(const sparsebatch::context &context) {
    const std::vector<std::int32_t> row_ptr{0, 2, 4}, col_idx{0, 1, 0, 1};
    const std::vector<T> values{4, 1, 1, 3, 2, 0, 0, 5}, b{5, 4, 2, 5};
    std::vector<T> x(4);
    auto batch = sparsebatch::batch<T>::uniform(context, 2, 2, row_ptr, col_idx);
    sparsebatch::solver<T> made(batch, values);
    auto solver = std::move(made);
    CHECK(solver.solve(b, x) == 0);
    for (T value : x) CHECK(std::abs(value - 1) < T(1e-4));
    solver.factor();
    CHECK(solver.solve(b, x, SB_KEPT) == 0);
    auto report = solver.report();
    CHECK(report.size() == 2 && report.converged() == 2);
    CHECK(report.statuses() == std::vector<std::uint8_t>(2, 0));
    CHECK(report.rungs().size() == 2 && report.iterations().size() == 2);
    CHECK(report.residual_norms()[0] <= 1e-4 * report.rhs_norms()[0]);
    CHECK(report.text().rfind("2 of 2 systems converged\n", 0) == 0);
    auto limits = sparsebatch::limits();
    limits.atol = 1e6;
    const std::vector<std::uint8_t> active{0, 1};
    CHECK(solver.solve_with(b, x, limits) == 0 && x == std::vector<T>(4));
    limits.atol = SB_DEFAULT;
    x = {7, 8, 9, 9};
    CHECK(solver.solve_with(b, x, limits, active, SB_KEPT, SB_GUESS_IN_X) == 0);
    CHECK(x[0] == 7 && x[1] == 8 && std::abs(x[2] - 1) < T(1e-4));
    CHECK(solver.report().statuses() == (std::vector<std::uint8_t>{SB_INACTIVE, 0}));
    solver.set_limits(limits);
    limits.rtol = -2;
    CHECK(thrown([&] { solver.set_limits(limits); }) == SB_ERROR_ARGUMENT);
    const std::array<T, 1> dt{T(0.125)};
    solver.shift(values, dt);
    CHECK(solver.solve(b, x) == 0);
    CHECK(std::abs(x[3] - T(5) / 3) < T(1e-4));
    solver.set_values(values);
    sparsebatch::spmv<T> product(batch, values);
    const std::vector<T> ones(4, 1);
    product.apply(1, ones, 0, x);
    CHECK(x == b);
    CHECK(product.text().rfind("format: ", 0) == 0);
    const std::vector<T> few(1);
    CHECK(thrown([&] { solver.solve(few, x); }) == SB_ERROR_ARGUMENT);
    CHECK(thrown([&] { solver.enqueue(b, x); }) == SB_ERROR_UNSUPPORTED);
    CHECK(thrown([&] { solver.finish(); }) == SB_ERROR_UNSUPPORTED);
}

int main() {
    auto options = sparsebatch::context_options();
    options.threads = 2;
    sparsebatch::context context(options);
    CHECK(!context.has_gpu());
    two_items<double>(context);
    two_items<float>(context);

    const std::vector<std::int64_t> nrows{1, 2}, nnz{1, 3};
    const std::vector<std::int32_t> row_ptr{1, 2, 1, 3, 4}, col_idx{1, 1, 2, 2};
    const double values[] = {2, 1, 1, 4};
    const std::vector<double> b{2, 3, 8};
    std::vector<double> x(3);
    auto batch = sparsebatch::batch<double>::ragged(context, nrows, nnz, row_ptr, col_idx, 1);
    sparsebatch::solver<double> solver(batch, sparsebatch::view<const double>(values, 4));
    CHECK(solver.solve(b, x) == 0);
    CHECK(x == (std::vector<double>{1, 1, 2}));

    const std::vector<std::int32_t> few{0};
    CHECK(thrown([&] { sparsebatch::batch<double>::uniform(context, 1, 2, few, few); }) ==
          SB_ERROR_ARGUMENT);
    CHECK(thrown([&] { sparsebatch::batch<double>::ragged(context, nrows, nnz, few, few); }) ==
          SB_ERROR_ARGUMENT);
    auto lu = sparsebatch::solver_options();
    lu.method = "gmres";
    CHECK(thrown([&] { sparsebatch::solver<double> none(batch, x, lu); }) == SB_ERROR_ARGUMENT);
    std::puts("wrapper: all passed");
}
