"""The register tile: the multiply-adds behind GEMM, convolution, attention and recurrence.

    A (rows, broadcast)         B (packed panel [k][vectors * lanes])
    row 0    a0 ──┐            b0        b1
    row 1    a1 ──┼──▶  acc00 += a0*b0  acc01 += a0*b1
    ...           │     acc10 += a1*b0  acc11 += a1*b1      rows x vectors sums in registers
Nothing here knows an instruction set: widths, registers and fused multiply-add are the Target's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...ir import dtypes
from ...records import dataclass
from ...target import Dot, Target
from .. import costs
from ..text.emitter import Function, memory_type, scalar_type, vector_type
from ..text.memory import Count, load_first, store_first
from ..text.vectors import Vectors
from .panel_operand import Panel, load_group, load_widened, prefetch_line, widened

PAGE = 4096  # bytes
SMALL = 4  # registers of sums of a tile whose unrolled steps need no more than there are
OWN_STREAMS = 2  # as far as processors fetch ahead by themselves
STREAM_AHEAD = 1024  # bytes to fetch ahead in each of more streams
TOGETHER = 2  # steps of k of a tile that fills the registers
ORDERED = 2  # rows of a step that LLVM may order as it likes: without a bound it lets a sum wait on the stack


@dataclass(frozen=True)
class Tile:
    """A block of `rows` x (`vectors` * `lanes`) accumulators. `lhs` and `rhs` are the element types
    in memory of the broadcast and of the panel operand; both are widened to `accumulate` when they
    are loaded, or multiplied as they are by `dot`, which takes a group of k in one step. `abreast`: so many
    neighbours along k lie side by side in a vector, whose lanes are parts of the sums of fewer columns.
    `groups`: so many elements of A are broadcast in one step, each to lanes of its own."""

    rows: int
    vectors: int
    lanes: int
    lhs: str = "float32"
    rhs: str = "float32"
    accumulate: str = "float32"
    dot: Dot | None = None
    abreast: int = 1
    groups: int = 1

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes // self.abreast

    @property
    def group(self) -> int:
        """Of k, in one step."""
        return self.abreast if self.dot is None else self.dot.group

    @property
    def vector(self) -> str:
        """LLVM's type of one accumulator."""
        return vector_type(scalar_type(self.accumulate), self.lanes)

    @property
    def panel_step(self) -> int:
        """Bytes of a packed panel that one step of k consumes."""
        return self.columns * self.group * dtypes.itemsize(self.rhs)

    def step_of(self, panel: Panel) -> int | str:
        """Bytes from one step of k to the next."""
        return self.panel_step if panel.step is None else panel.step

    def zeros(self) -> list[str]:
        return ["zeroinitializer"] * (self.rows * self.vectors)


@dataclass(frozen=True)
class Rows:
    """Where the broadcast operand is: element k of row r lies at

        pointers[p] + scale * stride + displacement + k * step
        with (p, stride, scale, displacement) = places[r]

    Few pointers with constant displacements, or with a run-time stride scaled by 1, 2, 4 or 8,
    leave the general registers free, which many separate row pointers would exhaust."""

    pointers: tuple[str, ...]
    places: tuple[tuple[int, str | None, int, int], ...]
    step: int | str

    def __len__(self) -> int:
        return len(self.places)


def fixed_rows(base: str, displacements: Sequence[int], step: int | str) -> Rows:
    """Rows at constant distances in bytes from base: a matrix of static width, pixels."""
    return Rows((base,), tuple((0, None, 1, d) for d in displacements), step)


def strided_rows(f: Function, base: str, stride: int | str, count: int, step: int | str) -> Rows:
    """`count` rows, `stride` bytes apart; the stride may be known only to the run."""
    if isinstance(stride, int) or stride.lstrip("-").isdigit():
        return fixed_rows(base, [r * int(stride) for r in range(count)], step)
    triple = f.mul(stride, 3) if count > 3 else None
    reach = {0: (None, 1), 1: (stride, 1), 2: (stride, 2), 4: (stride, 4), 8: (stride, 8)}
    if triple is not None:
        reach |= {3: (triple, 1), 6: (triple, 2), 12: (triple, 4)}
    places: list[tuple[int, str | None, int, int] | None] = [None] * count
    pointers: list[str] = []
    while None in places:  # a new pointer at the first row that no other reaches
        start = places.index(None)
        pointers.append(f.offset(base, f.mul(stride, start)))
        for distance, (register, scale) in reach.items():
            if start + distance < count and places[start + distance] is None:
                places[start + distance] = (len(pointers) - 1, register, scale, 0)
    return Rows(tuple(pointers), tuple(p for p in places if p is not None), step)


