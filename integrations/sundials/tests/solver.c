/* Tests of the SUNLinearSolver: solutions, failed blocks, and what it refuses. */
#include <math.h>
#include <string.h>

#include <cvode/cvode.h>
#include <nvector/nvector_serial.h>
#include <sunlinsol/sunlinsol_dense.h>
#include <sunmatrix/sunmatrix_dense.h>
#include <sunmatrix/sunmatrix_sparse.h>

#include "check.h"

enum { BLOCKS = 7, N = 5, NNZ = 3 * N - 2, ROWS = BLOCKS * N };

static SUNContext context;

/* Tridiagonal, diagonally dominant blocks. */
static void fill(SUNMatrix A)
{
    sunindextype entry = 0;
    for (int row = 0; row < ROWS; ++row) {
        const int block = row / N;
        SM_INDEXPTRS_S(A)[row] = entry;
        for (int col = row - 1; col <= row + 1; ++col) {
            if (col < block * N || col >= (block + 1) * N) continue;
            SM_INDEXVALS_S(A)[entry] = col;
            SM_DATA_S(A)[entry++] = col == row ? 4.0 + block : 0.1 * (col - row) * block - 1.0;
        }
    }
    SM_INDEXPTRS_S(A)[ROWS] = entry;
}

static SUNMatrix matrix(void)
{
    SUNMatrix A = SUNSparseMatrix(ROWS, ROWS, BLOCKS * (NNZ + 1), CSR_MAT, context);
    CHECK(A != NULL);
    fill(A);
    return A;
}

static N_Vector vector(void)
{
    N_Vector v = N_VNew_Serial(ROWS, context);
    CHECK(v != NULL);
    for (int row = 0; row < ROWS; ++row) N_VGetArrayPointer(v)[row] = 1.0 + 0.5 * (row % 11);
    return v;
}

/* ||s (b - A x)||_2 of the rows from `first` on, `count` of them; `s` may be NULL. */
static double residual(SUNMatrix A, N_Vector x, N_Vector b, N_Vector s, int first, int count)
{
    double squares = 0.0;
    for (int row = first; row < first + count; ++row) {
        double r = N_VGetArrayPointer(b)[row];
        for (sunindextype k = SM_INDEXPTRS_S(A)[row]; k < SM_INDEXPTRS_S(A)[row + 1]; ++k)
            r -= SM_DATA_S(A)[k] * N_VGetArrayPointer(x)[SM_INDEXVALS_S(A)[k]];
        if (s != NULL) r *= N_VGetArrayPointer(s)[row];
        squares += r * r;
    }
    return sqrt(squares);
}

static void statuses_are(SUNLinearSolver S, int other_block)
{
    sb_report *report = NULL;
    uint8_t statuses[BLOCKS];
    sunindextype nfailed = -1;
    CHECK(SUNLinSol_SparseBatch_GetReport(S, &report) == 0);
    CHECK(sb_report_statuses(report, statuses, BLOCKS) == SB_OK);
    for (int block = 0; block < BLOCKS; ++block)
        CHECK((statuses[block] != 0) == (block == other_block));
    CHECK(sb_report_destroy(report) == SB_OK);
    CHECK(SUNLinSol_SparseBatch_GetNumFailed(S, &nfailed) == 0);
    CHECK(nfailed == (other_block < 0 ? 0 : 1));
}

