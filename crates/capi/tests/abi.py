"""The binary interface of libsparsebatch, by a foreign caller.

    python3 crates/capi/tests/abi.py PREFIX            compares with crates/capi/abi.txt
    python3 crates/capi/tests/abi.py PREFIX --write    writes it

- The library exports the functions of the header and nothing else.
- `abi.txt` lists them with the types of their arguments, the structs with the offsets of their
  fields, and the constants: what a program that was compiled once relies on.
- Every function is called with zeros, and with random arguments that are no living handles.
"""

import ctypes
import pathlib
import random
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent.parent
TYPES = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint8_t": ctypes.c_uint8,
    "size_t": ctypes.c_size_t,
    "double": ctypes.c_double,
    "sb_status": ctypes.c_int32,
    "sb_allocate": ctypes.c_void_p,
    "sb_release": ctypes.c_void_p,
}


def c_type(text):
    return ctypes.c_void_p if "*" in text else TYPES[text.replace("const", "").strip()]


def split(declaration):
    """Type and name of `const struct sb_solver *solver`."""
    kind, name = re.fullmatch(r"(.*?)(\w+)", declaration.strip()).groups()
    return " ".join(kind.replace("struct ", "").split()), name


def read_header(text):
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    constants = re.findall(r"^#define (SB_\w+) (\S+)$", text, flags=re.M)
    structs = {
        name: [split(field) for field in body.split(";") if field.strip()]
        for name, body in re.findall(r"^typedef struct (\w+) \{(.*?)\}", text, flags=re.M | re.S)
    }
    callbacks = re.findall(r"^typedef ([\w ]+\*?)\(\*(sb_\w+)\)\((.*?)\);", text, re.M | re.S)
    functions = {}
    prototypes = re.findall(r"^([\w ]+[ *]+)(sb_\w+)\((.*?)\);", text, re.M | re.S)
    for result, name, arguments in prototypes:
        arguments = [] if arguments == "void" else [split(part) for part in arguments.split(",")]
        functions[name] = (result.strip(), arguments)
    return constants, structs, callbacks, functions


def layout(fields):
    """The struct as ctypes lays it out, which is as C does."""
    return type("Struct", (ctypes.Structure,), {"_fields_": [(n, c_type(t)) for t, n in fields]})


def listing(constants, structs, callbacks, functions):
    for name, value in constants:
        yield f"constant {name} {value}"
    for name, fields in structs.items():
        struct = layout(fields)
        yield f"struct {name}, {ctypes.sizeof(struct)} bytes"
        for kind, field in fields:
            yield f"    {getattr(struct, field).offset}: {kind} {field}"
    for result, name, arguments in callbacks:
        yield f"callback {result.strip()} {name}({' '.join(arguments.split())})"
    for name, (result, arguments) in sorted(functions.items()):
        arguments = ", ".join(kind for kind, _ in arguments)
        yield f"function {result} {name}({arguments})"


def exported(library):
    output = subprocess.run(
        ["nm", "--dynamic", "--defined-only", library], check=True, capture_output=True, text=True
    )
    return {line.split()[-1] for line in output.stdout.splitlines()}


def declared(library, functions):
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.argtypes = [c_type(kind) for kind, _ in arguments]
        function.restype = ctypes.c_char_p if "char *" in result else c_type(result)
        yield name, function


def call_with_zeros(library, functions):
    """Every function refuses NULL, or has nothing to do; a refusal leaves a message."""
    message = ctypes.create_string_buffer(512)
    calls = dict(declared(library, functions))
    for name, function in calls.items():
        result = function(*[0 for _ in function.argtypes])
        if functions[name][0] != "sb_status":
            continue
        if name in ("sb_context_create", "sb_ranks_shares"):
            assert result == 1, (name, result)
        elif name.endswith("_destroy"):
            assert result == 0, (name, result)
        elif name.endswith("_init") or name == "sb_last_error":
            assert result == (0 if name == "sb_last_error" else 1), (name, result)
        else:
            assert result == 9, (name, result)
        if result:
            assert calls["sb_last_error"](None, ctypes.addressof(message), 512) == 0
            assert message.value, name


def call_at_random(library, functions, rounds):
    """Arguments of any size that are no living handles: every call is refused, and the place of a
    new handle gets NULL."""
    chance = random.Random(35)
    numbers = [0, 1, 2, -1, 7, 64, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
    for name, function in declared(library, functions):
        first = functions[name][1][:1]
        # Functions whose first argument is a handle look at it before anything else.
        handle = r"(const )?sb_(batch|context|conversion|distributed|ranks|report|solver|spmv) \*"
        if not first or not re.match(handle, first[0][0]):
            continue
        kinds = [kind for kind, _ in functions[name][1]]
        for _ in range(rounds):
            # The place of a new handle is written to in any case.
            place = ctypes.c_void_p(1)
            arguments = [
                ctypes.addressof(place)
                if described.endswith("**")
                else chance.randrange(1 << 63) | 1 << 40
                if kind is ctypes.c_void_p
                else float(chance.choice(numbers))
                if kind is ctypes.c_double
                else kind(chance.choice(numbers))
                for kind, described in zip(function.argtypes, kinds, strict=True)
            ]
            assert function(*arguments) == 9, name
            assert place.value == (None if any(k.endswith("**") for k in kinds) else 1), name


def main():
    prefix, writes = pathlib.Path(sys.argv[1]), "--write" in sys.argv
    path = prefix / "lib" / "libsparsebatch.so.0"
    constants, structs, callbacks, functions = read_header((prefix / "include/sparsebatch.h").read_text())
    assert len(functions) > 30 and len(structs) == 5 and len(callbacks) == 2, "the header is not understood"

    surplus = exported(path) ^ functions.keys()
    assert not surplus, f"exported and not in the header, or the reverse: {sorted(surplus)}"

    text = "\n".join(listing(constants, structs, callbacks, functions)) + "\n"
    committed = HERE / "abi.txt"
    if writes:
        committed.write_text(text)
    assert committed.read_text() == text, (
        "crates/capi/abi.txt is not the interface of the library: if the change is meant, write it "
        "with --write, and raise SB_ABI_VERSION unless compiled programs go on working"
    )

    library = ctypes.CDLL(path)
    for name, fields in structs.items():
        if not name.endswith(("_options", "_limits")):
            continue
        struct = layout(fields)()
        size = ctypes.sizeof(struct)
        init = getattr(library, f"{name}_init")
        assert init(ctypes.byref(struct), ctypes.c_size_t(size)) == 0, name
        assert struct.struct_size == size
        assert init(ctypes.byref(struct), ctypes.c_size_t(size - 1)) == 1, name
    call_with_zeros(library, functions)
    call_at_random(library, functions, 2000)
    print(f"abi: {len(functions)} functions, all passed")


if __name__ == "__main__":
    main()
