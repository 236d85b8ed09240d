/*
 * sparsebatch: thousands of small sparse linear systems at once, on all cores or a GPU.
 *
 * A program creates a context, a batch (the patterns), a solver (values, analysis), solves, and
 * asks for the report:
 *
 *     sb_context *context; sb_batch *batch; sb_solver *solver; int64_t nfailed;
 *     sb_context_create(NULL, &context);
 *     sb_batch_uniform(context, SB_F64, nitems, n, n, nnz, row_ptr, col_idx, SB_ITEM_MAJOR, 0,
 *                      &batch);
 *     sb_solver_create(batch, values, nitems * nnz, NULL, &solver);
 *     sb_solver_solve(solver, SB_VALUES, SB_GUESS_ZERO, b, nitems * n, x, nitems * n, &nfailed);
 *
 * Functions return an sb_status: SB_OK, or why they did nothing; then sb_last_error has a message.
 * Arguments of a call that fails are not changed, but for places of handles, which get NULL, and x
 * of a solve that had begun.
 *
 * A handle is a number, not an address. NULL, a handle that was destroyed, and any other pointer
 * get SB_ERROR_BAD_HANDLE. Arrays and strings are trusted: they have the type and length that a
 * function says, for the time that it says. Counts are int64_t, indices int32_t.
 *
 * Threads: each function says who may call it at the same time as others. A solver or plan of
 * products serves one call at a time; all else may be shared. Work runs on the threads of the
 * context. After fork, a child process creates a context with a number of threads of its own; no
 * other thread may be in a call meanwhile. GPUs do not outlive a fork.
 *
 * A library that was loaded by dlopen stays in the process after dlclose: its threads may run.
 */


#ifndef SPARSEBATCH_H
#define SPARSEBATCH_H

/* Written by scripts/c-header from crates/capi/src. Do not edit. */

#include <stddef.h>
#include <stdint.h>

// The version of the binary interface. Programs that were compiled with a header of another number
// do not work with this library.
#define SB_ABI_VERSION 0

// In options: the default.
#define SB_DEFAULT -1.0

// Values and vectors are `double`.
#define SB_F64 0

// Values and vectors are `float`.
#define SB_F32 1

// Arrays lie in host memory.
#define SB_HOST 0

// Arrays lie on a GPU.
#define SB_DEVICE 1

// Layout: all entries of item 0, of item 1, and so on: `values[item * nnz + k]`.
#define SB_ITEM_MAJOR 0

// Layout: entry 0 of all items, entry 1 of all items: `values[k * nitems + item]`.
#define SB_INTERLEAVED 1

// Layout: the values of one matrix, which all items have.
#define SB_SHARED 2

// Solve with the current values.
#define SB_VALUES 0

// Solve with the matrices of the last `sb_solver_factor`, by its factors where there are some.
#define SB_KEPT 1

// Solve with the current values, with the factors of the last `sb_solver_factor` as a
// preconditioner or for refinement where there are some. For values that have changed little.
#define SB_NEAR 2

// Solve with the transposed matrices of the current values.
#define SB_TRANSPOSED 3

// Solve with the transposed matrices of the last `sb_solver_factor`.
#define SB_KEPT_TRANSPOSED 4

// The code of a system that was not active in its solve, in `sb_report_statuses`.
#define SB_INACTIVE 255

// The initial guess is 0; `x` need not be initialised.
#define SB_GUESS_ZERO 0

// `x` holds the initial guesses.
#define SB_GUESS_IN_X 1

// Done.
#define SB_OK 0

// An argument or an option is out of range, or an array has another length than expected.
#define SB_ERROR_ARGUMENT 1

// Index arrays that are no CSR matrix, more systems or entries than can be counted, or a format
// that would take far more memory than the matrix.
#define SB_ERROR_FORMAT 2

// The library does not do this; the message says what it does instead.
#define SB_ERROR_UNSUPPORTED 3

// Memory of the host or of the GPU did not suffice. Nothing was launched.
#define SB_ERROR_OUT_OF_MEMORY 4

// No usable GPU, or the GPU, its driver or the compiler of the kernels failed.
#define SB_ERROR_GPU 5

// A solve with kept matrices without a call of `sb_solver_factor` before it, or a report before
// the first solve.
#define SB_ERROR_NOT_FACTORED 6

// The solve was stopped by `sb_solver_stop`.
#define SB_ERROR_STOPPED 7

// A fault of the library. The object cannot be used any more; destroy it.
#define SB_ERROR_INTERNAL 8

// A handle that is NULL, was destroyed, or is no handle of this kind.
#define SB_ERROR_BAD_HANDLE 9

// Another call uses the object at this moment.
#define SB_ERROR_BUSY 10

// The process was forked from one that has used the library, and lacks its threads.
#define SB_ERROR_FORKED 11

// Ranks of MPI did not come, differ, or one of them failed; the message names it and its host.
#define SB_ERROR_RANKS 12

// The patterns of the matrices of a batch, and how their values lie. The values themselves are
// given to solvers and products.
//
// Nothing changes a batch: threads may share it.
typedef struct sb_batch sb_batch;

// Where and on which threads a program solves.
//
// Objects made from a context keep what they need of it: it may be destroyed before them.
typedef struct sb_context sb_context;

// The pattern of a uniform batch in another format than CSR, and the places of its values there.
//
// Nothing changes a conversion: threads may share it.
typedef struct sb_conversion sb_conversion;

