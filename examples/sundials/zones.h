/*
 * Burning zones as one system of ordinary differential equations for CVODE, with a block-diagonal
 * Jacobian. cvode_zones.c integrates it; where vectors and matrices lie, and which linear solvers
 * there are, is up to one of two files: zones_cpu.c, or zones_cuda.cu for one NVIDIA GPU.
 */
#ifndef ZONES_H
#define ZONES_H

#include <stdio.h>
#include <stdlib.h>

#include <cvode/cvode.h>

#include "network.h"
#include "sunlinsol_sparsebatch.h"

typedef struct {
    network net;
    reference_run *runs;
    int nruns;
    sunindextype nzones;
    double *lambda; /* nzones x nrates: factors of the products of abundances */
    double *start;  /* nzones x nnuclides: abundances at t = 0 */
    double end, rtol, atol;
    int threads;
} problem;

/* What CVODE is given. */
typedef struct {
    N_Vector y;
    SUNMatrix A;
    SUNLinearSolver S;
    CVRhsFn rhs;
    CVLsJacFn jacobian;
    void *data; /* of rhs and jacobian */
} system_parts;

#ifdef __cplusplus
extern "C" {
#endif

/* The program, the linear solvers that it has, and those that it takes by itself. */
extern const char program_name[], solver_names[], default_solvers[];

/* Takes what all runs share, or ends the program with a message. */
void open_zones(const problem *p);
void close_zones(void);

/* Vectors, matrix and linear solver of a run that starts; `S` is NULL for an unknown name. */
system_parts make_system(const problem *p, const char *solver, SUNContext sunctx);
void free_system(system_parts *parts);

/* The abundances of all zones in host memory; valid until the next call. */
const double *abundances(N_Vector y);

/* Returns when all work that was given to the processor is done. */
void wait_for_work(void);

/* Ends the program with this message unless the condition holds. */
static inline void check(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "%s: %s: %s\n", program_name, what, SUNLinSol_SparseBatch_GetMessage(NULL));
    exit(1);
}

#ifdef __cplusplus
}
#endif

#endif
