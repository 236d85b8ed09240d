/*
 * Nuclear burning in many zones by CVODE (BDF, Newton): all zones are one system of ordinary
 * differential equations with a block-diagonal Jacobian, whose linear systems are solved by
 * sparsebatch, and by other solvers behind the same interface: on the CPU by a loop over the zones
 * with SUNDIALS' own dense LU and KLU, on a GPU by its batched QR of cuSolverSp.
 *
 *     cvode_zones NETWORK.json REFERENCE.json [--zones 100] [--end 1e-2] [--rtol 1e-6]
 *                 [--atol 1e-14] [--solvers sparsebatch,iterative,dense,klu] [--threads 0]
 *                 [--rounds 1] [--json FILE]
 *     cvode_zones_cuda ... [--solvers sparsebatch,iterative,cusolversp]
 *
 * The first zones are the runs of the reference file, with which they are compared at all its times
 * up to the end; the others have their fuels at other temperatures and densities. The first solver
 * is the one that the others are compared with. Exit code 1: a zone is not where it should be.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "zones.h"

/* Newton's method converges to this part of the tolerances, so that the rounding errors of linear
   solvers do not decide on steps: with CVODE's default of 0.1 the number of steps of one solver
   differs by a fifth where a tolerance differs by 0.01 %. */
static const double NEWTON = 1e-3;
/* Iterations of Newton's method in a step. */
enum { MAX_NEWTON = 6 };
/* The reference has to be met so closely: absolute, and relative where Y is above 1e-10. */
static const double ABSOLUTE = 1e-5, RELATIVE = 1e-3;
/* Direct solvers have to agree so closely at the end, in tolerances of the integrator. A step that
   rounding has decided on changes a solution by as much as the error of the integration. */
static const double APART = 1000.0;

enum { MAX_SOLVERS = 8, MAX_ROUNDS = 100 };

/* A run of one solver. */
typedef struct {
    long int steps, setups, iterations, failures;
    double first_setup_s; /* with the analysis of the pattern; a part of setup_s */
    double setup_s, solve_s, rhs_s, jacobian_s, whole_s;
    double cpu_s; /* set-ups and solves, of all threads */
    double absolute, relative; /* largest differences from the reference */
    double *end_state;
} outcome;

