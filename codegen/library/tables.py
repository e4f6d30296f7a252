"""A library's tables as LLVM IR: the structs of include/onnxc.h and internal.h (of runtime_c/), filled in.

Ports, names, live ranges, the description as JSON, and the functions that lead to them. A C compiler has no
part in it: `STRUCTS` states the fields in order, and a test holds their offsets against those that C gives
them. Names come from the model and may be hostile: they are bytes, escaped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import dropwhile

from ...ir import dtypes
from ...ir.ops import CUSTOM
from ...version import ABI_MAJOR, ABI_MINOR
from .. import abi
from .interface import LibraryDescription, LoweredDescription, Port

_PORT = """struct_size i32, kind i32, dtype i32, rank i32, name ptr, dims ptr, symbols ptr, optional i32,
    state i32"""
_MODEL = """struct_size i32, abi_major i16, abi_minor i16, name ptr, version ptr, description ptr,
    input_count i32, output_count i32, inputs ptr, outputs ptr, metadata ptr, metadata_count i32,
    feature_count i32, features ptr, weights_bytes i64, workspace_bytes i64, create ptr, destroy ptr, run ptr,
    release ptr, workspace_bytes_for ptr, set_workspace ptr, last_error ptr, cancel ptr, pool_create ptr,
    pool_destroy ptr, target ptr, set_profile ptr, read_texts ptr, write_texts ptr"""
_LOWERED = """target ptr, features ptr, bind ptr, run ptr, operators ptr, node_names ptr, lifetimes ptr,
    arena_bytes i64, scratch_bytes i64, feature_count i32, node_count i32, dim_count i32, value_count i32,
    slot_count i32, buffer_count i32, branch_buffer_count i32"""
_LIBRARY = """model ptr, lowered ptr, weights ptr, weights_file ptr, mapping ptr,
    input_types ptr, string_table i64, string_count i64, target_count i32, threads i32, checks_handles i32,
    weights_digest [32 x i8]"""

#: Field → LLVM's type, of each struct.
STRUCTS: dict[str, dict[str, str]] = {
    name: dict(field.strip().split(" ", 1) for field in fields.split(","))
    for name, fields in {
        "onnxc_port": _PORT,
        "onnxc_metadata": "key ptr, value ptr",
        "onnxc_lifetime": "first i32, last i32",
        "onnxc_mapping": "data ptr, users i64",
        "onnxc_model": _MODEL,
        "onnxc_lowered": _LOWERED,
        "onnxc_library": _LIBRARY,
    }.items()
}

#: Functions of the table onnxc_model that the runtime has under the same name: its fields from `destroy` on.
_FUNCTIONS = tuple(dropwhile(lambda name: name != "destroy", STRUCTS["onnxc_model"]))

#: Of these the ones that take a context, with LLVM's types: a library that checks handles has functions of
#: its own before them.
_CHECKED = {
    "destroy": ("i32", "ptr"),
    "run": ("i32", "ptr", "ptr", "i32", "ptr", "i32"),
    "workspace_bytes_for": ("i32", "ptr", "ptr", "i32", "ptr"),
    "set_workspace": ("i32", "ptr", "ptr", "i64"),
    "last_error": ("ptr", "ptr"),
    "cancel": ("void", "ptr"),
    "target": ("ptr", "ptr"),
    "set_profile": ("i32", "ptr", "ptr"),
}


def entry_points(prefix: str, number: int) -> tuple[str, str]:
    """The names of `bind` and `run` for the library's target of that number."""
    return f"{prefix}__bind{number or ''}", f"{prefix}__run{number or ''}"


def tables_text(d: LibraryDescription, runtime: str, shared: bool) -> str:
    """The module of a library's tables. runtime: what the runtime's names begin with. shared: whether loaders
    are to find the model under the name that all libraries have."""
    tables = _Tables()
    model = tables.model(d, runtime)
    lowered = tables.array("%onnxc_lowered", [tables.lowered(d, k, runtime) for k in range(len(d.lowered))])
    in_library = d.weights_bytes > 0 and d.weights_file is None
    if in_library:
        tables.declare(f"@{d.prefix}__weights = external hidden constant i8")
    tables.globals.append("@mapping = internal global %onnxc_mapping zeroinitializer")
    library = _struct(
        "onnxc_library",
        model=model,
        lowered=lowered,
        weights=f"@{d.prefix}__weights" if in_library else "null",
        weights_file=tables.string(d.weights_file and os.fsencode(d.weights_file)),
        mapping="@mapping",
        input_types=tables.array("ptr", [tables.string(_type_of(port)) for port in d.inputs]),
        string_table=d.string_table,
        string_count=d.string_count,
        target_count=len(d.lowered),
        threads=d.threads,
        checks_handles=int(d.checks_handles),
        weights_digest=f'c"{_escaped(d.weights_digest)}"',
    )
    tables.globals.append(f"@library = internal constant {library}")
    tables.declare(f"declare hidden i32 @{runtime}create(ptr, ptr, ptr)")
    functions = [
        *tables.functions.values(),
        "define internal i32 @create(ptr %options, ptr %context) {",
        f"  %status = tail call i32 @{runtime}create(ptr @library, ptr %options, ptr %context)",
        "  ret i32 %status",
        "}",
        *(
            f"define ptr @{name}() {{\n  ret ptr {model}\n}}"
            for name in [f"{d.prefix}_model", *["onnxc_model"] * shared]
        ),
    ]
    types = [f"%{name} = type {{ {', '.join(fields.values())} }}" for name, fields in STRUCTS.items()]
    return "\n".join((*types, *tables.declarations, *tables.globals, *functions, ""))


