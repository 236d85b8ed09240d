/* A library that a CUDA program loads at its start (CUDA_INJECTION64_PATH) and that writes what its GPUs
 * did and when: a line for each kernel and each copy, with device, stream, begin and end in ns, bytes of a
 * copy, and a name, separated by tabs, to the file that TIMELINE names. scripts/gpu/distributed.sh builds it
 * with CUPTI. KERNEL, COPY and PEER_COPY are the newest records of its header. */
#include <cupti.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;

static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 8 << 20;
    *buffer = aligned_alloc(8, *size);
    *records = 0;
}

static void line(uint32_t device, uint32_t stream, uint64_t start, uint64_t end, uint64_t bytes,
                 const char *name) {
    fprintf(out, "%u\t%u\t%llu\t%llu\t%llu\t%s\n", device, stream, (unsigned long long)start,
            (unsigned long long)end, (unsigned long long)bytes, name);
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    CUpti_Activity *record = NULL;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            const KERNEL *kernel = (const KERNEL *)record;
            line(kernel->deviceId, kernel->streamId, kernel->start, kernel->end, 0, kernel->name);
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
            const COPY *copy = (const COPY *)record;
            const char *name = copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy from the host"
                               : copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
                                                                                   : "copy";
            line(copy->deviceId, copy->streamId, copy->start, copy->end, copy->bytes, name);
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
            const PEER_COPY *copy = (const PEER_COPY *)record;
            char name[64];
            snprintf(name, sizeof name, "copy from GPU %u to GPU %u", copy->srcDeviceId, copy->dstDeviceId);
            line(copy->dstDeviceId, copy->streamId, copy->start, copy->end, copy->bytes, name);
        }
    }
    free(buffer);
}

static void finish(void) {
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    fclose(out);
}

int InitializeInjection(void) {
    const char *path = getenv("TIMELINE");
    out = path ? fopen(path, "w") : NULL;
    if (!out) {
        fprintf(stderr, "TIMELINE names no file that can be written\n");
        return 0;
    }
    cuptiActivityRegisterCallbacks(give, take);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY2);
    atexit(finish);
    return 1;
}
