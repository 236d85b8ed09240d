/* Zones in host memory, solved by sparsebatch and by a loop over the zones. */
#include "zones.h"

#include <string.h>

#include <nvector/nvector_serial.h>
#include <sunmatrix/sunmatrix_sparse.h>

#include "zone_loop.h"

const char program_name[] = "cvode_zones", solver_names[] = "sparsebatch,iterative,dense,klu",
           default_solvers[] = "sparsebatch,dense";

static sb_context *context;

static int rhs(sunrealtype t, N_Vector y, N_Vector ydot, void *data)
{
    const problem *p = data;
    const double *from = N_VGetArrayPointer(y);
    double *to = N_VGetArrayPointer(ydot);
    const int n = p->net.nnuclides;
    (void)t;
    for (sunindextype zone = 0; zone < p->nzones; ++zone)
        evaluate_rhs(&p->net, p->lambda + zone * p->net.nrates, from + zone * n, to + zone * n);
    return 0;
}

/* CVODE has emptied the matrix, index arrays included. */
static int jacobian(sunrealtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *data, N_Vector tmp1,
                    N_Vector tmp2, N_Vector tmp3)
{
    const problem *p = data;
    const network *net = &p->net;
    const double *from = N_VGetArrayPointer(y);
    const int n = net->nnuclides;
    (void)t, (void)fy, (void)tmp1, (void)tmp2, (void)tmp3;
    for (sunindextype zone = 0; zone < p->nzones; ++zone) {
        sunindextype *row_ptr = SM_INDEXPTRS_S(J) + zone * n;
        sunindextype *col_idx = SM_INDEXVALS_S(J) + zone * net->nnz;
        for (int row = 0; row < n; ++row) row_ptr[row] = zone * net->nnz + net->row_ptr[row];
        for (int k = 0; k < net->nnz; ++k) col_idx[k] = zone * n + net->col_idx[k];
        evaluate_jacobian(net, p->lambda + zone * net->nrates, from + zone * n,
                          SM_DATA_S(J) + zone * net->nnz);
    }
    SM_INDEXPTRS_S(J)[p->nzones * n] = p->nzones * net->nnz;
    return 0;
}

void open_zones(const problem *p)
{
    sb_context_options options;
    sb_context_options_init(&options, sizeof options);
    options.threads = (uint32_t)p->threads;
    check(sb_context_create(&options, &context) == SB_OK, "no context of sparsebatch");
}

void close_zones(void) { sb_context_destroy(context); }

static SUNLinearSolver make_solver(const problem *p, const char *name, N_Vector y, SUNMatrix A,
                                   SUNContext sunctx)
{
    if (strcmp(name, "dense") == 0) return ZoneLoop(y, A, p->nzones, 0, sunctx);
    if (strcmp(name, "klu") == 0) return ZoneLoop(y, A, p->nzones, 1, sunctx);
    const int iterative = strcmp(name, "iterative") == 0;
    if (!iterative && strcmp(name, "sparsebatch") != 0) return NULL;
    SUNLinearSolver S = iterative ? SUNLinSol_SparseBatchIterative(y, A, p->nzones, sunctx)
                                  : SUNLinSol_SparseBatch(y, A, p->nzones, sunctx);
    check(S != NULL && SUNLinSol_SparseBatch_SetContext(S, context) == 0, "no solver");
    return S;
}

system_parts make_system(const problem *p, const char *solver, SUNContext sunctx)
{
    const sunindextype rows = p->nzones * p->net.nnuclides;
    system_parts parts = {.rhs = rhs, .jacobian = jacobian, .data = (void *)p};
    parts.y = N_VNew_Serial(rows, sunctx);
    parts.A = SUNSparseMatrix(rows, rows, p->nzones * p->net.nnz, CSR_MAT, sunctx);
    check(parts.y != NULL && parts.A != NULL, "out of memory");
    memcpy(N_VGetArrayPointer(parts.y), p->start, (size_t)rows * sizeof(double));
    parts.S = make_solver(p, solver, parts.y, parts.A, sunctx);
    return parts;
}

void free_system(system_parts *parts)
{
    SUNLinSolFree(parts->S);
    SUNMatDestroy(parts->A);
    N_VDestroy(parts->y);
}

const double *abundances(N_Vector y) { return N_VGetArrayPointer(y); }

void wait_for_work(void) {}
