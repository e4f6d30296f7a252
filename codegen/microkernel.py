"""The register tile: the one emitter of multiply-adds behind GEMM, convolution, attention and recurrence.

    A (rows, broadcast)         B (packed panel [k][vectors * lanes])
    row 0    a0 ──┐            b0        b1
    row 1    a1 ──┼──▶  acc00 += a0*b0  acc01 += a0*b1
    ...           │     acc10 += a1*b0  acc11 += a1*b1      rows x vectors accumulators stay in registers
Nothing here knows an instruction set: widths, register counts and fused multiply-add come from the Target.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import dtypes
from ..target import Target
from .emitter import Function, literal, mangled, memory_type, scalar_type, splat, vector_type

UNROLL = 4  # steps of k in one iteration; more gains nothing and costs compile time


@dataclass(frozen=True)
class Tile:
    """A block of `rows` x (`vectors` * `lanes`) accumulators. `lhs` and `rhs` are the element types in memory of the
    broadcast and of the panel operand; both are widened to `accumulate` when they are loaded."""

    rows: int
    vectors: int
    lanes: int
    lhs: str = "float32"
    rhs: str = "float32"
    accumulate: str = "float32"

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def vector(self) -> str:
        """LLVM's type of one accumulator."""
        return vector_type(scalar_type(self.accumulate), self.lanes)

    @property
    def panel_step(self) -> int:
        """Bytes of the panel that one step of k consumes."""
        return self.columns * dtypes.itemsize(self.rhs)

    def zeros(self) -> list[str]:
        return ["zeroinitializer"] * (self.rows * self.vectors)


@dataclass(frozen=True)
class Rows:
    """Where the broadcast operand is: element k of row r lies at

        pointers[p] + scale * stride + displacement + k * step      with (p, stride, scale, displacement) = places[r]

    Few pointers with constant displacements, or with one run-time stride scaled by 1, 2, 4 or 8, leave the general registers
    free, which many separate row pointers would exhaust."""

    pointers: tuple[str, ...]
    places: tuple[tuple[int, str | None, int, int], ...]
    step: int

    def __len__(self) -> int:
        return len(self.places)


def fixed_rows(base: str, displacements: Sequence[int], step: int) -> Rows:
    """Rows at constant distances in bytes from base: a matrix of static width, pixels of an image."""
    return Rows((base,), tuple((0, None, 1, d) for d in displacements), step)


def separate_rows(pointers: Sequence[str], step: int) -> Rows:
    """Rows that have nothing to do with each other; for few of them."""
    return Rows(tuple(pointers), tuple((r, None, 1, 0) for r in range(len(pointers))), step)


def strided_rows(f: Function, base: str, stride: int | str, count: int, step: int) -> Rows:
    """`count` rows, `stride` bytes apart; the stride may be known only to the run."""
    if isinstance(stride, int) or stride.lstrip("-").isdigit():
        return fixed_rows(base, [r * int(stride) for r in range(count)], step)
    triple = f.mul(stride, 3) if count > 3 else None
    reach = {0: (None, 1), 1: (stride, 1), 2: (stride, 2), 4: (stride, 4), 8: (stride, 8)}
    if triple is not None:
        reach |= {3: (triple, 1), 6: (triple, 2), 12: (triple, 4)}
    places: list[tuple[int, str | None, int, int] | None] = [None] * count
    pointers: list[str] = []
    while None in places:  # a new pointer at the first row that no pointer reaches by a scaled index
        start = places.index(None)
        pointers.append(f.offset(base, f.mul(stride, start)))
        for distance, (register, scale) in reach.items():
            if start + distance < count and places[start + distance] is None:
                places[start + distance] = (len(pointers) - 1, register, scale, 0)
    return Rows(tuple(pointers), tuple(p for p in places if p is not None), step)


# Choosing tiles ----------------------------------------------------------------------------------