static void direct_solves(void)
{
    SUNMatrix A = matrix();
    N_Vector b = vector(), x = vector();
    SUNLinearSolver S = SUNLinSol_SparseBatch(b, A, BLOCKS, context);
    CHECK(S != NULL);
    CHECK(SUNLinSolGetType(S) == SUNLINEARSOLVER_DIRECT);
    CHECK(SUNLinSolGetID(S) == SUNLINEARSOLVER_CUSTOM);
    CHECK(SUNLinSolInitialize(S) == 0);
    REFUSED(SUNLinSolSolve(S, A, x, b, 0.0), S, WRONG_ARGUMENT, "a set-up has to come before");
    CHECK(SUNLinSolLastFlag(S) == WRONG_ARGUMENT);
    for (int round = 0; round < 2; ++round) {
        CHECK(SUNLinSolSetup(S, A) == 0);
        CHECK(SUNLinSolSolve(S, A, x, b, 0.0) == 0);
        CHECK(SUNLinSolSolve(S, A, x, b, 0.0) == 0);
        CHECK(residual(A, x, b, NULL, 0, ROWS) < 1e-12);
        CHECK(SUNLinSolLastFlag(S) == 0);
        CHECK(strcmp(SUNLinSol_SparseBatch_GetMessage(S), "") == 0);
        statuses_are(S, -1);
        SM_DATA_S(A)[0] = 9.0;
    }
    /* Other entries: a diagonal matrix. */
    for (int row = 0; row <= ROWS; ++row) SM_INDEXPTRS_S(A)[row] = row;
    for (int row = 0; row < ROWS; ++row) {
        SM_INDEXVALS_S(A)[row] = row;
        SM_DATA_S(A)[row] = 2.0;
    }
    CHECK(SUNLinSolSetup(S, A) == 0);
    CHECK(SUNLinSolSolve(S, A, x, b, 0.0) == 0);
    for (int row = 0; row < ROWS; ++row)
        CHECK(N_VGetArrayPointer(x)[row] == 0.5 * N_VGetArrayPointer(b)[row]);
    CHECK(SUNLinSolFree(S) == 0);
    SUNMatDestroy(A);
    N_VDestroy(b);
    N_VDestroy(x);
}

/* A block that cannot be solved is a recoverable failure, and no other block notices. */
static void failed_blocks(void)
{
    SUNMatrix A = matrix();
    N_Vector b = vector(), x = vector();
    SUNLinearSolver S = SUNLinSol_SparseBatch(b, A, BLOCKS, context);
    const sunindextype bad = 3;
    CHECK(S != NULL);
    for (sunindextype k = bad * NNZ; k < (bad + 1) * NNZ; ++k) SM_DATA_S(A)[k] = 0.0;
    CHECK(SUNLinSolSetup(S, A) == 0);
    REFUSED(SUNLinSolSolve(S, A, x, b, 0.0), S, SUNLS_LUFACT_FAIL, "1 of 7 blocks");
    CHECK(SUNLS_LUFACT_FAIL > 0 && SUNLinSolLastFlag(S) == SUNLS_LUFACT_FAIL);
    statuses_are(S, (int)bad);
    CHECK(residual(A, x, b, NULL, 0, (int)bad * N) < 1e-12);
    CHECK(residual(A, x, b, NULL, (int)(bad + 1) * N, (BLOCKS - (int)bad - 1) * N) < 1e-12);
    SM_DATA_S(A)[bad * NNZ] = NAN;
    CHECK(SUNLinSolSetup(S, A) == 0);
    REFUSED(SUNLinSolSolve(S, A, x, b, 0.0), S, SUNLS_CONV_FAIL, "1 of 7 blocks");
    statuses_are(S, (int)bad);
    fill(A);
    CHECK(SUNLinSolSetup(S, A) == 0);
    CHECK(SUNLinSolSolve(S, A, x, b, 0.0) == 0);
    SUNLinSolFree(S);
    SUNMatDestroy(A);
    N_VDestroy(b);
    N_VDestroy(x);
}

