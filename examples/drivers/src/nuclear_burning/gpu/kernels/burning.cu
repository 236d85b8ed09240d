// Nuclear burning in many zones on a GPU: rates, right-hand sides, matrices and the control of steps of a
// Rosenbrock method. A zone has a place, and leaves it when it has ended; `stride` places lie between
// two rates. What is per zone (results) is numbered by zones, what is per step by places.
//
// Common to all kernels:
// - But for the solvers of the systems, a zone's numbers depend on no other zone, nor on the place it has or the shape of the launch: sums
//   run in the order of the tables, cut in pieces by the tables alone.
// - Zones side by side are evaluated by neighbouring threads, W by each: work item w is of the zones from W *
//   (w % (2^shift / W)) of the block on, so that rates of neighbours are read together, and tables once for all.
// - `stage`, `matrix` and `judge` may begin before the launch ahead of them has ended, and wait. What they read before
//   that it does not write: abundances, rates (where zones heat themselves it does: there `stage` is launched to begin
//   behind it), which zones have ended, stages but the last, results of zones. `matrix`
//   follows those that write all of these, reads nothing before, and not through the read-only cache, whose loads could
//   move ahead of the wait.
// - `pace` and `course` hold what each place has of its zone's step (below). A place whose zone ENDED, or
//   that never had one, is left alone; its matrix is I, its right-hand side 0.

#include "state.cuh"
#include "rates.cuh"
#include "heating.cuh"
#include "sums.cuh"
#include "ended.cuh"
#include "stage.cuh"
#include "matrix.cuh"
#include "control.cuh"
#include "places.cuh"
#include "dense.cuh"
