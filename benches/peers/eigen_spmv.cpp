// Times y = A*x of Eigen's row-major sparse matrix on the arrays in a folder; prints one JSON line.
// usage: eigen_spmv FOLDER CASE; threads by OMP_NUM_THREADS.
#include <Eigen/Core>
#include <Eigen/SparseCore>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

template <typename T> std::vector<T> read(const std::string &path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    std::exit(2);
  }
  std::vector<T> data(static_cast<std::size_t>(file.tellg()) / sizeof(T));
  file.seekg(0);
  file.read(reinterpret_cast<char *>(data.data()), data.size() * sizeof(T));
  return data;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: eigen_spmv FOLDER CASE\n");
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  auto row_ptr = read<int>(folder + "row_ptr"), col_idx = read<int>(folder + "col_idx");
  auto values = read<double>(folder + "values"), x_data = read<double>(folder + "x");
  auto expected = read<double>(folder + "y");
  const Eigen::Index rows = row_ptr.size() - 1, columns = x_data.size(), nnz = values.size();
  Eigen::Map<const Eigen::SparseMatrix<double, Eigen::RowMajor>> a(
      rows, columns, nnz, row_ptr.data(), col_idx.data(), values.data());
  Eigen::Map<const Eigen::VectorXd> x(x_data.data(), columns), y0(expected.data(), rows);
  Eigen::VectorXd y(rows);
  y.noalias() = a * x;
  if (!((y - y0).lpNorm<Eigen::Infinity>() <= 1e-10 * std::max(1.0, y0.lpNorm<Eigen::Infinity>()))) {
    std::fprintf(stderr, "wrong product\n");
    return 1;
  }
  const int repeats = 15;
  std::vector<double> ms(repeats);
  for (double &t : ms) {
    const auto start = std::chrono::steady_clock::now();
    y.noalias() = a * x;
    t = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  std::sort(ms.begin(), ms.end());
  const double median = ms[repeats / 2];
  std::printf("{\"schema\": 1, \"suite\": \"peers\", \"case\": \"%s\", \"library\": \"Eigen\", "
              "\"configuration\": \"row-major\", \"operation\": \"spmv\", \"precision\": \"f64\", "
              "\"batch\": 1, \"n\": %ld, \"rows\": %ld, \"columns\": %ld, \"nnz\": %ld, "
              "\"threads\": %d, \"median_ms\": %.6f, \"min_ms\": %.6f, \"max_ms\": %.6f, "
              "\"gflops\": %.6f}\n",
              argv[2], (long)rows, (long)rows, (long)columns, (long)nnz, Eigen::nbThreads(), median,
              ms.front(), ms.back(), 2e-6 * nnz / median);
}
