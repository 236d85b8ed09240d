/*
 * A SUNLinearSolver over sparsebatch: a block-diagonal matrix, whose blocks have one sparsity
 * pattern, is solved as a batch, on all cores or on an NVIDIA GPU.
 *
 * Compile sunlinsol_sparsebatch.c with your program, against SUNDIALS 6 or 7 and the C library
 * (https://docs.rs/sparsebatch, chapter «sundials»). Matrices are
 *
 * - SUNMATRIX_SPARSE in CSR form with vectors in host memory;
 * - SUNMATRIX_CUSPARSE in block CSR form with vectors that have a device pointer, where the file
 *   is compiled with SUNLINSOL_SPARSEBATCH_CUDA defined, by nvcc -x cu. A C++ compiler (c++ -x c++)
 *   does as well, but for the scaling of iterative solves.
 *
 * Functions return 0, or a code of SUNLinearSolver of the SUNDIALS in use:
 *
 * - below 0 for what a program has to mend: NULL, a matrix of another kind or shape, memory, a
 *   failure of the library; SUNLinSol_SparseBatch_GetMessage has a line about it;
 * - SUNLS_LUFACT_FAIL and SUNLS_CONV_FAIL for blocks that were not solved. Integrators then form
 *   the matrix anew or take a smaller step. SUNLinSol_SparseBatch_GetReport tells which blocks.
 *
 * A solver serves one thread at a time.
 */
#ifndef SUNLINSOL_SPARSEBATCH_H
#define SUNLINSOL_SPARSEBATCH_H

#include <sundials/sundials_config.h>
#include <sundials/sundials_linearsolver.h>
#include <sundials/sundials_matrix.h>
#include <sundials/sundials_nvector.h>

#include <sparsebatch.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Creates a direct solver (SUNLINEARSOLVER_DIRECT): a set-up factorises all blocks, and solves use
 * the factors. Defaults of the library's options here: method "lu", rtol 1e-10, floor 4.
 *
 * - y: a vector of the length that is solved with; read during the call.
 * - A: the matrix. Its pattern is read at set-ups: that of an SUNMATRIX_SPARSE at each one, and the
 *   solver is analysed anew where it has changed; that of an SUNMATRIX_CUSPARSE at the first one.
 * - nblocks: number of blocks of an SUNMATRIX_SPARSE, which divides its rows. For an
 *   SUNMATRIX_CUSPARSE: that of the matrix, or 0.
 *
 * Returns NULL where an argument is wrong or memory does not suffice, and then
 * SUNLinSol_SparseBatch_GetMessage(NULL) says why. SUNLinSolFree destroys the solver.
 */
SUNLinearSolver SUNLinSol_SparseBatch(N_Vector y, SUNMatrix A, sunindextype nblocks,
                                      SUNContext sunctx);

/*
 * Creates an iterative solver (SUNLINEARSOLVER_MATRIX_ITERATIVE): arguments as above. Defaults:
 * method "bicgstab", at most 1000 iterations.
 *
 * A solve with the tolerance `tol` ends when each of the blocks has
 * ||S1 (b - A x)||_2 <= tol / sqrt(nblocks), so that the whole residual is below `tol`, with S1 of
 * SUNLinSolSetScalingVectors (1 for SUNMATRIX_CUSPARSE without nvcc). A `tol` of 0 stands for
 * 1e-10 ||S1 b||_2. SUNLinSolNumIters gives the iterations of the block that took most,
 * SUNLinSolResNorm the norm of the whole S1 (b - A x). Residual norms of the report are those of
 * blocks as parts of tol / sqrt(nblocks).
 */
SUNLinearSolver SUNLinSol_SparseBatchIterative(N_Vector y, SUNMatrix A, sunindextype nblocks,
                                               SUNContext sunctx);

/*
 * Takes the context to solve with, in place of one on all cores or, with device data, on GPU 0: for
 * a number of threads, or another GPU. Keep it as long as the solver, or until another is taken.
 * The next set-up analyses anew. NULL: the solver makes its own.
 */
int SUNLinSol_SparseBatch_SetContext(SUNLinearSolver S, sb_context *context);

/*
 * Writes the options of the solver, to be changed and given to SUNLinSol_SparseBatch_SetOptions.
 */
int SUNLinSol_SparseBatch_GetOptions(SUNLinearSolver S, sb_solver_options *options);

/*
 * Takes options of the library. The struct is copied; strings and arrays that it names are kept by
 * the caller until the next set-up, which analyses anew and tells what is wrong with them. `nrhs`,
 * `space`, `vectors`, and of an iterative solver `rtol`, `atol` and `floor`, are set by the solver.
 */
int SUNLinSol_SparseBatch_SetOptions(SUNLinearSolver S, const sb_solver_options *options);

/*
 * Creates the report of the last solve, with status, iterations and recomputed residual for each
 * block (sb_report_statuses, ...); destroy it by sb_report_destroy.
 */
int SUNLinSol_SparseBatch_GetReport(SUNLinearSolver S, sb_report **report);

/* Writes the number of blocks that the last solve did not solve. */
int SUNLinSol_SparseBatch_GetNumFailed(SUNLinearSolver S, sunindextype *nfailed);

/*
 * The message of the last error of a solver, one line; empty after a set-up or solve without one.
 * Of NULL: that of the last call of this thread without a solver, or that could not create one.
 * Valid until the next call.
 */
const char *SUNLinSol_SparseBatch_GetMessage(SUNLinearSolver S);

#ifdef __cplusplus
}
#endif

#endif
