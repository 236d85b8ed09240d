/* SUNLinearSolver over sparsebatch: the header says what functions do. C11, and C++ for SUNDIALS'
   header of SUNMATRIX_CUSPARSE, which is C++. */
#include "sunlinsol_sparsebatch.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sunmatrix/sunmatrix_sparse.h>
#ifdef SUNLINSOL_SPARSEBATCH_CUDA
#include <sunmatrix/sunmatrix_cusparse.h>
#endif

/* Whether matrices on a GPU are scaled: the kernel needs nvcc. */
#if defined(SUNLINSOL_SPARSEBATCH_CUDA) && defined(__CUDACC__)
#define SCALES_ON_DEVICE 1
#else
#define SCALES_ON_DEVICE 0
#endif

/* Names that SUNDIALS 7 has changed. */
#if SUNDIALS_VERSION_MAJOR >= 7
#define NULL_ARGUMENT SUN_ERR_ARG_CORRUPT
#define WRONG_ARGUMENT SUN_ERR_ARG_INCOMPATIBLE
#define OUT_OF_MEMORY SUN_ERR_MEM_FAIL
#define LIBRARY_FAILED SUN_ERR_EXT_FAIL
typedef SUNErrCode sb_code;
typedef sunbooleantype sb_boolean;
#elif SUNDIALS_VERSION_MAJOR == 6
#define NULL_ARGUMENT SUNLS_MEM_NULL
#define WRONG_ARGUMENT SUNLS_ILL_INPUT
#define OUT_OF_MEMORY SUNLS_MEM_FAIL
#define LIBRARY_FAILED SUNLS_PACKAGE_FAIL_UNREC
typedef int sb_code;
typedef booleantype sb_boolean;
#else
#error "sunlinsol_sparsebatch needs SUNDIALS 6 or 7"
#endif

#if defined(SUNDIALS_DOUBLE_PRECISION)
#define VALUE_TYPE SB_F64
#elif defined(SUNDIALS_SINGLE_PRECISION)
#define VALUE_TYPE SB_F32
#else
#error "sunlinsol_sparsebatch needs SUNDIALS in double or single precision"
#endif

/* The relative tolerance of an iterative solve that is asked for a tolerance of 0. */
#define DEFAULT_RTOL 1e-10
/* The least tolerance of a block, in the units of the residual. */
#define SMALLEST_UNIT ((sunrealtype)(sizeof(sunrealtype) == 4 ? 1e-30 : 1e-280))

/* Code of a system whose elimination met no pivot (sb_outcome_name). */
static const char ZERO_PIVOT[] = "ZeroPivot";

typedef struct {
    int iterative;
    int on_device;
    int64_t nblocks, nrows; /* rows of a block */
    int64_t nnz;            /* entries of a block, once analysed */

    sb_solver_options options;
    sb_context *given; /* by the program, or NULL */
    sb_solver *solver; /* NULL: the next set-up analyses */
    int32_t *row_ptr, *col_idx;

    /* Iterative solves: scaling vectors of the integrator, the scaled system, and whether the next
       guess is 0. */
    N_Vector left, right;
    N_Vector b, x;
    sunrealtype *values; /* scaled, nblocks * nnz, in the memory of the matrix; or NULL */
    int has_solved; /* the library has a report of the last solve of this module */
    int zero_guess;
    sunrealtype unit; /* what the scaled residuals of the last solve are multiples of */

    sb_report *report; /* of the last solve, made when it is asked for */
    int64_t nfailed;
    int last_flag;
    char message[512];
} content;

#ifdef __cplusplus
static thread_local char last_message[512];
#else
static _Thread_local char last_message[512];
#endif

static content *content_of(SUNLinearSolver S) { return S == NULL ? NULL : (content *)S->content; }

/* Writes a message, and keeps the code as the last flag. */
static int failed(content *c, int code, const char *format, ...)
{
    va_list arguments;
    char *message = c == NULL ? last_message : c->message;
    va_start(arguments, format);
    vsnprintf(message, sizeof last_message, format, arguments);
    va_end(arguments);
    if (c != NULL) c->last_flag = code;
    return code;
}

/* The code for an error of the library. */
static int library_failed(content *c, sb_status status, const char *what)
{
    char message[400] = "";
    sb_last_error(NULL, message, sizeof message);
    const int code = status == SB_ERROR_ARGUMENT || status == SB_ERROR_FORMAT ||
                             status == SB_ERROR_UNSUPPORTED || status == SB_ERROR_NOT_FACTORED
                         ? WRONG_ARGUMENT
                     : status == SB_ERROR_OUT_OF_MEMORY ? OUT_OF_MEMORY
                                                        : LIBRARY_FAILED;
    return failed(c, code, "%s: %s: %s", what, sb_status_name(status), message);
}

