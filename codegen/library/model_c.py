"""Prints a library's model.c and model.h from a plain description of the model.

model.c holds tables (ports, names, lifetimes, the description as JSON) and includes the runtime; it
is compiled by the C compiler while LLVM is still at work on the kernels. model.h is all a C program
needs: the common interface, sizes as macros and, for static models, a typed inline wrapper. Names
come from the model and may be hostile: they enter C only as escaped literals or made identifiers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...loading.trailer import ABI_MAJOR, ABI_MINOR
from .. import abi

RUNTIME = Path(__file__).resolve().parents[2] / "runtime_c"
ALIGNMENT = 64  # of arena and scratch


@dataclass(frozen=True)
class Port:
    """An input or output. `shape` holds numbers and names of symbolic dimensions (None: unnamed);
    it is None itself when the rank is unknown. Of a sequence or optional, `dtype` is the element's."""

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"  # or "sequence", "optional", "map"
    optional: bool = False  # an input that may be left out

    @property
    def static(self) -> bool:
        return (
            self.kind == "tensor"
            and self.dtype is not None
            and self.shape is not None
            and not self.optional
            and all(isinstance(dim, int) for dim in self.shape)
        )

    def as_json(self) -> dict[str, object]:
        """What the description in the library says of the port."""
        entry = {
            "name": self.name,
            "kind": self.kind,
            "dtype": self.dtype,
            "shape": None if self.shape is None else list(self.shape),
        }
        return entry | ({"optional": True} if self.optional else {})


@dataclass(frozen=True)
class LibraryDescription:
    """All that model.c and model.h tell about a model.

    Every symbol begins with `prefix` (see `symbol_prefix`). `node_names` are what messages call the
    nodes; `operators` the C functions behind RuntimeCalls, in the order of `api.call`'s index. A
    static model has `arena_bytes` and `scratch_bytes`; another has `lifetimes`, the first and last
    step of each planned buffer. `weights_file` is the path of the side file of weights, if there is one,
    from the library's folder."""

    prefix: str
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    version: str
    node_names: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    features: tuple[str, ...] = ()
    dim_count: int = 0
    value_count: int = 0
    slot_count: int = 0
    lifetimes: tuple[tuple[int, int], ...] = ()
    static: bool = True
    arena_bytes: int = 0
    scratch_bytes: int = 0
    threads: int = 0
    weights_bytes: int = 0
    weights_file: str | None = None
    weights_digest: bytes = bytes(32)
    string_table: int = 0
    string_count: int = 0
    details: Mapping[str, object] = field(default_factory=dict)  # further entries of the JSON

    @property
    def workspace_bytes(self) -> int:
        """Bytes of arena and scratch for one thread, -1 when the inputs decide."""
        if not self.static:
            return -1
        return _aligned(self.arena_bytes) + max(_aligned(self.scratch_bytes), ALIGNMENT)

    def as_json(self) -> str:
        """The description that the library carries."""
        return json.dumps(
            {
                **self.details,
                "onnxc": self.version,
                "abi": [ABI_MAJOR, ABI_MINOR],
                "name": self.name,
                "inputs": [port.as_json() for port in self.inputs],
                "outputs": [port.as_json() for port in self.outputs],
                "metadata": dict(self.metadata),
                "target": self.target,
                "features": list(self.features),
                "threads": self.threads,
                "weights_bytes": self.weights_bytes,
                "weights_file": self.weights_file,
                "workspace_bytes": self.workspace_bytes if self.static else None,
                "arena_bytes": self.arena_bytes if self.static else None,
                "scratch_bytes": self.scratch_bytes if self.static else None,
            }
        )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def symbol_prefix(name: str) -> str:
    """A C identifier for a model's name: itself if it is one; `-`, `.` and spaces become `_`; any other
    character, a leading digit, more than 60 characters or the prefix `onnxc` also add a hash of the name."""
    plain = re.sub(r"[-. ]", "_", name)
    ours = re.match(r"onnxc(_|$)", plain, re.IGNORECASE)
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,59}", plain) and "__" not in plain and not ours:
        return plain
    made = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:40]
    made = made if made[:1].isalpha() else f"m{made}"
    return f"{made}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def c_string(text: str | bytes | None) -> str:
    """A C string literal, broken into lines; unprintable and non-ASCII bytes in octal."""
    if text is None:
        return "NULL"
    data = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
    plain = {byte: chr(byte) for byte in range(32, 127) if byte not in b'"\\?'}
    pieces = [plain.get(byte) or f"\\{byte:03o}" for byte in data]
    lines = ["".join(pieces[k : k + 80]) for k in range(0, len(pieces), 80)] or [""]
    return "\n    ".join(f'"{line}"' for line in lines)