static void iterative_solves(void)
{
    SUNMatrix A = matrix();
    N_Vector b = vector(), x = vector(), s1 = vector(), s2 = vector();
    SUNLinearSolver S = SUNLinSol_SparseBatchIterative(b, A, BLOCKS, context);
    sb_solver_options options;
    CHECK(S != NULL && SUNLinSolGetType(S) == SUNLINEARSOLVER_MATRIX_ITERATIVE);
    for (int row = 0; row < ROWS; ++row) {
        N_VGetArrayPointer(s1)[row] = pow(10.0, row % 5);
        N_VGetArrayPointer(s2)[row] = pow(7.0, row % 4);
    }
    CHECK(SUNLinSol_SparseBatch_GetOptions(S, &options) == 0);
    options.precond = "none";
    CHECK(SUNLinSol_SparseBatch_SetOptions(S, &options) == 0);
    CHECK(SUNLinSolInitialize(S) == 0 && SUNLinSolSetup(S, A) == 0);
    for (int scaled = 0; scaled < 2; ++scaled) {
        CHECK(SUNLinSolSetScalingVectors(S, scaled ? s1 : NULL, scaled ? s2 : NULL) == 0);
        for (double tol = 1.0; tol > 1e-9; tol *= 0.01) {
            N_VConst(0.0, x);
            CHECK(SUNLinSolSetZeroGuess(S, SUNTRUE) == 0);
            CHECK(SUNLinSolSolve(S, A, x, b, tol) == 0);
            const double norm = residual(A, x, b, scaled ? s1 : NULL, 0, ROWS);
            CHECK(norm <= tol && SUNLinSolNumIters(S) > 0 && SUNLinSolNumIters(S) < 100);
            CHECK(fabs(SUNLinSolResNorm(S) - norm) <= 1e-6 * norm + 1e-10);
            /* From the solution there is nothing left to do. */
            CHECK(SUNLinSolSolve(S, A, x, b, tol * 1.01) == 0 && SUNLinSolNumIters(S) == 0);
        }
    }
    CHECK(SUNLinSolSetScalingVectors(S, NULL, NULL) == 0);
    CHECK(SUNLinSolSolve(S, A, x, b, 0.0) == 0);
    CHECK(residual(A, x, b, NULL, 0, ROWS) <= 1e-10 * sqrt(N_VDotProd(b, b)));
    /* A right-hand side of 0. */
    N_VConst(0.0, x);
    SUNLinSolSetZeroGuess(S, SUNTRUE);
    CHECK(SUNLinSolSolve(S, A, x, x, 0.0) == 0 && N_VMaxNorm(x) == 0.0);

    options.maxiter = 1;
    options.fallback = 0;
    CHECK(SUNLinSol_SparseBatch_SetOptions(S, &options) == 0 && SUNLinSolSetup(S, A) == 0);
    SUNLinSolSetZeroGuess(S, SUNTRUE);
    REFUSED(SUNLinSolSolve(S, A, x, b, 1e-8), S, SUNLS_CONV_FAIL, "7 of 7 blocks");
    N_VGetArrayPointer(b)[4] = INFINITY;
    REFUSED(SUNLinSolSolve(S, A, x, b, 1e-8), S, SUNLS_CONV_FAIL, "is not finite");
    SUNLinSolFree(S);
    SUNMatDestroy(A);
    N_VDestroy(b);
    N_VDestroy(x);
    N_VDestroy(s1);
    N_VDestroy(s2);
}

static void constructors_refuse(void)
{
    SUNMatrix A = matrix(), dense = SUNDenseMatrix(ROWS, ROWS, context);
    SUNMatrix csc = SUNSparseMatrix(ROWS, ROWS, 1, CSC_MAT, context);
    SUNMatrix wide = SUNSparseMatrix(N, ROWS, 1, CSR_MAT, context);
    N_Vector y = vector(), small = N_VNew_Serial(N, context);
#define NONE(y, A, blocks, sunctx, text)                                                           \
    do {                                                                                           \
        REFUSED(SUNLinSol_SparseBatch(y, A, blocks, sunctx), NULL, NULL, text);                    \
        REFUSED(SUNLinSol_SparseBatchIterative(y, A, blocks, sunctx), NULL, NULL, text);           \
    } while (0)
    NONE(NULL, A, BLOCKS, context, "is NULL");
    NONE(y, NULL, BLOCKS, context, "is NULL");
    NONE(y, A, BLOCKS, NULL, "is NULL");
    NONE(y, dense, BLOCKS, context, "expected a matrix of type SUNMATRIX_SPARSE");
    NONE(y, csc, BLOCKS, context, "found CSC");
    NONE(y, wide, BLOCKS, context, "expected a square matrix, found 5 x 35");
    NONE(y, A, 0, context, "divides the 35 rows, found 0");
    NONE(y, A, -7, context, "divides the 35 rows, found -7");
    NONE(y, A, 6, context, "divides the 35 rows, found 6");
    NONE(small, A, BLOCKS, context, "expected a vector of length 35 for the matrix, found 5");
    SUNMatDestroy(A);
    SUNMatDestroy(dense);
    SUNMatDestroy(csc);
    SUNMatDestroy(wide);
    N_VDestroy(y);
    N_VDestroy(small);
}

