// Nuclear burning in many zones on a GPU: rates, right-hand sides, matrices and step size control
// of a Rosenbrock method. A zone has a place, and leaves it when it has ended; two rates are
// `stride` places apart. Results of zones are numbered by zone, data of the current step by place.
//
// Common to all kernels:
// - Except in the linear solvers, the numbers of a zone depend on no other zone, nor on its place
//   or the shape of the launch: sums run in the order of the tables, which alone decide how they
//   are cut into pieces.
// - Neighbouring threads evaluate neighbouring zones, W each: work item w handles the zones from W
//   * (w % (2^shift / W)) of the block on, so that rates of neighbours are read together, and
//   tables once for all.
// - `stage`, `matrix` and `judge` may begin before the preceding launch has ended, and wait for it.
//   `stage` and `judge` read before the wait only what the preceding launch does not write:
//   abundances, rates, which zones have ended, stages except the last, results of zones. Where
//   zones heat themselves the preceding launch does write rates: there `stage` is launched to begin
//   after it.
// - `matrix` follows launches that write all of these. It reads nothing before the wait, and not
//   through the read-only cache, whose loads could move ahead of the wait.
// - `pace` and `course` hold the step data of the zone at each place (below). A place whose zone
//   ENDED, or that never had one, is left alone; its matrix is I, its right-hand side 0.

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
