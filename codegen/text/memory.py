"""Vectors in memory, whole or in part: the only loads and stores under a mask.

`load_lanes` and `store_lanes` pass elements in the form that is computed with (bool: i1), under a mask;
`load_first` and `store_first` as they are in memory (bool: a byte), the first `count` of them.
"""

from __future__ import annotations

from ...ir import dtypes
from .emitter import (
    Function,
    Reg,
    is_number,
    like,
    mangled,
    memory_type,
    scalar_type,
    shape_of,
    splat,
    vector_constant,
    vector_type,
)

Count = int | str | None  # how many lanes are there: all (None), a number, or an i64 of the run

# Some processors repeat a move at a twentieth of the usual rate where the target begins 1 to 31 bytes
# behind the source, but for a multiple of 4096. C libraries repeat moves of 2 KiB and more (glibc 2.36 up to
# the size of the second-level cache); what is shorter they move in vectors.
ALIASED = 4096
STALLED = 31
MOVED_WHOLE = 1024


def first_lanes(f: Function, count: str | int, lanes: int) -> Reg:
    """The mask of the lanes below count, which may be below 0. A number gives a constant; another needs
    Target.masked to be fast."""
    if is_number(count):
        return vector_constant("i1", ["true" if k < int(count) else "false" for k in range(lanes)])
    limit = f.broadcast("i32", f.cast("trunc", f.minimum(count, lanes), "i32", "i64"), lanes)
    return f.compare("slt", vector_constant("i32", range(lanes)), limit)


# In the form that is computed with ---------------------------------------------------------------


def load_lanes(
    f: Function, dtype: str, pointer: str, lanes: int, mask: str | None = None, align: int = 1
) -> Reg:
    """Consecutive elements; those outside of the mask are zero, their memory untouched. A bool is true where
    its byte is not 0."""
    memory = vector_type(memory_type(dtype), lanes)
    if mask is None:
        loaded = f.load(memory, pointer, align)
    else:
        loaded = load_masked(f, memory, pointer, mask, align)
    return loaded if dtype != "bool" else f.compare("ne", loaded, splat(0, "int8", lanes))


def store_lanes(
    f: Function, dtype: str, value: str, pointer: str, lanes: int, mask: str | None = None, align: int = 1
) -> None:
    """Stores the lanes that the mask names."""
    memory = vector_type(memory_type(dtype), lanes)
    if dtype == "bool":
        value = f.cast("zext", value, memory, vector_type("i1", lanes))
    if mask is None:
        f.store(memory, value, pointer, align)
    else:
        store_masked(f, memory, value, pointer, mask, align)


def from_bits(f: Function, dtype: str, lanes: int, bits: str) -> Reg:
    """A vector of dtype from its bits in memory. Vectors of narrow floats must not live from one basic block
    to another: targets without registers of the type would convert them element by element."""
    source = vector_type(f"i{8 * dtypes.itemsize(dtype)}", lanes)
    if dtype == "bool":
        return f.compare("ne", bits, splat(0, "int8", lanes), source)
    return f.cast("bitcast", bits, vector_type(scalar_type(dtype), lanes), source)


# As it is in memory ------------------------------------------------------------------------------


def load_first(
    f: Function, dtype: str, lanes: int, pointer: str, count: Count, align: int | None = None
) -> Reg:
    """A vector of the first `count` lanes in memory; the others are 0, their memory untouched."""
    memory, align = vector_type(memory_type(dtype), lanes), align or dtypes.itemsize(dtype)
    mask = _mask(f, lanes, count)
    if mask is None:
        return f.load(memory, pointer, align)
    return load_masked(f, memory, pointer, mask, align)


def store_first(
    f: Function, dtype: str, lanes: int, value: str, pointer: str, count: Count, align: int | None = None
) -> None:
    """Stores the first `count` lanes; memory behind them is not touched."""
    memory, align = vector_type(memory_type(dtype), lanes), align or dtypes.itemsize(dtype)
    mask = _mask(f, lanes, count)
    if mask is None:
        f.store(memory, value, pointer, align)
    else:
        store_masked(f, memory, value, pointer, mask, align)


def _mask(f: Function, lanes: int, count: Count) -> Reg | None:
    """The mask of the lanes that are there; None where all are."""
    if count is None or (is_number(count) and int(count) >= lanes):
        return None
    return first_lanes(f, count, lanes)


# Under a mask ------------------------------------------------------------------------------------