// One large matrix of which each rank of an `sb_ranks` has consecutive rows, on its CPU or, with a
// context on a GPU, on that. Vectors are in host memory: each rank has the elements of its rows, and
// of x, for products with a matrix that is not square, those of its columns.
//
// All functions but `sb_distributed_sizes` are collective, as those of `sb_ranks` are: an error of
// one rank is the error of all, `SB_ERROR_RANKS`. MPI is called by a thread of the context where its
// options gave a number of threads, for which MPI has to allow calls of several threads, one at a
// time (`MPI_THREAD_SERIALIZED`); otherwise by the calling thread alone.
typedef struct sb_distributed sb_distributed;

// The ranks of an MPI communicator, of which this process is one. A library that finds no transport
// of an MPI makes none (`SB_ERROR_UNSUPPORTED`).
//
// Every rank solves items of its own by a solver of its own. Calls that are said to be collective
// are made by all ranks in the same order, as those of MPI. An error that they find on one rank is
// the error of all ranks, `SB_ERROR_RANKS`, whose message names the rank and its host. Calls come
// from a thread that may call MPI: the one that has initialised it, or any with
// `MPI_THREAD_SERIALIZED` and `MPI_THREAD_MULTIPLE`.
typedef struct sb_ranks sb_ranks;

// How each system of a solve ended. Systems are in the order of items, and within an item in that
// of right-hand sides.
//
// Nothing changes a report: threads may share it, and it outlives its solver.
typedef struct sb_report sb_report;

// An analysed batch with its current values, and its factors where they are kept.
//
// One call at a time: a second one at the same moment gets `SB_ERROR_BUSY` and does nothing.
// Threads that solve at the same time have a solver each.
typedef struct sb_solver sb_solver;

// Products `y = alpha A x + beta y` of a batch, prepared once.
//
// One call at a time: a second one at the same moment gets `SB_ERROR_BUSY` and does nothing.
typedef struct sb_spmv sb_spmv;

// What a function returns: `SB_OK`, or why it did nothing. `sb_last_error` has a message of one
// line. Systems that do not converge are no error.
typedef int32_t sb_status;

// Options of a context. Fill it by `sb_context_options_init`.
typedef struct sb_context_options {
    // `sizeof(sb_context_options)`.
    size_t struct_size;
    // Where batches in host memory are solved: `"cpu"`; `"gpu"`; or `"auto"`, the GPU where there
    // is one. NULL is `"cpu"`. Data on a GPU needs `"gpu"` or `"auto"`.
    const char *backend;
    // The number of the GPU, from 0.
    int32_t ordinal;
    // Threads of the context's own pool. 0: the pool of the process, of all cores, which all such
    // contexts share.
    uint32_t threads;
} sb_context_options;

// Allocates `bytes` bytes, at least 1, of memory of the GPU, and returns their address, a multiple
// of 256; NULL where there are not as many. Work that is issued to `stream` after the call may use
// them. `data` is what the options have.
//
// It is called by threads of the library, too, several at a time, and does not throw, jump, or call
// the library.
typedef void *(*sb_allocate)(size_t bytes, void *stream, void *data);

// Takes back memory of an `sb_allocate`, with the bytes and the stream of that call. All work on
// the stream that uses it is done. As for `sb_allocate`, it does not throw, jump, or call the
// library.
typedef void (*sb_release)(void *address, size_t bytes, void *stream, void *data);

// Options of a solver. Fill it by `sb_solver_options_init`, then change what is to be different.
// Strings are read during the call; NULL is the default.
typedef struct sb_solver_options {
    // `sizeof(sb_solver_options)`.
    size_t struct_size;
    // `"auto"`, `"cg"`, `"bicgstab"`, `"lu"`, `"pivoting-lu"` or `"banded"`. Default: `"auto"`, system by
    // system.
    const char *method;
    // `"auto"`, `"none"`, `"jacobi"`, `"block-jacobi"`, `"ilu0"` or `"ic0"`. Default: `"auto"`.
    const char *precond;
    // Order of elimination of ilu0 and ic0: `"natural"`, `"min-degree"` or `"multicolor"`. Default:
    // `"natural"`.
    const char *order;
    // Precision of factors of preconditioners: `"working"` or `"f32"`. Default:
    // `"working"`.
    const char *precond_precision;
    // Precision of iterations on a GPU: `"auto"` or `"working"`. Default: `"auto"`.
    const char *inner_precision;
    // How a GPU makes the sparse LU of systems with several patterns: `"by-pattern"`, or
    // `"by-system"` where few systems share a pattern. Default: `"by-pattern"`.
    const char *lu_form;
    // Format of products, such as `"csr"` or `"ell"`. NULL with a NULL `kernel`: whole solves are
    // fused, without separate products.
    const char *format;
    // Kernel of products, one that the format has: `"rows"`, `"csr-i"` or `"entries"`. NULL is
    // `"auto"`.
    const char *kernel;
    // Rows per block of block-jacobi, 1 to 128. 0: found from the pattern.
    int64_t block_size;
    // Right-hand sides per item, at least 1. Default: 1. A *system* is an item with one right-hand
    // side.
    int64_t nrhs;
    // A system has converged when `||b - A x||_2 <= max(atol, rtol ||b||_2)`. `SB_DEFAULT`: 1e-10
    // in double, 1e-5 in float.
    double rtol;
    // Default: 0.
    double atol;
    // Iteration limit. Default: 1000.
    uint32_t maxiter;
    // Restarts from the true residual within one solve. Default: 4.
    uint32_t max_restarts;
    // `rtol` for each of the `nitems * nrhs` systems, or NULL. Read during the call, as the next
    // two.
    const double *rtol_each;
    // `atol` for each system, or NULL.
    const double *atol_each;
    // `maxiter` for each system, or NULL.
    const uint32_t *maxiter_each;
    // Rounding floor C: `||b - A x|| <= C eps || |A||x| + |b| ||` is accepted, too, but never more
    // than `1e-3 ||b||`. `SB_DEFAULT`: none.
    double floor;
    // Whether systems that did not converge are tried again by stronger methods: 0 or 1. Default:
    // 1.
    int32_t fallback;
    // Whether the report holds the residual norms of all iterations: 0 or 1. Default: 0.
    int32_t history;
    // Where values, right-hand sides and solutions lie: `SB_HOST` or `SB_DEVICE`. Default:
    // `SB_HOST`.
    int32_t space;
    // How right-hand sides and solutions on a device lie: `SB_ITEM_MAJOR` or `SB_INTERLEAVED`
    // (uniform batches). In host memory: `SB_ITEM_MAJOR`. Default: `SB_ITEM_MAJOR`.
    int32_t vectors;
    // For data on a device: the `CUstream` or `cudaStream_t` of the calls, of the GPU's primary
    // context. It outlives the solver. NULL is the legacy default stream.
    void *stream;
    // For data on a device: a function that allocates the memory of the GPU that this object takes,
    // with `release`; both outlive it. NULL: the driver allocates.
    sb_allocate allocate;
    // Takes memory of `allocate` back.
    sb_release release;
    // The last argument of both.
    void *allocator_data;
} sb_solver_options;