static double now(void)
{
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Processor time of all threads. */
static double processor_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ------------------------------------------------------------------ the zones */

/* Temperatures from 2 to 6 GK and densities from 1e5 to 1e9 g/cm^3, spread evenly. */
static void make_zones(problem *p)
{
    const size_t n = (size_t)p->net.nnuclides, nzones = (size_t)p->nzones;
    p->lambda = malloc(nzones * (size_t)p->net.nrates * sizeof *p->lambda);
    p->start = malloc(nzones * n * sizeof *p->start);
    check(p->lambda != NULL && p->start != NULL, "out of memory");
    for (size_t zone = 0; zone < nzones; ++zone) {
        const reference_run *run = p->runs + zone % (size_t)p->nruns;
        double t9 = run->t9, rho = run->rho;
        if (zone >= (size_t)p->nruns) {
            t9 = 2.0 + 4.0 * fmod(0.618033988749895 * (double)zone, 1.0);
            rho = pow(10.0, 5.0 + 4.0 * fmod(0.414213562373095 * (double)zone, 1.0));
        }
        evaluate_rates(&p->net, t9, rho, p->lambda + zone * (size_t)p->net.nrates);
        memcpy(p->start + zone * n, run->start, n * sizeof *p->start);
    }
}

/* ------------------------------------------------------------------ the clock */

/* What the run calls, timed. The processor has nothing else to do when a clock starts, and is done
   when it stops. */
static struct {
    CVRhsFn rhs;
    CVLsJacFn jacobian;
    int (*setup)(SUNLinearSolver, SUNMatrix);
    int (*solve)(SUNLinearSolver, SUNMatrix, N_Vector, N_Vector, sunrealtype);
    double first_setup_s, setup_s, solve_s, rhs_s, jacobian_s, cpu_s;
} timed;

static double start_clock(void)
{
    wait_for_work();
    return now();
}

static double stop_clock(double start)
{
    wait_for_work();
    return now() - start;
}

static int timed_rhs(sunrealtype t, N_Vector y, N_Vector ydot, void *data)
{
    const double start = start_clock();
    const int code = timed.rhs(t, y, ydot, data);
    timed.rhs_s += stop_clock(start);
    return code;
}

static int timed_jacobian(sunrealtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *data,
                          N_Vector tmp1, N_Vector tmp2, N_Vector tmp3)
{
    const double start = start_clock();
    const int code = timed.jacobian(t, y, fy, J, data, tmp1, tmp2, tmp3);
    timed.jacobian_s += stop_clock(start);
    return code;
}

static int timed_setup(SUNLinearSolver S, SUNMatrix A)
{
    const double start = start_clock(), cpu = processor_time();
    const int code = timed.setup(S, A);
    const double taken = stop_clock(start);
    if (timed.setup_s == 0.0) timed.first_setup_s = taken;
    timed.setup_s += taken;
    timed.cpu_s += processor_time() - cpu;
    return code;
}

static int timed_solve(SUNLinearSolver S, SUNMatrix A, N_Vector x, N_Vector b, sunrealtype tol)
{
    const double start = start_clock(), cpu = processor_time();
    const int code = timed.solve(S, A, x, b, tol);
    timed.solve_s += stop_clock(start);
    timed.cpu_s += processor_time() - cpu;
    return code;
}

static void time_system(system_parts *parts)
{
    memset(&timed, 0, sizeof timed);
    timed.rhs = parts->rhs;
    timed.jacobian = parts->jacobian;
    timed.setup = parts->S->ops->setup;
    timed.solve = parts->S->ops->solve;
    parts->rhs = timed_rhs;
    parts->jacobian = timed_jacobian;
    parts->S->ops->setup = timed_setup;
    parts->S->ops->solve = timed_solve;
}

/* ------------------------------------------------------------------ runs */

/* Compares the zones of the reference that has this time. */
static void compare(const problem *p, double time, const double *y, outcome *result)
{
    const int n = p->net.nnuclides;
    for (int k = 0; k < p->nruns && k < p->nzones; ++k) {
        const reference_run *run = p->runs + k;
        for (int at = 0; at < run->ntimes; ++at) {
            if (run->times[at] != time) continue;
            for (int i = 0; i < n; ++i) {
                const double expected = run->states[at * n + i];
                const double difference = fabs(y[k * n + i] - expected);
                result->absolute = fmax(result->absolute, difference);
                if (expected > 1e-10)
                    result->relative = fmax(result->relative, difference / expected);
            }
        }
    }
}

/* The next time of a reference run after `time`, at most the end. */
static double next_time(const problem *p, double time)
{
    double next = p->end;
    for (int k = 0; k < p->nruns; ++k)
        for (int at = 0; at < p->runs[k].ntimes; ++at)
            if (p->runs[k].times[at] > time) next = fmin(next, p->runs[k].times[at]);
    return next;
}

static void integrate(const problem *p, void *cvode, N_Vector y, outcome *result)
{
    const double start = start_clock();
    sunrealtype reached = 0.0;
    for (double time = 0.0; time < p->end;) {
        time = next_time(p, time);
        check(CVode(cvode, time, y, &reached, CV_NORMAL) >= 0, "CVODE gave up");
        compare(p, time, abundances(y), result);
    }
    result->whole_s = stop_clock(start);
    result->first_setup_s = timed.first_setup_s;
    result->setup_s = timed.setup_s;
    result->solve_s = timed.solve_s;
    result->rhs_s = timed.rhs_s;
    result->jacobian_s = timed.jacobian_s;
    result->cpu_s = timed.cpu_s;
    CVodeGetNumSteps(cvode, &result->steps);
    CVodeGetNumLinSolvSetups(cvode, &result->setups);
    CVodeGetNumNonlinSolvIters(cvode, &result->iterations);
    CVodeGetNumLinConvFails(cvode, &result->failures);
}

static outcome run_solver(const problem *p, const char *name, SUNContext sunctx)
{
    const size_t bytes = (size_t)(p->nzones * p->net.nnuclides) * sizeof(double);
    outcome result = {.end_state = malloc(bytes)};
    system_parts parts = make_system(p, name, sunctx);
    void *cvode = CVodeCreate(CV_BDF, sunctx);
    check(result.end_state != NULL && cvode != NULL, "out of memory");
    check(parts.S != NULL, "unknown solver");
    time_system(&parts);
    check(CVodeInit(cvode, parts.rhs, 0.0, parts.y) == 0 &&
              CVodeSStolerances(cvode, p->rtol, p->atol) == 0 &&
              CVodeSetUserData(cvode, parts.data) == 0 &&
              CVodeSetMaxNumSteps(cvode, 1000000) == 0 &&
              CVodeSetLinearSolver(cvode, parts.S, parts.A) == 0 &&
              CVodeSetJacFn(cvode, parts.jacobian) == 0 &&
              CVodeSetNonlinConvCoef(cvode, NEWTON) == 0 &&
              CVodeSetMaxNonlinIters(cvode, MAX_NEWTON) == 0,
          "CVODE refused its arguments");
    integrate(p, cvode, parts.y, &result);
    memcpy(result.end_state, abundances(parts.y), bytes);
    CVodeFree(&cvode);
    free_system(&parts);
    return result;
}

/* ------------------------------------------------------------------ the table */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int count)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    return 0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]);
}