class _Tables:
    """Constants of the module, each distinct one once."""

    def __init__(self) -> None:
        self.globals: list[str] = []
        self.declarations: dict[str, None] = {}
        self.functions: dict[str, str] = {}
        self._names: dict[str, str] = {}  # by what is defined

    def declare(self, text: str) -> None:
        self.declarations[text] = None

    def constant(self, definition: str) -> str:
        """`@c7`, a constant of this type and value."""
        if definition not in self._names:
            self._names[definition] = f"@c{len(self._names)}"
            self.globals.append(f"{self._names[definition]} = private constant {definition}")
        return self._names[definition]

    def string(self, text: str | bytes | None) -> str:
        """A terminated string; null for None."""
        if text is None:
            return "null"
        data = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
        return self.constant(f'[{len(data) + 1} x i8] c"{_escaped(data)}\\00"')

    def array(self, type_: str, entries: Sequence[object]) -> str:
        """An array of values, or of structs that are written with their type; null for none."""
        if not entries:
            return "null"
        values = (str(e) if str(e).startswith("%") else f"{type_} {e}" for e in entries)
        return self.constant(f"[{len(entries)} x {type_}] [{', '.join(values)}]")

    def strings(self, texts: Iterable[str | None]) -> str:
        return self.array("ptr", [self.string(text) for text in texts])

    def ports(self, ports: Sequence[Port]) -> str:
        return self.array("%onnxc_port", [self.port(port) for port in ports])

    def port(self, port: Port) -> str:
        shape = port.shape or ()
        return _struct(
            "onnxc_port",
            struct_size=_size_of("onnxc_port"),
            kind=abi.KINDS[port.kind],
            dtype=dtypes.NUMBERS[port.dtype] if port.dtype else 0,
            rank=-1 if port.shape is None else len(shape),
            name=self.string(port.name),
            dims=self.array("i64", [d if isinstance(d, int) else -1 for d in shape]),
            symbols=self.strings(d if isinstance(d, str) else None for d in shape),
            optional=int(port.optional),
            state=0 if port.state is None else port.state + 1,
        )

    def model(self, d: LibraryDescription, runtime: str) -> str:
        pairs = [
            _struct("onnxc_metadata", key=self.string(key), value=self.string(value))
            for key, value in d.metadata.items()
        ]
        places = {name: f"@{runtime}{name}" for name in _FUNCTIONS}
        if d.checks_handles:
            self.declare(f"declare hidden i32 @{runtime}check_handle(ptr, ptr)")
            places |= {name: f"@checked_{name}" for name in _CHECKED}
        for name in _FUNCTIONS:
            if d.checks_handles and name in _CHECKED:
                self.functions[f"checked_{name}"] = _checked(name, runtime)
                result, *arguments = _CHECKED[name]
                self.declare(f"declare hidden {result} @{runtime}{name}({', '.join(arguments)})")
            else:
                self.declare(f"declare hidden void @{runtime}{name}()")  # only their addresses are taken
        return self.constant(
            _struct(
                "onnxc_model",
                struct_size=_size_of("onnxc_model"),
                abi_major=ABI_MAJOR,
                abi_minor=ABI_MINOR,
                name=self.string(d.name),
                version=self.string(d.version),
                description=self.string(d.as_json()),
                input_count=len(d.inputs),
                output_count=len(d.outputs),
                inputs=self.ports(d.inputs),
                outputs=self.ports(d.outputs),
                metadata=self.array("%onnxc_metadata", pairs),
                metadata_count=len(pairs),
                feature_count=len(d.features),
                features=self.strings(d.features),
                weights_bytes=d.weights_bytes,
                workspace_bytes=d.workspace_bytes,
                create="@create",
                **places,
            )
        )

    def operator(self, name: str, runtime: str) -> str:
        """The function behind a RuntimeCall: the runtime's, or one that has the runtime call a user's."""
        if not name.startswith(CUSTOM):
            self.declare(f"declare hidden void @{runtime}op_{name}()")
            return f"{runtime}op_{name}"
        self.declare(f"declare hidden i32 @{runtime}custom(ptr, ptr, ptr, i32, ptr, ptr)")
        self.declare(f"declare i32 @{name}(ptr)")
        self.functions[name] = (
            f"define internal i32 @call_{name}(ptr %context, ptr %in, i32 %in_count, ptr %out, "
            "i32 %out_count, ptr %attributes) {\n"
            f"  %status = tail call i32 @{runtime}custom(ptr %context, ptr %in, ptr %out, i32 %out_count, "
            f"ptr %attributes, ptr @{name})\n"
            "  ret i32 %status\n}"
        )
        return f"call_{name}"

    def lowered(self, d: LibraryDescription, number: int, runtime: str) -> str:
        lowered: LoweredDescription = d.lowered[number]
        bind, run = entry_points(d.prefix, number)
        operators = [self.operator(name, runtime) for name in lowered.operators]
        for name in (bind, run):
            self.declare(f"declare hidden void @{name}()")
        ranges = [_struct("onnxc_lifetime", first=first, last=last) for first, last in lowered.lifetimes]
        return _struct(
            "onnxc_lowered",
            target=self.string(lowered.target),
            features=self.strings(lowered.features),
            bind=f"@{bind}",
            run=f"@{run}",
            operators=self.array("ptr", [f"@{name}" for name in operators]),
            node_names=self.strings(lowered.node_names),
            lifetimes=self.array("%onnxc_lifetime", ranges),
            arena_bytes=lowered.arena_bytes if lowered.static else 0,
            scratch_bytes=lowered.scratch_bytes,
            feature_count=len(lowered.features),
            node_count=len(lowered.node_names),
            dim_count=lowered.dim_count,
            value_count=lowered.value_count,
            slot_count=lowered.slot_count,
            buffer_count=0 if lowered.static else len(lowered.lifetimes) - lowered.branch_buffers,
            branch_buffer_count=lowered.branch_buffers,
        )