// Options of products. Fill it by `sb_spmv_options_init`.
typedef struct sb_spmv_options {
    // `sizeof(sb_spmv_options)`.
    size_t struct_size;
    // `"auto"`, `"csr"`, `"coo"`, `"ell"`, `"dia"`, `"hyb"` or `"sellp"`. NULL is `"auto"`. On a
    // device: NULL.
    const char *format;
    // As in `sb_solver_options`. On a device: NULL.
    const char *kernel;
    // Right-hand sides per item, at least 1. Default: 1.
    int64_t nrhs;
    // Where values, `x` and `y` lie: `SB_HOST` or `SB_DEVICE`. Default: `SB_HOST`.
    int32_t space;
    // As in `sb_solver_options`.
    void *stream;
    // As in `sb_solver_options`.
    sb_allocate allocate;
    // As in `sb_solver_options`.
    sb_release release;
    // As in `sb_solver_options`.
    void *allocator_data;
} sb_spmv_options;

// Limits of solves that are to change. Fill it by `sb_limits_init`, after which none changes, then
// set those that do.
typedef struct sb_limits {
    // `sizeof(sb_limits)`.
    size_t struct_size;
    // As in `sb_solver_options`. `SB_DEFAULT`: stays as it is.
    double rtol;
    // `SB_DEFAULT`: stays as it is.
    double atol;
    // Iteration limit, 0 to 2^32 - 1. -1: stays as it is.
    int64_t maxiter;
    // `rtol` for each of the `nitems * nrhs` systems, in place of the one above, or NULL. Read
    // during the call, as the next two.
    const double *rtol_each;
    // `atol` for each system, or NULL.
    const double *atol_each;
    // `maxiter` for each system, or NULL.
    const uint32_t *maxiter_each;
} sb_limits;

// Where the outcomes of the last solve lie on the device, `len` of each: of item 0 all right-hand
// sides, of item 1, ... They are written on the solver's stream, and belong to the solver.
typedef struct sb_device_outcomes {
    // Codes of `sb_outcome_name`, `uint8_t`.
    const uint8_t *statuses;
    // `uint32_t`.
    const uint32_t *iterations;
    // `||b - A x||_2`.
    const double *residual_norms;
    // `||b||_2`.
    const double *rhs_norms;
    // The number of systems.
    int64_t len;
} sb_device_outcomes;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Creates a batch of `nitems` matrices of one CSR pattern. The index arrays are in host memory and
// are copied.
//
// - `dtype`: `SB_F64` or `SB_F32`, of values and vectors.
// - `row_ptr`: `nrows + 1` elements, ascending from `index_base` to `index_base + nnz`.
// - `col_idx`: `nnz` elements, strictly ascending in each row, from `index_base` on.
// - `layout`: of the values that solvers get: `nitems * nnz` of them as `SB_ITEM_MAJOR` or
//   `SB_INTERLEAVED` says, or `nnz` of them with `SB_SHARED`.
// - `index_base`: 0 or 1.
//
// Errors: `SB_ERROR_ARGUMENT`; `SB_ERROR_FORMAT` for arrays that are no CSR pattern (positions and
// indices in the message are counted from 0). Any thread.
sb_status sb_batch_uniform(const struct sb_context *context,
                           int32_t dtype,
                           int64_t nitems,
                           int64_t nrows,
                           int64_t ncols,
                           int64_t nnz,
                           const int32_t *row_ptr,
                           const int32_t *col_idx,
                           int32_t layout,
                           int32_t index_base,
                           struct sb_batch **batch);

// Creates a batch of `nitems` matrices of any sizes. The index arrays are in host memory and are
// copied.
//
// - `nrows`, `ncols`, `nnz`: `nitems` elements each, the sizes of the items; `ncols` NULL: square.
// - `row_ptr`: the row pointers of item 0 (`nrows[0] + 1` elements, from `index_base` on), of item
//   1 (from `index_base` on), and so on.
// - `col_idx`: the columns of item 0 (`nnz[0]` elements, from `index_base` on), of item 1, ...
// - `index_base`: 0 or 1.
//
// The values that solvers get are those of item 0, of item 1, and so on.
//
// Errors: as `sb_batch_uniform`; the message names the first item that is wrong. Any thread.
sb_status sb_batch_ragged(const struct sb_context *context,
                          int32_t dtype,
                          int64_t nitems,
                          const int64_t *nrows,
                          const int64_t *ncols,
                          const int64_t *nnz,
                          const int32_t *row_ptr,
                          const int32_t *col_idx,
                          int32_t index_base,
                          struct sb_batch **batch);