def _masked_type(type_: str) -> str:
    """What masked loads and stores take: 16-bit floats have none of their own, LLVM would take them apart."""
    return like(type_, "i16") if shape_of(type_)[0] in ("half", "bfloat") else type_


def load_masked(f: Function, type_: str, pointer: str, mask: str, align: int = 1) -> Reg:
    """The lanes that the mask names, the others zero and their memory untouched. For targets with
    Target.masked, or constant masks."""
    bits, masks = _masked_type(type_), like(type_, "i1")
    load = f.text.declare(f"llvm.masked.load.{mangled(bits)}.p0", bits, ["ptr", masks, bits])
    loaded = f.call(bits, load, f"ptr align {align} {pointer}", f"{masks} {mask}", f"{bits} zeroinitializer")
    return f.cast("bitcast", loaded, type_)


def store_masked(f: Function, type_: str, value: str, pointer: str, mask: str, align: int = 1) -> None:
    """Stores the lanes that the mask names."""
    bits, masks = _masked_type(type_), like(type_, "i1")
    value = f.cast("bitcast", value, bits, type_)
    if mask == first_lanes(f, 1, shape_of(type_)[1]):
        # LLVM 22 merges a truncation into a masked store, and one of a single lane then stores the
        # untruncated element.
        f.store(shape_of(bits)[0], f.extract(value, 0), pointer, align)
        return
    store = f.text.declare(f"llvm.masked.store.{mangled(bits)}.p0", "void", [bits, "ptr", masks])
    f.run(store, value, f"ptr align {align} {pointer}", f"{masks} {mask}")


# Elements apart ----------------------------------------------------------------------------------


def gather(
    f: Function, element: str, base: str, index: Reg, mask: str | None = None, unit: str | None = None
) -> Reg:
    """The elements at these indices, one for each lane of `index`, which counts elements, or what `unit` is
    the type of. Those outside of the mask are zero, their memory untouched."""
    (kind, lanes), unit = shape_of(index.type), unit or element
    if lanes == 1:
        place = f.cast("zext", index, "i64", kind)
        return f.load(element, f.value(f"getelementptr {unit}, ptr {base}, i64 {place}", "ptr"), 1)
    pointers, vector, masks = f"<{lanes} x ptr>", vector_type(element, lanes), f"<{lanes} x i1>"
    places = f.value(f"getelementptr {unit}, ptr {base}, {index.typed}", pointers)
    function = f.text.declare(
        f"llvm.masked.gather.{mangled(vector)}.v{lanes}p0", vector, [pointers, masks, vector]
    )
    active = f"{masks} {mask or splat(True, 'bool', lanes)}"
    others = "zeroinitializer" if mask else "poison"
    return f.call(vector, function, f"{pointers} align 1 {places}", active, f"{vector} {others}")


def copy_bytes(f: Function, target: str, source: str, nbytes: str, overlapping: bool = False) -> None:
    """By the C library, in pieces where it would be slow. overlapping: whether the two places may."""
    name = "memmove" if overlapping else "memcpy"
    function = f.text.declare(f"llvm.{name}.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])

    def copied(to: str, begin: str, count: str | int) -> None:
        f.statement(f"call void {function}(ptr {to}, ptr {begin}, i64 {count}, i1 false)")

    if overlapping or not f.target.string_moves or (is_number(nbytes) and int(nbytes) <= MOVED_WHOLE):
        copied(target, source, nbytes)
        return
    places = (f.cast("ptrtoint", pointer, "i64", "ptr") for pointer in (target, source))
    ahead = f.binary("and", f.sub(f.sub(*places), 1), ALIASED - 1, "i64")
    slow = f.compare("ult", ahead, STALLED, "i64")
    with f.when(slow):
        whole = f.round_down(nbytes, MOVED_WHOLE)
        with f.loop(0, whole, MOVED_WHOLE) as loop:
            copied(f.offset(target, loop.index), f.offset(source, loop.index), MOVED_WHOLE)
        copied(f.offset(target, whole), f.offset(source, whole), f.sub(nbytes, whole))
    with f.when(f.invert(slow)):
        copied(target, source, nbytes)


def clear_bytes(f: Function, target: str, nbytes: str, filled: int = 0) -> None:
    """Makes all of them `filled`, an int8 or uint8."""
    function = f.text.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    f.statement(f"call void {function}(ptr {target}, i8 {filled}, i64 {nbytes}, i1 false)")
