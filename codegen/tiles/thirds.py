"""Float32 numbers as sums of three bfloat16s, whose products registers of matrices add up in float32.

    x = x0 + x1 + x2 exactly: 3 times 8 bits of significand are float32's 24
    x * w  →  x2*w0 + x1*w0 + x1*w1 + x0*w1 + x0*w0 + x0*w2
What is left out is below 2^-22 |x * w|; an instruction adds 16 products in a row, and two such sums to the
one before. So a sum of K loses at most (22 + 6 K / 32) 2^-24 of its products' absolute values, where a chain
of multiply-adds may lose K 2^-24. Rows are rounded to nearest, so that what is left out has no direction;
panels are cut off, which is faster. A third below 2^-126 counts as 0.

              a step of k                                        64 bytes are
rows          [rows][step][third][k]                             32 neighbours along k
panels        [step][third][k / 2][vectors][columns][2]          16 columns of two neighbours along k
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..text.emitter import Function, vector_type
from ..text.memory import load_first
from ..text.vectors import Vectors
from . import matrix
from .matrix import MatrixTile
from .panel import LINE, Ahead

THIRDS = 3
ROW_BYTES = THIRDS * 2  # of an element of a row or a panel

#: The thirds of a row and of a panel that are multiplied, so that one of both is there already.
PRODUCTS = ((2, 0), (1, 0), (1, 1), (0, 1), (0, 0), (0, 2))
#: How often an operand is loaded in a step, on average of both.
LOADS = 3.5

#: Instructions in whose time a vector of float32 becomes three, which leave the first-level cache.
ROW_SPLIT, PANEL_SPLIT = 12, 24


def split_row(f: Function, lanes: int, depth: int, source: str, to: str) -> None:
    """Writes a row of float32, zeros behind it."""
    single, words = Vectors(f, "float32", lanes), Vectors(f, "uint32", lanes)
    upper, half = words.constant(0xFFFF0000), words.constant(0x8000)
    step, whole = matrix.STEP_BYTES // 2, vector_type("i16", 2 * lanes)
    odd: Sequence[int | None] = range(1, 4 * lanes, 2)  # the upper halves of two vectors of words

    def write(at: str, load: Callable[[int], str]) -> None:
        for j in range(0, step, 2 * lanes):
            left = [load(j), load(j + lanes)]
            for third in range(THIRDS):
                bits = [single.bits(x) for x in left]
                if third < THIRDS - 1:  # what is left last has 8 bits
                    bits = [words.add(x, half) for x in bits]
                halves = [f.cast("bitcast", x, whole, words.type) for x in bits]
                place = f.offset(at, third * matrix.STEP_BYTES + 2 * j)
                f.store(whole, f.shuffle(halves[0], halves[1], odd, whole), place, 4 * lanes)
                near = [single.from_bits(words.bit_and(x, upper)) for x in bits]
                left = [single.sub(x, y) for x, y in zip(left, near)]

    steps, rest = divmod(depth, step)
    with f.loop(0, steps) as loop:
        here = f.offset(source, f.mul(loop.index, 4 * step))
        write(
            f.offset(to, f.mul(loop.index, ROW_BYTES * step)),
            lambda j: f.load(single.type, f.offset(here, 4 * j)),
        )
    if rest:
        behind = f.offset(source, 4 * step * steps)
        write(
            f.offset(to, ROW_BYTES * step * steps),
            lambda j: (
                load_first(f, "float32", lanes, f.offset(behind, 4 * j), min(lanes, rest - j))
                if j < rest
                else "zeroinitializer"
            ),
        )


def split_panel(f: Function, tile: MatrixTile, lanes: int, steps: int | str, panel: str, out: str) -> None:
    """Writes a panel [steps of k][vectors][lanes] of float32."""
    single, words = Vectors(f, "float32", lanes), Vectors(f, "uint32", lanes)
    upper = words.constant(0xFFFF0000)
    row = 4 * tile.vectors * lanes
    with f.loop(0, steps) as step, f.loop(0, tile.unit.depth // 2) as pair:
        begun = f.mul(step.index, tile.unit.depth * row)
        source = f.offset(panel, f.add(begun, f.mul(pair.index, 2 * row)))
        begun = f.mul(step.index, THIRDS * tile.panel_step)
        to = f.offset(out, f.add(begun, f.mul(pair.index, tile.line)))
        for j in range(tile.vectors):
            left = [f.load(single.type, f.offset(source, k * row + 4 * j * lanes), 64) for k in range(2)]
            for third in range(THIRDS):
                bits = [single.bits(x) for x in left]
                cut = [words.bit_and(single_bits, upper) for single_bits in bits]
                both = words.bit_or(words.shift_right(bits[0], 16), cut[1])
                f.store(words.type, both, f.offset(to, third * tile.panel_step + j * LINE), LINE)
                left = [single.sub(x, single.from_bits(c)) for x, c in zip(left, cut)]


def multiply_add(
    f: Function,
    tile: MatrixTile,
    lhs: Sequence[str],
    row: int | str,
    panel: str,
    steps: int | str,
    ahead: Ahead | None,
) -> None:
    """Adds the products of `steps` steps of k to the sums; lhs: for each register of rows the address of its
    first row, the rows `row` bytes apart."""
    fetched = [ahead.pointer] if ahead is not None else []
    with f.loop(0, steps, 1, [("ptr", p) for p in (*fetched, *lhs, panel)]) as loop:
        *a, b = loop.carried[len(fetched) :]
        moved = []
        if ahead is not None:
            here = replace(ahead, pointer=loop.carried[0])
            here.fetch(f)
            moved = [here.after(f, 1).pointer]
        loaded: tuple[int | None, int | None] = (None, None)
        for third, other in PRODUCTS:
            if other != loaded[1]:
                matrix.load_columns(f, tile, f.offset(b, other * tile.panel_step))
            if third != loaded[0]:
                matrix.load_rows(f, [f.offset(p, third * matrix.STEP_BYTES) for p in a], row)
            matrix.add_products(f, tile)
            loaded = third, other
        forward = [f.offset(p, THIRDS * matrix.STEP_BYTES) for p in a]
        loop.carry(*moved, *forward, f.offset(b, THIRDS * tile.panel_step))