// Writes the number of items, and the numbers of rows and of entries of all items together. Each
// place may be NULL. Any thread.
sb_status sb_batch_sizes(const struct sb_batch *batch,
                         int64_t *nitems,
                         int64_t *nrows,
                         int64_t *nnz);

// Destroys a batch; NULL is nothing to destroy. Solvers made from it stay. Any thread.
sb_status sb_batch_destroy(struct sb_batch *batch);

// `SB_ABI_VERSION` of the library that was linked or loaded. Compare it with the header's. Any
// thread.
uint32_t sb_abi_version(void);

// The version of the library, such as `0.1.0`; lives as long as the process. Any thread.
const char *sb_version(void);

// The name of a code of errors, such as `SB_ERROR_ARGUMENT`; NULL for another number. Any thread.
const char *sb_status_name(sb_status status);

// How a system ended, by the code in `sb_report_statuses`, such as `Converged` (0); `Inactive`
// for `SB_INACTIVE`; NULL for
// another number. Any thread.
const char *sb_outcome_name(uint8_t code);

// What solved a system, by the code in `sb_report_rungs`, such as `first` (0); NULL for another
// number. Any thread.
const char *sb_rung_name(uint8_t code);

// Writes the message of the last error, one line and a NUL, cut to `len` bytes: of the functions
// that were called with objects of `context`; with NULL, of the functions that this thread has
// called. Empty where there was none. 512 bytes suffice for nearly all. Any thread.
sb_status sb_last_error(const struct sb_context *context, char *buffer, size_t len);

// Writes the default options of a context. `struct_size` is `sizeof(sb_context_options)`. Any
// thread.
sb_status sb_context_options_init(struct sb_context_options *options, size_t struct_size);

// Writes the default options of a solver. `struct_size` is `sizeof(sb_solver_options)`. Any
// thread.
sb_status sb_solver_options_init(struct sb_solver_options *options, size_t struct_size);

// Writes the default options of products. `struct_size` is `sizeof(sb_spmv_options)`. Any thread.
sb_status sb_spmv_options_init(struct sb_spmv_options *options, size_t struct_size);

// Writes limits of which none changes. `struct_size` is `sizeof(sb_limits)`. Any thread.
sb_status sb_limits_init(struct sb_limits *limits, size_t struct_size);

// Creates a context. `options` may be NULL: the CPU, all cores.
//
// Errors: `SB_ERROR_ARGUMENT` for options out of range, `SB_ERROR_GPU` where the backend is `gpu`
// and there is no usable one. Any thread.
sb_status sb_context_create(const struct sb_context_options *options, struct sb_context **context);

// Writes 1 where the context has a GPU, else 0. Any thread.
sb_status sb_context_has_gpu(const struct sb_context *context, int32_t *has_gpu);

// Destroys a context; NULL is nothing to destroy. Any thread.
sb_status sb_context_destroy(struct sb_context *context);

// Converts the pattern of a uniform batch to `format`: `"coo"` or `"ell"`. Indices that are
// written begin at `index_base`, 0 or 1.
//
// A format has slots for values. COO: one for each entry, in CSR order. ELL: `width` for each row,
// slot `k` of row `row` at `k * nrows + row`; those without an entry have the column -1 and the
// value 0.
//
// Errors: `SB_ERROR_ARGUMENT` for another format; `SB_ERROR_FORMAT` where ELL would have far more
// slots than entries; `SB_ERROR_UNSUPPORTED` for a ragged batch; `SB_ERROR_OUT_OF_MEMORY`. Any
// thread.
sb_status sb_conversion_create(const struct sb_batch *batch,
                               const char *format,
                               int32_t index_base,
                               struct sb_conversion **conversion);

// Writes the number of slots of an item, and the slots of a row of ELL (0 for COO). Each place may
// be NULL. Any thread.
sb_status sb_conversion_sizes(const struct sb_conversion *conversion,
                              int64_t *nslots,
                              int64_t *width);

// Writes the index arrays: for COO `nslots` rows and `nslots` columns; for ELL `nslots` columns
// and no rows (`row_idx` NULL, `nrow_idx` 0).
//
// Errors: `SB_ERROR_ARGUMENT` for other lengths. Any thread.
sb_status sb_conversion_indices(const struct sb_conversion *conversion,
                                int32_t *row_idx,
                                int64_t nrow_idx,
                                int32_t *col_idx,
                                int64_t ncol_idx);

// Copies the values of all items, in CSR order and the batch's type and layout (`nvalues`
// elements), to their slots (`nslots` elements for each item, in the same layout). In host memory;
// the arrays do not overlap.
//
// Errors: `SB_ERROR_ARGUMENT` for other lengths. Any thread.
sb_status sb_conversion_values(const struct sb_conversion *conversion,
                               const void *values,
                               int64_t nvalues,
                               void *slots,
                               int64_t nslots);

// The reverse of `sb_conversion_values`: copies slots to values in CSR order.
//
// Errors: `SB_ERROR_ARGUMENT` for other lengths. Any thread.
sb_status sb_conversion_values_back(const struct sb_conversion *conversion,
                                    const void *slots,
                                    int64_t nslots,
                                    void *values,
                                    int64_t nvalues);

// Destroys a conversion; NULL is nothing to destroy. Any thread.
sb_status sb_conversion_destroy(struct sb_conversion *conversion);