static int done(content *c)
{
    c->last_flag = 0;
    c->message[0] = '\0';
    return 0;
}

static void forget_report(content *c)
{
    sb_report_destroy(c->report);
    c->report = NULL;
}

static void free_values(content *c)
{
#if SCALES_ON_DEVICE
    if (c->on_device) cudaFree(c->values);
    else
#endif
        free(c->values);
    c->values = NULL;
}

/* Makes the next set-up analyse anew. */
static void forget_solver(content *c)
{
    forget_report(c);
    sb_solver_destroy(c->solver);
    c->solver = NULL;
    free(c->row_ptr);
    free(c->col_idx);
    free_values(c);
    c->row_ptr = c->col_idx = NULL;
}

/* ------------------------------------------------------------------ matrices */

static int is_on_device(SUNMatrix A) { return SUNMatGetID(A) == SUNMATRIX_CUSPARSE; }

/* Checks kind and shape of a matrix; `nblocks` 0: as the matrix says. */
static int check_matrix(content *c, SUNMatrix A, int64_t nblocks, int64_t *rows_of_block)
{
    if (SUNMatGetID(A) == SUNMATRIX_SPARSE) {
        const int64_t rows = SM_ROWS_S(A);
        if (SM_SPARSETYPE_S(A) != CSR_MAT)
            return failed(c, WRONG_ARGUMENT, "expected a sparse matrix in CSR form, found CSC");
        if (rows != SM_COLUMNS_S(A))
            return failed(c, WRONG_ARGUMENT, "expected a square matrix, found %lld x %lld",
                          (long long)rows, (long long)SM_COLUMNS_S(A));
        if (nblocks < 1 || rows < 1 || rows % nblocks != 0)
            return failed(c, WRONG_ARGUMENT,
                          "expected a number of blocks that divides the %lld rows, found %lld",
                          (long long)rows, (long long)nblocks);
        *rows_of_block = rows / nblocks;
        return 0;
    }
#ifdef SUNLINSOL_SPARSEBATCH_CUDA
    if (is_on_device(A)) {
        if (SUNMatrix_cuSparse_SparseType(A) != SUNMAT_CUSPARSE_BCSR)
            return failed(c, WRONG_ARGUMENT, "expected a cuSPARSE matrix in block CSR form");
        if (SUNMatrix_cuSparse_BlockRows(A) != SUNMatrix_cuSparse_BlockColumns(A))
            return failed(c, WRONG_ARGUMENT, "expected square blocks, found %d x %d",
                          SUNMatrix_cuSparse_BlockRows(A), SUNMatrix_cuSparse_BlockColumns(A));
        if (nblocks != 0 && nblocks != SUNMatrix_cuSparse_NumBlocks(A))
            return failed(c, WRONG_ARGUMENT, "expected the %d blocks of the matrix, found %lld",
                          SUNMatrix_cuSparse_NumBlocks(A), (long long)nblocks);
        *rows_of_block = SUNMatrix_cuSparse_BlockRows(A);
        return 0;
    }
#endif
    return failed(c, WRONG_ARGUMENT,
                  "expected a matrix of type SUNMATRIX_SPARSE%s, found one of type %d",
#ifdef SUNLINSOL_SPARSEBATCH_CUDA
                  " or SUNMATRIX_CUSPARSE",
#else
                  " (for SUNMATRIX_CUSPARSE compile with SUNLINSOL_SPARSEBATCH_CUDA)",
#endif
                  (int)SUNMatGetID(A));
}

static const sunrealtype *values_of(SUNMatrix A)
{
#ifdef SUNLINSOL_SPARSEBATCH_CUDA
    if (is_on_device(A)) return SUNMatrix_cuSparse_Data(A);
#endif
    return SM_DATA_S(A);
}

static sunrealtype *array_of(const content *c, N_Vector v)
{
    return c->on_device ? N_VGetDeviceArrayPointer(v) : N_VGetArrayPointer(v);
}