def _checked(name: str, runtime: str) -> str:
    """The function that looks its context up before it calls the runtime's; of a wrong one it returns the
    status or, where it returns none, does what it does without a context."""
    result, *types = _CHECKED[name]
    parameters = ", ".join(f"{type_} %{k}" for k, type_ in enumerate(types))
    value = "" if result == "void" else "%result = "
    returned = "void" if result == "void" else f"{result} %result"
    function = f"{result} @{runtime}{name}"
    if result == "i32":
        wrong = "  ret i32 %status"
    else:
        back = "void" if result == "void" else f"{result} %none"
        wrong = f"  {value and '%none = '}call {function}(ptr null)\n  ret {back}"
    return (
        f"define internal {result} @checked_{name}({parameters}) {{\n"
        f"  %status = call i32 @{runtime}check_handle(ptr @library, ptr %0)\n"
        "  %fits = icmp eq i32 %status, 0\n"
        "  br i1 %fits, label %right, label %wrong\n"
        f"right:\n  {value}tail call {function}({parameters})\n  ret {returned}\n"
        f"wrong:\n{wrong}\n}}"
    )


def _type_of(port: Port) -> bytes:
    """The port's type as the runtime reads it: a kind, then the types of what is in it, of a tensor the
    element type; 0 where it may be any."""
    kinds = [abi.KINDS[kind] for kind in (port.kind, *port.holds)]
    tensor, key, value = abi.KINDS["tensor"], *(dtypes.NUMBERS[t] if t else 0 for t in (port.key, port.dtype))
    if kinds[-1] == abi.KINDS["map"]:
        return bytes([*kinds, tensor, key, tensor, value])
    return bytes([*kinds, value] if kinds[-1] == tensor else kinds)


def _struct(name: str, /, **values: object) -> str:
    """A struct's type and value; every field is given."""
    fields = STRUCTS[name]
    if values.keys() != fields.keys():
        raise ValueError(f"{name} has other fields: {sorted(values.keys() ^ fields.keys())}")
    return f"%{name} {{ {', '.join(f'{type_} {values[field]}' for field, type_ in fields.items())} }}"


def _size_of(name: str) -> str:
    return f"ptrtoint (ptr getelementptr (%{name}, ptr null, i32 1) to i32)"


#: Bytes as they stand between the quotes of LLVM's c"...".
_PLAIN = [chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in range(256)]


def _escaped(data: bytes) -> str:
    return "".join(map(_PLAIN.__getitem__, data))
