"""What a convolution by Winograd's transforms computes at a time, a function of the kernel each:

    spread     V = B' x B of one piece and some channels
    weights    U = G w G' of one input channel and some output channels
    multiply   M += V U, a register tile
    join       A' M A of one piece and some channels, and the epilogue
They are called with addresses and know of the plan how far apart the matrices lie.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ...ir import dtypes
from ...target import LINE
from ..kernel import KernelFunction, KernelText
from ..text.emitter import ENTRY
from ..text.vectors import Vectors
from .blocked import Folded, lattice
from .blocked_epilogue import Finish
from .channel_panels import Panels
from .microkernel import Tile, load_tile, store_tile
from .panel_operand import Panel, load_widened
from .window_sums import nest
from .winograd_plan import WinogradPlan
from .winograd_transforms import Transformed, axes, by_columns, by_rows


def emit_spread(k: KernelText, plan: WinogradPlan) -> None:
    """B' x B of one piece in some lanes of a block of channels, from %x to %v."""
    size, align = (min(plan.lanes * dtypes.itemsize(t), LINE) for t in (plan.x.dtype, plan.factors))
    with _function(k, "spread", ["ptr %args", "ptr noalias %x", "ptr noalias %v"]) as f:
        v = Vectors(f, plan.factors, plan.lanes)
        row, pixel = plan.steps
        rows = [f.offset("%x", f.mul(y, f.size(row))) for y in range(plan.t[0])]

        def load(y: int, x: str | int) -> str:
            place = f.offset(rows[y], f.mul(x, f.size(pixel)))
            return load_widened(f, plan.x.dtype, plan.factors, plan.lanes, place, size)

        matrices, taken = axes(t.data for t in plan.transforms), plan.arithmetic.taken
        _store_all(f, v, Transformed(by_rows, v, matrices, load, align, taken=taken), "%v", plan.v_step)
        f.statement("ret void")


def weights_name(kind: Panels, rows: range) -> str:
    return f"weights{kind.vectors}from{rows.start}"


def emit_weights(k: KernelText, plan: WinogradPlan, kind: Panels, rows: range) -> None:
    """Some rows of G w G' of some lanes of output channels, from the vectors of its taps at %w to %u."""
    row, align = kind.width * dtypes.itemsize(plan.stored), min(plan.lanes * plan.size, LINE)
    with _function(k, weights_name(kind, rows), ["ptr noalias %w", "ptr noalias %u"]) as f:
        v = Vectors(f, plan.dtype, plan.lanes)

        def weight(y: int, x: str | int) -> str:
            place = f.element("%w", f.add(plan.sides[1] * y, x), row)
            near = min(plan.lanes * dtypes.itemsize(plan.stored), LINE)
            return load_widened(f, plan.stored, plan.dtype, plan.lanes, place, near)

        down, across = axes(t.weights for t in plan.transforms)
        done = Transformed(by_rows, v, (down[rows.start : rows.stop], across), weight, align)
        _store_all(f, v, done, "%u", plan.u_step)
        f.statement("ret void")


def _store_all(f: KernelFunction, v: Vectors, done: Transformed, to: str, step: int) -> None:
    """Stores the values of a grid, each `step` bytes from the one before."""
    height, width = map(len, done.matrices)
    for y in done.rows("0", str(height)):
        place = f.element(to, y, width * step)
        for x, value in enumerate(done.row(y)):
            f.store(v.type, value, f.offset(place, x * step), done.align)


def emit_multiply(k: KernelText, plan: WinogradPlan, tile: Tile) -> None:
    """%c = %a %b over %whole blocks of channels and %rest channels more, added to what %c holds where
    channels come in chunks: sums of a chunk are rounded apart, which leaves less of the errors of many."""
    ahead = plan.ahead(tile) if plan.fetched else None
    parameters = ["ptr noalias %a", "ptr noalias %b", "ptr noalias %c"]
    parameters += [*(ahead.parameters if ahead is not None else []), "i64 %whole", "i64 %rest"]
    row = tile.columns * plan.size
    with _function(k, f"multiply{tile.rows}x{tile.vectors}", parameters) as f:

        def place(r: int, j: int) -> str:
            return f.offset("%c", r * row + j * plan.vector)

        chunked = not plan.grouped and plan.chunk < plan.channels
        rows, step = [r * plan.pixel for r in range(tile.rows)], tile.rows * plan.pixel
        panel = Panel("%b", ahead=ahead)
        sums, panel = nest(f, tile, tile.zeros(), "%a", panel, [("%whole", step)], plan.block, rows)
        if (rest := plan.depth % plan.block) and not plan.grouped:
            a = f.offset("%a", f.mul("%whole", step))
            sums, _ = nest(f, tile, sums, a, panel, [], rest if plan.packed else "%rest", rows)
        if chunked:
            v = Vectors(f, tile.accumulate, tile.lanes)
            sums = [v.add(before, total) for before, total in zip(load_tile(f, tile, place), sums)]
        store_tile(f, tile, sums, place)
        f.statement("ret void")