def _path_text(d: LibraryDescription) -> str:
    """The path of the side file as a C expression in one line."""
    return c_string(d.weights_file and os.fsencode(d.weights_file)).replace("\n", " ")


def _array(declaration: str, entries: Iterable[str]) -> str:
    """`declaration` initialised with entries; C has no empty arrays, so those get one zero."""
    entries = list(entries) or ["0"]
    return f"{declaration} = {{\n    " + ",\n    ".join(entries) + ",\n};\n"


def _ports(which: str, ports: tuple[Port, ...]) -> str:
    text, rows = "", []
    for k, port in enumerate(ports):
        shape = port.shape or ()
        dims = symbols = "NULL"
        if shape:
            dims, symbols = f"{which}_{k}_dims", f"{which}_{k}_symbols"
            numbers = ", ".join(f"{d}LL" if isinstance(d, int) else "-1" for d in shape)
            names = ", ".join(c_string(d) if isinstance(d, str) else "NULL" for d in shape)
            text += f"static const int64_t {dims}[] = {{{numbers}}};\n"
            text += f"static const char *const {symbols}[] = {{{names}}};\n"
        rank = -1 if port.shape is None else len(shape)
        dtype = abi.DTYPES[port.dtype] if port.dtype else 0
        rows.append(
            f"{{sizeof(onnxc_port), {abi.KINDS[port.kind]}, {dtype}, {rank}, "
            f"{c_string(port.name)}, {dims}, {symbols}, {int(port.optional)}, 0}}"
        )
    return text + _array(f"static const onnxc_port {which}s[]", rows or ["{0}"])


def model_source(description: LibraryDescription) -> str:
    """The text of model.c; it is compiled with runtime_c in the include path."""
    d = description
    prefix = d.prefix
    in_library = d.weights_bytes > 0 and d.weights_file is None
    parts = [
        '#include "runtime.c"\n',
        f"ONNXC_HIDDEN int32_t {prefix}__bind(onnxc_context *, const onnxc_value *);",
        f"ONNXC_HIDDEN int32_t {prefix}__run(onnxc_context *, const onnxc_value *, onnxc_value *);",
        f"extern ONNXC_HIDDEN const char *const {prefix}__weights_base;\n" if in_library else "",
        _ports("input", d.inputs),
        _ports("output", d.outputs),
        _array(
            "static const onnxc_metadata metadata[]",
            [f"{{{c_string(key)}, {c_string(value)}}}" for key, value in d.metadata.items()] or ["{0}"],
        ),
        _array("static const char *const features[]", map(c_string, d.features)),
        _array("static const char *const node_names[]", map(c_string, d.node_names)),
        _array("static onnxc_operator *const operators[]", d.operators),
        _array(
            "static const onnxc_lifetime lifetimes[]",
            [f"{{{first}, {last}}}" for first, last in d.lifetimes] or ["{0}"],
        ),
        f"static const char description[] =\n    {c_string(d.as_json())};\n",
        f"""static const onnxc_model model = {{
    .struct_size = sizeof(onnxc_model),
    .abi_major = ONNXC_ABI_MAJOR,
    .abi_minor = ONNXC_ABI_MINOR,
    .name = {c_string(d.name)},
    .version = {c_string(d.version)},
    .description = description,
    .input_count = {len(d.inputs)},
    .output_count = {len(d.outputs)},
    .inputs = inputs,
    .outputs = outputs,
    .metadata = metadata,
    .metadata_count = {len(d.metadata)},
    .feature_count = {len(d.features)},
    .features = features,
    .weights_bytes = {d.weights_bytes}ULL,
    .workspace_bytes = {d.workspace_bytes}LL,
    ONNXC_MODEL_FUNCTIONS,
}};
""",
        f"""static const onnxc_library onnxc_tables = {{
    .model = &model,
    .bind = {prefix}__bind,
    .run = {prefix}__run,
    .operators = operators,
    .operator_count = {len(d.operators)},
    .node_count = {len(d.node_names)},
    .node_names = node_names,
    .dim_count = {d.dim_count},
    .value_count = {d.value_count},
    .slot_count = {d.slot_count},
    .buffer_count = {0 if d.static else len(d.lifetimes)},
    .lifetimes = lifetimes,
    .arena_bytes = {d.arena_bytes if d.static else 0}LL,
    .scratch_bytes = {d.scratch_bytes}LL,
    .threads = {d.threads},
    .weights = {f"&{prefix}__weights_base" if in_library else "NULL"},
    .weights_file = {_path_text(d)},
    .weights_bytes = {d.weights_bytes}ULL,
    .weights_digest = {{{", ".join(str(byte) for byte in d.weights_digest)}}},
    .string_table = {d.string_table}LL,
    .string_count = {d.string_count}LL,
}};
""",
        f"""__attribute__((visibility("default"))) const onnxc_model *{prefix}_model(void);
const onnxc_model *{prefix}_model(void) {{
    return &model;
}}

#ifdef ONNXC_SHARED /* the name that loaders look up; a type has it in C, hence the label */
#define LABEL_(prefix, name) #prefix name
#define LABEL(prefix, name) LABEL_(prefix, name)
__attribute__((visibility("default"))) const onnxc_model *entry_point(void)
    __asm__(LABEL(__USER_LABEL_PREFIX__, ONNXC_ENTRY_POINT));
const onnxc_model *entry_point(void) {{
    return &model;
}}
#endif
""",
    ]
    return "\n".join(part for part in parts if part)


