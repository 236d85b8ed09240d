// The library opened by dlopen, used, closed while its threads live, and opened again.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

typedef int32_t (*create)(const void *, void **);
typedef int32_t (*destroy)(void *);
typedef int32_t (*uniform)(const void *, int32_t, int64_t, int64_t, int64_t, int64_t,
                           const int32_t *, const int32_t *, int32_t, int32_t, void **);
typedef int32_t (*solver_create)(const void *, const void *, int64_t, const void *, void **);
typedef int32_t (*solve)(void *, int32_t, int32_t, const void *, int64_t, void *, int64_t,
                         int64_t *);

// A function of the library by its name, without a cast that ISO C forbids.
#define FIND(type, name) (*(type *)(void *[]){dlsym(library, name)})

int main(int count, char **arguments) {
    for (int round = 0; round < 3; ++round) {
        void *library = dlopen(count > 1 ? arguments[1] : "libsparsebatch.so.0", RTLD_NOW);
        if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
        void *context, *batch, *solver;
        int32_t ptr[] = {0, 1}, col[] = {0};
        static double values[100000], b[100000], x[100000];
        int64_t n = 100000, failed = -1;
        for (int item = 0; item < n; ++item) values[item] = 2.0, b[item] = item;
        if (FIND(create, "sb_context_create")(NULL, &context) != 0) return 2;
        if (FIND(uniform, "sb_batch_uniform")(context, 0, n, 1, 1, 1, ptr, col, 0, 0, &batch) != 0)
            return 3;
        if (FIND(solver_create, "sb_solver_create")(batch, values, n, NULL, &solver) != 0) return 4;
        if (FIND(solve, "sb_solver_solve")(solver, 0, 0, b, n, x, n, &failed) != 0) return 5;
        if (failed != 0 || x[7] != 3.5) return 6;
        FIND(destroy, "sb_solver_destroy")(solver);
        FIND(destroy, "sb_batch_destroy")(batch);
        FIND(destroy, "sb_context_destroy")(context);
        dlclose(library);
        usleep(20000);
    }
    puts("reload: all passed");
    return 0;
}
