// What the compiler's undefined-behaviour checks call, turned into errors of the launch.
//
// Kernels are compiled with some of -fsanitize=undefined, for faults that a GPU reports or
// punishes and a CPU does not: misaligned vectors, indices outside of fixed-size arrays, division
// by zero. The checks call these functions, named for -fno-sanitize-recover, and no sanitizer library
// is linked. Only the parts of their arguments that are used here are declared.

#include "engine.h"

namespace {

struct SourceLocation {
    const char* file;
    emu::u32 line;
    emu::u32 column;
};

struct TypeDescriptor {
    unsigned short kind;
    unsigned short info;
    char name[1];
};

struct TypeMismatch {
    SourceLocation location;
    const TypeDescriptor* type;
    unsigned char log_alignment;
    unsigned char check;
};

struct OutOfBounds {
    SourceLocation location;
    const TypeDescriptor* array;
    const TypeDescriptor* index;
};

struct Overflow {
    SourceLocation location;
    const TypeDescriptor* type;
};

emu::Site site(const SourceLocation& at) { return {at.file, static_cast<int>(at.line)}; }

} // namespace

extern "C" {

void __ubsan_handle_type_mismatch_v1_abort(const TypeMismatch* data, size_t pointer) {
    if (pointer == 0) emu::fail(site(data->location), "access of %s at a null pointer", data->type->name);
    const size_t alignment = size_t{1} << data->log_alignment;
    emu::fail(site(data->location), "misaligned access: %s at %zu bytes past a multiple of %zu",
              data->type->name, pointer % alignment, alignment);
}

void __ubsan_handle_out_of_bounds_abort(const OutOfBounds* data, size_t index) {
    // An index of at most 8 bytes is passed by value; narrower ones are not sign-extended.
    const emu::u32 bits = 1u << (data->index->info >> 1);
    const bool is_signed = (data->index->info & 1) != 0;
    long long value = static_cast<long long>(index);
    if (is_signed && bits < 64) value = static_cast<long long>(index << (64 - bits)) >> (64 - bits);
    emu::fail(site(data->location), "index %lld is out of bounds of %s", value, data->array->name);
}

void __ubsan_handle_divrem_overflow_abort(const Overflow* data, size_t, size_t) {
    emu::fail(site(data->location), "division by zero, or of the least %s by -1", data->type->name);
}

void __ubsan_handle_shift_out_of_bounds_abort(const Overflow* data, size_t, size_t) {
    emu::fail(site(data->location), "a shift by a negative count or by all bits of the type");
}

} // extern "C"
