/* Tests of the SUNLinearSolver with data on a GPU: solutions, streams, failed blocks, and what it
   refuses. */
#include <math.h>

#include <cuda_runtime.h>
#include <cusparse.h>
#include <cvode/cvode.h>
#include <nvector/nvector_cuda.h>
#include <nvector/nvector_serial.h>
#include <sunmatrix/sunmatrix_cusparse.h>

#include "check.h"

enum { BLOCKS = 300, N = 5, NNZ = 3 * N - 2, ROWS = BLOCKS * N };

static SUNContext context;
static cusparseHandle_t handle;
/* Not synchronised with the default stream. */
static cudaStream_t stream;

/* The pattern of tridiagonal blocks, and values that make them diagonally dominant. */
static int row_ptr[N + 1], col_idx[NNZ];
static double values[BLOCKS * NNZ];

static void make_values(void)
{
    int entry = 0;
    for (int row = 0; row < N; ++row) {
        row_ptr[row] = entry;
        for (int col = row > 0 ? row - 1 : 0; col <= row + 1 && col < N; ++col) {
            col_idx[entry] = col;
            for (int block = 0; block < BLOCKS; ++block)
                values[block * NNZ + entry] =
                    col == row ? 4.0 + block % 7 : 0.1 * (col - row) * (block % 7) - 1.0;
            ++entry;
        }
    }
    row_ptr[N] = entry;
}

