#include "network.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *path, const char *problem)
{
    fprintf(stderr, "%s: %s\n", path, problem);
    exit(2);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) fail("network", "out of memory");
    return memory;
}

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *file = json_load_file(path, 0, &error);
    if (file == NULL) fail(path, error.text);
    return file;
}

static double *numbers(const char *path, const json_t *array, size_t expected)
{
    double *values = allocate(expected, sizeof *values);
    if (json_array_size(array) != expected) fail(path, "an array has another length than expected");
    for (size_t k = 0; k < expected; ++k) values[k] = json_number_value(json_array_get(array, k));
    return values;
}

/* ------------------------------------------------------------------ the network */

static int index_of(const char *path, const json_t *nuclides, const json_t *name)
{
    size_t i;
    json_t *nuclide;
    json_array_foreach(nuclides, i, nuclide) {
        if (json_equal(json_object_get(nuclide, "name"), name)) return (int)i;
    }
    fail(path, "a rate has an unknown nuclide");
    return -1;
}

static int read_side(const char *path, const json_t *nuclides, const json_t *names, int *side)
{
    const size_t count = json_array_size(names);
    if (count < 1 || count > MAX_PARTICLES) fail(path, "expected 1 to 4 particles on each side");
    for (size_t k = 0; k < count; ++k)
        side[k] = index_of(path, nuclides, json_array_get(names, k));
    return (int)count;
}

static rate read_rate(const char *path, const json_t *nuclides, const json_t *entry)
{
    rate r = {.partner = -1};
    const json_t *sets = json_object_get(entry, "sets");
    const json_t *partner = json_object_get(entry, "partner");
    r.nreactants = read_side(path, nuclides, json_object_get(entry, "reactants"), r.reactants);
    r.nproducts = read_side(path, nuclides, json_object_get(entry, "products"), r.products);
    r.prefactor = json_number_value(json_object_get(entry, "prefactor"));
    r.rho_exponent = (int)json_integer_value(json_object_get(entry, "rho_exponent"));
    r.nsets = (int)json_array_size(sets);
    r.sets = allocate((size_t)r.nsets, sizeof *r.sets);
    for (int set = 0; set < r.nsets; ++set) {
        double *coefficients = numbers(path, json_array_get(sets, (size_t)set), 7);
        memcpy(r.sets[set], coefficients, sizeof r.sets[set]);
        free(coefficients);
    }
    if (json_is_integer(partner)) r.partner = (int)json_integer_value(partner);
    return r;
}

/* The pattern of the Jacobian, and where each rate adds to it. */
static void make_pattern(network *net)
{
    const int n = net->nnuclides;
    int *entry = allocate((size_t)n * (size_t)n, sizeof *entry);
    for (int i = 0; i < n; ++i) entry[i * n + i] = 1;
    for (const rate *r = net->rates; r < net->rates + net->nrates; ++r)
        for (int p = 0; p < r->nreactants; ++p) {
            for (int q = 0; q < r->nreactants; ++q)
                entry[r->reactants[q] * n + r->reactants[p]] = 1;
            for (int q = 0; q < r->nproducts; ++q) entry[r->products[q] * n + r->reactants[p]] = 1;
        }
    net->row_ptr = allocate((size_t)n + 1, sizeof *net->row_ptr);
    net->col_idx = allocate((size_t)n * (size_t)n, sizeof *net->col_idx);
    for (int row = 0; row < n; ++row) {
        for (int col = 0; col < n; ++col) {
            if (!entry[row * n + col]) continue;
            net->col_idx[net->nnz] = col;
            entry[row * n + col] = net->nnz++;
        }
        net->row_ptr[row + 1] = net->nnz;
    }
    int *place = net->places =
        allocate((size_t)net->nrates * MAX_PARTICLES * 2 * MAX_PARTICLES, sizeof *net->places);
    for (const rate *r = net->rates; r < net->rates + net->nrates; ++r)
        for (int p = 0; p < r->nreactants; ++p) {
            for (int q = 0; q < r->nreactants; ++q)
                *place++ = entry[r->reactants[q] * n + r->reactants[p]];
            for (int q = 0; q < r->nproducts; ++q)
                *place++ = entry[r->products[q] * n + r->reactants[p]];
        }
    free(entry);
}