static void calls_refuse(void)
{
    SUNMatrix A = matrix(), dense = SUNDenseMatrix(ROWS, ROWS, context);
    SUNMatrix larger = SUNSparseMatrix(2 * ROWS, 2 * ROWS, 1, CSR_MAT, context);
    N_Vector y = vector(), small = N_VNew_Serial(N, context);
    SUNLinearSolver S = SUNLinSol_SparseBatch(y, A, BLOCKS, context);
    SUNLinearSolver iterative = SUNLinSol_SparseBatchIterative(y, A, BLOCKS, context);
    SUNLinearSolver other = SUNLinSol_Dense(y, dense, context);
    sb_report *report = NULL;
    sunindextype nfailed;
    long int reals, integers;
    CHECK(S != NULL && iterative != NULL && other != NULL);

    REFUSED(S->ops->setup(S, NULL), S, NULL_ARGUMENT, "is NULL");
    REFUSED(S->ops->setup(S, dense), S, WRONG_ARGUMENT, "SUNMATRIX_SPARSE");
    REFUSED(S->ops->setup(S, larger), S, WRONG_ARGUMENT, "another shape");
    REFUSED(SUNLinSol_SparseBatch_GetReport(S, &report), S, WRONG_ARGUMENT, "no solve");
    CHECK(SUNLinSolSetup(S, A) == 0);
    REFUSED(SUNLinSol_SparseBatch_GetReport(S, &report), S, WRONG_ARGUMENT, "no report");
    REFUSED(S->ops->solve(S, A, NULL, y, 0.0), S, NULL_ARGUMENT, "is NULL");
    REFUSED(S->ops->solve(S, A, y, small, 0.0), S, WRONG_ARGUMENT, "length 35, found 35 and 5");
    REFUSED(iterative->ops->setscalingvectors(iterative, small, y), iterative, WRONG_ARGUMENT,
            "scaling vectors of length 35");
    CHECK(S->ops->space(S, &reals, &integers) == 0 && reals == 0 && integers == N + 1 + NNZ);
    REFUSED(S->ops->space(S, NULL, &integers), NULL, NULL_ARGUMENT, "is NULL");

    /* Solvers of other modules, and NULL. */
    REFUSED(SUNLinSol_SparseBatch_GetReport(other, &report), NULL, NULL_ARGUMENT, "another module");
    REFUSED(SUNLinSol_SparseBatch_GetNumFailed(NULL, &nfailed), NULL, NULL_ARGUMENT, "is NULL");
    REFUSED(SUNLinSol_SparseBatch_GetNumFailed(S, NULL), S, NULL_ARGUMENT, "a place is NULL");
    REFUSED(SUNLinSol_SparseBatch_SetOptions(S, NULL), S, NULL_ARGUMENT, "a place is NULL");
    REFUSED(SUNLinSol_SparseBatch_GetOptions(NULL, NULL), NULL, NULL_ARGUMENT, "is NULL");
    REFUSED(SUNLinSol_SparseBatch_SetContext(other, NULL), NULL, NULL_ARGUMENT, "another module");

    SUNLinSolFree(S);
    SUNLinSolFree(iterative);
    SUNLinSolFree(other);
    SUNMatDestroy(A);
    SUNMatDestroy(dense);
    SUNMatDestroy(larger);
    N_VDestroy(y);
    N_VDestroy(small);
}

/* Options and contexts that the library refuses, and matrices that are not block-diagonal. */
static void setups_refuse(void)
{
    SUNMatrix A = matrix();
    N_Vector y = vector();
    SUNLinearSolver S = SUNLinSol_SparseBatch(y, A, BLOCKS, context);
    sb_solver_options options, wrong;
    sb_context *one_thread = NULL;
    CHECK(S != NULL && SUNLinSol_SparseBatch_GetOptions(S, &options) == 0);
    wrong = options;
    wrong.struct_size = 8;
    REFUSED(SUNLinSol_SparseBatch_SetOptions(S, &wrong), S, WRONG_ARGUMENT, "found 8");
    wrong = options;
    wrong.method = "gauss";
    CHECK(SUNLinSol_SparseBatch_SetOptions(S, &wrong) == 0);
    REFUSED(SUNLinSolSetup(S, A), S, WRONG_ARGUMENT, "gauss");
    CHECK(SUNLinSol_SparseBatch_SetOptions(S, &options) == 0);
    CHECK(SUNLinSol_SparseBatch_SetContext(S, (sb_context *)&options) != 0);
    CHECK(strstr(SUNLinSol_SparseBatch_GetMessage(S), "SB_ERROR_BAD_HANDLE") != NULL);

    sb_context_options context_options;
    sb_context_options_init(&context_options, sizeof context_options);
    context_options.threads = 1;
    CHECK(sb_context_create(&context_options, &one_thread) == SB_OK);
    CHECK(SUNLinSol_SparseBatch_SetContext(S, one_thread) == 0);
    CHECK(SUNLinSolSetup(S, A) == 0 && SUNLinSolSolve(S, A, y, y, 0.0) != 0);

    /* Block 2 has an entry of block 1. */
    SM_INDEXVALS_S(A)[2 * NNZ] = N;
    REFUSED(SUNLinSolSetup(S, A), S, WRONG_ARGUMENT, "another pattern in block 2");
    fill(A);
    SM_INDEXVALS_S(A)[0] = 1;
    SM_INDEXVALS_S(A)[1] = 0;
    REFUSED(SUNLinSolSetup(S, A), S, WRONG_ARGUMENT, "another pattern in block 1");
    /* Columns of all blocks in descending order. */
    for (sunindextype block = 0; block < BLOCKS; ++block) {
        SM_INDEXVALS_S(A)[block * NNZ] = block * N + 1;
        SM_INDEXVALS_S(A)[block * NNZ + 1] = block * N;
    }
    REFUSED(SUNLinSolSetup(S, A), S, WRONG_ARGUMENT, "SB_ERROR_FORMAT");
    fill(A);
    CHECK(SUNLinSolSetup(S, A) == 0);
    SUNLinSolFree(S);
    sb_context_destroy(one_thread);
    SUNMatDestroy(A);
    N_VDestroy(y);
}

