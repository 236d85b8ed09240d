#include "zone_loop.h"

#include <stdlib.h>
#include <string.h>

#include <nvector/nvector_serial.h>
#include <sunlinsol/sunlinsol_dense.h>
#include <sunlinsol/sunlinsol_klu.h>
#include <sunmatrix/sunmatrix_dense.h>
#include <sunmatrix/sunmatrix_sparse.h>

typedef struct {
    sunindextype nzones, n;
    int klu, last_flag;
    SUNContext sunctx;
    N_Vector x, b; /* without arrays of their own */
    SUNMatrix *matrices;
    SUNLinearSolver *solvers;
} content;

static content *content_of(SUNLinearSolver S) { return (content *)S->content; }

static SUNLinearSolver_Type gettype(SUNLinearSolver S)
{
    (void)S;
    return SUNLINEARSOLVER_DIRECT;
}

/* Copies a block of A. The index arrays of a sparse one are copied once. */
static void copy_block(content *c, SUNMatrix A, sunindextype zone)
{
    const sunindextype n = c->n, *row_ptr = SM_INDEXPTRS_S(A) + zone * n;
    const sunindextype *col_idx = SM_INDEXVALS_S(A);
    SUNMatrix block = c->matrices[zone];
    if (!c->klu) {
        memset(SM_DATA_D(block), 0, (size_t)(n * n) * sizeof(double));
        for (sunindextype row = 0; row < n; ++row)
            for (sunindextype k = row_ptr[row]; k < row_ptr[row + 1]; ++k)
                SM_ELEMENT_D(block, row, col_idx[k] - zone * n) = SM_DATA_S(A)[k];
        return;
    }
    if (SM_INDEXPTRS_S(block)[n] == 0) {
        for (sunindextype row = 0; row <= n; ++row)
            SM_INDEXPTRS_S(block)[row] = row_ptr[row] - row_ptr[0];
        for (sunindextype k = row_ptr[0]; k < row_ptr[n]; ++k)
            SM_INDEXVALS_S(block)[k - row_ptr[0]] = col_idx[k] - zone * n;
    }
    memcpy(SM_DATA_S(block), SM_DATA_S(A) + row_ptr[0],
           (size_t)(row_ptr[n] - row_ptr[0]) * sizeof(double));
}

/* Makes the solver of a zone. */
static int create_zone(content *c, SUNMatrix A, sunindextype zone)
{
    const sunindextype n = c->n, *row_ptr = SM_INDEXPTRS_S(A) + zone * n;
    c->matrices[zone] =
        c->klu ? SUNSparseMatrix(n, n, row_ptr[n] - row_ptr[0], CSR_MAT, c->sunctx)
               : SUNDenseMatrix(n, n, c->sunctx);
    if (c->matrices[zone] == NULL) return 1;
    c->solvers[zone] = c->klu ? SUNLinSol_KLU(c->x, c->matrices[zone], c->sunctx)
                              : SUNLinSol_Dense(c->x, c->matrices[zone], c->sunctx);
    return c->solvers[zone] == NULL || SUNLinSolInitialize(c->solvers[zone]) != 0;
}

static int setup(SUNLinearSolver S, SUNMatrix A)
{
    content *c = content_of(S);
    for (sunindextype zone = 0; zone < c->nzones; ++zone) {
        if (c->solvers[zone] == NULL && create_zone(c, A, zone) != 0) return c->last_flag = -1;
        copy_block(c, A, zone);
        c->last_flag = SUNLinSolSetup(c->solvers[zone], c->matrices[zone]);
        if (c->last_flag != 0) break;
    }
    return c->last_flag;
}

static int solve(SUNLinearSolver S, SUNMatrix A, N_Vector x, N_Vector b, sunrealtype tol)
{
    content *c = content_of(S);
    (void)A;
    for (sunindextype zone = 0; zone < c->nzones; ++zone) {
        N_VSetArrayPointer(N_VGetArrayPointer(x) + zone * c->n, c->x);
        N_VSetArrayPointer(N_VGetArrayPointer(b) + zone * c->n, c->b);
        c->last_flag = SUNLinSolSolve(c->solvers[zone], c->matrices[zone], c->x, c->b, tol);
        if (c->last_flag != 0) break;
    }
    return c->last_flag;
}

static sunindextype lastflag(SUNLinearSolver S) { return content_of(S)->last_flag; }

static int free_solver(SUNLinearSolver S)
{
    content *c = content_of(S);
    for (sunindextype zone = 0; c != NULL && zone < c->nzones; ++zone) {
        if (c->solvers[zone] != NULL) SUNLinSolFree(c->solvers[zone]);
        if (c->matrices[zone] != NULL) SUNMatDestroy(c->matrices[zone]);
    }
    if (c != NULL) {
        N_VDestroy(c->x);
        N_VDestroy(c->b);
        free(c->matrices);
        free(c->solvers);
        free(c);
    }
    S->content = NULL;
    SUNLinSolFreeEmpty(S);
    return 0;
}

SUNLinearSolver ZoneLoop(N_Vector y, SUNMatrix A, sunindextype nzones, int klu, SUNContext sunctx)
{
    (void)A;
    SUNLinearSolver S = SUNLinSolNewEmpty(sunctx);
    content *c = calloc(1, sizeof *c);
    if (S == NULL || c == NULL) return NULL;
    S->content = c;
    S->ops->gettype = gettype;
    S->ops->setup = setup;
    S->ops->solve = solve;
    S->ops->lastflag = lastflag;
    S->ops->free = free_solver;
    c->nzones = nzones;
    c->n = N_VGetLength(y) / nzones;
    c->klu = klu;
    c->sunctx = sunctx;
    c->x = N_VNewEmpty_Serial(c->n, sunctx);
    c->b = N_VNewEmpty_Serial(c->n, sunctx);
    c->matrices = calloc((size_t)nzones, sizeof *c->matrices);
    c->solvers = calloc((size_t)nzones, sizeof *c->solvers);
    if (c->x == NULL || c->b == NULL || c->matrices == NULL || c->solvers == NULL) return NULL;
    return S;
}