def emit_join(k: KernelText, plan: WinogradPlan, kind: Panels) -> None:
    """A' m A of one piece and its epilogue, from the row %above and the column %left on."""
    parameters = [
        "ptr %args",
        "ptr noalias %m",
        "ptr %out",
        "i64 %above",
        "i64 %left",
        *["i64 %below"] * isinstance(plan.out, Folded),
        *(f"i64 {name}" for name in plan.end_names),
        *plan.epilogue.parameters,
    ]
    with _function(k, f"join{kind.vectors}", parameters) as f:
        whole, start = Vectors(f, plan.dtype, plan.block), plan.epilogue.start(f, kind.vectors)
        epilogue, out = plan.epilogue, plan.out
        if plan.end_names:
            epilogue, out = epilogue.on_lattice((0, 0), plan.apart), lattice(out, (0, 0), plan.apart)
        done = Finish(epilogue, f, out, kind.vectors, plan.size_of_piece)
        for j in range(kind.vectors):
            bias = [start[j] if plan.arithmetic.dot is None else "zeroinitializer"] * len(plan.parts)
            if len(bias) == 2 and start[j] != "zeroinitializer":
                bias = [whole.part(half, start[j]) for half in (0, 1)]
            parts = [
                _joined(f, plan, f.offset("%m", j * plan.vector + part), one, number)
                for number, (part, one) in enumerate(zip(plan.parts, bias, strict=True))
            ]
            for y in parts[0].rows(*plan.own(f)[0]):
                row = []
                for values in zip(*(part.row(y) for part in parts)):
                    value = values[0] if len(values) == 1 else whole.joined(*values)
                    if plan.arithmetic.dot is not None:
                        value = whole.add(plan.arithmetic.unscaled(whole, value), start[j])
                    row.append(value)
                if plan.own(f)[1] == ("0", str(len(row))):
                    with _owned(f, plan, y, 0):
                        done.put_line(row, j, y, 0)
                    continue
                for x, value in enumerate(row):
                    with _owned(f, plan, y, x):
                        done.put(value, j, y, x)
        rows, (first, last) = plan.own(f)
        done.rework(rows, first, f.sub(last, first))
        f.statement("ret void")


def _joined(f: KernelFunction, plan: WinogradPlan, m: str, bias: str, number: int) -> Transformed:
    """A' m A in some lanes, and the bias."""
    v, width, align = Vectors(f, plan.dtype, plan.lanes), plan.t[1], min(plan.lanes * plan.size, LINE)

    def load(y: int, x: str | int) -> str:
        return f.load(v.type, f.element(m, f.add(y * width, x), plan.m_step), align)

    matrices, count = axes(t.result for t in plan.transforms), len(plan.parts)
    return Transformed(by_columns, v, matrices, load, align, bias, number, count)


def _owned(f: KernelFunction, plan: WinogradPlan, y: str | int, x: int) -> AbstractContextManager[None]:
    """What follows runs where the pixel is the piece's own; of rows that a loop goes through all are."""
    conditions = []
    for at, (first, last), size in zip((y, x), plan.own(f), plan.size_of_piece):
        if isinstance(at, int) and first != "0":
            conditions.append(f.compare("sge", at, first))
        if isinstance(at, int) and last != str(size):
            conditions.append(f.compare("slt", at, last))
    if not conditions:
        return nullcontext()
    return f.when(f.all_of(*conditions))


def _function(k: KernelText, name: str, parameters: list[str]) -> AbstractContextManager[KernelFunction]:
    return k.function(f"{ENTRY}.{name}", parameters, attributes="noinline nounwind")
