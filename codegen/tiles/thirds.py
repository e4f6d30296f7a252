"""Float32 numbers as sums of three bfloat16s, whose products registers of matrices add up in float32.

    x = x0 + x1 + x2 exactly: 3 times 8 bits of significand are float32's 24
    x * w  →  x2*w0 + x1*w0 + x1*w1 + x0*w1 + x0*w0 + x0*w2
What is left out is below 2^-22 |x * w|; an instruction adds 16 products in a row, and two such sums to the
one before. So a sum of K loses at most (22 + 6 K / 32) 2^-24 of its products' absolute values, where a chain
of multiply-adds may lose K 2^-24. Rows are rounded to nearest, so that what is left out has no direction;
panels are cut off, which is faster. A third below 2^-126 counts as 0.

Two parts, which are a float16 exactly, are enough for what stands for one (`Contract.halves`):
    x * w  →  x1*w0 + x0*w0 + x0*w1    left out is below 2^-15 |x * w|, where a float16 is within 2^-11

A float16 is two parts exactly, which leaves five products. Bfloat16s, and codes of up to 8 bits less their
zero points, whose sums are scaled block by block, are one:
    x * w  →  x2*w + x1*w + x0*w       nothing is left out

              a step of k                                        64 bytes are
rows          [rows][step][part][k]                              32 neighbours along k
panels        [step][part][k / 2][vectors][columns][2]           16 columns of two neighbours along k
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce

from ...ir import dtypes
from ...records import dataclass
from ...target import LINE
from ..text.emitter import Function, vector_type
from ..text.memory import load_first
from ..text.vectors import Vectors
from . import matrix
from .matrix import MatrixTile, Writer
from .panel_operand import Ahead, load_widened


@dataclass(frozen=True)
class Parts:
    """`count` parts of a number of a row, `beside` of one of a panel. `products`: those of a row's and a
    panel's parts that are added up, in an order in which one of both is there already; `loads`: how often an
    operand is loaded in a step then, on average of both. `row_split`, `panel_split`: instructions in whose
    time a vector of float32 becomes its parts, which leave the first-level cache."""

    count: int
    beside: int
    products: tuple[tuple[int, int], ...]
    loads: float
    row_split: int
    panel_split: int

    @property
    def arithmetic(self) -> str:
        """What products of such numbers are told to be computed in."""
        return f"float32 in bfloat16 * {self.count}"

    @property
    def bytes(self) -> int:
        """Of an element of a row."""
        return 2 * self.count

    def step_bytes(self, rows: int, columns: int) -> int:
        """Of so many rows and columns of panels in a step of k."""
        return (rows * self.count + columns * self.beside) * matrix.STEP_BYTES


THIRDS = Parts(3, 3, ((2, 0), (1, 0), (1, 1), (0, 1), (0, 0), (0, 2)), 3.5, 12, 24)
TWO = Parts(2, 2, ((1, 0), (0, 0), (0, 1)), 2, 8, 16)
THIRDS_OF_HALVES = Parts(3, 2, ((2, 0), (1, 0), (1, 1), (0, 1), (0, 0)), 3, 12, 16)
ONE, ONE_OF_TWO = Parts(3, 1, ((2, 0), (1, 0), (0, 0)), 2, 12, 4), Parts(2, 1, ((1, 0), (0, 0)), 1.5, 8, 4)


def split_row(f: Function, parts: Parts, lanes: int, depth: int, source: str, to: str) -> None:
    """Writes a row of float32, zeros behind it."""
    step = matrix.STEP_BYTES // 2
    steps, rest = divmod(depth, step)
    with f.loop(0, steps) as loop:
        here = f.offset(source, f.mul(loop.index, 4 * step))
        split_step(
            f,
            parts,
            lanes,
            f.offset(to, f.mul(loop.index, parts.bytes * step)),
            lambda j: f.load(vector_type("float", lanes), f.offset(here, 4 * j)),
        )
    if rest:
        behind = f.offset(source, 4 * step * steps)
        split_step(
            f,
            parts,
            lanes,
            f.offset(to, parts.bytes * step * steps),
            lambda j: (
                load_first(f, "float32", lanes, f.offset(behind, 4 * j), min(lanes, rest - j))
                if j < rest
                else "zeroinitializer"
            ),
        )


def split_step(f: Function, parts: Parts, lanes: int, to: str, load: Callable[[int], str]) -> None:
    """Writes a step of a row; load: as many lanes, from the one of that number on."""
    single, words = Vectors(f, "float32", lanes), Vectors(f, "uint32", lanes)
    upper, half = words.constant(0xFFFF0000), words.constant(0x8000)
    whole = vector_type("i16", 2 * lanes)
    odd: Sequence[int | None] = range(1, 4 * lanes, 2)  # the upper halves of two vectors of words
    for j in range(0, matrix.STEP_BYTES // 2, 2 * lanes):
        left = [load(j), load(j + lanes)]
        for part in range(parts.count):
            bits = [single.bits(x) for x in left]
            if part < THIRDS.count - 1:  # what is left as the last of three has 8 bits
                bits = [words.add(x, half) for x in bits]
            halves = [f.cast("bitcast", x, whole, words.type) for x in bits]
            place = f.offset(to, part * matrix.STEP_BYTES + 2 * j)
            f.store(whole, f.shuffle(halves[0], halves[1], odd, whole), place, 4 * lanes)
            near = [single.from_bits(words.bit_and(x, upper)) for x in bits]
            left = [single.sub(x, y) for x, y in zip(left, near)]


def split_panel(
    f: Function,
    parts: Parts,
    tile: MatrixTile,
    lanes: int,
    steps: int | str,
    panel: str,
    out: str,
    first: int | str,
    dtype: str,
) -> None:
    """Writes a panel [steps of k][vectors][lanes] of float32 or half; of each step the pairs of neighbours
    along k from the `first` on."""
    with f.loop(0, steps) as step, f.loop(first, pairs(tile)) as pair:
        for write in splits(f, parts, tile, lanes, panel, out, step.index, pair.index, dtype=dtype):
            write()


def pairs(tile: MatrixTile) -> int:
    """Of neighbours along k in a step."""
    return tile.unit.depth // tile.unit.group


def splits(
    f: Function,
    parts: Parts,
    tile: MatrixTile,
    lanes: int,
    panel: str,
    out: str,
    step: str,
    first: int | str,
    count: int = 1,
    dtype: str = "float32",
) -> list[Writer]:
    """What `split_panel` writes of `count` pairs of a step, a vector of a pair each."""
    row = dtypes.itemsize(dtype) * tile.vectors * lanes
    source = f.offset(panel, f.mul(f.add(f.mul(step, tile.unit.depth), f.mul(first, 2)), row))
    to = f.offset(f.offset(out, f.mul(step, parts.beside * tile.panel_step)), f.mul(first, tile.line))
    single, words = Vectors(f, "float32", lanes), Vectors(f, "uint32", lanes)
    upper, size = words.constant(0xFFFF0000), row // tile.vectors

    def write(pair: int, j: int) -> None:
        here = [f.offset(source, (2 * pair + k) * row + j * size) for k in range(2)]
        left = [load_widened(f, dtype, "float32", lanes, at, size) for at in here]
        for part in range(parts.beside):
            bits = [single.bits(x) for x in left]
            cut = [words.bit_and(x, upper) for x in bits]
            both = words.bit_or(words.shift_right(bits[0], 16), cut[1])
            f.store(
                words.type, both, f.offset(to, pair * tile.line + part * tile.panel_step + j * LINE), LINE
            )
            left = [single.sub(x, single.from_bits(c)) for x, c in zip(left, cut)]

    return [partial(write, pair, j) for pair in range(count) for j in range(tile.vectors)]


def multiply_add(
    f: Function,
    tile: MatrixTile,
    lhs: Sequence[str],
    row: int | str,
    step: int | str,
    panel: str,
    steps: int | str,
    ahead: Ahead | None,
    *,
    parts: Parts,
    others: Callable[[str], Sequence[Writer]] = lambda index: (),
) -> tuple[str, Ahead | None]:
    """`matrix.multiply_add` of parts. others: of a step, what vectors do meanwhile."""
    fetched = [ahead.pointer] if ahead is not None else []
    with f.loop(0, steps, 1, [("ptr", p) for p in (*fetched, *lhs, panel)]) as loop:
        *a, b = loop.carried[len(fetched) :]
        moved = []
        if ahead is not None:
            here = replace(ahead, pointer=loop.carried[0])
            here.fetch(f)
            moved = [here.after(f, 1).pointer]
        add_step(f, parts, tile, a, row, b, others(loop.index))
        loop.carry(*moved, *(f.offset(p, step) for p in a), f.offset(b, parts.beside * tile.panel_step))
    return loop.results[-1], ahead and replace(ahead, pointer=loop.results[0])


def add_step(
    f: Function,
    parts: Parts,
    tile: MatrixTile,
    lhs: Sequence[str],
    row: int | str,
    panel: str,
    others: Sequence[Writer],
) -> None:
    """Adds the products of one step; `others` write what vectors do meanwhile."""
    loaded: tuple[int | None, int | None] = (None, None)
    for (part, other), share in zip(parts.products, matrix.shares(others, len(parts.products))):
        if other != loaded[1]:
            matrix.load_columns(f, tile, f.offset(panel, other * tile.panel_step))
        if part != loaded[0]:
            matrix.load_rows(f, [f.offset(p, part * matrix.STEP_BYTES) for p in lhs], row)
        matrix.add_products(f, tile, share)
        loaded = part, other


def rest(v: Vectors, sums: Sequence[str]) -> str:
    """What is left of sums times 0: bits besides the sign where one is an infinity or no number."""
    return reduce(v.of("uint32").bit_or, [v.bits(v.mul(x, v.constant(0.0))) for x in sums])


def is_left(v: Vectors, bits: str) -> str:
    """Whether bits of a `rest`, or of several together, are those of a sum that is not finite."""
    words = v.of("uint32")
    magnitude = words.bit_and(bits, words.constant(0x7FFFFFFF))
    return words.any(words.compare("ne", magnitude, words.constant(0)))


def any_not_finite(v: Vectors, sums: str, rows: int | str, vectors: int) -> str:
    """Whether a sum in memory, [rows][vectors][lanes] of float32, is an infinity or no number."""
    f, words = v.f, v.of("uint32")
    with f.loop(0, rows, 1, [(words.type, "zeroinitializer")]) as loop:
        row = f.offset(sums, f.mul(loop.index, 4 * vectors * v.lanes))
        found = [f.load(v.type, f.offset(row, 4 * j * v.lanes), 64) for j in range(vectors)]
        loop.carry(words.bit_or(loop.carried[0], rest(v, found)))
    return is_left(v, loop.results[0])