/* Takes the pattern of the first block. */
static int take_pattern(content *c, SUNMatrix A)
{
    const int64_t n = c->nrows;
#ifdef SUNLINSOL_SPARSEBATCH_CUDA
    if (c->on_device) {
        c->nnz = SUNMatrix_cuSparse_BlockNNZ(A);
    } else
#endif
    {
        c->nnz = SM_INDEXPTRS_S(A)[n];
    }
    if (!c->on_device && (c->nnz < 0 || c->nnz > SM_NNZ_S(A) / c->nblocks))
        return failed(c, WRONG_ARGUMENT,
                      "the first block has %lld entries, the matrix room for %lld in all",
                      (long long)c->nnz, (long long)SM_NNZ_S(A));
    if (c->nnz < 0 || c->nnz > INT32_MAX)
        return failed(c, WRONG_ARGUMENT, "the first block has %lld entries", (long long)c->nnz);
    c->row_ptr = (int32_t *)malloc((size_t)(n + 1) * sizeof *c->row_ptr);
    c->col_idx = (int32_t *)malloc((size_t)(c->nnz + 1) * sizeof *c->col_idx);
    if (c->row_ptr == NULL || c->col_idx == NULL)
        return failed(c, OUT_OF_MEMORY, "no memory for the pattern of a block");
#ifdef SUNLINSOL_SPARSEBATCH_CUDA
    if (c->on_device) {
        if (SUNMatrix_cuSparse_CopyFromDevice(A, NULL, c->row_ptr, c->col_idx) != 0)
            return failed(c, LIBRARY_FAILED, "the pattern could not be copied from the GPU");
        return 0;
    }
#endif
    for (int64_t row = 0; row <= n; ++row) c->row_ptr[row] = (int32_t)SM_INDEXPTRS_S(A)[row];
    for (int64_t k = 0; k < c->nnz; ++k) c->col_idx[k] = (int32_t)SM_INDEXVALS_S(A)[k];
    return 0;
}

/* The first block whose pattern is not the one that was taken, or -1. */
static int64_t other_block(const content *c, SUNMatrix A)
{
    if (c->on_device) return -1;
    if (SM_NNZ_S(A) < c->nblocks * c->nnz) return 0;
    for (int64_t block = 0; block < c->nblocks; ++block) {
        const sunindextype *row_ptr = SM_INDEXPTRS_S(A) + block * c->nrows;
        const sunindextype *col_idx = SM_INDEXVALS_S(A) + block * c->nnz;
        const sunindextype entry = (sunindextype)(block * c->nnz);
        const sunindextype col = (sunindextype)(block * c->nrows);
        sunindextype differs = 0;
        for (int64_t row = 0; row <= c->nrows; ++row)
            differs |= (row_ptr[row] - entry) ^ c->row_ptr[row];
        if (differs != 0) return block;
        for (int64_t k = 0; k < c->nnz; ++k) differs |= (col_idx[k] - col) ^ c->col_idx[k];
        if (differs != 0) return block;
    }
    return -1;
}

/* ------------------------------------------------------------------ set-up */

/* A context of the solver's own. */
static int own_context(content *c, sb_context **context)
{
    sb_context_options options;
    sb_context_options_init(&options, sizeof options);
    if (c->on_device) options.backend = "gpu";
    const sb_status status = sb_context_create(&options, context);
    return status == SB_OK ? 0 : library_failed(c, status, "no context");
}

static int create_solver(content *c, sb_context *context, const sunrealtype *values)
{
    sb_batch *batch = NULL;
    const int32_t n = (int32_t)c->nrows;
    sb_status status = sb_batch_uniform(context, VALUE_TYPE, c->nblocks, n, n, c->nnz, c->row_ptr,
                                        c->col_idx, SB_ITEM_MAJOR, 0, &batch);
    if (status != SB_OK) return library_failed(c, status, "the pattern of a block");
    status = sb_solver_create(batch, values, c->nblocks * c->nnz, &c->options, &c->solver);
    const int code = status == SB_OK ? 0 : library_failed(c, status, "the blocks");
    sb_batch_destroy(batch);
    return code;
}

/* Takes memory for scaled values, where matrices are scaled. */
static int allocate_values(content *c)
{
    const size_t bytes = (size_t)(c->nblocks * c->nnz + 1) * sizeof *c->values;
    if (!c->iterative || (c->on_device && !SCALES_ON_DEVICE)) return 0;
#if SCALES_ON_DEVICE
    if (c->on_device && cudaMalloc((void **)&c->values, bytes) != cudaSuccess) {
        c->values = NULL;
        cudaGetLastError(); /* that of later calls is another one */
    }
#endif
    if (!c->on_device) c->values = (sunrealtype *)malloc(bytes);
    return c->values != NULL ? 0 : failed(c, OUT_OF_MEMORY, "no memory for scaled values");
}

