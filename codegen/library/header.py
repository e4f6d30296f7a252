"""Prints a library's header: all that a C program needs.

It holds the common interface, sizes as macros and, for static models, a typed inline wrapper. Names come from
the model and may be hostile: they enter C only as escaped literals or made identifiers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

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
    if port.key is not None:
        kind = "map" if port.kind == "map" else f"{port.kind} of maps"
        kind += f" from {port.key} to "
    state = "" if port.state is None else f", a state: output {port.state} is its next value"
    return f" *   {role} {_comment(port.name)}: {kind}{port.dtype or 'any type'} {_comment(shape)}{state}\n"


def _sizes(port: Port, macro: str) -> str:
    elements = dims.product(dim for dim in port.shape or () if isinstance(dim, int))
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
            f"{{sizeof(onnxc_value), ONNXC_TENSOR, {dtypes.NUMBERS[port.dtype or '']}, "
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
{_wrapper(d, names) if wrapped else ""}
#ifdef __cplusplus
}}
#endif
#endif
"""