# Choosing tiles ----------------------------------------------------------------------------------


def supported(lhs: str, rhs: str, accumulate: str) -> bool:
    """Whether a tile can add in `accumulate` what the element types hold, without loss."""

    def widens(dtype: str) -> bool:
        if dtype == accumulate:
            return True
        same = dtypes.is_float(dtype) == dtypes.is_float(accumulate)
        return same and dtype != "bool" and dtypes.itemsize(dtype) < dtypes.itemsize(accumulate)

    whole = dtypes.is_integer(accumulate) and dtypes.bits(accumulate) >= 8
    return (accumulate in ("float32", "float64") or whole) and widens(lhs) and widens(rhs)


def most_rows(target: Target, vectors: int, dot: Dot | None = None) -> int:
    """The greatest tile height that leaves registers for the panel's vectors, the broadcasts in
    flight and, without a fused multiply-add, one product: of 32 registers 14 x 2, 9 x 3 or 6 x 4, of
    16 registers 6 x 2 or 4 x 3. Dot products read no broadcast from memory: twice as many are in flight,
    one more where all registers but one hold sums. Widened ones have two vectors for one; what an instruction
    gives that does not add is one more."""
    spare = vectors + target.broadcasts
    if dot is not None:
        spare += target.broadcasts + (vectors == 1)
    if dot is not None and not dot.adds and dot.group > 1:
        spare += 1 + (vectors if dot.widened else 0)
    spare += 0 if target.fused_multiply_add else 1
    return max(1, (target.vector_registers - spare) // vectors)


def step_time(target: Target, rows: int, vectors: int, chains: int = 1, dot: Dot | None = None) -> float:
    """Estimated nanoseconds of one step of k: a load for each vector of the panel, one of a number for each
    row, which one multiply-add may read from memory itself, but not several."""
    if target.fused_multiply_add:
        made = costs.TO_WORDS * (rows + vectors) if dot is not None and dot.words else 0
        issue: float = (rows * vectors + made) / costs.dot_rate(target, dot)
        if target.memory_broadcasts and not _reads_broadcasts(vectors, dot):
            issue *= costs.BROADCAST
    else:  # two in the time of a multiply-add
        product = costs.UNFUSED_PAIR if dot is not None and dot.widened else costs.UNFUSED
        issue = (rows * (product * vectors + costs.UNFUSED_ROW) + vectors) / 2
    loads = target.facts.narrow * rows + vectors
    return costs.step_time(target, issue, loads, chains)


def _reads_broadcasts(vectors: int, dot: Dot | None) -> bool:
    """Whether a tile's multiply-adds may take the numbers of its rows from memory: each is used once, and is
    the last operand (`dot_product`)."""
    return vectors == 1 and (dot is None or dot.swapped or dot.lhs == dot.rhs)


def waits(target: Target) -> bool:
    """Whether tiles would wait for constants that are not fetched ahead: where they come from beyond the
    second-level cache, however few bytes a step takes. Processors begin to fetch anew in each page."""
    return costs.rate(target, target.run_bytes) < target.facts.level2_rate


def streams_for(target: Target, tile: Tile, depth: int | str) -> int:
    """From how many places of a panel a tile reads: several where it would wait for the panel, which is read
    once and takes some pages, and where the steps of an iteration do not spill."""
    small, streams = tile.rows * tile.vectors <= SMALL, target.facts.streams
    if not small or not str(depth).isdigit() or int(depth) * tile.panel_step < streams * PAGE * tile.group:
        return 1
    return streams if waits(target) else 1


def fetched_ahead(streams: int) -> int | None:
    """How many bytes ahead of its lines a panel fetches that is read from so many places."""
    return STREAM_AHEAD if streams > OWN_STREAMS else None


def far_ahead(target: Target) -> int | None:
    """How many bytes ahead memory is fetched that is read in one go, which processors do by themselves within
    a page. Those that read best from few places do so from the third-level cache too, and ask the memory
    sooner."""
    if target.facts.streams > OWN_STREAMS:
        return PAGE
    near = costs.shared(target, target.run_bytes, target.run_ns) > 0.5
    return None if near else 2 * PAGE


def chains_for(target: Target, rows: int, vectors: int) -> int:
    """How many independent sums a tile needs to hide the latency of additions: 1, 2 or 4."""
    chains = 1
    spare = target.vector_registers - vectors - 2
    while chains < 4 and rows * vectors * chains < 8 and 2 * chains * rows * vectors <= spare:
        chains *= 2
    return chains


def equal_heights(rows: int, most: int) -> list[int]:
    """rows cut into as few tiles as possible, nearly equally high: 49 by 14 → 13, 12, 12, 12."""
    return [height for height, count in height_counts(rows, most).items() for _ in range(count)]


def height_counts(rows: int, most: int) -> dict[int, int]:
    """The heights of `equal_heights`, and how many tiles have each: 49 by 14 → {13: 1, 12: 3}."""
    if rows <= 0:
        return {}
    count = -(-rows // most)
    low, larger = divmod(rows, count)
    return {h: c for h, c in ((low + 1, larger), (low, count - larger)) if c}


def for_equal_tiles(
    f: Function,
    rows: int | str,
    most: int,
    body: Callable[[int, str, str], None],
    first: int | str = 0,
    last: int | str | None = None,
) -> None:
    """body(height, first row, tile) for the tiles first..last of rows cut as by `equal_heights`. A
    number of rows that only the run knows needs every height up to `most`: a switch picks one."""
    static = isinstance(rows, int) or rows.isdigit()
    tiles, _ = f.divide(f.add(rows, most - 1), most)
    low, extra = f.divide(rows, f.maximum(tiles, 1))  # the first `extra` tiles are a row higher
    last = tiles if last is None else last
    ranges: list[tuple[str, str, int | str, int | str]] = []
    if extra != "0":
        ranges.append((f.add(low, 1), "0", first, f.minimum(last, extra)))
    if low != "0":
        ranges.append((low, extra, f.maximum(first, extra), last))
    for height, skipped, start, stop in ranges:
        with f.loop(start, stop) as loop:
            row = f.add(f.mul(loop.index, height), skipped)
            if static:
                body(int(height), row, loop.index)
            else:
                _switch(f, height, most, body, row, loop.index)


def _switch(
    f: Function, number: str, most: int, body: Callable[[int, str, str], None], row: str, tile: str
) -> None:
    """body(n, row, tile) where n is the number, which is 1, 2, ... or most."""
    after = f.fresh_label("after")
    labels = {n: f.fresh_label("height") for n in range(1, most + 1)}
    cases = " ".join(f"i64 {n}, label %{label}" for n, label in labels.items())
    f.statement(f"switch i64 {number}, label %{after} [{cases}]")
    for n, label in labels.items():
        f.label(label)
        body(n, row, tile)
        f.branch(after)
    f.label(after)


# The loop ----------------------------------------------------------------------------------------


def multiply_add(
    f: Function,
    tile: Tile,
    accumulators: Sequence[str],
    rows: Rows,
    panel: Panel,
    depth: int | str,
    *,
    chains: int = 1,
    streams: int = 1,
) -> list[str]:
    """accumulators[r * vectors + j] + sum over k < depth of A[r, k] * B[k, j], after the loop.

    `depth` is a number or an i64. More `chains`, a power of two, split the sum into that many
    independent ones, step of k modulo `chains`, added pairwise at the end: for tiles too small to hide
    the latency of an addition. Loops around this one (over taps, over blocks of channels) carry the
    accumulators.

    A tile with a dot product takes `group` of k in a step; A's elements then are neighbours, the panel
    holds zeros where its last group goes beyond the depth, and A is not read there.

    `streams` cuts a static depth into so many ranges, of each of which an iteration takes a step: a panel in
    far memory then comes from so many places at a time.
    """
    if len(accumulators) != tile.rows * tile.vectors or len(rows) != tile.rows:
        raise ValueError(f"{len(accumulators)} accumulators, {len(rows)} rows for a tile {tile}")
    if chains & (chains - 1):
        raise ValueError(f"{chains} chains are not a power of two")
    loop = _Steps(f, tile, rows, panel, chains)
    values = [*loop.bases, *accumulators, *["zeroinitializer"] * (len(accumulators) * (chains - 1))]
    count, rest = f.divide(depth, tile.group)
    together = max(chains, streams)
    if together == 1:
        together = steps_together(f.target, tile, count)
    each = int(count) // streams if count.isdigit() else 0
    if streams > 1 and each > 1:
        values = loop.repeated(values, 0, each, streams, apart=each)
        values = loop.moved(values, (streams - 1) * each)
        if left := int(count) % streams:
            values = loop.steps(values, left)
    elif count.isdigit():
        whole, left = divmod(int(count), together)
        if whole == 1:
            values = loop.steps(values, together)
        elif whole:
            values = loop.repeated(values, 0, whole * together, together)
        if left:
            values = loop.steps(values, left)
    elif together == 1:
        values = loop.repeated(values, 0, count, 1)
    else:
        even = f.round_down(count, together)
        values = loop.repeated(loop.repeated(values, 0, even, together), even, count, 1)
    if rest != "0":  # a last group that is not full
        values = loop.repeated(values, 0, f.minimum(rest, 1), 1, rest)
    return combined(f, tile, values[len(loop.bases) :], chains)


def steps_together(target: Target, tile: Tile, count: str) -> int:
    """How many of `count` steps of k make an iteration. Processors fetch ahead what an instruction will read
    next time: a line of each row, the sooner the further an iteration goes (docs/performance.md has figures).
    One where a broadcast, used once, or a product is overwritten by the sum, which then moves from register
    to register until some are spilled. Of dot products one, too, unless there are two, where a loop would
    cost a tenth."""
    if tile.dot is not None:
        return TOGETHER if count == str(TOGETHER) else 1
    return TOGETHER if tile.vectors > 1 and target.fused_multiply_add else 1


class _Steps:
    """Steps of k of a tile, which hand on `values`: the pointers into A and the panel, then the sums of each
    chain."""

    def __init__(self, f: Function, tile: Tile, rows: Rows, panel: Panel, chains: int):
        self.f, self.tile, self.rows, self.panel, self.chains = f, tile, rows, panel, chains
        self.bases = [*rows.pointers, *panel.pointers]
        self.width = tile.rows * tile.vectors  # sums of a chain
        self.kinds = ["ptr"] * len(self.bases) + [tile.vector] * (self.width * chains)
        ahead = [] if panel.ahead is None else [panel.ahead.step]
        down = [f.mul(rows.step, tile.group)] * len(rows.pointers)
        self.distances: list[int | str] = [*down, tile.step_of(panel), *ahead]

    def steps(self, values: Sequence[str], count: int, present: Count = None, apart: int = 1) -> list[str]:
        """`count` steps, some `apart`, in which case those that follow the first are next."""
        at, current = values[: len(self.bases)], list(values[len(self.bases) :])
        ordered = self.chains == 1 and count > 1 and apart == 1
        for k in range(count):
            if ordered and k:
                self.f.keep_order()
            part = slice(k % self.chains * self.width, (k % self.chains + 1) * self.width)
            here = self.panel.at(at[len(self.rows.pointers) :])
            current[part] = _step(
                self.f, self.tile, current[part], self.rows, here, at, k * apart, present, ordered
            )
        return self.moved([*at, *current], count if apart == 1 else 1)

    def moved(self, values: Sequence[str], count: int) -> list[str]:
        """With the pointers some steps on."""
        f, at = self.f, values[: len(self.bases)]
        after = [f.offset(p, f.mul(d, count)) for p, d in zip(at, self.distances, strict=True)]
        return [*(frozen(f, p) for p in after), *values[len(self.bases) :]]

    def repeated(
        self,
        values: Sequence[str],
        start: int | str,
        stop: int | str,
        count: int,
        present: Count = None,
        apart: int = 1,
    ) -> list[str]:
        """The same in a loop, `count` steps an iteration."""
        step = count if apart == 1 else 1
        with self.f.loop(start, stop, step, list(zip(self.kinds, values, strict=True))) as loop:
            loop.carry(*self.steps(loop.carried, count, present, apart))
        return list(loop.results)


def frozen(f: Function, pointer: str) -> str:
    """A pointer that a loop carries. Frozen it is no induction variable to LLVM, which therefore keeps the
    addresses of rows beside it and does not spend one register a row."""
    return f.value(f"freeze ptr {pointer}", "ptr")


def _step(
    f: Function,
    tile: Tile,
    accumulators: list[str],
    rows: Rows,
    panel: Panel,
    at: Sequence[str],
    k: int,
    present: Count,
    ordered: bool,
) -> list[str]:
    """Step number k of the unrolled ones; `present`: how many elements of A a last group has. ordered: LLVM
    is not to mix it with others."""
    here = f.offset(panel.pointer, f.mul(tile.step_of(panel), k))
    b = _columns(f, tile, panel, here)
    if panel.prefetch is not None:
        for byte in range(0, tile.panel_step, 64):
            prefetch_line(f, f.offset(f.offset(here, byte), panel.prefetch))
    if panel.ahead is not None:
        panel.ahead.after(f, k).fetch(f)
    result = []
    for r in range(tile.rows):
        if ordered and r and r % ORDERED == 0:
            f.keep_order()
        a = _broadcast(f, tile, row_address(f, rows, at, r, k * tile.group), present)
        for j in range(tile.vectors):
            result.append(product(f, tile, a, b[j], accumulators[r * tile.vectors + j]))
    return result


def multiply_add_beside(
    f: Function, tile: Tile, accumulators: Sequence[str], rows: Rows, others: Rows, lower: str, panel: Panel
) -> list[str]:
    """The accumulators after one step of k in which the lanes that the mask `lower` names multiply an element
    of `rows`, those above one of `others`."""
    b, result = _columns(f, tile, panel, panel.pointer), []
    if panel.ahead is not None:
        panel.ahead.fetch(f)
    for r in range(tile.rows):
        one, other = (_broadcast(f, tile, row_address(f, x, x.pointers, r, 0), None) for x in (rows, others))
        a = f.select(lower, tile.vector, one, other)
        for j in range(tile.vectors):
            result.append(product(f, tile, a, b[j], accumulators[r * tile.vectors + j]))
    return result


def widen_panel(f: Function, dtype: str, tile: Tile, panel: str, out: str, depth: int) -> None:
    """Writes a panel of `depth` rows for a tile, which is stored as another type, as the tile's."""
    size, wide = dtypes.itemsize(dtype), dtypes.itemsize(tile.rhs)
    kind, width = vector_type(scalar_type(tile.rhs), tile.lanes), tile.vectors * tile.lanes
    with f.loop(0, depth) as row:
        source, to = (
            f.offset(panel, f.mul(row.index, width * size)),
            f.offset(out, f.mul(row.index, width * wide)),
        )
        for j in range(tile.vectors):
            number = load_widened(
                f, dtype, tile.rhs, tile.lanes, f.offset(source, j * tile.lanes * size), size
            )
            f.store(kind, number, f.offset(to, j * tile.lanes * wide), min(64, tile.lanes * wide))


def row_address(f: Function, rows: Rows, at: Sequence[str], r: int, k: int) -> str:
    """Where element k of row r lies, `at` being where the pointers of the rows are by now."""
    pointer, stride, scale, displacement = rows.places[r]
    address = at[pointer]
    if stride is not None:
        address = f.value(f"getelementptr [{scale} x i8], ptr {address}, i64 {stride}", "ptr")
    return f.offset(address, f.add(displacement, f.mul(rows.step, k)))


def _columns(f: Function, tile: Tile, panel: Panel, at: str) -> list[str]:
    """The vectors of B in one step."""
    packed = panel.step is None
    if tile.dot is not None:
        kind = vector_type(memory_type(tile.rhs), tile.lanes * tile.group)
        size = tile.lanes * tile.group * dtypes.itemsize(tile.rhs)
        return [f.load(kind, f.offset(at, j * size), min(64, size)) for j in range(tile.vectors)]
    size, found = dtypes.itemsize(tile.rhs), []
    align = min(64, tile.lanes * size) if packed else size
    for j in range(tile.vectors):
        count, place = lanes_left(f, tile, panel.columns, j), f.offset(at, j * tile.lanes * size)
        stored = load_first(f, tile.rhs, tile.lanes, place, count, align) if count != 0 else "zeroinitializer"
        found.append(widened(f, stored, tile.rhs, tile.accumulate, tile.lanes))
    return found


def _broadcast(f: Function, tile: Tile, address: str, present: Count) -> str:
    """An element of A, or a group, in every lane."""
    if tile.dot is not None:
        if tile.group == 1:
            element = load_widened(f, tile.lhs, tile.rhs, 1, address, dtypes.itemsize(tile.lhs))
            return f.broadcast(scalar_type(tile.rhs), element, tile.lanes)
        return load_group(f, tile.lhs, tile.group, tile.lanes, address, present)
    if tile.abreast > 1:
        few = load_widened(f, tile.lhs, tile.accumulate, tile.abreast, address, dtypes.itemsize(tile.lhs))
        kind = vector_type(scalar_type(tile.accumulate), tile.abreast)
        return f.shuffle(few, "poison", [lane % tile.abreast for lane in range(tile.lanes)], kind)
    element = load_widened(f, tile.lhs, tile.accumulate, 1, address, dtypes.itemsize(tile.lhs))
    return f.broadcast(scalar_type(tile.accumulate), element, tile.lanes)


def product(f: Function, tile: Tile, a: str, b: str, total: str) -> str:
    """total + a * b"""
    if tile.dot is None:
        return fused(f, tile.accumulate, tile.lanes, a, b, total)
    return dot_product(f, tile.dot, tile.lanes, a, b, total)


def dot_product(f: Function, dot: Dot, lanes: int, a: str, b: str, total: str) -> str:
    """total and, in each lane, the products of its group of a and b. What is broadcast, a, stands last where
    it may: instructions read that operand from memory as they broadcast it."""
    sums = vector_type(scalar_type(dot.accumulate), lanes)
    if dot.pairs is not None:
        return plus(f, dot.accumulate, lanes, total, _sum_of_pairs(f, dot, lanes, a, b))
    if not dot.adds:
        kind = vector_type(memory_type(dot.stored), lanes * min(dot.group, 2))
        name = f.text.declare(dot.intrinsic, sums, [kind, kind])
        for x, y in _widened_pairs(f, dot, lanes, a, b) if dot.widened else [(a, b)]:
            product = f.call(sums, name, f"{kind} {x}", f"{kind} {y}")
            total = plus(f, dot.accumulate, lanes, total, product)
        return total
    operands = [vector_type(memory_type(t), lanes * dot.group) for t in (dot.lhs, dot.rhs)]
    pairs = [f"{kind} {value}" for kind, value in zip(operands, (a, b))]
    pairs = pairs[::-1] if dot.swapped or dot.lhs == dot.rhs else pairs
    name = f.text.declare(dot.intrinsic, sums, [sums, *operands])
    return f.call(sums, name, f"{sums} {total}", *pairs)


def _sum_of_pairs(f: Function, dot: Dot, lanes: int, a: str, b: str) -> str:
    """The products of a lane's group, two neighbours added in 16 bits, those two in 32; of words at once."""
    bytes_, sums = vector_type("i8", 4 * lanes), vector_type(scalar_type(dot.accumulate), lanes)
    words = Vectors(f, "int16", 2 * lanes)
    add_all = f.text.declare(dot.intrinsic, sums, [words.type, words.type])

    def product(x: str, y: str) -> str:
        return f.call(sums, add_all, f"{words.type} {x}", f"{words.type} {y}")

    if dot.words:
        apart = [_every_other(f, x, dtype, lanes) for x, dtype in ((a, dot.lhs), (b, dot.rhs))]
        return plus(f, dot.accumulate, lanes, *(product(x, y) for x, y in zip(*apart)))
    unsigned, signed = (a, b) if dot.lhs == "uint8" else (b, a)
    add_two = f.text.declare(dot.pairs or "", words.type, [bytes_, bytes_])
    two = f.call(words.type, add_two, f"{bytes_} {unsigned}", f"{bytes_} {signed}")
    return product(two, words.constant(1))


def _every_other(f: Function, values: str, dtype: str, lanes: int) -> tuple[str, str]:
    """A lane's elements 0 and 2 as words, and 1 and 3, of four bytes each."""
    words, bits = Vectors(f, "int16", 2 * lanes), Vectors(f, "uint16", 2 * lanes)
    pairs = f.cast("bitcast", values, words.type, vector_type("i8", 4 * lanes))
    if dtypes.is_signed(dtype):
        return words.shift_right(words.shift_left(pairs, 8), 8), words.shift_right(pairs, 8)
    return bits.bit_and(pairs, bits.constant(255)), bits.shift_right(pairs, 8)


def _widened_pairs(f: Function, dot: Dot, lanes: int, a: str, b: str) -> list[tuple[str, str]]:
    """The operands of products of 16 bits. Of a lane's four bytes the elements 0 and 2 are the low halves of
    two words and 1 and 3 the high ones; the panel has its own in that order (`packing.in_pairs`)."""
    if dot.group == 1:
        return [(a, b)]
    low, high = _every_other(f, a, dot.lhs, lanes)
    whole = vector_type(memory_type(dot.stored), 4 * lanes)
    halves = [f.shuffle(b, "poison", range(k * 2 * lanes, (k + 1) * 2 * lanes), whole) for k in range(2)]
    return [(low, halves[0]), (high, halves[1])]


def combined(f: Function, tile: Tile, values: Sequence[str], chains: int) -> list[str]:
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
    return Vectors(f, dtype, lanes).fma(a, b, c)


def plus(f: Function, dtype: str, lanes: int, a: str, b: str) -> str:
    return Vectors(f, dtype, lanes).add(a, b)


# Tiles in memory, whole or in part ---------------------------------------------------------------


def lanes_left(f: Function, tile: Tile, columns: Count, vector: int) -> Count:
    """How many of a tile's valid columns fall into its vector number `vector`."""
    if columns is None:
        return None
    if isinstance(columns, int) or columns.isdigit():
        return max(0, min(tile.lanes, int(columns) - vector * tile.lanes))
    return f.sub(columns, vector * tile.lanes)


Address = Callable[[int, int], str]  # (row, vector) → the address of that vector of the tile


def store_tile(
    f: Function, tile: Tile, values: Sequence[str], address: Address, columns: Count = None
) -> None:
    """Stores the accumulators as they are; only the first `columns` columns."""
    for r in range(tile.rows):
        for j in range(tile.vectors):
            count, value = lanes_left(f, tile, columns, j), values[r * tile.vectors + j]
            if count != 0:
                store_first(f, tile.accumulate, tile.lanes, value, address(r, j), count)


def load_tile(f: Function, tile: Tile, address: Address, columns: Count = None) -> list[str]:
    """The tile as it is in memory, to be added to; columns beyond `columns` are zero."""
    values = []
    for r in range(tile.rows):
        for j in range(tile.vectors):
            count = lanes_left(f, tile, columns, j)
            if count == 0:
                values.append("zeroinitializer")
            else:
                values.append(load_first(f, tile.accumulate, tile.lanes, address(r, j), count))
    return values


def load_row(f: Function, tile: Tile, pointer: str, columns: Count) -> list[str]:
    """Accumulators that all begin with one row in memory: a bias."""
    size = dtypes.itemsize(tile.accumulate)
    row = replace(tile, rows=1)
    return load_tile(f, row, lambda _, j: f.offset(pointer, j * tile.lanes * size), columns) * tile.rows
