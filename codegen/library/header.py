"""Prints a library's header: all that a C program needs.

It holds the common interface, sizes as macros and, for models whose inputs and outputs are all tensors of
numbers, a typed inline wrapper. Names come from the model and may be hostile: they enter C only as escaped
literals or made identifiers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping

from ...ir import dims, dtypes
from .interface import LibraryDescription, Port
from .runtime import HEADERS

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


def c_type(dtype: str) -> str:
    """The C type of an element; types that C lacks are unsigned integers of their size."""
    if dtype in _C_TYPES:
        return _C_TYPES[dtype]
    if dtype in ("float16", "bfloat16"):
        return "uint16_t"
    return {"complex64": "float", "complex128": "double"}.get(dtype, "uint8_t")


def _identifiers(names: Iterable[str], prefix: str) -> list[str]:
    """One C identifier for each name, made from it and unique. One in capitals, as macros are, is written in
    small letters."""
    used: set[str] = set()
    made = []
    for name in names:
        base = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:40].strip("_") or "value"
        base = f"p{base}" if base[0].isdigit() else base
        base = base.lower() if base.isupper() else base
        if base.lower() in _RESERVED or re.match(rf"onnxc_|{prefix}_|.*_t$", base):
            base += "_"
        identifier, k = base, 2
        while identifier.upper() in used:  # macros are in upper case
            identifier, k = f"{base}_{k}", k + 1
        used.add(identifier.upper())
        made.append(identifier)
    return made


def _comment(text: str) -> str:
    """Text from the model that cannot end a comment nor continue a line."""
    shown = text if len(text) <= 80 else f"{text[:40]}...{text[-37:]}"
    return json.dumps(shown).replace("*/", "*|").replace("/*", "|*").replace("\\", "/")


def _port_line(port: Port, role: str) -> str:
    shape = "any rank" if port.shape is None else str([d if d is not None else "?" for d in port.shape])
    kind = "" if port.kind == "tensor" else f"{port.kind} of "
    if port.key is not None:
        kind = "map" if port.kind == "map" else f"{port.kind} of maps"
        kind += f" from {port.key} to "
    state = "" if port.state is None else f", a state: output {port.state} is its next value"
    return f" *   {role} {_comment(port.name)}: {kind}{port.dtype or 'any type'} {_comment(shape)}{state}\n"


def _sizes(port: Port, macro: str) -> str:
    elements = dims.product(dim for dim in port.shape or () if isinstance(dim, int))
    size = _element_size(port)
    return f"#define {macro}_ELEMENTS {elements}LL\n#define {macro}_BYTES ({elements}ULL * {size})\n"


def _element_size(port: Port) -> str:
    """The bytes of an element, as a C expression."""
    complex_size = {"complex64": 8, "complex128": 16}.get(port.dtype or "")
    return str(complex_size) if complex_size else f"sizeof({c_type(port.dtype or '')})"


def _has_wrapper(d: LibraryDescription) -> bool:
    return all(
        port.kind == "tensor"
        and port.shape is not None
        and port.dtype not in (None, "string")
        and not port.optional
        for port in (*d.inputs, *d.outputs)
    )


def _open_sizes(d: LibraryDescription) -> dict[object, str]:
    """What the sizes that a run chooses are called: those of inputs that have a name, under that; others by
    (input, axis)."""
    sizes: dict[object, str] = {}
    for k, port in enumerate(d.inputs):
        for axis, size in enumerate(port.shape or ()):
            if isinstance(size, str):
                sizes[size] = size
            elif size is None:
                sizes[k, axis] = f"{port.name}_{axis}"
    return sizes


def _row(port: Port, name: str, dims: str = "ONNXC_NULL", bytes_: str = "0", capacity: str = "0") -> str:
    """The onnxc_value of a port as a C initializer."""
    return (
        f"{{sizeof(onnxc_value), ONNXC_TENSOR, {dtypes.NUMBERS[port.dtype or '']}, {len(port.shape or ())}, "
        f"{dims}, {name}, {bytes_}, {capacity}, ONNXC_NULL}}"
    )


def _input_value(port: Port, k: int, name: str, size: str, size_of: Mapping[object, str]) -> tuple[str, str]:
    """(declaration of its dims, row) of input number k. size: its bytes where they are known."""
    name = f"ONNXC_INPUT({c_type(port.dtype or '')}, {name})"
    if not port.shape:
        return "", _row(port, name, bytes_=size)
    known = (str(n) if isinstance(n, int) else size_of[n or (k, axis)] for axis, n in enumerate(port.shape))
    storage = "static const" if port.static else "const"
    declaration = f"    {storage} int64_t _dims_{k}[] = {{{', '.join(known)}}};\n"
    return declaration, _row(port, name, f"_dims_{k}", size if port.static else "0")


def _output_value(port: Port, k: int, name: str, room: str, shape: str) -> tuple[str, str]:
    """(copy of its shape, row) of output number k, whose size only the run knows."""
    rank = len(port.shape or ())
    copy = (
        f"    for (int _k = 0; _status == ONNXC_OK && {shape} != ONNXC_NULL && _k < {rank}; _k++)\n"
        f"        {shape}[_k] = _outputs[{k}].dims[_k];\n"
    )
    return copy, _row(port, name, capacity=f"{room} * {_element_size(port)}")


def _wrapper(d: LibraryDescription, names: list[str]) -> str:
    """`<prefix>_run(context, sizes..., const T *input..., T *output...)`. Of an output whose size only the
    run knows there are two more parameters: how many elements there is room for, and where its shape goes.
    What is local begins with `_`, as no parameter does."""
    sizes = _open_sizes(d)
    further = [
        f"{port.name}_{what}" for port in d.outputs if not port.static for what in ("capacity", "dims")
    ]
    taken = [port.name for port in (*d.inputs, *d.outputs)]
    others = _identifiers([*taken, *sizes.values(), *further], d.prefix)[len(taken) :]
    size_of, rooms = dict(zip(sizes, others)), iter(others[len(sizes) :])
    parameters = ["onnxc_context *context", *(f"int64_t {name}" for name in size_of.values())]
    declarations, copies, inputs, outputs = "", "", [], []
    for k, (port, name) in enumerate(zip(d.inputs, names)):
        parameters.append(f"const {c_type(port.dtype or '')} *{name}")
        declaration, row = _input_value(port, k, name, f"{d.prefix}_{name}".upper() + "_BYTES", size_of)
        declarations += declaration
        inputs.append(row)
    for k, (port, name) in enumerate(zip(d.outputs, names[len(d.inputs) :])):
        parameters.append(f"{c_type(port.dtype or '')} *{name}")
        if port.static:
            outputs.append(_row(port, name, capacity=f"{d.prefix}_{name}".upper() + "_BYTES"))
            continue
        room, shape = next(rooms), next(rooms)
        parameters += [f"size_t {room}", f"int64_t *{shape}"]
        copy, row = _output_value(port, k, name, room, shape)
        copies += copy
        outputs.append(row)
    for what, rows in (("inputs", inputs), ("outputs", outputs)):
        joined = ",\n        ".join(rows)
        array = f"_{what}[] = {{\n        {joined}}}" if rows else f"*_{what} = ONNXC_NULL"
        declarations += f"    onnxc_value {array};\n"
    signature = ",\n        ".join(parameters)
    return (
        f"{_MACROS}{_WRAPPER_COMMENT}{_OPEN_OUTPUTS if further else ''} Returns a status. */\n"
        f"static inline int {d.prefix}_run(\n        {signature}) {{\n{declarations}"
        f"    int _status = {d.prefix}_model()->run("
        f"context, _inputs, {len(inputs)}, _outputs, {len(outputs)});\n{copies}"
        f"    for (int _k = 0; _k < {len(outputs)}; _k++) {d.prefix}_model()->release(&_outputs[_k]);\n"
        f"    return _status;\n}}\n"
    )


#: Without a warning: what is read as what may be written to, since `onnxc_value` has one pointer for both;
#: and no pointer, for which old C++ has the word of C, which new C++ does not want.
_MACROS = """\
#ifndef ONNXC_INPUT
#ifdef __cplusplus
#define ONNXC_INPUT(type, pointer) const_cast<type *>(pointer)
#else
#define ONNXC_INPUT(type, pointer) ((type *)(uintptr_t)(pointer))
#endif
#endif
#ifndef ONNXC_NULL
#if defined(__cplusplus) && __cplusplus >= 201103L
#define ONNXC_NULL nullptr
#else
#define ONNXC_NULL NULL
#endif
#endif