/* The largest difference of two end states, in units of the integrator's tolerance. */
static double apart(const problem *p, const outcome *a, const outcome *b)
{
    double most = 0.0;
    for (sunindextype k = 0; k < p->nzones * p->net.nnuclides; ++k) {
        const double weight = p->rtol * fabs(b->end_state[k]) + p->atol;
        most = fmax(most, fabs(a->end_state[k] - b->end_state[k]) / weight);
    }
    return most;
}

typedef struct {
    const char *name;
    outcome last;
    double linear[MAX_ROUNDS], cpu[MAX_ROUNDS], whole[MAX_ROUNDS];
    /* Over those of the first solver in the same round. */
    double linear_ratio[MAX_ROUNDS], cpu_ratio[MAX_ROUNDS], whole_ratio[MAX_ROUNDS];
} row;

static void write_json(const char *path, const char *network_path, const problem *p,
                       const row *rows, int nrows, int nrounds)
{
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (path == NULL) return;
    check(file != NULL, "the file of --json cannot be written");
    const char *name = strrchr(network_path, '/');
    for (const row *r = rows; r < rows + nrows; ++r) {
        const outcome *o = &r->last;
        fprintf(file, "{\"schema\": 2, \"suite\": \"sundials\", \"case\": \"%s\", ",
                name == NULL ? network_path : name + 1);
        fprintf(file, "\"configuration\": \"%s\", \"sundials\": \"%s\", \"batch\": %lld, ", r->name,
                SUNDIALS_VERSION, (long long)p->nzones);
        fprintf(file, "\"n\": %d, \"nnz\": %d, \"threads\": %d, ", p->net.nnuclides, p->net.nnz,
                p->threads);
        fprintf(file, "\"rtol\": %g, \"atol\": %g, \"end_s\": %g, ", p->rtol, p->atol, p->end);
        fprintf(file, "\"steps\": %ld, \"setups\": %ld, \"solves\": %ld, ", o->steps, o->setups,
                o->iterations);
        fprintf(file, "\"linear_s\": %.6g, \"setup_s\": %.6g, ", median(r->linear, nrounds),
                o->setup_s);
        fprintf(file, "\"first_setup_s\": %.6g, \"rhs_s\": %.6g, \"jacobian_s\": %.6g, ",
                o->first_setup_s, o->rhs_s, o->jacobian_s);
        fprintf(file, "\"linear_cpu_s\": %.6g, \"whole_s\": %.6g, ", median(r->cpu, nrounds),
                median(r->whole, nrounds));
        fprintf(file, "\"linear_of_first\": %.4g, \"linear_cpu_of_first\": %.4g, ",
                median(r->linear_ratio, nrounds), median(r->cpu_ratio, nrounds));
        fprintf(file, "\"whole_of_first\": %.4g, \"rounds\": %d, ",
                median(r->whole_ratio, nrounds), nrounds);
        fprintf(file, "\"absolute\": %.3g, \"relative\": %.3g, \"apart\": %.3g}\n", o->absolute,
                o->relative, apart(p, o, &rows[0].last));
    }
    fclose(file);
}

/* Prints the rows and returns whether all of them are where they should be. */
static int print_rows(const problem *p, const row *rows, int nrows, int nrounds)
{
    int good = 1;
    printf("%-12s %6s %6s %6s %9s %9s %9s ", "solver", "steps", "setups", "solves", "linear s",
           "setup s", "first s");
    printf("%9s %9s %9s ", "rhs s", "jac s", "whole s");
    printf("%8s %8s %8s %9s %9s %8s\n", "linear", "cpu", "whole", "absolute", "relative", "apart");
    for (const row *r = rows; r < rows + nrows; ++r) {
        const outcome *o = &r->last;
        printf("%-12s %6ld %6ld %6ld %9.4f %9.4f %9.4f ", r->name, o->steps, o->setups,
               o->iterations, median(r->linear, nrounds), o->setup_s, o->first_setup_s);
        printf("%9.4f %9.4f %9.4f ", o->rhs_s, o->jacobian_s, median(r->whole, nrounds));
        printf("%7.2fx %7.2fx %7.2fx %9.1e %9.1e %8.2g\n", median(r->linear_ratio, nrounds),
               median(r->cpu_ratio, nrounds), median(r->whole_ratio, nrounds), o->absolute,
               o->relative, apart(p, o, &rows[0].last));
        if (!(o->absolute <= ABSOLUTE && o->relative <= RELATIVE)) {
            printf("%s: DIFFERS from the reference\n", r->name);
            good = 0;
        }
        /* Direct solvers take the same steps, to rounding; an iterative one adds its own errors. */
        const int direct = strcmp(r->name, "iterative") != 0;
        if (direct && !(apart(p, o, &rows[0].last) <= APART &&
                        labs(o->steps - rows[0].last.steps) <= rows[0].last.steps / 50)) {
            printf("%s: DIFFERS from %s\n", r->name, rows[0].name);
            good = 0;
        }
    }
    return good;
}