// Makes the matrix whose rows the ranks give: those of rank 0 come first, then those of rank 1, and
// so on. A rank may have none.
//
// - `batch`: of one item (`sb_batch_uniform` with `nitems` 1), the rows of this rank: `nrows` is
//   their number, and `ncols` that of all columns, equal on all ranks. May be destroyed afterwards.
// - `values`: `nvalues` elements, in host memory, which are copied.
// - `options`: format and kernel of products; NULL is `"auto"`.
//
// Elements of x belong to the ranks as rows do where the matrix is square, else evenly.
//
// Errors: `SB_ERROR_RANKS`. Collective.
sb_status sb_distributed_create(const struct sb_ranks *ranks,
                                const struct sb_batch *batch,
                                const void *values,
                                int64_t nvalues,
                                const struct sb_spmv_options *options,
                                struct sb_distributed **matrix);

// Makes the matrix of a file that all ranks can read, Matrix Market or an `.npz` in the format `csr`:
// each reads its rows, about as many entries as the others.
//
// - `dtype`: `SB_F64` or `SB_F32`, of values and vectors.
// - `path`: ends with a NUL.
//
// Errors: `SB_ERROR_RANKS`. Collective.
sb_status sb_distributed_read(const struct sb_ranks *ranks,
                              int32_t dtype,
                              const char *path,
                              const struct sb_spmv_options *options,
                              struct sb_distributed **matrix);

// Writes the numbers of rows, columns and entries of all ranks; the first row of this rank, counted
// from 0, and how many it has; and the same of its columns. Each place may be NULL. One call at a
// time.
sb_status sb_distributed_sizes(const struct sb_distributed *matrix,
                               int64_t *nrows,
                               int64_t *ncols,
                               int64_t *nnz,
                               int64_t *first_row,
                               int64_t *own_rows,
                               int64_t *first_col,
                               int64_t *own_cols);

// `y = A x`: `x` has the `nx` elements of the own columns, `y` the `ny` elements of the own rows, in
// host memory. They do not overlap.
//
// Errors: `SB_ERROR_RANKS`. Collective.
sb_status sb_distributed_apply(struct sb_distributed *matrix,
                               const void *x,
                               int64_t nx,
                               void *y,
                               int64_t ny);

// Solves `A x = b` by CG or BiCGStab on all ranks together.
//
// - `options`: method (`"auto"` is CG for a symmetric matrix with a positive diagonal, else
//   BiCGStab), preconditioner, tolerances and limits; NULL: defaults. `"block-jacobi"`, `"ilu0"` and
//   `"ic0"` are those of the block of rows and columns of each rank. There is no ladder of further
//   attempts, and format and kernel are those of the matrix.
// - `pipelined`: 1 for CG with one sum over ranks for each iteration, which travels while the next
//   product is computed; else 0.
// - `block_lu`: 1 to precondition with a sparse LU of the block of each rank; else 0.
// - `guess`: `SB_GUESS_ZERO`, or `SB_GUESS_IN_X`.
// - `b`, `x`: `nb` and `nx` elements of the own rows, in host memory. They do not overlap.
// - `nfailed`: gets 1 where the system did not converge, which is no error, else 0; may be NULL.
// - `report`: gets the report, of one system, the same on all ranks but for times; may be NULL.
//
// Errors: `SB_ERROR_RANKS`. Collective.
sb_status sb_distributed_solve(struct sb_distributed *matrix,
                               const struct sb_solver_options *options,
                               int32_t pipelined,
                               int32_t block_lu,
                               int32_t guess,
                               const void *b,
                               int64_t nb,
                               void *x,
                               int64_t nx,
                               int64_t *nfailed,
                               struct sb_report **report);

// Destroys a matrix; NULL is nothing to destroy. The ranks that it was made with stay until it is
// destroyed, so that this comes before MPI is finalised. Collective.
sb_status sb_distributed_destroy(struct sb_distributed *matrix);

// Takes the ranks of a communicator, by its Fortran handle (`MPI_Comm_c2f`). The communicator is
// duplicated, and may be freed afterwards. Waits at most `seconds` for the other ranks to come
// here. MPI is initialised by the program, and finalised after `sb_ranks_destroy`.
//
// Errors: `SB_ERROR_UNSUPPORTED` where no transport of an MPI is found, `SB_ERROR_ARGUMENT` where MPI
// does not run, `SB_ERROR_RANKS` for ranks that do not come. Collective.
sb_status sb_ranks_create(const struct sb_context *context,
                          int32_t comm,
                          double seconds,
                          struct sb_ranks **ranks);

// Destroys ranks, before MPI is finalised; NULL is nothing to destroy. Collective.
sb_status sb_ranks_destroy(struct sb_ranks *ranks);

// Writes the number of this rank and that of all ranks; the number of this rank among those of its
// host, and how many these are; and the number of threads that this rank should use: its part of
// the cores that its affinity mask allows. Each place may be NULL. One call at a time.
sb_status sb_ranks_place(const struct sb_ranks *ranks,
                         int32_t *rank,
                         int32_t *nranks,
                         int32_t *local_rank,
                         int32_t *nlocal,
                         int32_t *nthreads);

// Divides items into consecutive shares of about equal cost, one for each rank: rank `r` gets
// the items from `first[r]` to before `first[r + 1]`, and `first` has `nranks + 1` elements. The
// costs, `nitems` of them, may be entries times iterations of the last solve, or times. All ranks
// that give the same costs get the same shares.
//
// Errors: `SB_ERROR_ARGUMENT` for costs that are negative or not finite, and for no ranks. Any
// thread.
sb_status sb_ranks_shares(const double *costs, int64_t nitems, int32_t nranks, int64_t *first);

