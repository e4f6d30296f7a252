"""The panel operand of a register tile: where it lies, and how numbers are made of what is stored.

stored              a step of k takes
as numbers          [vectors][lanes]; narrower ones are widened as they are loaded
uint4, int4         [vectors / 2][lanes] bytes: the low half of each belongs to a vector, the high half to
                    the next
for dot products    [vectors][lanes][group]: `group` neighbours along k make one lane (`Tile.dot`)
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dtypes
from ...records import dataclass
from ..text.conversion import cast, to_computed
from ..text.emitter import Function, memory_type, vector_type
from ..text.memory import Count, load_first
from ..text.vectors import Vectors

NIBBLES = ("uint4", "int4")


@dataclass(frozen=True)
class Decode:
    """number = (element - zero) * scale, the elements stored as `dtype`, two of 4 bits in a byte. `scales`: a
    vector for each of the tile's, of the type of its sums; none is 1."""

    dtype: str
    zero: int = 0
    scales: tuple[str, ...] = ()

    def step(self, vectors: int, lanes: int) -> int:
        """Bytes of the panel that one step of k takes."""
        if self.dtype in NIBBLES:
            return -(-vectors // 2) * lanes
        return vectors * lanes * dtypes.itemsize(self.dtype)


@dataclass(frozen=True)
class Panel:
    """`step` bytes from one step of k to the next; None: the panel is packed, and begins at a multiple of 64
    bytes. `columns`: how many are in memory, where it is not. `prefetch`: bytes ahead of its lines to fetch,
    such as the next panel. `decode`: how it is stored, None being as the tile's `rhs`."""

    pointer: str
    step: int | str | None = None
    columns: Count = None
    prefetch: int | str | None = None
    decode: Decode | None = None


def decoded(
    f: Function,
    decode: Decode,
    accumulate: str,
    lanes: int,
    at: str,
    counts: Sequence[Count],
    align: int | None,
) -> list[str]:
    """The vectors of one step of k as numbers of the type `accumulate`; of each as many as `counts` says are
    in memory."""
    found, wide = [], Vectors(f, accumulate, lanes)
    for j, stored in enumerate(_stored(f, decode, lanes, at, counts, align)):
        number = widened(f, stored, decode.dtype, accumulate, lanes)
        if decode.zero:
            number = wide.sub(number, wide.constant(decode.zero))
        found.append(wide.mul(number, decode.scales[j]) if decode.scales else number)
    return found


def _stored(
    f: Function, decode: Decode, lanes: int, at: str, counts: Sequence[Count], align: int | None
) -> Sequence[str]:
    """The elements as they are, those of 4 bits in bytes."""
    if decode.dtype not in NIBBLES:
        size = lanes * dtypes.itemsize(decode.dtype)
        return [
            load_first(f, decode.dtype, lanes, f.offset(at, j * size), count, align)
            if count != 0
            else "zeroinitializer"
            for j, count in enumerate(counts)
        ]
    found: list[str] = []
    v = Vectors(f, "int8" if decode.dtype == "int4" else "uint8", lanes)
    for pair in range(-(-len(counts) // 2)):
        both = f.load(v.type, f.offset(at, pair * lanes), min(64, lanes))
        found += [v.shift_right(v.shift_left(both, 4), 4), v.shift_right(both, 4)]
    return found[: len(counts)]


def load_group(f: Function, dtype: str, group: int, lanes: int, pointer: str, count: Count = None) -> str:
    """`group` neighbours in memory in every lane: <lanes * group x dtype>. Where only the first `count` of
    them are there, a number or an i64 of the run above 0, the others are zero and not read."""
    size, word = dtypes.itemsize(dtype), f"i{8 * group * dtypes.itemsize(dtype)}"
    element, whole = memory_type(dtype), vector_type(word, lanes)
    value: str
    if count is None:
        value = f.load(word, pointer, size)
    else:
        bits, value = f"i{8 * size}", "0"
        for k in range(group):
            if str(count).isdigit() and k >= int(count):
                break
            place = f.minimum(k, f.sub(count, 1))  # an element that is there
            one = f.cast("zext", f.load(bits, f.element(pointer, place, size), size), word)
            if not str(count).isdigit() and k:
                one = f.select(f.compare("slt", k, count), word, one, "0")
            value = f.binary("or", value, f.binary("shl", one, 8 * size * k, word), word)
    return f.cast("bitcast", f.broadcast(word, value, lanes), vector_type(element, lanes * group), whole)


def load_widened(f: Function, dtype: str, wide: str, lanes: int, pointer: str, align: int = 1) -> str:
    """`lanes` elements of dtype in memory as a vector of the type `wide`."""
    loaded = f.load(vector_type(memory_type(dtype), lanes), pointer, align)
    return widened(f, loaded, dtype, wide, lanes)


def widened(f: Function, value: str, dtype: str, wide: str, lanes: int) -> str:
    """value, a vector of dtype, as the type `wide`."""
    if dtype == wide:
        return value
    v = Vectors(f, dtype, lanes)
    return cast(v, wide, to_computed(v, value))


def prefetch_line(f: Function, pointer: str) -> None:
    """Asks for the cache line of an address, into the second level. It never faults."""
    function = f.text.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    f.statement(f"call void {function}(ptr {pointer}, i32 0, i32 2, i32 1)")