/* y' = -A y. */
static int decay(sunrealtype t, N_Vector y, N_Vector ydot, void *data)
{
    SUNMatrix A = data;
    (void)t;
    for (int row = 0; row < ROWS; ++row) {
        double sum = 0.0;
        for (sunindextype k = SM_INDEXPTRS_S(A)[row]; k < SM_INDEXPTRS_S(A)[row + 1]; ++k)
            sum += SM_DATA_S(A)[k] * N_VGetArrayPointer(y)[SM_INDEXVALS_S(A)[k]];
        N_VGetArrayPointer(ydot)[row] = -sum;
    }
    return 0;
}

static int jacobians_made = 0;

/* The first one has a block that cannot be solved. */
static int decay_jacobian(sunrealtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *data,
                          N_Vector tmp1, N_Vector tmp2, N_Vector tmp3)
{
    (void)t, (void)y, (void)fy, (void)data, (void)tmp1, (void)tmp2, (void)tmp3;
    fill(J);
    for (int k = 0; k < BLOCKS * NNZ; ++k) SM_DATA_S(J)[k] = -SM_DATA_S(J)[k];
    if (jacobians_made++ == 0) SM_DATA_S(J)[3 * NNZ] = NAN;
    return 0;
}

/* CVODE goes on after a block has failed, with both forms of the solver. */
static void integrators_recover(void)
{
    for (int iterative = 0; iterative < 2; ++iterative) {
        SUNMatrix A = matrix(), J = matrix();
        N_Vector y = vector();
        SUNLinearSolver S = iterative ? SUNLinSol_SparseBatchIterative(y, J, BLOCKS, context)
                                      : SUNLinSol_SparseBatch(y, J, BLOCKS, context);
        void *cvode = CVodeCreate(CV_BDF, context);
        const double before = N_VMaxNorm(y);
        sunrealtype reached = 0.0;
        long int failures = 0;
        jacobians_made = 0;
        CHECK(S != NULL && CVodeInit(cvode, decay, 0.0, y) == 0);
        CHECK(CVodeSStolerances(cvode, 1e-8, 1e-12) == 0 && CVodeSetUserData(cvode, A) == 0);
        CHECK(CVodeSetLinearSolver(cvode, S, J) == 0);
        CHECK(CVodeSetJacFn(cvode, decay_jacobian) == 0);
        CHECK(CVode(cvode, 1.0, y, &reached, CV_NORMAL) == 0);
        CHECK(CVodeGetNumLinConvFails(cvode, &failures) == 0 && failures == 1);
        /* No eigenvalue of A is below 2. */
        CHECK(N_VMaxNorm(y) > 0.0 && N_VMaxNorm(y) < before * exp(-2.0));
        CVodeFree(&cvode);
        SUNLinSolFree(S);
        SUNMatDestroy(A);
        SUNMatDestroy(J);
        N_VDestroy(y);
    }
}

int main(void)
{
    CHECK(SUNContext_Create(NO_COMMUNICATOR, &context) == 0);
    direct_solves();
    failed_blocks();
    iterative_solves();
    constructors_refuse();
    calls_refuse();
    setups_refuse();
    integrators_recover();
    SUNContext_Free(&context);
    printf("sunlinsol_sparsebatch with SUNDIALS %s: passed\n", SUNDIALS_VERSION);
    return 0;
}
