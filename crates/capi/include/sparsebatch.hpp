// sparsebatch for C++17: objects that destroy themselves, exceptions, vectors. Header only, over
// sparsebatch.h, which says what each function does.
//
//     sparsebatch::context context;
//     auto batch = sparsebatch::batch<double>::uniform(context, nitems, n, row_ptr, col_idx);
//     sparsebatch::solver<double> solver(batch, values);
//     std::vector<double> x(b.size());
//     if (solver.solve(b, x) > 0) std::cerr << solver.report().text();

#ifndef SPARSEBATCH_HPP
#define SPARSEBATCH_HPP

#include "sparsebatch.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sparsebatch {

// What a function of the library refused; `what()` is its message.
class error : public std::runtime_error {
public:
    error(sb_status status, const std::string &message)
        : std::runtime_error(message), status_(status) {}

    // SB_ERROR_ARGUMENT, ...
    sb_status status() const noexcept { return status_; }

private:
    sb_status status_;
};

// Throws an `error` unless a function returned SB_OK.
inline void check(sb_status status) {
    if (status == SB_OK) return;
    char message[1024] = "";
    sb_last_error(nullptr, message, sizeof message);
    throw error(status, message);
}

// An array that is read or written to, in host memory or on a device: of a std::vector, std::array,
// std::span or anything else with data() and size(), or of a pointer and a length.
template <class T> class view {
public:
    view(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <class Array,
              class = std::enable_if_t<std::is_convertible_v<
                  decltype(std::declval<Array &>().data()), T *>>>
    view(Array &&array) noexcept : data_(array.data()), size_(array.size()) {}

    T *data() const noexcept { return data_; }
    std::int64_t size() const noexcept { return static_cast<std::int64_t>(size_); }

private:
    T *data_;
    std::size_t size_;
};

namespace detail {

template <class Handle, sb_status (*Destroy)(Handle *)> struct deleter {
    void operator()(Handle *handle) const noexcept { Destroy(handle); }
};

template <class Handle, sb_status (*Destroy)(Handle *)>
using owner = std::unique_ptr<Handle, deleter<Handle, Destroy>>;

template <class T> constexpr std::int32_t dtype() {
    static_assert(std::is_same_v<T, double> || std::is_same_v<T, float>,
                  "values are double or float");
    return std::is_same_v<T, double> ? SB_F64 : SB_F32;
}

// The text of a function that tells how much room it needs.
template <class Write> std::string text(Write write) {
    std::size_t needed = 0;
    check(write(nullptr, 0, &needed));
    std::string text(needed, '\0');
    check(write(text.data(), text.size(), nullptr));
    text.pop_back();
    return text;
}

} // namespace detail

// Default options, to be changed.
inline sb_context_options context_options() {
    sb_context_options options;
    check(sb_context_options_init(&options, sizeof options));
    return options;
}

inline sb_solver_options solver_options() {
    sb_solver_options options;
    check(sb_solver_options_init(&options, sizeof options));
    return options;
}

inline sb_spmv_options spmv_options() {
    sb_spmv_options options;
    check(sb_spmv_options_init(&options, sizeof options));
    return options;
}

inline sb_limits limits() {
    sb_limits limits;
    check(sb_limits_init(&limits, sizeof limits));
    return limits;
}

// Where and on which threads a program solves.
class context {
public:
    explicit context(const sb_context_options &options = context_options()) {
        sb_context *handle = nullptr;
        check(sb_context_create(&options, &handle));
        handle_.reset(handle);
    }

    bool has_gpu() const {
        std::int32_t has_gpu = 0;
        check(sb_context_has_gpu(get(), &has_gpu));
        return has_gpu != 0;
    }

    sb_context *get() const noexcept { return handle_.get(); }

private:
    detail::owner<sb_context, sb_context_destroy> handle_;
};

// The patterns of a batch with values of type T.
template <class T> class batch {
public:
    // nitems square matrices of one pattern.
    static batch uniform(const context &context, std::int64_t nitems, std::int64_t nrows,
                         view<const std::int32_t> row_ptr, view<const std::int32_t> col_idx,
                         std::int32_t layout = SB_ITEM_MAJOR, std::int32_t index_base = 0) {
        if (row_ptr.size() != nrows + 1) {
            throw error(SB_ERROR_ARGUMENT, "row_ptr has " + std::to_string(row_ptr.size()) +
                                               " entries, expected " + std::to_string(nrows + 1));
        }
        sb_batch *handle = nullptr;
        check(sb_batch_uniform(context.get(), detail::dtype<T>(), nitems, nrows, nrows,
                               col_idx.size(), row_ptr.data(), col_idx.data(), layout, index_base,
                               &handle));
        return batch(handle);
    }

    // Square matrices of any sizes, one after the other: see sb_batch_ragged.
    static batch ragged(const context &context, view<const std::int64_t> nrows,
                        view<const std::int64_t> nnz, view<const std::int32_t> row_ptr,
                        view<const std::int32_t> col_idx, std::int32_t index_base = 0) {
        std::int64_t rows = 0, entries = 0;
        for (std::int64_t item = 0; item < nrows.size(); ++item) rows += nrows.data()[item];
        for (std::int64_t item = 0; item < nnz.size(); ++item) entries += nnz.data()[item];
        if (nnz.size() != nrows.size() || row_ptr.size() != rows + nrows.size() ||
            col_idx.size() != entries) {
            throw error(SB_ERROR_ARGUMENT, "nnz, row_ptr or col_idx is not as long as nrows says");
        }
        sb_batch *handle = nullptr;
        check(sb_batch_ragged(context.get(), detail::dtype<T>(), nrows.size(), nrows.data(),
                              nullptr, nnz.data(), row_ptr.data(), col_idx.data(), index_base,
                              &handle));
        return batch(handle);
    }

    sb_batch *get() const noexcept { return handle_.get(); }

private:
    explicit batch(sb_batch *handle) : handle_(handle) {}
    detail::owner<sb_batch, sb_batch_destroy> handle_;
};

// How each system of a solve ended.
class report {
public:
    explicit report(sb_report *handle) : handle_(handle) {}

    std::int64_t size() const {
        std::int64_t size = 0;
        check(sb_report_sizes(get(), &size, nullptr));
        return size;
    }

    std::int64_t converged() const {
        std::int64_t converged = 0;
        check(sb_report_sizes(get(), nullptr, &converged));
        return converged;
    }

    // Codes of sb_outcome_name: 0 where a system converged.
    std::vector<std::uint8_t> statuses() const { return array<std::uint8_t>(sb_report_statuses); }
    std::vector<std::uint8_t> rungs() const { return array<std::uint8_t>(sb_report_rungs); }
    std::vector<std::uint32_t> iterations() const {
        return array<std::uint32_t>(sb_report_iterations);
    }
    std::vector<double> residual_norms() const { return array<double>(sb_report_residual_norms); }
    std::vector<double> rhs_norms() const { return array<double>(sb_report_rhs_norms); }

    std::string text() const {
        return detail::text([this](char *buffer, std::size_t size, std::size_t *needed) {
            return sb_report_text(get(), buffer, size, needed);
        });
    }

    sb_report *get() const noexcept { return handle_.get(); }

private:
    template <class V>
    std::vector<V> array(sb_status (*write)(const sb_report *, V *, std::int64_t)) const {
        std::vector<V> out(static_cast<std::size_t>(size()));
        check(write(get(), out.data(), static_cast<std::int64_t>(out.size())));
        return out;
    }

    detail::owner<sb_report, sb_report_destroy> handle_;
};

// A batch that is solved often. The array of values stays where it is: see sb_solver_create.
template <class T> class solver {
public:
    solver(const batch<T> &batch, view<const T> values,
           const sb_solver_options &options = solver_options()) {
        sb_solver *handle = nullptr;
        check(sb_solver_create(batch.get(), values.data(), values.size(), &options, &handle));
        handle_.reset(handle);
    }

    void set_values(view<const T> values) {
        check(sb_solver_set_values(get(), values.data(), values.size()));
    }

    // The matrices I/dt - J.
    void shift(view<const T> jacobian, view<const T> dt) {
        check(sb_solver_shift(get(), jacobian.data(), jacobian.size(), dt.data(), dt.size()));
    }

    void factor() { check(sb_solver_factor(get())); }

    // The number of systems that did not converge.
    std::int64_t solve(view<const T> b, view<T> x, std::int32_t by = SB_VALUES,
                       std::int32_t guess = SB_GUESS_ZERO) {
        std::int64_t failed = 0;
        check(sb_solver_solve(get(), by, guess, b.data(), b.size(), x.data(), x.size(), &failed));
        return failed;
    }

    // As above, with limits of this call, and only the systems whose element of `active` (an array
    // in host memory, or empty for all) is not 0.
    std::int64_t solve_with(view<const T> b, view<T> x, const sb_limits &limits,
                            view<const std::uint8_t> active = {nullptr, 0},
                            std::int32_t by = SB_VALUES, std::int32_t guess = SB_GUESS_ZERO) {
        std::int64_t failed = 0;
        check(sb_solver_solve_with(get(), by, guess, b.data(), b.size(), x.data(), x.size(),
                                   &limits, active.data(), active.size(), &failed));
        return failed;
    }

    // For the solves that follow.
    void set_limits(const sb_limits &limits) { check(sb_solver_set_limits(get(), &limits)); }

    // Data on a device: starts a solve on the stream.
    void enqueue(view<const T> b, view<T> x, std::int32_t by = SB_VALUES,
                 std::int32_t guess = SB_GUESS_ZERO) {
        check(sb_solver_enqueue(get(), by, guess, b.data(), b.size(), x.data(), x.size()));
    }

    std::int64_t finish() {
        std::int64_t failed = 0;
        check(sb_solver_finish(get(), &failed));
        return failed;
    }

    sparsebatch::report report() const {
        sb_report *handle = nullptr;
        check(sb_solver_report(get(), &handle));
        return sparsebatch::report(handle);
    }

    sb_solver *get() const noexcept { return handle_.get(); }

private:
    detail::owner<sb_solver, sb_solver_destroy> handle_;
};

// Products y = alpha A x + beta y.
template <class T> class spmv {
public:
    spmv(const batch<T> &batch, view<const T> values,
         const sb_spmv_options &options = spmv_options()) {
        sb_spmv *handle = nullptr;
        check(sb_spmv_create(batch.get(), values.data(), values.size(), &options, &handle));
        handle_.reset(handle);
    }

    void set_values(view<const T> values) {
        check(sb_spmv_set_values(get(), values.data(), values.size()));
    }

    void apply(double alpha, view<const T> x, double beta, view<T> y) {
        check(sb_spmv_apply(get(), alpha, x.data(), x.size(), beta, y.data(), y.size()));
    }

    std::string text() const {
        return detail::text([this](char *buffer, std::size_t size, std::size_t *needed) {
            return sb_spmv_text(get(), buffer, size, needed);
        });
    }

    sb_spmv *get() const noexcept { return handle_.get(); }

private:
    detail::owner<sb_spmv, sb_spmv_destroy> handle_;
};

} // namespace sparsebatch

#endif