// Ends a step that may fail on one rank: each rank gives the status of its own part, and with it
// `message`, one line, which may be NULL. Returns `SB_OK` on all ranks where all gave it; else
// `SB_ERROR_RANKS` on all, with the status and the message of the lowest rank that failed.
// So the ranks go on together or end together. Collective.
sb_status sb_ranks_agree(const struct sb_ranks *ranks, sb_status status, const char *message);

// Holds that the solvers of all ranks have the same options, but for limits per system, and that
// the ranks have the same library, instruction set and GPU: then a system has the same bits on
// any rank.
//
// Errors: `SB_ERROR_RANKS` with the first difference. Collective.
sb_status sb_ranks_check_solver(const struct sb_ranks *ranks, const struct sb_solver *solver);

// Makes one report of the reports of all ranks, whose systems follow each other in the order of
// the ranks; a rank without items gives that of a solve without systems. `whole` gets it on
// rank 0, NULL on the others. Times are those of the slowest rank.
//
// Errors: `SB_ERROR_RANKS`. Collective.
sb_status sb_ranks_report(const struct sb_ranks *ranks,
                          const struct sb_report *report,
                          struct sb_report **whole);

// Writes the numbers of systems and of active ones that converged. Each place may be NULL. Any
// thread.
sb_status sb_report_sizes(const struct sb_report *report, int64_t *nsystems, int64_t *nconverged);

// Writes how each system ended: codes of `sb_outcome_name`, 0 where it converged, `SB_INACTIVE`
// where it was not active. `len` is the number of systems, else `SB_ERROR_ARGUMENT`. Any thread.
sb_status sb_report_statuses(const struct sb_report *report, uint8_t *out, int64_t len);

// Writes what solved each system: codes of `sb_rung_name`, 0 for the first method. `len` is the
// number of systems, else `SB_ERROR_ARGUMENT`. Any thread.
sb_status sb_report_rungs(const struct sb_report *report, uint8_t *out, int64_t len);

// Writes the iterations of each system, of all methods that were tried. `len` is the number of
// systems, else `SB_ERROR_ARGUMENT`. Any thread.
sb_status sb_report_iterations(const struct sb_report *report, uint32_t *out, int64_t len);

// Writes the restarts of each system from its true residual. `len` is the number of systems, else
// `SB_ERROR_ARGUMENT`. Any thread.
sb_status sb_report_restarts(const struct sb_report *report, uint32_t *out, int64_t len);

// Writes `||b - A x||_2` of each system, recomputed from the x that was returned; NaN where it is
// not finite. `len` is the number of systems, else `SB_ERROR_ARGUMENT`. Any thread.
sb_status sb_report_residual_norms(const struct sb_report *report, double *out, int64_t len);

// Writes `||b||_2` of each system. `len` is the number of systems, else `SB_ERROR_ARGUMENT`. Any
// thread.
sb_status sb_report_rhs_norms(const struct sb_report *report, double *out, int64_t len);

// Writes 1 for each system that the rounding floor accepted, else 0. `len` is the number of
// systems, else `SB_ERROR_ARGUMENT`. Any thread.
sb_status sb_report_accepted_by_floor(const struct sb_report *report, uint8_t *out, int64_t len);

// Writes 1 for each system whose matrix was found singular to working precision, else 0. `len` is
// the number of systems, else `SB_ERROR_ARGUMENT`. Any thread.
sb_status sb_report_singular(const struct sb_report *report, uint8_t *out, int64_t len);

// Writes the residual norms of the iterations of a system (from 0), the first `len` of them, and
// to `needed` their number; `needed` may be NULL. There are none unless the solver was asked for
// them.
//
// Errors: `SB_ERROR_ARGUMENT` where there is no such system. Any thread.
sb_status sb_report_history(const struct sb_report *report,
                            int64_t system,
                            double *out,
                            int64_t len,
                            int64_t *needed);

// Writes what may solve a system (from 0) that did not converge, one line and a NUL, cut to `len`
// bytes; nothing for one that converged or was not active.
//
// Errors: `SB_ERROR_ARGUMENT` where there is no such system. Any thread.
sb_status sb_report_advice(const struct sb_report *report,
                           int64_t system,
                           char *buffer,
                           size_t len);

// Writes what ran, where, why, and how it went: lines and a NUL, cut to `len` bytes. `needed` gets
// the bytes that the whole text takes; may be NULL. Any thread.
sb_status sb_report_text(const struct sb_report *report, char *buffer, size_t len, size_t *needed);

// Writes the seconds of the analysis and of the solve. Each place may be NULL. Any thread.
sb_status sb_report_times(const struct sb_report *report, double *plan, double *solve);

// Destroys a report; NULL is nothing to destroy. Any thread.
sb_status sb_report_destroy(struct sb_report *report);

// Creates a solver: chooses methods where the options say `auto`, for which the values are read,
// and analyses the patterns. `options` may be NULL.
//
// `values` has `nvalues` elements of the batch's type in the batch's layout, in the memory that
// the options say. They stay the current values until `sb_solver_set_values` or `sb_solver_shift`,
// and are read where they lie: keep the array until then, or until the solver is destroyed. After
// writing to it call `sb_solver_set_values` again.
//
// Errors: `SB_ERROR_ARGUMENT` for options out of range, matrices that are not square, another
// number of values; `SB_ERROR_UNSUPPORTED`; for data on a device `SB_ERROR_GPU` and
// `SB_ERROR_OUT_OF_MEMORY`; `SB_ERROR_FORKED`. Any thread.
sb_status sb_solver_create(const struct sb_batch *batch,
                           const void *values,
                           int64_t nvalues,
                           const struct sb_solver_options *options,
                           struct sb_solver **solver);

