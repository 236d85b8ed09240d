/*
 * Reaction networks of REACLIB rates at constant temperature and density, from the JSON files that
 * docs/nuclear-burning.md describes, and runs of another code to compare with.
 */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdint.h>

enum { MAX_PARTICLES = 4 };

typedef struct {
    int nreactants, nproducts;
    int reactants[MAX_PARTICLES], products[MAX_PARTICLES]; /* repeated as often as they enter */
    double prefactor;
    int rho_exponent;
    int nsets;
    double (*sets)[7];
    int partner; /* the rate with reactants and products exchanged, or -1 */
} rate;

typedef struct {
    int nnuclides, nrates;
    rate *rates;
    /* The Jacobian's pattern, CSR from 0, with all diagonal entries. */
    int nnz;
    int32_t *row_ptr, *col_idx;
    /* Entries of the Jacobian, rate by rate: for each reactant those of all its nuclides. */
    int *places;
} network;

/* Abundances of a zone at several times. */
typedef struct {
    double t9, rho;
    int ntimes;
    double *times;
    double *start;  /* at t = 0, nnuclides */
    double *states; /* ntimes x nnuclides */
} reference_run;

#ifdef __cplusplus
extern "C" {
#endif

/* Read a file, or end the program with a message. */
network read_network(const char *path);
int read_references(const char *path, const network *net, reference_run **runs);
void free_network(network *net);
void free_references(reference_run *runs, int nruns);

/* Writes the factors of the products of abundances for each rate at `t9` GK and `rho` g/cm^3. */
void evaluate_rates(const network *net, double t9, double rho, double *lambda);

/* Writes dY/dt. */
void evaluate_rhs(const network *net, const double *lambda, const double *y, double *ydot);

/* Writes the values of the Jacobian. */
void evaluate_jacobian(const network *net, const double *lambda, const double *y, double *values);

#ifdef __cplusplus
}
#endif

#endif
