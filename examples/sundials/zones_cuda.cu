/*
 * Zones in the memory of an NVIDIA GPU: vectors, block CSR matrix, right-hand sides and Jacobians
 * stay there. They are solved by sparsebatch and by SUNDIALS' batched QR of cuSolverSp. All work
 * goes to one stream.
 */
#include "zones.h"

#include <string.h>
#include <vector>

#include <cuda_runtime.h>
#include <cusolverSp.h>
#include <cusparse.h>
#include <nvector/nvector_cuda.h>
#include <sunlinsol/sunlinsol_cusolversp_batchqr.h>
#include <sunmatrix/sunmatrix_cusparse.h>

const char program_name[] = "cvode_zones_cuda", solver_names[] = "sparsebatch,iterative,cusolversp",
           default_solvers[] = "sparsebatch,cusolversp";

/* Threads of a block, which computes one zone. */
enum { THREADS = 64 };
/* What a block may take of shared memory without being asked for more. */
static const size_t MAX_SHARED = 48 * 1024;

static void check_cuda(cudaError_t code, const char *what)
{
    if (code == cudaSuccess) return;
    fprintf(stderr, "%s: %s: %s\n", program_name, what, cudaGetErrorString(code));
    exit(1);
}

/* ------------------------------------------------------------------ the network on the device */

/* Terms of sums: those of sum k are terms[start[k]] to terms[start[k + 1] - 1], each twice the
   index of a number, plus 1 where it is subtracted. In the order of the rates, as on the CPU. */
struct sums {
    const int *start, *terms;
};

/* A rate, and the reverse that is subtracted from it, or -1. */
struct flow {
    int rate, reverse;
};

/* The derivative of a rate by its reactant `without`. */
struct slope {
    int rate, without;
};

struct device_network {
    int nnuclides, nrates, nnz, nflows, nslopes;
    const int (*reactants)[MAX_PARTICLES]; /* of each rate, -1 where there is none */
    const flow *flows;
    const slope *slopes;
    sums rhs, jacobian; /* flows of each nuclide; slopes of each entry */
    const double *lambda;
};

/* What all runs share. */
static struct {
    device_network net;
    sunindextype nzones;
    std::vector<void *> allocations;
    cudaStream_t stream;
    cusparseHandle_t cusparse;
    cusolverSpHandle_t cusolver;
    sb_context *context;
} shared;

template <typename T> static const T *upload(const T *data, size_t count)
{
    void *place = NULL;
    check_cuda(cudaMalloc(&place, (count + 1) * sizeof(T)), "out of memory on the GPU");
    check_cuda(cudaMemcpy(place, data, count * sizeof(T), cudaMemcpyHostToDevice), "no copy");
    shared.allocations.push_back(place);
    return (const T *)place;
}

template <typename T> static const T *upload(const std::vector<T> &data)
{
    return upload(data.data(), data.size());
}

static sums upload_sums(const std::vector<std::vector<int>> &terms)
{
    std::vector<int> start(1, 0), all;
    for (const std::vector<int> &of_one : terms) {
        all.insert(all.end(), of_one.begin(), of_one.end());
        start.push_back((int)all.size());
    }
    return {upload(start), upload(all)};
}

static void upload_reactants(const network &net)
{
    std::vector<int> reactants((size_t)net.nrates * MAX_PARTICLES, -1);
    for (int r = 0; r < net.nrates; ++r)
        for (int p = 0; p < net.rates[r].nreactants; ++p)
            reactants[(size_t)(r * MAX_PARTICLES + p)] = net.rates[r].reactants[p];
    shared.net.reactants = (const int(*)[MAX_PARTICLES])upload(reactants);
}

/* The sums of evaluate_rhs. */
static void upload_flows(const network &net)
{
    std::vector<flow> flows;
    std::vector<std::vector<int>> terms((size_t)net.nnuclides);
    for (int r = 0; r < net.nrates; ++r) {
        const rate &own = net.rates[r];
        if (own.partner >= 0 && own.partner < r) continue;
        const int term = 2 * (int)flows.size();
        for (int p = 0; p < own.nreactants; ++p) terms[own.reactants[p]].push_back(term + 1);
        for (int p = 0; p < own.nproducts; ++p) terms[own.products[p]].push_back(term);
        flows.push_back({r, own.partner});
    }
    shared.net.nflows = (int)flows.size();
    shared.net.flows = upload(flows);
    shared.net.rhs = upload_sums(terms);
}