// Writes the bytes of GPU memory that a solver of data on a device takes, beside the arrays of the
// program: `bytes` from the beginning, `bytes_with_guesses` after `sb_solver_prepare_guesses`, and
// `most_bytes` the most while it is created. Each place may be NULL.
//
// Nothing is allocated on the device. `values` and `nvalues` are those of `sb_solver_create`, but
// in host memory, for matrices such as will be solved; method and plan are chosen as there. The
// figures are sums of sizes of arrays, each of which an allocator rounds up.
// `sb_solver_factor` takes more: a copy of the values, and the factors.
//
// Errors: those of `sb_solver_create`; `SB_ERROR_UNSUPPORTED` where the context has no GPU. Any
// thread.
sb_status sb_solver_memory(const struct sb_batch *batch,
                           const void *values,
                           int64_t nvalues,
                           const struct sb_solver_options *options,
                           int64_t *bytes,
                           int64_t *bytes_with_guesses,
                           int64_t *most_bytes);

// Takes other values for the solves that follow: as for `sb_solver_create`. The analysis stays,
// and so do kept matrices.
//
// Errors: `SB_ERROR_ARGUMENT` for another number of values. One call of a solver at a time.
sb_status sb_solver_set_values(struct sb_solver *solver, const void *values, int64_t nvalues);

// Takes `I/dt - J` as matrices for the solves that follow: those of an implicit step of length
// `dt` with the Jacobians J. Every row of the pattern needs an entry on the diagonal.
//
// `jacobian` is an array as the values. `dt` has `ndt` elements: one for each item, or in host
// memory one for all items; on a device always one for each item. Both are of the batch's type, in
// the solver's memory, and are not needed after the call; on a device, after the work on the
// stream. The solver has an array of its own for the result. A `dt` of 0 is not refused: that
// system ends `NonFinite`.
//
// On a device a solve that was enqueued reads the matrices until `sb_solver_finish`, and a shift
// between the two is refused. Do not shift between the launch of a graph that has recorded the
// solve and `sb_solver_finish` either, which the library cannot see.
//
// Errors: `SB_ERROR_ARGUMENT` for other lengths, for an entry missing on the diagonal, and after
// `sb_solver_enqueue` without `sb_solver_finish`; `SB_ERROR_UNSUPPORTED` for a `dt` for each item
// of shared values, and on a device for ragged batches, interleaved values and shared values. One
// call of a solver at a time.
sb_status sb_solver_shift(struct sb_solver *solver,
                          const void *jacobian,
                          int64_t njacobian,
                          const void *dt,
                          int64_t ndt);

// Takes other tolerances and iteration limits for the solves that follow; those that `limits`
// does not say stay. The analysis stays, and so do kept matrices and factors. On a device this
// waits for the stream, and a graph that was recorded before may keep the limits that it had.
//
// Errors: `SB_ERROR_ARGUMENT` for limits out of range, and after `sb_solver_enqueue` without
// `sb_solver_finish`; `SB_ERROR_UNSUPPORTED` where a context on a GPU solves data in host memory
// with a format or a kernel. The limits are as before then. One call of a solver at a time.
sb_status sb_solver_set_limits(struct sb_solver *solver, const struct sb_limits *limits);

// Keeps the current matrices for solves with `SB_KEPT`, `SB_NEAR` and `SB_KEPT_TRANSPOSED`, and
// factorises them where the method has factors. An item that cannot be factorised is no error: its
// systems end with a status, or are solved otherwise.
//
// Errors: `SB_ERROR_FORKED`; on a GPU `SB_ERROR_GPU`, `SB_ERROR_OUT_OF_MEMORY`. One call of a
// solver at a time.
sb_status sb_solver_factor(struct sb_solver *solver);

// Writes 1 where the last `sb_solver_factor`, or else the next one, keeps factors, and 0 where it
// keeps a copy of the matrices alone. One call of a solver at a time.
sb_status sb_solver_keeps_factors(const struct sb_solver *solver, int32_t *keeps_factors);

// Solves all systems.
//
// - `by`: with which matrices: `SB_VALUES`, `SB_KEPT`, `SB_NEAR`, `SB_TRANSPOSED` or
//   `SB_KEPT_TRANSPOSED`.
// - `guess`: `SB_GUESS_ZERO`, or `SB_GUESS_IN_X`.
// - `b`: `nb` elements: the rows of item 0 for right-hand side 0, for right-hand side 1, ..., of
//   item 1, and so on. `x`: `nx` elements alike, for the solutions. They do not overlap.
// - `nfailed`: gets the number of systems that did not converge; may be NULL. They are no error:
//   each has a status in `sb_solver_report`, and an x that is no worse than its guess. They have
//   no influence on other systems.
//
// Data on a device: waits for the stream.
//
// Errors: `SB_ERROR_ARGUMENT`; `SB_ERROR_NOT_FACTORED`; `SB_ERROR_STOPPED` by `sb_solver_stop`;
// `SB_ERROR_UNSUPPORTED` for `SB_TRANSPOSED` on a device; `SB_ERROR_FORKED`; `SB_ERROR_GPU`,
// `SB_ERROR_OUT_OF_MEMORY`. One call of a solver at a time.
sb_status sb_solver_solve(struct sb_solver *solver,
                          int32_t by,
                          int32_t guess,
                          const void *b,
                          int64_t nb,
                          void *x,
                          int64_t nx,
                          int64_t *nfailed);