/* Reads the pattern, and makes the solver for it. */
static int analyse(content *c, SUNMatrix A)
{
    forget_solver(c);
    int code = take_pattern(c, A);
    if (code != 0) return code;
    const int64_t other = other_block(c, A);
    if (other >= 0) {
        forget_solver(c);
        return failed(c, WRONG_ARGUMENT,
                      "expected a block-diagonal matrix whose %lld blocks have the pattern of the "
                      "first one, found another pattern in block %lld",
                      (long long)c->nblocks, (long long)other);
    }
    code = allocate_values(c);
    if (code != 0) return code;
    sb_context *own = NULL;
    if (c->given == NULL) code = own_context(c, &own);
    if (code == 0) code = create_solver(c, c->given != NULL ? c->given : own, values_of(A));
    sb_context_destroy(own);
    if (code != 0) forget_solver(c);
    return code;
}

/* Waits for what other streams write to matrix and vectors, unless the program gave the stream that
 * they are written on. */
static void wait_for_device(const content *c)
{
#ifdef SUNLINSOL_SPARSEBATCH_CUDA
    if (c->on_device && c->options.stream == NULL) cudaDeviceSynchronize();
#else
    (void)c;
#endif
}

static int setup(SUNLinearSolver S, SUNMatrix A)
{
    content *c = content_of(S);
    int64_t rows;
    if (c == NULL || A == NULL) return failed(c, NULL_ARGUMENT, "the solver or the matrix is NULL");
    int code = check_matrix(c, A, c->nblocks, &rows);
    if (code != 0) return code;
    if (rows != c->nrows || is_on_device(A) != c->on_device)
        return failed(c, WRONG_ARGUMENT, "the matrix has another shape than the one of the solver");
    wait_for_device(c);
    if (c->solver == NULL || other_block(c, A) >= 0) {
        code = analyse(c, A);
        if (code != 0) return code;
    } else {
        const sb_status status =
            sb_solver_set_values(c->solver, values_of(A), c->nblocks * c->nnz);
        if (status != SB_OK) return library_failed(c, status, "the values");
    }
    if (!c->iterative) {
        const sb_status status = sb_solver_factor(c->solver);
        if (status != SB_OK) return library_failed(c, status, "the factors");
    }
    return done(c);
}

/* ------------------------------------------------------------------ solves */

/* The report of the last solve, kept until the next one. */
static sb_status keep_report(content *c)
{
    if (!c->has_solved) return SB_ERROR_ARGUMENT;
    return c->report != NULL ? SB_OK : sb_solver_report(c->solver, &c->report);
}

/* Whether a block of the last solve has a matrix without a factorisation. */
static int some_singular(content *c)
{
    const int64_t n = c->nblocks;
    uint8_t *flags = (uint8_t *)malloc((size_t)n);
    int found = 0;
    if (flags != NULL && keep_report(c) == SB_OK) {
        if (sb_report_singular(c->report, flags, n) == SB_OK)
            for (int64_t block = 0; block < n; ++block) found |= flags[block] != 0;
        if (sb_report_statuses(c->report, flags, n) == SB_OK)
            for (int64_t block = 0; block < n; ++block)
                found |= strcmp(sb_outcome_name(flags[block]), ZERO_PIVOT) == 0;
    }
    free(flags);
    return found;
}

/* Solves, and makes a code of how blocks ended. */
static int run(content *c, int32_t by, int32_t guess, N_Vector x, N_Vector b)
{
    const int64_t n = c->nblocks * c->nrows;
    const sunrealtype *right_hand_sides = array_of(c, b);
    sunrealtype *solutions = array_of(c, x);
    if (right_hand_sides == NULL || solutions == NULL)
        return failed(c, WRONG_ARGUMENT, "expected vectors with an array in the matrix's memory");
    forget_report(c);
    c->nfailed = 0;
    wait_for_device(c);
    const sb_status status =
        sb_solver_solve(c->solver, by, guess, right_hand_sides, n, solutions, n, &c->nfailed);
    c->has_solved = status == SB_OK;
    if (status != SB_OK) return library_failed(c, status, "the solve");
    if (c->nfailed == 0) return done(c);
    const int code = some_singular(c) ? SUNLS_LUFACT_FAIL : SUNLS_CONV_FAIL;
    return failed(c, code, "%lld of %lld blocks were not solved", (long long)c->nfailed,
                  (long long)c->nblocks);
}