network read_network(const char *path)
{
    json_t *file = load(path);
    const json_t *nuclides = json_object_get(file, "nuclides");
    const json_t *rates = json_object_get(file, "rates");
    network net = {.nnuclides = (int)json_array_size(nuclides),
                   .nrates = (int)json_array_size(rates)};
    if (net.nnuclides == 0 || net.nrates == 0) fail(path, "expected nuclides and rates");
    net.rates = allocate((size_t)net.nrates, sizeof *net.rates);
    for (int r = 0; r < net.nrates; ++r) {
        net.rates[r] = read_rate(path, nuclides, json_array_get(rates, (size_t)r));
        if (net.rates[r].partner >= net.nrates) fail(path, "a rate has an unknown partner");
    }
    make_pattern(&net);
    json_decref(file);
    return net;
}

void free_network(network *net)
{
    for (int r = 0; r < net->nrates; ++r) free(net->rates[r].sets);
    free(net->rates);
    free(net->row_ptr);
    free(net->col_idx);
    free(net->places);
}

int read_references(const char *path, const network *net, reference_run **runs)
{
    json_t *file = load(path);
    const json_t *entries = json_object_get(file, "runs");
    const size_t nruns = json_array_size(entries), n = (size_t)net->nnuclides;
    if (nruns == 0) fail(path, "expected runs");
    *runs = allocate(nruns, sizeof **runs);
    for (size_t k = 0; k < nruns; ++k) {
        const json_t *entry = json_array_get(entries, k), *times = json_object_get(entry, "t");
        const json_t *states = json_object_get(entry, "Y");
        const size_t ntimes = json_array_size(times);
        reference_run *run = *runs + k;
        run->t9 = json_number_value(json_object_get(entry, "T9"));
        run->rho = json_number_value(json_object_get(entry, "rho"));
        run->ntimes = (int)ntimes;
        run->times = numbers(path, times, ntimes);
        run->start = numbers(path, json_object_get(entry, "Y0"), n);
        run->states = allocate(ntimes * n, sizeof *run->states);
        for (size_t time = 0; time < ntimes; ++time) {
            double *state = numbers(path, json_array_get(states, time), n);
            memcpy(run->states + time * n, state, n * sizeof *state);
            free(state);
        }
    }
    json_decref(file);
    return (int)nruns;
}

void free_references(reference_run *runs, int nruns)
{
    for (int k = 0; k < nruns; ++k) {
        free(runs[k].times);
        free(runs[k].start);
        free(runs[k].states);
    }
    free(runs);
}

/* ------------------------------------------------------------------ evaluation */

void evaluate_rates(const network *net, double t9, double rho, double *lambda)
{
    const double cube_root = cbrt(t9);
    const double powers[7] = {1.0, 1.0 / t9, 1.0 / cube_root, cube_root,
                              t9,  t9 * cube_root * cube_root, log(t9)};
    for (int r = 0; r < net->nrates; ++r) {
        const rate *own = net->rates + r;
        double fit = 0.0;
        for (int set = 0; set < own->nsets; ++set) {
            double exponent = 0.0;
            for (int k = 0; k < 7; ++k) exponent += own->sets[set][k] * powers[k];
            fit += exp(exponent);
        }
        lambda[r] = own->prefactor * pow(rho, own->rho_exponent) * fit;
    }
}

static double flow(const rate *r, double lambda, const double *y)
{
    for (int p = 0; p < r->nreactants; ++p) lambda *= y[r->reactants[p]];
    return lambda;
}

/* A rate less its reverse is formed before anything is summed: near equilibrium they cancel. */
void evaluate_rhs(const network *net, const double *lambda, const double *y, double *ydot)
{
    memset(ydot, 0, (size_t)net->nnuclides * sizeof *ydot);
    for (int r = 0; r < net->nrates; ++r) {
        const rate *own = net->rates + r;
        if (own->partner >= 0 && own->partner < r) continue;
        double net_flow = flow(own, lambda[r], y);
        if (own->partner >= 0)
            net_flow -= flow(net->rates + own->partner, lambda[own->partner], y);
        for (int p = 0; p < own->nreactants; ++p) ydot[own->reactants[p]] -= net_flow;
        for (int p = 0; p < own->nproducts; ++p) ydot[own->products[p]] += net_flow;
    }
}

void evaluate_jacobian(const network *net, const double *lambda, const double *y, double *values)
{
    const int *place = net->places;
    memset(values, 0, (size_t)net->nnz * sizeof *values);
    for (int r = 0; r < net->nrates; ++r) {
        const rate *own = net->rates + r;
        for (int p = 0; p < own->nreactants; ++p) {
            double slope = lambda[r];
            for (int q = 0; q < own->nreactants; ++q)
                if (q != p) slope *= y[own->reactants[q]];
            for (int q = 0; q < own->nreactants; ++q) values[*place++] -= slope;
            for (int q = 0; q < own->nproducts; ++q) values[*place++] += slope;
        }
    }
}