// Solves with limits of this call, or some systems alone. Afterwards the solver has its own limits
// again.
//
// - `limits`: NULL for those of the solver.
// - `active`: one element for each of the `nactive` systems (items times right-hand sides), 1
//   where it is solved and 0 where it is left out; always in host memory. NULL with `nactive` 0:
//   all. The x of a system that is left out stays with `SB_GUESS_IN_X`, and becomes 0 with
//   `SB_GUESS_ZERO`; its status is `SB_INACTIVE`, and `nfailed` does not count it.
// - Others as of `sb_solver_solve`.
//
// Nothing is analysed or compiled anew. Data on a device: the limits wait for the stream, and with
// `active` and `SB_GUESS_IN_X` the guesses are copied to the host.
//
// Errors: as `sb_solver_solve`; `SB_ERROR_ARGUMENT` for limits out of range, another `nactive`,
// and after `sb_solver_enqueue` without `sb_solver_finish`; `SB_ERROR_UNSUPPORTED` where a context
// on a GPU solves data in host memory with a format or a kernel. One call of a solver at a time.
sb_status sb_solver_solve_with(struct sb_solver *solver,
                               int32_t by,
                               int32_t guess,
                               const void *b,
                               int64_t nb,
                               void *x,
                               int64_t nx,
                               const struct sb_limits *limits,
                               const uint8_t *active,
                               int64_t nactive,
                               int64_t *nfailed);

// Starts the first method for all systems of data on a device, on the solver's stream, and returns
// without waiting. Arguments as of `sb_solver_solve`; keep the arrays until `sb_solver_finish`.
//
// May be captured in a CUDA graph, with `SB_GUESS_IN_X` after `sb_solver_prepare_guesses`.
//
// Errors: as `sb_solver_solve`; `SB_ERROR_UNSUPPORTED` for data in host memory. One call of a
// solver at a time.
sb_status sb_solver_enqueue(struct sb_solver *solver,
                            int32_t by,
                            int32_t guess,
                            const void *b,
                            int64_t nb,
                            void *x,
                            int64_t nx);

// Waits for the last `sb_solver_enqueue`, or the last launch of a graph that has recorded it,
// confirms what converged, and solves systems that failed by stronger methods where the options
// allow that. `nfailed` as of `sb_solver_solve`.
//
// Errors: `SB_ERROR_NOT_FACTORED` where nothing was started; those of `sb_solver_solve`. One call
// of a solver at a time.
sb_status sb_solver_finish(struct sb_solver *solver, int64_t *nfailed);

// Makes solves of data on a device with `SB_GUESS_IN_X` ready: compiles kernels and allocates
// memory, which else the first such solve does. Nothing to do for data in host memory. One call of
// a solver at a time.
sb_status sb_solver_prepare_guesses(struct sb_solver *solver);

// Writes where the outcomes lie on the device: after `sb_solver_enqueue` those of the first
// method, not confirmed; after `sb_solver_finish` those of the report.
//
// Errors: `SB_ERROR_UNSUPPORTED` for data in host memory. One call of a solver at a time.
sb_status sb_solver_device_outcomes(const struct sb_solver *solver,
                                    struct sb_device_outcomes *outcomes);

// Asks the solve that runs to stop: its call returns `SB_ERROR_STOPPED`. Without a solve that runs
// the next one stops. Any thread, while another one is in a call of the solver.
sb_status sb_solver_stop(const struct sb_solver *solver);

// Creates the report of the last solve.
//
// Errors: `SB_ERROR_NOT_FACTORED` where no solve has ended since the solver was created, or since
// an error. One call of a solver at a time.
sb_status sb_solver_report(const struct sb_solver *solver, struct sb_report **report);

// Destroys a solver; NULL is nothing to destroy. Reports stay. Any thread; a call of another
// thread that runs ends first, for which this one waits.
sb_status sb_solver_destroy(struct sb_solver *solver);

// Prepares products: chooses format and kernel, and copies the values. `options` may be NULL.
//
// `values` has `nvalues` elements of the batch's type in the batch's layout, in the memory that
// the options say; they are not needed after the call.
//
// Errors: `SB_ERROR_ARGUMENT`; `SB_ERROR_FORMAT` for a format that would take far more memory than
// the matrices; `SB_ERROR_UNSUPPORTED`, `SB_ERROR_GPU`, `SB_ERROR_OUT_OF_MEMORY` on a device;
// `SB_ERROR_FORKED`. Any thread.
sb_status sb_spmv_create(const struct sb_batch *batch,
                         const void *values,
                         int64_t nvalues,
                         const struct sb_spmv_options *options,
                         struct sb_spmv **spmv);

// Copies other values for the products that follow; on a device, enqueued on the stream.
//
// Errors: `SB_ERROR_ARGUMENT` for another number of values. One call of a plan at a time.
sb_status sb_spmv_set_values(struct sb_spmv *spmv, const void *values, int64_t nvalues);

// `y = alpha A x + beta y` for all items; on a device, enqueued on the stream. With a `beta` of 0
// `y` is not read.
//
// `x` has `nx` elements: the columns of item 0 for right-hand side 0, for right-hand side 1, ...,
// of item 1, and so on; `y` has `ny` elements alike, for the rows. They do not overlap.
//
// Errors: `SB_ERROR_ARGUMENT`, `SB_ERROR_FORKED`, `SB_ERROR_GPU`; `y` is untouched then. One call
// of a plan at a time.
sb_status sb_spmv_apply(struct sb_spmv *spmv,
                        double alpha,
                        const void *x,
                        int64_t nx,
                        double beta,
                        void *y,
                        int64_t ny);

// Writes format, kernel and why: lines and a NUL, cut to `len` bytes. `needed` gets the bytes that
// the whole text takes; may be NULL. One call of a plan at a time.
sb_status sb_spmv_text(const struct sb_spmv *spmv, char *buffer, size_t len, size_t *needed);

// Destroys a plan of products; NULL is nothing to destroy. Any thread.
sb_status sb_spmv_destroy(struct sb_spmv *spmv);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SPARSEBATCH_H */