/* Checks the arguments of a solve. */
static int check_solve(content *c, SUNMatrix A, N_Vector x, N_Vector b)
{
    if (c == NULL || A == NULL || x == NULL || b == NULL)
        return failed(c, NULL_ARGUMENT, "the solver, the matrix or a vector is NULL");
    if (c->solver == NULL) return failed(c, WRONG_ARGUMENT, "a set-up has to come before a solve");
    const int64_t expected = c->nblocks * c->nrows;
    if (N_VGetLength(x) != expected || N_VGetLength(b) != expected)
        return failed(c, WRONG_ARGUMENT, "expected vectors of length %lld, found %lld and %lld",
                      (long long)expected, (long long)N_VGetLength(x),
                      (long long)N_VGetLength(b));
    return 0;
}

static int solve_direct(SUNLinearSolver S, SUNMatrix A, N_Vector x, N_Vector b, sunrealtype tol)
{
    content *c = content_of(S);
    (void)tol;
    const int code = check_solve(c, A, x, b);
    return code != 0 ? code : run(c, SB_KEPT, SB_GUESS_ZERO, x, b);
}

#if SCALES_ON_DEVICE
/* scale_values of one block of the matrix by each block of threads, row by row. */
__global__ static void scale_kernel(int64_t nrows, int64_t nnz, const int *row_ptr,
                                    const int *col_idx, const sunrealtype *left,
                                    const sunrealtype *right, const sunrealtype *from,
                                    sunrealtype *to)
{
    const int64_t entries = blockIdx.x * nnz, first = blockIdx.x * nrows;
    for (int64_t row = threadIdx.x; row < nrows; row += blockDim.x) {
        const sunrealtype factor = left == NULL ? 1 : left[first + row];
        for (int k = row_ptr[row]; k < row_ptr[row + 1]; ++k) {
            const sunrealtype scaled = factor * from[entries + k];
            to[entries + k] = right == NULL ? scaled : scaled / right[first + col_idx[k]];
        }
    }
}
#endif

/* S1 A S2^-1: each row times an entry of `left`, each column over one of `right`. */
static int scale_values(content *c, SUNMatrix A)
{
    const sunrealtype *left = c->left == NULL ? NULL : array_of(c, c->left);
    const sunrealtype *right = c->right == NULL ? NULL : array_of(c, c->right);
    const sunrealtype *from = values_of(A);
    sunrealtype *to = c->values;
#if SCALES_ON_DEVICE
    if (c->on_device) {
        scale_kernel<<<(unsigned)c->nblocks, 64, 0, (cudaStream_t)c->options.stream>>>(
            c->nrows, c->nnz, SUNMatrix_cuSparse_IndexPointers(A),
            SUNMatrix_cuSparse_IndexValues(A), left, right, from, to);
        const cudaError_t error = cudaGetLastError();
        return error == cudaSuccess ? 0
                                    : failed(c, LIBRARY_FAILED, "the matrix was not scaled: %s",
                                             cudaGetErrorString(error));
    }
#endif
    for (int64_t block = 0; block < c->nblocks; ++block) {
        const int64_t first = block * c->nrows;
        for (int64_t row = 0; row < c->nrows; ++row) {
            const sunrealtype factor = left == NULL ? 1 : left[first + row];
            for (int32_t k = c->row_ptr[row]; k < c->row_ptr[row + 1]; ++k) {
                const sunrealtype scaled = factor * *from++;
                *to++ = right == NULL ? scaled : scaled / right[first + c->col_idx[k]];
            }
        }
    }
    return 0;
}

/* ||c->b||, whose largest entry is `most`. */
static sunrealtype norm_of(content *c, sunrealtype most)
{
    if (!(most > 0)) return 0;
    N_VScale(1 / most, c->b, c->b);
    const sunrealtype scaled = (sunrealtype)sqrt((double)N_VDotProd(c->b, c->b));
    N_VScale(most, c->b, c->b);
    return most * scaled;
}

