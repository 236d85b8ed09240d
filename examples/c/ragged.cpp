// Systems of any sizes, in C++: tridiagonal matrices of 1 to 60 rows, one of which is singular.
//
//     c++ -std=c++17 ragged.cpp $(pkg-config --cflags --libs sparsebatch) -o ragged && ./ragged
#include <sparsebatch.hpp>

#include <cstdio>
#include <exception>

int main() try {
    std::vector<std::int64_t> nrows, nnz;
    std::vector<std::int32_t> row_ptr, col_idx;
    std::vector<double> values, b;
    for (std::int32_t rows = 1; rows <= 60; ++rows) {
        const std::size_t before = values.size();
        for (std::int32_t row = 0; row < rows; ++row) {
            row_ptr.push_back(static_cast<std::int32_t>(values.size() - before));
            for (std::int32_t col = row - 1; col <= row + 1; ++col) {
                if (col < 0 || col >= rows) continue;
                col_idx.push_back(col);
                // Item 29 has nothing but zeros.
                values.push_back(rows == 30 ? 0.0 : col == row ? 2.5 : -1.0);
            }
            b.push_back(1.0);
        }
        row_ptr.push_back(static_cast<std::int32_t>(values.size() - before));
        nrows.push_back(rows);
        nnz.push_back(static_cast<std::int64_t>(values.size() - before));
    }

    sparsebatch::context context;
    auto batch = sparsebatch::batch<double>::ragged(context, nrows, nnz, row_ptr, col_idx);
    sparsebatch::solver<double> solver(batch, values);
    std::vector<double> x(b.size());
    const auto failed = solver.solve(b, x);

    const auto report = solver.report();
    const auto statuses = report.statuses();
    for (std::size_t item = 0; item < statuses.size(); ++item) {
        if (statuses[item] != 0) {
            std::printf("item %zu: %s\n", item, sb_outcome_name(statuses[item]));
        }
    }
    std::printf("%s", report.text().c_str());
    return failed == 1 && statuses[29] != 0 ? 0 : 1;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