/* The blocks on the device. Entry `at` becomes `value`, unless `at` is negative. */
static void set_values(SUNMatrix A, double factor, int at, double value)
{
    static double changed[BLOCKS * NNZ];
    for (int k = 0; k < BLOCKS * NNZ; ++k) changed[k] = factor * values[k];
    if (at >= 0) changed[at] = value;
    CHECK(SUNMatrix_cuSparse_CopyToDevice(A, changed, row_ptr, col_idx) == 0);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

static SUNMatrix matrix(void)
{
    SUNMatrix A = SUNMatrix_cuSparse_NewBlockCSR(BLOCKS, N, N, NNZ, handle, context);
    CHECK(A != NULL && SUNMatrix_cuSparse_SetFixedPattern(A, SUNTRUE) == 0);
    set_values(A, 1.0, -1, 0.0);
    return A;
}

/* A vector with the same entries on the device and on the host. */
static N_Vector vector(void)
{
    N_Vector v = N_VNew_Cuda(ROWS, context);
    SUNCudaThreadDirectExecPolicy entries(256, stream);
    SUNCudaBlockReduceExecPolicy sums(256, 0, stream);
    CHECK(v != NULL && N_VSetKernelExecPolicy_Cuda(v, &entries, &sums) == 0);
    for (int row = 0; row < ROWS; ++row) N_VGetArrayPointer(v)[row] = 1.0 + 0.5 * (row % 11);
    N_VCopyToDevice_Cuda(v);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    return v;
}

static const double *on_host(N_Vector v)
{
    N_VCopyFromDevice_Cuda(v);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    return N_VGetArrayPointer(v);
}

/* The largest ||s (b - A x)||_2 of a block other than `without`; `s` may be NULL. */
static double residual(N_Vector x, N_Vector b, N_Vector s, int without)
{
    const double *at = on_host(x), *right = on_host(b), *scale = s == NULL ? NULL : on_host(s);
    double most = 0.0;
    for (int block = 0; block < BLOCKS; ++block) {
        double squares = 0.0;
        for (int row = 0; row < N; ++row) {
            double r = right[block * N + row];
            for (int k = row_ptr[row]; k < row_ptr[row + 1]; ++k)
                r -= values[block * NNZ + k] * at[block * N + col_idx[k]];
            if (scale != NULL) r *= scale[block * N + row];
            squares += r * r;
        }
        if (block != without) most = fmax(most, sqrt(squares));
    }
    return most;
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

static SUNLinearSolver solver(N_Vector y, SUNMatrix A, int iterative, int gives_stream)
{
    SUNLinearSolver S = iterative ? SUNLinSol_SparseBatchIterative(y, A, 0, context)
                                  : SUNLinSol_SparseBatch(y, A, BLOCKS, context);
    if (S == NULL) fprintf(stderr, "%s\n", SUNLinSol_SparseBatch_GetMessage(NULL));
    CHECK(S != NULL);
    if (gives_stream) {
        sb_solver_options options;
        CHECK(SUNLinSol_SparseBatch_GetOptions(S, &options) == 0);
        options.stream = stream;
        CHECK(SUNLinSol_SparseBatch_SetOptions(S, &options) == 0);
    }
    return S;
}

/* Keeps the GPU busy for some milliseconds. */
__global__ static void wait_kernel(long long cycles)
{
    const long long start = clock64();
    while (clock64() - start < cycles) continue;
}

/* Right-hand sides that are written late, on the stream of the solver or on one that it does not
   know of. */
static void direct_solves(void)
{
    SUNMatrix A = matrix();
    N_Vector b = vector(), late = vector(), x = vector();
    for (int gives_stream = 0; gives_stream < 2; ++gives_stream) {
        SUNLinearSolver S = solver(b, A, 0, gives_stream);
        CHECK(SUNLinSolGetType(S) == SUNLINEARSOLVER_DIRECT && SUNLinSolInitialize(S) == 0);
        REFUSED(SUNLinSolSolve(S, A, x, b, 0.0), S, WRONG_ARGUMENT, "a set-up has to come before");
        for (int round = 0; round < 3; ++round) {
            CHECK(SUNLinSolSetup(S, A) == 0);
            N_VConst(NAN, late);
            wait_kernel<<<1, 1, 0, stream>>>(20000000);
            N_VScale(1.0 + round, b, late);
            CHECK(SUNLinSolSolve(S, A, x, late, 0.0) == 0);
            CHECK(residual(x, late, NULL, -1) < 1e-12);
            CHECK(SUNLinSolLastFlag(S) == 0);
            CHECK(strcmp(SUNLinSol_SparseBatch_GetMessage(S), "") == 0);
            statuses_are(S, -1);
        }
        SUNLinSolFree(S);
    }
    SUNMatDestroy(A);
    N_VDestroy(b);
    N_VDestroy(late);
    N_VDestroy(x);
}

static void failed_blocks(void)
{
    SUNMatrix A = matrix();
    N_Vector b = vector(), x = vector();
    for (int iterative = 0; iterative < 2; ++iterative) {
        SUNLinearSolver S = solver(b, A, iterative, 1);
        /* A row of zeros, then a NaN, then none of them. */
        static double zeros[BLOCKS * NNZ];
        memcpy(zeros, values, sizeof zeros);
        zeros[117 * NNZ] = zeros[117 * NNZ + 1] = 0.0;
        CHECK(SUNMatrix_cuSparse_CopyToDevice(A, zeros, NULL, NULL) == 0);
        CHECK(SUNLinSolSetup(S, A) == 0);
        if (iterative) CHECK(SUNLinSolSetZeroGuess(S, SUNTRUE) == 0);
        const int code = SUNLinSolSolve(S, A, x, b, 1e-9);
        CHECK(code == SUNLS_LUFACT_FAIL || (iterative && code == SUNLS_CONV_FAIL));
        statuses_are(S, 117);
        CHECK(residual(x, b, NULL, 117) < 1e-9);
        set_values(A, 1.0, 4 * NNZ, NAN);
        CHECK(SUNLinSolSetup(S, A) == 0);
        if (iterative) CHECK(SUNLinSolSetZeroGuess(S, SUNTRUE) == 0);
        CHECK(SUNLinSolSolve(S, A, x, b, 1e-9) == SUNLS_CONV_FAIL);
        statuses_are(S, 4);
        CHECK(residual(x, b, NULL, 4) < 1e-9);
        set_values(A, 1.0, -1, 0.0);
        CHECK(SUNLinSolSetup(S, A) == 0);
        if (iterative) CHECK(SUNLinSolSetZeroGuess(S, SUNTRUE) == 0);
        CHECK(SUNLinSolSolve(S, A, x, b, 1e-9) == 0);
        statuses_are(S, -1);
        CHECK(residual(x, b, NULL, -1) < 1e-9);
        SUNLinSolFree(S);
    }
    SUNMatDestroy(A);
    N_VDestroy(b);
    N_VDestroy(x);
}

/* Scaled by vectors whose entries differ by many orders of magnitude, and not scaled. */
static void iterative_solves(void)
{
    SUNMatrix A = matrix();
    N_Vector b = vector(), x = vector(), s = vector();
    for (int row = 0; row < ROWS; ++row)
        N_VGetArrayPointer(s)[row] = pow(10.0, row % N - 2.0) * (1.0 + row % 3);
    N_VCopyToDevice_Cuda(s);
    for (int gives_stream = 0; gives_stream < 2; ++gives_stream) {
        SUNLinearSolver S = solver(b, A, 1, gives_stream);
        CHECK(SUNLinSolGetType(S) == SUNLINEARSOLVER_MATRIX_ITERATIVE);
        CHECK(SUNLinSolInitialize(S) == 0 && SUNLinSolSetup(S, A) == 0);
        const double tolerances[] = {1e-2, 1e-5, 1e-8};
        for (int scaled = 0; scaled < 2; ++scaled)
            for (const double tol : tolerances) {
                CHECK(SUNLinSolSetScalingVectors(S, scaled ? s : NULL, scaled ? s : NULL) == 0);
                CHECK(SUNLinSolSetZeroGuess(S, SUNTRUE) == 0);
                CHECK(SUNLinSolSolve(S, A, x, b, tol) == 0);
                CHECK(residual(x, b, scaled ? s : NULL, -1) <= tol / sqrt((double)BLOCKS) * 1.001);
                CHECK(SUNLinSolNumIters(S) > 0 && SUNLinSolResNorm(S) <= tol);
                /* The solution is a guess that needs no iteration. */
                CHECK(SUNLinSolSolve(S, A, x, b, 2 * tol) == 0 && SUNLinSolNumIters(S) == 0);
            }
        SUNLinSolFree(S);
    }
    SUNMatDestroy(A);
    N_VDestroy(b);
    N_VDestroy(x);
    N_VDestroy(s);
}

static void constructors_refuse(void)
{
    SUNMatrix A = matrix();
    SUNMatrix one = SUNMatrix_cuSparse_NewCSR(ROWS, ROWS, BLOCKS * NNZ, handle, context);
    SUNMatrix smaller = SUNMatrix_cuSparse_NewBlockCSR(BLOCKS - 1, N, N, NNZ, handle, context);
    N_Vector b = vector(), host = N_VNew_Serial(ROWS, context);
    REFUSED(SUNLinSol_SparseBatch(b, one, 0, context), NULL, NULL, "in block CSR form");
    REFUSED(SUNLinSol_SparseBatch(b, A, 9, context), NULL, NULL, "expected the 300 blocks");
    REFUSED(SUNLinSol_SparseBatch(b, smaller, 0, context), NULL, NULL, "a vector of length 1495");
    REFUSED(SUNLinSol_SparseBatch(host, A, 0, context), NULL, NULL, "in the memory of the matrix");
    SUNLinearSolver S = solver(b, A, 0, 0);
    REFUSED(SUNLinSolSetup(S, smaller), S, WRONG_ARGUMENT, "the 299 blocks of the matrix");
    SUNLinSolFree(S);
    SUNMatDestroy(A);
    SUNMatDestroy(one);
    SUNMatDestroy(smaller);
    N_VDestroy(b);
    N_VDestroy(host);
}

/* y' = -A y. */
__global__ static void decay_kernel(const int *row_ptr, const int *col_idx, const double *values,
                                    const double *y, double *ydot)
{
    const int block = blockIdx.x, row = threadIdx.x;
    double sum = 0.0;
    for (int k = row_ptr[row]; k < row_ptr[row + 1]; ++k)
        sum += values[block * NNZ + k] * y[block * N + col_idx[k]];
    ydot[block * N + row] = -sum;
}

static int decay(sunrealtype t, N_Vector y, N_Vector ydot, void *data)
{
    SUNMatrix A = (SUNMatrix)data;
    (void)t;
    decay_kernel<<<BLOCKS, N, 0, stream>>>(
        SUNMatrix_cuSparse_IndexPointers(A), SUNMatrix_cuSparse_IndexValues(A),
        SUNMatrix_cuSparse_Data(A), N_VGetDeviceArrayPointer(y), N_VGetDeviceArrayPointer(ydot));
    return cudaGetLastError() == cudaSuccess ? 0 : -1;
}

static int jacobians_made = 0;

/* The first one has a block that cannot be solved. */
static int decay_jacobian(sunrealtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *data,
                          N_Vector tmp1, N_Vector tmp2, N_Vector tmp3)
{
    (void)t, (void)y, (void)fy, (void)data, (void)tmp1, (void)tmp2, (void)tmp3;
    set_values(J, -1.0, jacobians_made++ == 0 ? 3 * NNZ : -1, NAN);
    return 0;
}

/* CVODE goes on after a block has failed, with both forms of the solver. */
static void integrators_recover(void)
{
    for (int iterative = 0; iterative < 2; ++iterative) {
        SUNMatrix A = matrix(), J = matrix();
        N_Vector y = vector();
        SUNLinearSolver S = solver(y, J, iterative, 1);
        void *cvode = CVodeCreate(CV_BDF, context);
        const double before = N_VMaxNorm(y);
        sunrealtype reached = 0.0;
        long int failures = 0;
        jacobians_made = 0;
        CHECK(CVodeInit(cvode, decay, 0.0, y) == 0);
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
    make_values();
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cusparseCreate(&handle) == CUSPARSE_STATUS_SUCCESS);
    CHECK(cusparseSetStream(handle, stream) == CUSPARSE_STATUS_SUCCESS);
    CHECK(SUNContext_Create(NO_COMMUNICATOR, &context) == 0);
    direct_solves();
    failed_blocks();
    iterative_solves();
    constructors_refuse();
    integrators_recover();
    SUNContext_Free(&context);
    cusparseDestroy(handle);
    cudaStreamDestroy(stream);
    printf("sunlinsol_sparsebatch on a GPU with SUNDIALS %s: passed\n", SUNDIALS_VERSION);
    return 0;
}