/* The options have atol 1: the system is solved in units of the tolerance of a block. */
static int solve_iterative(SUNLinearSolver S, SUNMatrix A, N_Vector x, N_Vector b, sunrealtype tol)
{
    content *c = content_of(S);
    int code = check_solve(c, A, x, b);
    if (code != 0) return code;
    int64_t rows;
    if ((code = check_matrix(c, A, c->nblocks, &rows)) != 0) return code;
    if (rows != c->nrows || is_on_device(A) != c->on_device || other_block(c, A) >= 0)
        return failed(c, WRONG_ARGUMENT, "the matrix has another pattern than that of the set-up");
    wait_for_device(c);
    if (c->left != NULL) N_VProd(c->left, b, c->b);
    else N_VScale(1, b, c->b);
    const int zero_guess = c->zero_guess;
    c->zero_guess = 0;
    /* The largest entry does not overflow as the squares of others may; a NaN is in the sum. */
    const sunrealtype most = N_VMaxNorm(c->b);
    if (!isfinite(most) || isnan(N_VDotProd(c->b, c->b))) {
        forget_report(c);
        c->has_solved = 0;
        c->nfailed = 0;
        return failed(c, SUNLS_CONV_FAIL, "the right-hand side is not finite");
    }
    if (!(tol > 0)) tol = (sunrealtype)DEFAULT_RTOL * norm_of(c, most);
    c->unit = tol / (sunrealtype)sqrt((double)c->nblocks);
    if (!(c->unit >= SMALLEST_UNIT)) c->unit = most > 0 ? SMALLEST_UNIT : 1;
    N_VScale(1 / c->unit, c->b, c->b);
    if (!zero_guess) {
        if (c->right != NULL) N_VProd(c->right, x, c->x);
        else N_VScale(1, x, c->x);
        N_VScale(1 / c->unit, c->x, c->x);
    }
    if (c->values != NULL) {
        if ((code = scale_values(c, A)) != 0) return code;
        const sb_status status =
            sb_solver_set_values(c->solver, c->values, c->nblocks * c->nnz);
        if (status != SB_OK) return library_failed(c, status, "the scaled values");
    }
    code = run(c, SB_VALUES, zero_guess ? SB_GUESS_ZERO : SB_GUESS_IN_X, c->x, c->b);
    if (code < 0) return code;
    if (c->right != NULL) N_VDiv(c->x, c->right, x);
    else N_VScale(1, c->x, x);
    N_VScale(c->unit, x, x);
    return code;
}

/* ------------------------------------------------------------------ other operations */

static SUNLinearSolver_Type gettype(SUNLinearSolver S)
{
    const content *c = content_of(S);
    return c != NULL && c->iterative ? SUNLINEARSOLVER_MATRIX_ITERATIVE : SUNLINEARSOLVER_DIRECT;
}

static SUNLinearSolver_ID getid(SUNLinearSolver S)
{
    (void)S;
    return SUNLINEARSOLVER_CUSTOM;
}

static sb_code initialize(SUNLinearSolver S)
{
    content *c = content_of(S);
    if (c == NULL) return failed(c, NULL_ARGUMENT, "the solver is NULL");
    c->zero_guess = 0;
    return done(c);
}

static sb_code setscalingvectors(SUNLinearSolver S, N_Vector s1, N_Vector s2)
{
    content *c = content_of(S);
    if (c == NULL) return failed(c, NULL_ARGUMENT, "the solver is NULL");
    const int64_t expected = c->nblocks * c->nrows;
    if ((s1 != NULL && N_VGetLength(s1) != expected) ||
        (s2 != NULL && N_VGetLength(s2) != expected))
        return failed(c, WRONG_ARGUMENT, "expected scaling vectors of length %lld",
                      (long long)expected);
    c->left = s1;
    c->right = s2;
    return done(c);
}

static sb_code setzeroguess(SUNLinearSolver S, sb_boolean onoff)
{
    content *c = content_of(S);
    if (c == NULL) return failed(c, NULL_ARGUMENT, "the solver is NULL");
    c->zero_guess = onoff != 0;
    return done(c);
}

/* Iterations of all methods that were tried, of the block that took most. */
static int numiters(SUNLinearSolver S)
{
    content *c = content_of(S);
    if (c == NULL || c->solver == NULL || keep_report(c) != SB_OK) return 0;
    uint32_t *iterations = (uint32_t *)malloc((size_t)c->nblocks * sizeof *iterations);
    uint32_t most = 0;
    if (iterations != NULL && sb_report_iterations(c->report, iterations, c->nblocks) == SB_OK)
        for (int64_t block = 0; block < c->nblocks; ++block)
            if (iterations[block] > most) most = iterations[block];
    free(iterations);
    return most > INT_MAX ? INT_MAX : (int)most;
}