def weights_assembly(prefix: str, file_name: str) -> str:
    """Assembler text that makes the bytes of a file the library's weights.

    Their address is a word of data, not a symbol in code: relocations of code reach 2 GB only."""
    return f"""    .section .onnxc_weights,"a",@progbits
    .balign 4096
    .globl {prefix}__weights
    .hidden {prefix}__weights
{prefix}__weights:
    .incbin "{file_name}"
    .balign 64
    .section .data.rel.ro.{prefix}__weights_base,"aw",@progbits
    .balign 8
    .globl {prefix}__weights_base
    .hidden {prefix}__weights_base
{prefix}__weights_base:
    .quad {prefix}__weights
    .section .note.GNU-stack,"",@progbits
"""


# The header ---------------------------------------------------------------------------------------

_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "string": "onnxc_string",
    "bool": "uint8_t",
    **{
        name: f"{name}_t"
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}
#: What a parameter cannot be called: keywords of C and C++, macros of their headers in small letters, and
#: what has a meaning in the header already.
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class co_await co_return
    co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete
    do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct
    switch template this thread_local throw true try typedef typeid typename typeof typeof_unqual union
    unsigned using virtual void volatile while xor xor_eq
    complex errno i386 imaginary linux noreturn stderr stdin stdout unix
    context weights workspace