"""
_WRAPPER_COMMENT = """\
/* Runs the model; outputs are written to the memory given, or dropped where it is null.
 *"""
_OPEN_OUTPUTS = """\
 An output of open size takes at most CAPACITY elements, else the status is ONNXC_BUFFER_TOO_SMALL; its
 * shape is written to DIMS (null: it is not)."""


def model_header(description: LibraryDescription) -> str:
    """The text of model.h, which needs no other file."""
    d = description
    names = _identifiers([port.name for port in (*d.inputs, *d.outputs)], d.prefix)
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
    return f"""/* SPDX-License-Identifier: Apache-2.0 */
/* Model {_comment(d.name)}, compiled by onnxc {_comment(d.version)}.
{ports} */
{(HEADERS / "onnxc.h").read_text(encoding="utf-8")}
#ifndef ONNXC_MODEL_{d.prefix}_H
#define ONNXC_MODEL_{d.prefix}_H

#ifdef __cplusplus
extern "C" {{
#endif

const onnxc_model *{d.prefix}_model(void);

#define {macro}_INPUTS {len(d.inputs)}
#define {macro}_OUTPUTS {len(d.outputs)}
{constants}{sizes}
{_wrapper(d, names) if _has_wrapper(d) else ""}
#ifdef __cplusplus
}}
#endif
#endif
"""