static sunrealtype resnorm(SUNLinearSolver S)
{
    content *c = content_of(S);
    double *norms, squares = 0.0;
    if (c == NULL || c->solver == NULL || keep_report(c) != SB_OK) return 0;
    norms = (double *)malloc((size_t)c->nblocks * sizeof *norms);
    if (norms != NULL && sb_report_residual_norms(c->report, norms, c->nblocks) == SB_OK)
        for (int64_t block = 0; block < c->nblocks; ++block) squares += norms[block] * norms[block];
    free(norms);
    return c->unit * (sunrealtype)sqrt(squares);
}

static sunindextype lastflag(SUNLinearSolver S)
{
    const content *c = content_of(S);
    return c == NULL ? NULL_ARGUMENT : c->last_flag;
}

/* Arrays of this module; the library does not tell what it keeps. */
static sb_code space(SUNLinearSolver S, long int *lenrw, long int *leniw)
{
    const content *c = content_of(S);
    if (c == NULL || lenrw == NULL || leniw == NULL)
        return failed(NULL, NULL_ARGUMENT, "the solver or a place is NULL");
    *lenrw = c->iterative ? (long int)(c->nblocks * (2 * c->nrows + c->nnz)) : 0;
    *leniw = (long int)(c->nrows + 1 + c->nnz);
    return 0;
}

static sb_code free_solver(SUNLinearSolver S)
{
    if (S == NULL) return 0;
    content *c = content_of(S);
    if (c != NULL) {
        forget_solver(c);
        if (c->b != NULL) N_VDestroy(c->b);
        if (c->x != NULL) N_VDestroy(c->x);
        free(c);
    }
    S->content = NULL;
    SUNLinSolFreeEmpty(S);
    return 0;
}

/* ------------------------------------------------------------------ construction */

static void attach(SUNLinearSolver S, const content *c)
{
    S->ops->gettype = gettype;
    S->ops->getid = getid;
    S->ops->initialize = initialize;
    S->ops->setup = setup;
    S->ops->solve = c->iterative ? solve_iterative : solve_direct;
    S->ops->lastflag = lastflag;
    S->ops->space = space;
    S->ops->free = free_solver;
    if (!c->iterative) return;
    S->ops->setzeroguess = setzeroguess;
    S->ops->numiters = numiters;
    S->ops->resnorm = resnorm;
    if (!c->on_device || SCALES_ON_DEVICE) S->ops->setscalingvectors = setscalingvectors;
}

/* What this module sets whatever a program asks for. */
static void fix_options(content *c)
{
    c->options.nrhs = 1;
    c->options.space = c->on_device ? SB_DEVICE : SB_HOST;
    c->options.vectors = SB_ITEM_MAJOR;
    if (!c->iterative) return;
    c->options.rtol = 0.0;
    c->options.atol = 1.0;
    c->options.floor = SB_DEFAULT;
    c->options.rtol_each = c->options.atol_each = NULL;
}

/* Checks the arguments of a constructor and writes them to `c`. */
static int check_arguments(content *c, N_Vector y, SUNMatrix A, sunindextype nblocks)
{
    const int code = check_matrix(NULL, A, nblocks, &c->nrows);
    if (code != 0) return code;
    c->on_device = is_on_device(A);
    c->nblocks = nblocks;
#ifdef SUNLINSOL_SPARSEBATCH_CUDA
    if (c->on_device) c->nblocks = SUNMatrix_cuSparse_NumBlocks(A);
#endif
    if (c->nrows > INT32_MAX)
        return failed(NULL, WRONG_ARGUMENT, "expected blocks of at most %d rows", INT32_MAX);
    if (N_VGetLength(y) != c->nblocks * c->nrows)
        return failed(NULL, WRONG_ARGUMENT,
                      "expected a vector of length %lld for the matrix, found %lld",
                      (long long)(c->nblocks * c->nrows), (long long)N_VGetLength(y));
    if (c->on_device ? y->ops->nvgetdevicearraypointer == NULL
                     : y->ops->nvgetarraypointer == NULL)
        return failed(NULL, WRONG_ARGUMENT, "expected a vector in the memory of the matrix");
    return 0;
}