def supported(lhs: str, rhs: str, accumulate: str) -> bool:
    """Whether a tile can widen both element types to the accumulator's."""
    def widens(dtype: str) -> bool:
        if dtype == accumulate:
            return True
        if dtype in dtypes.FLOATS:
            return accumulate in ("float32", "float64") and dtypes.itemsize(dtype) < dtypes.itemsize(accumulate)
        return (
            dtypes.is_integer(dtype) and dtypes.is_integer(accumulate)
            and dtypes.itemsize(dtype) < dtypes.itemsize(accumulate)
        )

    whole = dtypes.is_integer(accumulate) and dtypes.bits(accumulate) >= 8
    return (accumulate in ("float32", "float64") or whole) and widens(lhs) and widens(rhs)


def lanes_of(target: Target, accumulate: str) -> int:
    return target.lanes(accumulate)


def most_rows(target: Target, vectors: int) -> int:
    """The greatest tile height that leaves registers for the panel's vectors, one broadcast and, without a fused
    multiply-add, one product: 14 x 2, 9 x 3, 6 x 4 of 32 registers; 6 x 2, 4 x 3 of 16."""
    spare = vectors + (1 if target.fused_multiply_add else 2)
    return max(1, (target.vector_registers - spare) // vectors)


def step_time(target: Target, rows: int, vectors: int, chains: int = 1) -> float:
    """Estimated nanoseconds of one step of k: the multiply-adds, the loads, or the latency of too few accumulators."""
    latency = 8.0 / chains  # four cycles, two multiply-adds each
    multiply_adds = rows * vectors * (1 if target.fused_multiply_add else 2)
    loads = (rows + vectors) * 2 / target.load_ports
    return max(multiply_adds, loads, latency) / target.fma_per_ns


def equal_heights(rows: int, most: int) -> list[int]:
    """rows cut into as few tiles as possible of nearly equal height: 49 by 14 → 13, 12, 12, 12."""
    if rows <= 0:
        return []
    count = -(-rows // most)
    low, larger = divmod(rows, count)
    return [low + 1] * larger + [low] * (count - larger)


# The loop ----------------------------------------------------------------------------------------


def multiply_add(f: Function, tile: Tile, accumulators: Sequence[str], rows: Rows, panel: str, depth: int | str, *,
                 chains: int = 1, unroll: int = UNROLL, prefetch: int | str | None = None,
                 panel_step: int | str | None = None) -> list[str]:
    """accumulators[r * vectors + j] + sum over k < depth of A[r, k] * B[k, j]: the values after the loop.

    `panel` is [depth][vectors][lanes], steps of k `panel_step` bytes apart (default: contiguous). `depth` is a number
    or an i64. More `chains` split the sum into that many independent ones, k modulo `chains`, added pairwise at the end: for
    tiles too small to hide the latency of an addition. `prefetch`: bytes ahead of the panel's lines to fetch, such as
    the next panel. Loops around it (over the taps of a convolution, blocks of channels) carry the accumulators.
    """
    if len(accumulators) != tile.rows * tile.vectors or len(rows) != tile.rows:
        raise ValueError(f"{len(accumulators)} accumulators and {len(rows)} rows for a {tile.rows} x {tile.vectors} tile")
    panel_step = tile.panel_step if panel_step is None else panel_step
    unroll = max(unroll, chains)
    state = [*accumulators, *["zeroinitializer"] * (len(accumulators) * (chains - 1))]
    pointers = [*rows.pointers, panel]

    def steps(values: Sequence[str], count: int) -> list[str]:
        """`count` steps of k from the pointers and accumulators in values."""
        at, current = values[: len(pointers)], list(values[len(pointers) :])
        for k in range(count):
            part = k % chains * len(accumulators)
            current[part : part + len(accumulators)] = _step(
                f, tile, current[part : part + len(accumulators)], rows, at, k, panel_step, prefetch
            )
        advanced = [f.offset(p, count * rows.step) for p in at[:-1]]
        return [*advanced, f.offset(at[-1], f.mul(panel_step, count)), *current]

    static = isinstance(depth, int) or depth.isdigit()
    values = [*pointers, *state]
    if static and int(depth) <= unroll:
        values = steps(values, int(depth)) if int(depth) else values
    else:
        whole = int(depth) // unroll * unroll if static else f.value(f"and i64 {depth}, {-unroll}")
        if unroll & (unroll - 1):
            raise ValueError(f"{unroll} steps are not a power of two")
        kinds = ["ptr"] * len(pointers) + [tile.vector] * len(state)
        with f.loop(0, whole, unroll, list(zip(kinds, values, strict=True))) as loop:
            loop.carry(*steps(loop.carried, unroll))
        values = loop.results
        if not static:
            with f.loop(whole, depth, 1, list(zip(kinds, values, strict=True))) as loop:
                loop.carry(*steps(loop.carried, 1))
            values = loop.results
        elif int(depth) % unroll:
            values = steps(values, int(depth) % unroll)
    return _combine(f, tile, values[len(pointers) :], chains)


def _step(f: Function, tile: Tile, accumulators: list[str], rows: Rows, at: Sequence[str], k: int,
          panel_step: int | str, prefetch: int | str | None) -> list[str]:
    panel = f.offset(at[-1], f.mul(panel_step, k))
    size = tile.lanes * dtypes.itemsize(tile.rhs)
    columns = []
    for j in range(tile.vectors):
        address = f.offset(panel, j * size)
        columns.append(load_widened(f, tile.rhs, tile.accumulate, tile.lanes, address, align=_alignment(tile, panel_step)))
    if prefetch is not None:
        for byte in range(0, tile.panel_step, 64):
            prefetch_line(f, f.offset(f.offset(panel, byte), prefetch))
    result = []
    for r, (pointer, stride, scale, displacement) in enumerate(rows.places):
        address = at[pointer]
        if stride is not None:
            address = f.value(f"getelementptr [{scale} x i8], ptr {address}, i64 {stride}")
        address = f.offset(address, displacement + k * rows.step)
        element = load_widened(f, tile.lhs, tile.accumulate, 1, address, align=dtypes.itemsize(tile.lhs))
        a = f.broadcast(scalar_type(tile.accumulate), element, tile.lanes)
        for j in range(tile.vectors):
            result.append(fused(f, tile.accumulate, tile.lanes, a, columns[j], accumulators[r * tile.vectors + j]))
    return result


def _alignment(tile: Tile, panel_step: int | str) -> int:
    """Packed panels begin at multiples of 64 bytes; others are aligned as their elements are."""
    size = tile.lanes * dtypes.itemsize(tile.rhs)
    return min(64, size) if panel_step == tile.panel_step and size & (size - 1) == 0 else dtypes.itemsize(tile.rhs)


def _combine(f: Function, tile: Tile, values: Sequence[str], chains: int) -> list[str]:
    """The chains added pairwise, so that the order is fixed."""
    width = tile.rows * tile.vectors
    parts = [list(values[c * width : (c + 1) * width]) for c in range(chains)]
    while len(parts) > 1:
        joined = [
            [plus(f, tile.accumulate, tile.lanes, x, y) for x, y in zip(a, b, strict=True)]
            for a, b in zip(parts[::2], parts[1::2], strict=False)
        ]
        parts = joined + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]


# Arithmetic on vectors ---------------------------------------------------------------------------


def fused(f: Function, dtype: str, lanes: int, a: str, b: str, c: str) -> str:
    """a * b + c, rounded once where the target has a fused multiply-add."""
    vector = vector_type(scalar_type(dtype), lanes)
    if not dtypes.is_float(dtype):
        return f.value(f"add {vector} {f.value(f'mul {vector} {a}, {b}')}, {c}")
    if f.target.fused_multiply_add:
        return f.intrinsic("fma", vector, a, b, c)
    return f.value(f"fadd {vector} {f.value(f'fmul {vector} {a}, {b}')}, {c}")


def plus(f: Function, dtype: str, lanes: int, a: str, b: str) -> str:
    operation = "fadd" if dtypes.is_float(dtype) else "add"
    return f.value(f"{operation} {vector_type(scalar_type(dtype), lanes)} {a}, {b}")


def load_widened(f: Function, dtype: str, wide: str, lanes: int, pointer: str, align: int = 1) -> str:
    """`lanes` elements of dtype in memory as a vector of the type `wide`."""
    return widened(f, f.load(vector_type(memory_type(dtype), lanes), pointer, align), dtype, wide, lanes)


def widened(f: Function, value: str, dtype: str, wide: str, lanes: int) -> str:
    """value, a vector of dtype, as the type `wide`; see `supported`."""
    if dtype == wide:
        return value
    source, result = vector_type(memory_type(dtype), lanes), vector_type(scalar_type(wide), lanes)
    if dtype == "float16" and not _converts_half(f.target):
        single = _half_bits_to_single(f, value, lanes)
        return single if wide == "float32" else f.value(f"fpext {vector_type('float', lanes)} {single} to {result}")
    operation = "fpext" if dtypes.is_float(dtype) else "sext" if dtypes.is_signed(dtype) else "zext"
    return f.value(f"{operation} {source} {value} to {result}")


def _converts_half(target: Target) -> bool:
    return "f16c" in target.features or target.triple.startswith("aarch64")


def _half_bits_to_single(f: Function, value: str, lanes: int) -> str:
    """float16 to float32 in integer arithmetic: the exponent is rebiased by a multiplication with 2**112, which also
    makes subnormal numbers normal; the greatest exponent stays the greatest."""
    short, word, single = (vector_type(e, lanes) for e in ("i16", "i32", "float"))
    half = vector_type("half", lanes)

    def constant(number: int) -> str:
        return splat(number, "int32", lanes)

    bits = f.value(f"zext {short} {f.value(f'bitcast {half} {value} to {short}')} to {word}")
    magnitude = f.value(f"shl {word} {f.value(f'and {word} {bits}, {constant(0x7FFF)}')}, {constant(13)}")
    sign = f.value(f"shl {word} {f.value(f'and {word} {bits}, {constant(0x8000)}')}, {constant(16)}")
    scaled = f.value(f"fmul {single} {f.value(f'bitcast {word} {magnitude} to {single}')}, {splat(2.0**112, 'float32', lanes)}")
    special = f.value(f"icmp uge {word} {magnitude}, {constant(0x7C00 << 13)}")
    greatest = f.value(
        f"select {vector_type('i1', lanes)} {special}, {word} {constant(0x7F800000)}, {word} {constant(0)}"
    )
    joined = f.value(f"or {word} {f.value(f'bitcast {single} {scaled} to {word}')}, {greatest}")
    return f.value(f"bitcast {word} {f.value(f'or {word} {joined}, {sign}')} to {single}")


def prefetch_line(f: Function, pointer: str) -> None:
    """Asks for the cache line of an address, into the second level. It never faults."""
    function = f.text.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    f.statement(f"call void {function}(ptr {pointer}, i32 0, i32 2, i32 1)")


# Vectors in memory, whole or in part -------------------------------------------------------------

Count = int | str | None  # how many lanes are there: all of them (None), a number, or an i64 of the run


def lane_mask(f: Function, dtype: str, lanes: int, count: int | str) -> str:
    """The lanes below count, as LLVM's <lanes x i1>."""
    if isinstance(count, int) or count.lstrip("-").isdigit():
        return "<" + ", ".join(f"i1 {int(lane < int(count))}" for lane in range(lanes)) + ">"
    word = "i64" if dtypes.itemsize(dtype) == 8 else "i32"
    limit = f.minimum(f.maximum(count, 0), lanes)
    if word == "i32":
        limit = f.value(f"trunc i64 {limit} to i32")
    numbers = "<" + ", ".join(f"{word} {lane}" for lane in range(lanes)) + ">"
    return f.value(f"icmp ult {vector_type(word, lanes)} {numbers}, {f.broadcast(word, limit, lanes)}")


def _whole(lanes: int, count: Count) -> bool:
    return count is None or (not isinstance(count, str) and count >= lanes) or (
        isinstance(count, str) and count.isdigit() and int(count) >= lanes)


def load_lanes(f: Function, dtype: str, lanes: int, pointer: str, count: Count = None, align: int | None = None) -> str:
    """A vector whose first `count` lanes are in memory; the others are zero and their memory is not touched."""
    element, align = memory_type(dtype), align or dtypes.itemsize(dtype)
    vector = vector_type(element, lanes)
    if _whole(lanes, count):
        return f.load(vector, pointer, align)
    mask = f"<{lanes} x i1>"
    name = f.text.declare(f"llvm.masked.load.{mangled(vector)}.p0", vector, ["ptr", mask, vector])
    return f.call(vector, name, f"ptr align {align} {pointer}", f"{mask} {lane_mask(f, dtype, lanes, count)}",
                  f"{vector} zeroinitializer")


def store_lanes(f: Function, dtype: str, lanes: int, value: str, pointer: str, count: Count = None,
                align: int | None = None) -> None:
    """Stores the first `count` lanes; memory behind them is not touched."""
    element, align = memory_type(dtype), align or dtypes.itemsize(dtype)
    vector = vector_type(element, lanes)
    if _whole(lanes, count):
        f.store(vector, value, pointer, align)
        return
    mask = f"<{lanes} x i1>"
    name = f.text.declare(f"llvm.masked.store.{mangled(vector)}.p0", "void", [vector, "ptr", mask])
    f.statement(f"call void {name}({vector} {value}, ptr align {align} {pointer}, "
                f"{mask} {lane_mask(f, dtype, lanes, count)})")


def lanes_left(f: Function, tile: Tile, columns: Count, vector: int) -> Count:
    """How many of a tile's valid columns fall into its vector number `vector`."""
    if columns is None:
        return None
    if isinstance(columns, int) or columns.isdigit():
        return max(0, min(tile.lanes, int(columns) - vector * tile.lanes))
    return f.sub(columns, vector * tile.lanes)


Address = Callable[[int, int], str]  # (row, vector) → the address of that vector of the tile


def store_tile(f: Function, tile: Tile, values: Sequence[str], address: Address, columns: Count = None) -> None:
    """Stores the accumulators as they are; only the first `columns` columns."""
    for r in range(tile.rows):
        for j in range(tile.vectors):
            count = lanes_left(f, tile, columns, j)
            if count != 0:
                store_lanes(f, tile.accumulate, tile.lanes, values[r * tile.vectors + j], address(r, j), count)


def load_tile(f: Function, tile: Tile, address: Address, columns: Count = None) -> list[str]:
    """The tile as it is in memory, to be added to; columns beyond `columns` are zero."""
    values = []
    for r in range(tile.rows):
        for j in range(tile.vectors):
            count = lanes_left(f, tile, columns, j)
            empty = count == 0
            values.append("zeroinitializer" if empty else load_lanes(f, tile.accumulate, tile.lanes, address(r, j), count))
    return values


def row_of_vectors(f: Function, tile: Tile, pointer: str, dtype: str | None = None, columns: Count = None) -> list[str]:
    """One row of the tile's width from memory (a bias), widened; repeat it for all rows with `[...] * tile.rows`."""
    dtype = dtype or tile.accumulate
    values = []
    for j in range(tile.vectors):
        count = lanes_left(f, tile, columns, j)
        if count == 0:
            values.append("zeroinitializer")
            continue
        loaded = load_lanes(f, dtype, tile.lanes, f.element(pointer, j * tile.lanes, dtypes.itemsize(dtype)), count)
        values.append(widened(f, loaded, dtype, tile.accumulate, tile.lanes))
    return values


def zero(dtype: str) -> str:
    return literal(0, dtype)