/* ------------------------------------------------------------------ arguments */

typedef struct {
    const char *network_path, *reference_path, *json;
    char solvers[256];
    int rounds;
} arguments;

static double number(const char *text, double least)
{
    char *end;
    const double value = strtod(text, &end);
    if (*end == '\0' && end != text && value >= least && isfinite(value)) return value;
    fprintf(stderr, "%s: expected a number of at least %g, found %s\n", program_name, least, text);
    exit(2);
}

static arguments parse(int argc, char **argv, problem *p)
{
    arguments found = {.rounds = 1};
    snprintf(found.solvers, sizeof found.solvers, "%s", default_solvers);
    for (int k = 3; k + 1 < argc; k += 2) {
        const char *name = argv[k], *value = argv[k + 1];
        if (strcmp(name, "--zones") == 0) p->nzones = (sunindextype)number(value, 1);
        else if (strcmp(name, "--end") == 0) p->end = number(value, 1e-300);
        else if (strcmp(name, "--rtol") == 0) p->rtol = number(value, 1e-14);
        else if (strcmp(name, "--atol") == 0) p->atol = number(value, 0);
        else if (strcmp(name, "--threads") == 0) p->threads = (int)number(value, 0);
        else if (strcmp(name, "--rounds") == 0) found.rounds = (int)number(value, 1);
        else if (strcmp(name, "--json") == 0) found.json = value;
        else if (strcmp(name, "--solvers") == 0)
            snprintf(found.solvers, sizeof found.solvers, "%s", value);
        else argc = 0;
    }
    if (argc < 3 || argc % 2 == 0 || found.rounds > MAX_ROUNDS) {
        fprintf(stderr,
                "%s NETWORK.json REFERENCE.json [--zones N] [--end SECONDS] [--rtol TOL] "
                "[--atol TOL] [--solvers %s] [--threads N] [--rounds N] [--json FILE]\n",
                program_name, solver_names);
        exit(2);
    }
    found.network_path = argv[1];
    found.reference_path = argv[2];
    return found;
}

/* Runs all solvers in turn, round by round. */
static void run_rounds(const problem *p, row *rows, int nrows, int nrounds, SUNContext sunctx)
{
    for (int round = 0; round < nrounds; ++round)
        for (int k = 0; k < nrows; ++k) {
            row *r = rows + k;
            free(r->last.end_state);
            r->last = run_solver(p, r->name, sunctx);
            r->linear[round] = r->last.setup_s + r->last.solve_s;
            r->cpu[round] = r->last.cpu_s;
            r->whole[round] = r->last.whole_s;
            r->cpu_ratio[round] = r->cpu[round] / rows[0].cpu[round];
            r->linear_ratio[round] = r->linear[round] / rows[0].linear[round];
            r->whole_ratio[round] = r->whole[round] / rows[0].whole[round];
        }
}

int main(int argc, char **argv)
{
    problem p = {.nzones = 100, .end = 1e-2, .rtol = 1e-6, .atol = 1e-14};
    arguments args = parse(argc, argv, &p);
    static row rows[MAX_SOLVERS];
    int nrows = 0;
    p.net = read_network(args.network_path);
    p.nruns = read_references(args.reference_path, &p.net, &p.runs);
    make_zones(&p);
    for (char *name = strtok(args.solvers, ","); name != NULL && nrows < MAX_SOLVERS;
         name = strtok(NULL, ","))
        rows[nrows++].name = name;

    SUNContext sunctx;
#if SUNDIALS_VERSION_MAJOR >= 7
    check(SUNContext_Create(SUN_COMM_NULL, &sunctx) == 0, "no context of SUNDIALS");
#else
    check(SUNContext_Create(NULL, &sunctx) == 0, "no context of SUNDIALS");
#endif
    open_zones(&p);

    run_rounds(&p, rows, nrows, args.rounds, sunctx);
    const int good = print_rows(&p, rows, nrows, args.rounds);
    write_json(args.json, args.network_path, &p, rows, nrows, args.rounds);

    for (int k = 0; k < nrows; ++k) free(rows[k].last.end_state);
    close_zones();
    SUNContext_Free(&sunctx);
    free(p.lambda);
    free(p.start);
    free_references(p.runs, p.nruns);
    free_network(&p.net);
    return good ? 0 : 1;
}