""",
    )
)


def c_type(dtype: str) -> str:
    """The C type of an element; types that C lacks are unsigned integers of their size."""
    if dtype in _C_TYPES:
        return _C_TYPES[dtype]
    if dtype in ("float16", "bfloat16"):
        return "uint16_t"
    return {"complex64": "float", "complex128": "double"}.get(dtype, "uint8_t")


def _identifiers(ports: Iterable[Port], prefix: str) -> list[str]:
    """One C identifier for each port, made from its name and unique. One in capitals, as macros are, is
    written in small letters."""
    used: set[str] = set()
    made = []
    for port in ports:
        base = re.sub(r"[^A-Za-z0-9]+", "_", port.name).strip("_")[:40].strip("_") or "value"
        base = f"p{base}" if base[0].isdigit() else base
        base = base.lower() if base.isupper() else base
        if base.lower() in _RESERVED or re.match(rf"onnxc_|{prefix}_|.*_t$", base):
            base += "_"
        name, k = base, 2
        while name.upper() in used:  # macros are in upper case
            name, k = f"{base}_{k}", k + 1
        used.add(name.upper())
        made.append(name)
    return made


def _comment(text: str) -> str:
    """Text from the model that cannot end a comment nor continue a line."""
    shown = text if len(text) <= 80 else f"{text[:40]}...{text[-37:]}"
    return json.dumps(shown).replace("*/", "*|").replace("/*", "|*").replace("\\", "/")


def _port_line(port: Port, role: str) -> str:
    shape = "any rank" if port.shape is None else str([d if d is not None else "?" for d in port.shape])
    kind = "" if port.kind == "tensor" else f"{port.kind} of "
    return f" *   {role} {_comment(port.name)}: {kind}{port.dtype or 'any type'} {_comment(shape)}\n"


def _sizes(port: Port, macro: str) -> str:
    elements = 1
    for dim in port.shape or ():
        elements *= dim
    element = {"complex64": 8, "complex128": 16}.get(port.dtype or "")
    size = str(element) if element else f"sizeof({c_type(port.dtype or '')})"
    return f"#define {macro}_ELEMENTS {elements}LL\n#define {macro}_BYTES ({elements}ULL * {size})\n"


def _wrapper(d: LibraryDescription, names: list[str]) -> str:
    """`<prefix>_run(context, const T *input..., T *output...)`, for static models. What is local begins with
    `_`, as no parameter does."""
    ports = [*d.inputs, *d.outputs]
    parameters, dims, rows = ["onnxc_context *context"], "", []
    for k, (port, name) in enumerate(zip(ports, names)):
        is_input = k < len(d.inputs)
        parameters.append(f"{'const ' if is_input else ''}{c_type(port.dtype or '')} *{name}")
        where = "NULL"
        if is_input and port.shape:
            where = f"_dims_{k}"
            dims += f"    static const int64_t {where}[] = {{{', '.join(map(str, port.shape))}}};\n"
        size = f"{d.prefix}_{name}".upper() + "_BYTES"
        given, capacity = (size, "0") if is_input else ("0", size)
        rows.append(
            f"{{sizeof(onnxc_value), ONNXC_TENSOR, {abi.DTYPES[port.dtype or '']}, "
            f"{len(port.shape or ())}, {where}, (void *){name}, {given}, {capacity}, NULL}}"
        )
    count = len(d.inputs)
    results, arrays = len(rows) - count, ""
    for what, part in (("inputs", rows[:count]), ("outputs", rows[count:])):
        if part:
            joined = ",\n        ".join(part)
            arrays += f"    onnxc_value _{what}[] = {{\n        {joined}}};\n"
        else:
            arrays += f"    onnxc_value *_{what} = NULL;\n"
    signature = ",\n        ".join(parameters)
    return (
        f"/* Runs the model; outputs are written to the memory given, or dropped where it is null.\n"
        f" * Returns a status. */\n"
        f"static inline int {d.prefix}_run(\n        {signature}) {{\n{dims}{arrays}"
        f"    int _status = {d.prefix}_model()->run(context, _inputs, {count}, _outputs, {results});\n"
        f"    for (int _k = 0; _k < {results}; _k++) {d.prefix}_model()->release(&_outputs[_k]);\n"
        f"    return _status;\n}}\n"
    )


def model_header(description: LibraryDescription) -> str:
    """The text of model.h, which needs no other file."""
    d = description
    names = _identifiers([*d.inputs, *d.outputs], d.prefix)
    macro = d.prefix.upper()
    ports = "".join(_port_line(port, "input ") for port in d.inputs)
    ports += "".join(_port_line(port, "output") for port in d.outputs)
    constants = f"#define {macro}_WEIGHTS_BYTES {d.weights_bytes}ULL\n"
    if d.weights_file:
        constants += (
            f"#define {macro}_WEIGHTS_FILE {_path_text(d)} /* from the folder of the library or "
            "program; options may say otherwise */\n"
        )
    if d.static:
        constants += f"#define {macro}_WORKSPACE_BYTES {d.workspace_bytes}ULL /* with one thread */\n"
    sizes = "".join(
        _sizes(port, f"{d.prefix}_{name}".upper())
        for port, name in zip([*d.inputs, *d.outputs], names)
        if port.static
    )
    wrapped = all(port.static and port.dtype != "string" for port in (*d.inputs, *d.outputs))
    return f"""/* Model {_comment(d.name)}, compiled by onnxc {_comment(d.version)}.
{ports} */
{(RUNTIME / "onnxc.h").read_text(encoding="utf-8")}
#ifndef ONNXC_MODEL_{d.prefix}_H
#define ONNXC_MODEL_{d.prefix}_H

#ifdef __cplusplus
extern "C" {{
#endif

const onnxc_model *{d.prefix}_model(void);

#define {macro}_INPUTS {len(d.inputs)}
#define {macro}_OUTPUTS {len(d.outputs)}
{constants}{sizes}
{_wrapper(d, names) if wrapped else ""}
#ifdef __cplusplus
}}
#endif
#endif
"""