static SUNLinearSolver create(N_Vector y, SUNMatrix A, sunindextype nblocks, SUNContext sunctx,
                              int iterative)
{
    if (y == NULL || A == NULL || sunctx == NULL) {
        failed(NULL, NULL_ARGUMENT, "the vector, the matrix or the context is NULL");
        return NULL;
    }
    if (sb_abi_version() != SB_ABI_VERSION) {
        failed(NULL, LIBRARY_FAILED, "expected a library of interface %d, found %u",
               SB_ABI_VERSION, (unsigned)sb_abi_version());
        return NULL;
    }
    content *c = (content *)calloc(1, sizeof *c);
    if (c == NULL) {
        failed(NULL, OUT_OF_MEMORY, "no memory for a solver");
        return NULL;
    }
    c->iterative = iterative;
    c->unit = 1;
    if (check_arguments(c, y, A, nblocks) != 0) {
        free(c);
        return NULL;
    }
    sb_solver_options_init(&c->options, sizeof c->options);
    c->options.method = iterative ? "bicgstab" : "lu";
    if (!iterative) c->options.floor = 4.0;
    fix_options(c);
    SUNLinearSolver S = SUNLinSolNewEmpty(sunctx);
    if (S != NULL) {
        S->content = c;
        attach(S, c);
        if (iterative) {
            c->b = N_VClone(y);
            c->x = N_VClone(y);
        }
    }
    if (S == NULL || (iterative && (c->b == NULL || c->x == NULL))) {
        failed(NULL, OUT_OF_MEMORY, "no memory for a solver");
        if (S != NULL) free_solver(S);
        else free(c);
        return NULL;
    }
    last_message[0] = '\0';
    return S;
}

SUNLinearSolver SUNLinSol_SparseBatch(N_Vector y, SUNMatrix A, sunindextype nblocks,
                                      SUNContext sunctx)
{
    return create(y, A, nblocks, sunctx, 0);
}

SUNLinearSolver SUNLinSol_SparseBatchIterative(N_Vector y, SUNMatrix A, sunindextype nblocks,
                                               SUNContext sunctx)
{
    return create(y, A, nblocks, sunctx, 1);
}

/* ------------------------------------------------------------------ options and reports */

/* The content, where the solver is one of this module. */
static content *own(SUNLinearSolver S)
{
    return S != NULL && S->ops != NULL && S->ops->free == free_solver ? content_of(S) : NULL;
}

static const char NOT_OWN[] = "the solver is NULL or of another module, or a place is NULL";

int SUNLinSol_SparseBatch_SetContext(SUNLinearSolver S, sb_context *context)
{
    content *c = own(S);
    int32_t has_gpu;
    if (c == NULL) return failed(NULL, NULL_ARGUMENT, NOT_OWN);
    if (context != NULL) {
        const sb_status status = sb_context_has_gpu(context, &has_gpu);
        if (status != SB_OK) return library_failed(c, status, "the context");
    }
    forget_solver(c);
    c->given = context;
    return done(c);
}

int SUNLinSol_SparseBatch_GetOptions(SUNLinearSolver S, sb_solver_options *options)
{
    content *c = own(S);
    if (c == NULL || options == NULL) return failed(c, NULL_ARGUMENT, NOT_OWN);
    *options = c->options;
    return 0;
}

int SUNLinSol_SparseBatch_SetOptions(SUNLinearSolver S, const sb_solver_options *options)
{
    content *c = own(S);
    if (c == NULL || options == NULL) return failed(c, NULL_ARGUMENT, NOT_OWN);
    if (options->struct_size != sizeof *options)
        return failed(c, WRONG_ARGUMENT, "expected options of %zu bytes, found %zu",
                      sizeof *options, options->struct_size);
    forget_solver(c);
    c->options = *options;
    fix_options(c);
    return done(c);
}

int SUNLinSol_SparseBatch_GetReport(SUNLinearSolver S, sb_report **report)
{
    content *c = own(S);
    if (report != NULL) *report = NULL;
    if (c == NULL || report == NULL) return failed(c, NULL_ARGUMENT, NOT_OWN);
    if (c->solver == NULL) return failed(c, WRONG_ARGUMENT, "there was no solve to report");
    const sb_status status = sb_solver_report(c->solver, report);
    return status == SB_OK ? 0 : library_failed(c, status, "no report");
}

int SUNLinSol_SparseBatch_GetNumFailed(SUNLinearSolver S, sunindextype *nfailed)
{
    content *c = own(S);
    if (c == NULL || nfailed == NULL) return failed(c, NULL_ARGUMENT, NOT_OWN);
    *nfailed = (sunindextype)c->nfailed;
    return 0;
}

const char *SUNLinSol_SparseBatch_GetMessage(SUNLinearSolver S)
{
    content *c = own(S);
    return c == NULL ? last_message : c->message;
}