/* The sums of evaluate_jacobian. */
static void upload_slopes(const network &net)
{
    std::vector<slope> slopes;
    std::vector<std::vector<int>> terms((size_t)net.nnz);
    const int *place = net.places;
    for (int r = 0; r < net.nrates; ++r)
        for (int p = 0; p < net.rates[r].nreactants; ++p) {
            const int term = 2 * (int)slopes.size();
            for (int q = 0; q < net.rates[r].nreactants; ++q) terms[*place++].push_back(term + 1);
            for (int q = 0; q < net.rates[r].nproducts; ++q) terms[*place++].push_back(term);
            slopes.push_back({r, p});
        }
    shared.net.nslopes = (int)slopes.size();
    shared.net.slopes = upload(slopes);
    shared.net.jacobian = upload_sums(terms);
}

/* ------------------------------------------------------------------ kernels */

__device__ static double flow_of(const device_network &net, int rate, const double *lambda,
                                 const double *y)
{
    double product = lambda[rate];
    for (int p = 0; p < MAX_PARTICLES && net.reactants[rate][p] >= 0; ++p)
        product *= y[net.reactants[rate][p]];
    return product;
}

/* Writes the sum of each of `count` lists of terms to `to`. */
__device__ static void add_terms(sums lists, int count, const double *numbers, double *to)
{
    for (int k = threadIdx.x; k < count; k += blockDim.x) {
        double sum = 0.0;
        for (int at = lists.start[k]; at < lists.start[k + 1]; ++at) {
            const int term = lists.terms[at];
            sum += term & 1 ? -numbers[term >> 1] : numbers[term >> 1];
        }
        to[k] = sum;
    }
}

/* Returns the abundances of the block's zone in shared memory, followed by room. */
__device__ static double *load_zone(const device_network &net, const double *y)
{
    extern __shared__ double memory[];
    for (int i = threadIdx.x; i < net.nnuclides; i += blockDim.x)
        memory[i] = y[(size_t)blockIdx.x * net.nnuclides + i];
    __syncthreads();
    return memory;
}

/* dY/dt, one zone a block. */
__global__ static void evaluate_rhs_kernel(device_network net, const double *y, double *ydot)
{
    double *zone = load_zone(net, y), *flows = zone + net.nnuclides;
    const double *lambda = net.lambda + (size_t)blockIdx.x * net.nrates;
    for (int k = threadIdx.x; k < net.nflows; k += blockDim.x) {
        double value = flow_of(net, net.flows[k].rate, lambda, zone);
        if (net.flows[k].reverse >= 0) value -= flow_of(net, net.flows[k].reverse, lambda, zone);
        flows[k] = value;
    }
    __syncthreads();
    add_terms(net.rhs, net.nnuclides, flows, ydot + (size_t)blockIdx.x * net.nnuclides);
}

/* Values of the Jacobian, one zone a block. */
__global__ static void evaluate_jacobian_kernel(device_network net, const double *y, double *values)
{
    double *zone = load_zone(net, y), *slopes = zone + net.nnuclides;
    const double *lambda = net.lambda + (size_t)blockIdx.x * net.nrates;
    for (int k = threadIdx.x; k < net.nslopes; k += blockDim.x) {
        const slope own = net.slopes[k];
        double product = lambda[own.rate];
        for (int p = 0; p < MAX_PARTICLES && net.reactants[own.rate][p] >= 0; ++p)
            if (p != own.without) product *= zone[net.reactants[own.rate][p]];
        slopes[k] = product;
    }
    __syncthreads();
    add_terms(net.jacobian, net.nnz, slopes, values + (size_t)blockIdx.x * net.nnz);
}

static size_t shared_bytes(int numbers)
{
    return (size_t)(shared.net.nnuclides + numbers) * sizeof(double);
}

static int rhs(sunrealtype t, N_Vector y, N_Vector ydot, void *data)
{
    const device_network *net = (const device_network *)data;
    (void)t;
    evaluate_rhs_kernel<<<(unsigned)shared.nzones, THREADS, shared_bytes(net->nflows),
                          shared.stream>>>(*net, N_VGetDeviceArrayPointer(y),
                                           N_VGetDeviceArrayPointer(ydot));
    return cudaGetLastError() == cudaSuccess ? 0 : -1;
}

/* The pattern of the matrix is fixed: only values are written. */
static int jacobian(sunrealtype t, N_Vector y, N_Vector fy, SUNMatrix J, void *data, N_Vector tmp1,
                    N_Vector tmp2, N_Vector tmp3)
{
    const device_network *net = (const device_network *)data;
    (void)t, (void)fy, (void)tmp1, (void)tmp2, (void)tmp3;
    evaluate_jacobian_kernel<<<(unsigned)shared.nzones, THREADS, shared_bytes(net->nslopes),
                               shared.stream>>>(*net, N_VGetDeviceArrayPointer(y),
                                                SUNMatrix_cuSparse_Data(J));
    return cudaGetLastError() == cudaSuccess ? 0 : -1;
}

/* ------------------------------------------------------------------ set-up */

