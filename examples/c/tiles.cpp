// A time step over tiles of zones, as codes on adaptive meshes make it: each tile has arrays and a
// solver of its own. On a GPU each has a stream, too, so that tiles are solved side by side; the
// loop over tiles only enqueues, and a second one waits.
//
//     c++ -std=c++17 tiles.cpp $(pkg-config --cflags --libs sparsebatch) -ldl -o tiles
//     ./tiles          all cores
//     ./tiles --gpu    a GPU: memory and streams are those of the driver, so that nothing of CUDA
//                      is needed to build; a code has its own (cudaMallocAsync, amrex::Gpu)
#include <sparsebatch.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <memory>

namespace {

constexpr std::int64_t species = 3, entries = 9;

// The driver's functions for the primary context of GPU 0.
class driver {
public:
    driver() {
        library_ = dlopen("libcuda.so.1", RTLD_NOW);
        if (library_ == nullptr) throw std::runtime_error("there is no libcuda.so.1");
        void *primary = nullptr;
        call<unsigned>("cuInit", 0u);
        call<void **, int>("cuDevicePrimaryCtxRetain", &primary, 0);
        call<void *>("cuCtxSetCurrent", primary);
    }

    template <class... Types> void call(const char *name, Types... arguments) const {
        auto function = reinterpret_cast<int (*)(Types...)>(dlsym(library_, name));
        if (function == nullptr || function(arguments...) != 0) {
            throw std::runtime_error(std::string(name) + " failed");
        }
    }

    void *stream() const {
        void *stream = nullptr;
        call<void **, unsigned>("cuStreamCreate", &stream, 1u);
        return stream;
    }

    // A copy of an array on the GPU.
    double *upload(const std::vector<double> &host) const {
        unsigned long long place = 0;
        const std::size_t bytes = host.size() * sizeof(double);
        call<unsigned long long *, std::size_t>("cuMemAlloc_v2", &place, bytes);
        call<unsigned long long, const void *, std::size_t>("cuMemcpyHtoD_v2", place, host.data(),
                                                            bytes);
        call<>("cuCtxSynchronize"); // other streams do not wait for the copy
        return reinterpret_cast<double *>(place);
    }

    void download(const double *place, std::vector<double> &host) const {
        call<void *, unsigned long long, std::size_t>(
            "cuMemcpyDtoH_v2", host.data(), reinterpret_cast<unsigned long long>(place),
            host.size() * sizeof(double));
    }

private:
    void *library_;
};

// The zones of a tile. Arrays have the same names on host and GPU; on the host they are the same.
struct tile {
    std::vector<double> jacobian, dt, b, x;
    double *device_jacobian, *device_dt, *device_b, *device_x;
    std::unique_ptr<sparsebatch::solver<double>> solver;

    explicit tile(std::int64_t zones)
        : jacobian(zones * entries), dt(zones), b(zones * species), x(zones * species) {
        for (std::int64_t zone = 0; zone < zones; ++zone) {
            // Robertson's reactions, which keep the sum of the concentrations.
            const double burnt = double(zone) / double(zones), k1 = 0.04, k2 = 3e7, k3 = 1e4;
            const double y1 = 2e-5 * (1 - burnt), y2 = burnt;
            const double by_row[] = {-k1, k3 * y2, k3 * y1, k1, -k3 * y2 - 2 * k2 * y1, -k3 * y1,
                                     0,   2 * k2 * y1, 0};
            std::memcpy(&jacobian[zone * entries], by_row, sizeof by_row);
            dt[zone] = 1e-3 * double(1 + zone % 100);
            for (int k = 0; k < species; ++k) b[zone * species + k] = 1.0 + k;
        }
        device_jacobian = jacobian.data(), device_dt = dt.data();
        device_b = b.data(), device_x = x.data();
    }

    void move_to(const driver &gpu) {
        device_jacobian = gpu.upload(jacobian), device_dt = gpu.upload(dt);
        device_b = gpu.upload(b), device_x = gpu.upload(x);
    }

    sparsebatch::view<const double> of(const double *array, const std::vector<double> &host) const {
        return {array, host.size()};
    }

    // The largest relative error of a sum of concentrations.
    double error() const {
        double largest = 0;
        for (std::size_t zone = 0; zone < dt.size(); ++zone) {
            const double *own = &x[zone * species];
            const double sum = (own[0] + own[1] + own[2]) / dt[zone];
            largest = std::fmax(largest, std::fabs(sum - 6) / 6);
        }
        return largest;
    }
};

} // namespace

int main(int argc, char **argv) try {
    const bool on_gpu = argc > 1 && std::strcmp(argv[1], "--gpu") == 0;
    const std::vector<std::int32_t> row_ptr{0, 3, 6, 9}, col_idx{0, 1, 2, 0, 1, 2, 0, 1, 2};
    std::unique_ptr<driver> gpu;
    auto settings = sparsebatch::context_options();
    auto options = sparsebatch::solver_options();
    options.method = "lu";
    if (on_gpu) {
        gpu = std::make_unique<driver>();
        settings.backend = "gpu";
        options.space = SB_DEVICE;
    }
    sparsebatch::context context(settings);

    // Once a mesh: tiles of different sizes, analysed.
    std::vector<tile> tiles;
    for (std::int64_t zones : {512, 2048, 1024, 300, 4096, 777}) {
        tile &own = tiles.emplace_back(zones);
        if (gpu) {
            own.move_to(*gpu);
            options.stream = gpu->stream();
        }
        auto batch =
            sparsebatch::batch<double>::uniform(context, zones, species, row_ptr, col_idx);
        own.solver = std::make_unique<sparsebatch::solver<double>>(
            batch, own.of(own.device_jacobian, own.jacobian), options);
    }

    // Once a step.
    std::int64_t failed = 0;
    for (tile &own : tiles) {
        own.solver->shift(own.of(own.device_jacobian, own.jacobian), own.of(own.device_dt, own.dt));
        own.solver->factor();
        const auto b = own.of(own.device_b, own.b);
        const sparsebatch::view<double> x(own.device_x, own.x.size());
        if (gpu) {
            own.solver->enqueue(b, x, SB_KEPT);
        } else {
            failed += own.solver->solve(b, x, SB_KEPT);
        }
    }
    if (gpu) {
        for (tile &own : tiles) failed += own.solver->finish();
    }

    double largest = 0;
    for (tile &own : tiles) {
        if (gpu) gpu->download(own.device_x, own.x);
        largest = std::fmax(largest, own.error());
    }
    std::printf("%zu tiles on the %s, %d failed, largest relative error of a sum: %.0e\n",
                tiles.size(), gpu ? "GPU" : "CPU", int(failed), largest);
    return failed == 0 && largest < 1e-8 ? 0 : 1;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
