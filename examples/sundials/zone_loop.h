/*
 * What sparsebatch is compared with: a SUNLinearSolver over the same block-diagonal matrix that
 * gives each block to a dense or a KLU solver of SUNDIALS, one after the other.
 */
#ifndef ZONE_LOOP_H
#define ZONE_LOOP_H

#include <sundials/sundials_linearsolver.h>

/* `klu`: KLU, else dense LU. NULL where memory does not suffice. `y` and `A` as for
   SUNLinSol_SparseBatch; the pattern of A is that of the first set-up. */
SUNLinearSolver ZoneLoop(N_Vector y, SUNMatrix A, sunindextype nzones, int klu, SUNContext sunctx);

#endif