void open_zones(const problem *p)
{
    sb_context_options options;
    sb_context_options_init(&options, sizeof options);
    options.backend = "gpu";
    options.threads = (uint32_t)p->threads;
    check(sb_context_create(&options, &shared.context) == SB_OK, "no GPU for sparsebatch");
    check_cuda(cudaStreamCreateWithFlags(&shared.stream, cudaStreamNonBlocking), "no stream");
    check(cusparseCreate(&shared.cusparse) == CUSPARSE_STATUS_SUCCESS &&
              cusparseSetStream(shared.cusparse, shared.stream) == CUSPARSE_STATUS_SUCCESS,
          "no handle of cuSPARSE");
    check(cusolverSpCreate(&shared.cusolver) == CUSOLVER_STATUS_SUCCESS &&
              cusolverSpSetStream(shared.cusolver, shared.stream) == CUSOLVER_STATUS_SUCCESS,
          "no handle of cuSolverSp");
    shared.nzones = p->nzones;
    shared.net.nnuclides = p->net.nnuclides;
    shared.net.nrates = p->net.nrates;
    shared.net.nnz = p->net.nnz;
    upload_reactants(p->net);
    upload_flows(p->net);
    upload_slopes(p->net);
    shared.net.lambda = upload(p->lambda, (size_t)p->nzones * (size_t)p->net.nrates);
    check(shared_bytes(shared.net.nslopes) <= MAX_SHARED, "the network is too large for a block");
}

void close_zones(void)
{
    for (void *place : shared.allocations) cudaFree(place);
    shared.allocations.clear();
    cusolverSpDestroy(shared.cusolver);
    cusparseDestroy(shared.cusparse);
    sb_context_destroy(shared.context);
    cudaStreamDestroy(shared.stream);
}

/* A vector on the stream, whose sums have a fixed order: runs can be repeated. */
static N_Vector make_vector(const problem *p, SUNContext sunctx)
{
    const sunindextype rows = p->nzones * p->net.nnuclides;
    SUNCudaThreadDirectExecPolicy entries(256, shared.stream);
    SUNCudaBlockReduceExecPolicy sums(256, 0, shared.stream);
    N_Vector y = N_VNew_Cuda(rows, sunctx);
    check(y != NULL && N_VSetKernelExecPolicy_Cuda(y, &entries, &sums) == 0, "no vector");
    memcpy(N_VGetArrayPointer(y), p->start, (size_t)rows * sizeof(double));
    N_VCopyToDevice_Cuda(y);
    return y;
}

static SUNMatrix make_matrix(const problem *p, SUNContext sunctx)
{
    const network *net = &p->net;
    SUNMatrix A = SUNMatrix_cuSparse_NewBlockCSR((int)p->nzones, net->nnuclides, net->nnuclides,
                                                 net->nnz, shared.cusparse, sunctx);
    check(A != NULL && SUNMatrix_cuSparse_CopyToDevice(A, NULL, net->row_ptr, net->col_idx) == 0 &&
              SUNMatrix_cuSparse_SetFixedPattern(A, SUNTRUE) == 0,
          "no matrix");
    wait_for_work();
    return A;
}

static SUNLinearSolver make_solver(const char *name, N_Vector y, SUNMatrix A, SUNContext sunctx)
{
    if (strcmp(name, "cusolversp") == 0)
        return SUNLinSol_cuSolverSp_batchQR(y, A, shared.cusolver, sunctx);
    const int iterative = strcmp(name, "iterative") == 0;
    if (!iterative && strcmp(name, "sparsebatch") != 0) return NULL;
    SUNLinearSolver S = iterative ? SUNLinSol_SparseBatchIterative(y, A, 0, sunctx)
                                  : SUNLinSol_SparseBatch(y, A, 0, sunctx);
    sb_solver_options options;
    check(S != NULL && SUNLinSol_SparseBatch_SetContext(S, shared.context) == 0 &&
              SUNLinSol_SparseBatch_GetOptions(S, &options) == 0,
          "no solver");
    options.stream = shared.stream;
    check(SUNLinSol_SparseBatch_SetOptions(S, &options) == 0, "no solver");
    return S;
}

system_parts make_system(const problem *p, const char *solver, SUNContext sunctx)
{
    system_parts parts = {};
    parts.rhs = rhs;
    parts.jacobian = jacobian;
    parts.data = &shared.net;
    parts.y = make_vector(p, sunctx);
    parts.A = make_matrix(p, sunctx);
    parts.S = make_solver(solver, parts.y, parts.A, sunctx);
    return parts;
}

void free_system(system_parts *parts)
{
    SUNLinSolFree(parts->S);
    SUNMatDestroy(parts->A);
    N_VDestroy(parts->y);
}

const double *abundances(N_Vector y)
{
    N_VCopyFromDevice_Cuda(y);
    wait_for_work();
    return N_VGetArrayPointer(y);
}

void wait_for_work(void) { check_cuda(cudaStreamSynchronize(shared.stream), "work on the GPU"); }
