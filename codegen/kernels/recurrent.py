"""The recurrence of LSTM, GRU and RNN: all steps in one kernel, the state in the results Y_h and Y_c.

    for each direction and some rows of the batch, for each step:
        product   gates[row] = x[step, row] + h[row] r'         register tiles over panels of r'
        cell      h[row], c[row] = cell(gates[row], h[row], c[row])     vectors of units, `onnxc/ir/cells.py`
A GRU has two of each where its candidate sees the state after the reset. The gates of a part's rows stay in
the first-level cache. A constant r is packed when compiling, as it is stored (bytes as bfloat16 too, if that
is exact) where tiles decode that in less time than they read numbers; another by a step of its own. A step
needs the whole state before it, so only directions and rows make parts. A state that is rounded to bytes
(`Recurrent.rounded`, over the range of all rows, which then are one part) is so before the product
(`tiles/rounded_state.py`), of integers where r is stored in bytes and the target multiplies those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ...ir import cells, dims, dtypes, expr
from ...ir.expr import Expr
from ...ir.graph import Constant, Node
from ...ir.ops import Recurrent, Reshape, Slice, Transpose
from ...ir.stored import Stored, as_halves, moved, stored_weights
from ...records import dataclass
from ...target import Dot, Target
from .. import costs
from ..costs import Estimate
from ..kernel import ALL, Choice, Code, KernelFunction, KernelText, Offer, Step, offered
from ..text.emitter import ENTRY, Function, Text
from ..text.memory import load_first, store_first
from ..text.scalar import lower
from ..tiles import microkernel as mk
from ..tiles import rounded_state, stored_panel
from ..tiles.packing import pack_columns, pack_panel, padded
from ..tiles.panel_operand import Panel
from ..tiles.rounded_state import RoundedState
from ..tiles.stored_form import Form, form_of, pack_stored

REUSE = 4  # tiles of rows in a part whose weights exceed the second-level cache


# What a step consists of -------------------------------------------------------------------------

Place = tuple[str, int]  # (pointer, gate): the units from pointer + gate * hidden on

#: What the expressions' operands are: the gates, the step's input part of a candidate, the state,
#: peepholes, the initial state.
OPERANDS: tuple[Place, ...] = (
    ("gates", 0),
    ("gates", 1),
    ("gates", 2),
    ("gates", 3),
    ("x", 2),
    ("h", 0),
    ("c", 0),
    ("p", 0),
    ("p", 1),
    ("p", 2),
    ("h0", 0),
    ("c0", 0),
)


@dataclass(frozen=True)
class Product:
    """gates[first : first + count] = start + left r[first : first + count]', for all rows."""

    first: int
    count: int
    left: Place = ("h", 0)
    start: str | None = "x"  # or "b", a row for all; None: zeros


@dataclass(frozen=True)
class Cell:
    """Each of `results`, (expression over OPERANDS, where it goes), for every unit of a row."""

    results: tuple[tuple[Expr, tuple[Place, ...]], ...]

    @property
    def pointers(self) -> list[str]:
        used = [OPERANDS[k][0] for k in expr.inputs(*(root for root, _ in self.results))]
        return sorted({*used, *(name for _, places in self.results for name, _ in places)})


def stages(op: Recurrent, direction: int, dtype: str) -> list[Product | Cell]:
    """A step of a direction; the last stage sets the state."""

    def at(name: str, gate: int = 0) -> Expr:
        return expr.input_(OPERANDS.index((name, gate)), dtype)

    i, o, f, g = (at("gates", k) for k in range(4))
    h, hidden = at("h"), (("h", 0), ("y", 0))
    if op.kind == "lstm":
        peep = "p" in op.operands
        c = cells.lstm_cell(op, direction, i, f, g, at("c"), (at("p", 0), at("p", 2)) if peep else None)
        out = cells.lstm_hidden(op, direction, o, c, at("p", 1) if peep else None)
        left = ("q", 0) if op.rounded else ("h", 0)
        return [Product(0, 4, left), Cell(((out, hidden), (c, (("c", 0),))))]
    if op.kind == "rnn":
        return [Product(0, 1), Cell(((cells.rnn_hidden(op, direction, i), hidden),))]
    z, r, n = i, o, f
    update, reset = (cells.gru_gate(op, direction, x) for x in (z, r))
    if op.linear_before_reset:
        new = cells.gru_hidden(op, direction, update, at("x", 2) + reset * n, h)
        start = "b" if "b" in op.operands else None
        return [Product(0, 2), Product(2, 1, start=start), Cell(((new, hidden),))]
    gates = Cell(((update, (("gates", 0),)), (reset * h, (("gates", 1),))))
    new = cells.gru_hidden(op, direction, z, n, h)
    return [Product(0, 2), gates, Product(2, 1, ("gates", 1)), Cell(((new, hidden),))]


def beginning(op: Recurrent, dtype: str) -> Cell:
    """The state before the first step."""

    def initial(name: str) -> Expr:
        given = name in op.operands
        return expr.input_(OPERANDS.index((f"{name}0", 0)), dtype) if given else expr.const(0.0, dtype)

    return Cell(tuple((initial(name), ((name, 0),)) for name in ("hc" if op.kind == "lstm" else "h")))


def products(op: Recurrent, dtype: str) -> list[Product]:
    """The products of a step, in the order in which they are computed."""
    return [stage for stage in stages(op, 0, dtype) if isinstance(stage, Product)]


# Choosing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling:
    """Tiles of `rows` x (`vectors` * `lanes`) gates; a part is `part` rows of the batch. `form`: how panels
    are stored, where tiles decode them. `dot`: what multiplies bytes of these and of rounded rows."""

    rows: int
    vectors: int
    lanes: int
    part: int
    form: Form | None = None
    dot: Dot | None = None


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """float32 and float64."""
    op = node.op
    if not isinstance(op, Recurrent) or any(v.tensor.layout is not None for v in node.inputs):
        return
    if node.inputs[0].dtype not in ("float32", "float64"):
        return
    options = [_fastest(node, target, form) for form in dict.fromkeys((None, *_forms(node, target)))]
    options += [_fastest(node, target, form, dot) for form, dot in _integers(node, target)]
    cost, tiling = min(options, key=lambda option: option[0].total)
    packed = (1,) if node.inputs[1].constant is not None else ()
    yield Offer(cost + _first_reading(node, target, tiling) + costs.step(target), tiling, packed=packed)


def _fastest(
    node: Node[Recurrent], target: Target, form: Form | None, dot: Dot | None = None
) -> tuple[Estimate, Tiling]:
    """The tiles that compute fastest over panels of a form; of equal ones those that read these least."""
    rows = dims.typical(node.inputs[0].shape[1])

    def order(option: tuple[Estimate, Tiling]) -> tuple[float, int, int]:
        cost, tiling = option
        return cost.compute, -(-rows // tiling.rows), -tiling.vectors

    return min((_tiling(node, target, vectors, form, dot) for vectors in (2, 3, 4)), key=order)


def _tiling(
    node: Node[Recurrent], target: Target, vectors: int, form: Form | None, dot: Dot | None
) -> tuple[Estimate, Tiling]:
    """What a recurrence takes in tiles of so many vectors over panels of that form."""
    op, dtype = node.op, node.inputs[0].dtype
    steps, rows = (dims.typical(d) for d in node.inputs[0].shape[:2])
    lanes = target.lanes(dtype)
    most = mk.most_rows(target, vectors) if form is None else stored_panel.few_rows(target, vectors)
    heights = mk.height_counts(rows, most)
    time = sum(
        count
        * mk.step_time(
            target, height, vectors, mk.chains_for(target, height, vectors) if dot is None else 1, dot
        )
        for height, count in heights.items()
    )
    each = -(-op.columns // lanes)
    weights = op.columns * op.hidden * dtypes.itemsize(dtype)
    cost = Estimate(compute=-(-op.hidden // (dot.group if dot else 1)) * each / vectors * time)
    cost += costs.compute(target, rows * each * costs.CELL)
    if op.rounded:
        cost += costs.compute(target, rows * -(-op.hidden // lanes) * costs.ROUNDED_STATE)
    if form is not None:
        weights = form.panel_bytes(op.columns)
        decoding = form.decoding if dot is None else 0
        cost += costs.compute(target, sum(heights.values()) * op.hidden * each * decoding)
    part = most if weights <= target.facts.level2_bytes // 2 else REUSE * most
    part = ALL if op.rounded else part
    cost += _reading(target, weights) * -(-rows // part)
    return cost * (steps * len(op.directions)), Tiling(most, vectors, lanes, part, form, dot)


def _first_reading(node: Node[Recurrent], target: Target, tiling: Tiling) -> Estimate:
    """What panels take longer in the first step: since the last run, all else was used."""
    op, form = node.op, tiling.form
    whole = op.columns * op.hidden * dtypes.itemsize(node.inputs[0].dtype)
    weights = whole if form is None else form.panel_bytes(op.columns)
    return (costs.stored(target, weights) - _reading(target, weights)) * len(op.directions)


def _reading(target: Target, weights: int) -> Estimate:
    """A step's panels, of which the second-level cache has what it holds."""
    kept = target.facts.level2_bytes
    if weights <= kept:
        return costs.move(target, weights)
    return costs.move(target, kept, kept // 2) + costs.move(target, weights - kept, weights)


def _forms(node: Node[Recurrent], target: Target) -> list[Form]:
    """How r may lie in panels that tiles decode: as it is stored, bytes as bfloat16 too, which every step
    decodes with less; none where its directions differ."""
    stored = _stored(node)
    halves = [as_halves(found) for found in stored]
    found: list[Form] = []
    for option in (stored, halves):
        forms = {None if one is None else form_of(one, target) for one in option}
        found += [form for form in forms if form is not None and len(forms) == 1]
    return found


def _integers(node: Node[Recurrent], target: Target) -> list[tuple[Form, Dot]]:
    """How r may be multiplied with rounded rows as integers: as bytes whose zero points are whole numbers."""
    dot = target.byte_dot(*rounded_state.TYPES)
    if not node.op.rounded or dot is None:
        return []
    forms = {form_of(found, target) for found in _stored(node)}
    return [
        (form, dot) for form in forms if len(forms) == 1 and form is not None and rounded_state.takes(form)
    ]


def _stored(node: Node[Recurrent]) -> list[Stored]:
    """What is stored behind r, [hidden, gates] for each direction; nothing where it has nothing."""
    r = node.inputs[1]
    whole = stored_weights(r.data) if r.constant is not None and r.dtype == "float32" else None
    if whole is None:
        return []
    count, columns, hidden = dims.numbers(r.shape)
    crossed = moved(whole, Transpose((0, 2, 1)), (count, hidden, columns))
    found = []
    for direction in range(count):
        one = crossed and moved(
            crossed, _part((count, hidden, columns), 0, direction, 1), (1, hidden, columns)
        )
        one = one and moved(one, Reshape((hidden, columns)), (hidden, columns))
        if one is None:
            return []
        found.append(one)
    return found


def _part(shape: tuple[int, ...], axis: int, first: int, count: int) -> Slice:
    """`count` elements along an axis."""
    starts = tuple(first if k == axis else 0 for k in range(len(shape)))
    sizes = tuple(count if k == axis else n for k, n in enumerate(shape))
    return Slice(starts, sizes, (1,) * len(shape))


def pack(node: Node[Recurrent], choice: Choice[Tiling], operand: int) -> Constant | None:
    """r as [direction][panels of the first product, then of the second]."""
    op, value = node.op, node.inputs[operand].constant
    if operand != 1 or value is None:
        return None
    tiling = choice.tiling
    width, form = tiling.vectors * tiling.lanes, tiling.form
    each = [(p.first * op.hidden, p.count * op.hidden) for p in products(op, value.dtype)]

    def make() -> np.ndarray:
        array = value.array.swapaxes(1, 2)
        parts = [array[..., first : first + count] for first, count in each]
        return np.concatenate([pack_columns(part, width, tiling.lanes) for part in parts], axis=1)

    def make_stored() -> np.ndarray:
        rows = []
        for found in _stored(node):
            if offered(form, node).half:
                found = as_halves(found) or found
            for first, count in each:
                part = moved(found, _part((op.hidden, op.columns), 1, first, count), (op.hidden, count))
                part = offered(part, node)
                rows.append(pack_stored(offered(form, node), part, width, tiling.lanes))
                if tiling.dot is not None:
                    rows.append(rounded_state.sums_of(part, tiling.lanes))
        return np.concatenate(rows).reshape(len(op.directions), -1)

    columns = [padded(count, tiling.lanes) for _, count in each]
    if form is not None:
        beside = rounded_state.SUM * sum(columns) if tiling.dot else 0
        nbytes = sum(map(form.panel_bytes, columns)) + beside
        return Constant("uint8", (len(op.directions), nbytes), make_stored)
    return Constant(value.dtype, (len(op.directions), op.hidden * sum(columns)), make)


def emit(node: Node[Recurrent], choice: Choice[Tiling], target: Target) -> Code:
    return _Recurrence(node, choice, target).code()


# Emission ----------------------------------------------------------------------------------------


class _Recurrence:
    """Writes the steps of the code. Distances are in bytes; only the numbers of steps and rows may be known
    to the run alone."""

    def __init__(self, node: Node[Recurrent], choice: Choice[Tiling], target: Target):
        tiling = choice.tiling
        self.op, self.target, self.cost = node.op, target, choice.cost
        self.dtype = node.inputs[0].dtype
        self.steps, self.batch, *_ = node.inputs[0].shape
        self.operands = {name: k + 2 for k, name in enumerate(self.op.operands)}
        self.constant = node.inputs[1].constant is not None
        self.size = dtypes.itemsize(self.dtype)
        self.rows, self.vectors, self.lanes = tiling.rows, tiling.vectors, tiling.lanes
        self.width = self.vectors * self.lanes
        self.hidden, self.directions = self.op.hidden, len(self.op.directions)
        self.unit_row = self.hidden * self.size  # of a state, and of each gate
        self.gates_row = padded(self.op.columns * self.size, 64)
        self.x_row = self.directions * self.op.columns * self.size
        self.part, self.form, self.dot = tiling.part, tiling.form, tiling.dot
        self.rounded = (
            RoundedState(self.op.hidden, tiling.lanes, offered(tiling.form, node) if tiling.dot else None)
            if self.op.rounded
            else None
        )
        self.groups = 1 if self.part == ALL else dims.ceil_divide(self.batch, self.part)
        self.share = dims.ceil_divide(self.batch, dims.maximum(1, self.groups))  # rows of a part
        self.even = isinstance(self.batch, int) and self.batch == self.groups * self.share
        self.stages = [stages(self.op, d, self.dtype) for d in range(self.directions)]
        same = cells.activations(self.op, 0) == cells.activations(self.op, self.directions - 1)
        self.kinds = 1 if same else self.directions  # of cells
        #: From one row to the next.
        self.strides = {"gates": self.gates_row, "x": self.x_row, "p": 0, "b": 0} | dict.fromkeys(
            ("h", "c", "y", "h0", "c0"), self.unit_row
        )
        if self.rounded is not None:
            self.strides |= {"range": 0, "q": self.rounded.row_bytes}

    def cells(self, number: int) -> list[Cell]:
        """Those of the stage `number`, one for each kind; none where it is a product."""
        found = (self.stages[kind][number] for kind in range(self.kinds))
        return [stage for stage in found if isinstance(stage, Cell)]

    # Functions -----------------------------------------------------------------------------------

    def versions(self, product: Product) -> list[tuple[str, int, int, int | None]]:
        """The kinds of panels as (name, how many, vectors, columns, None being all)."""
        whole, tail = divmod(product.count * self.hidden, self.width)
        return [("tile", whole, self.vectors, None)] * (whole > 0) + (
            [("edge", 1, -(-tail // self.lanes), tail)] if tail else []
        )

    def panel_bytes(self, product: Product) -> int:
        """Of one direction's panels."""
        columns = padded(product.count * self.hidden, self.lanes)
        return self.bytes_of(columns) + (rounded_state.SUM * columns if self.dot else 0)

    def bytes_of(self, columns: int) -> int:
        """Of a panel of so many columns."""
        return self.form.panel_bytes(columns) if self.form else self.hidden * columns * self.size

    def emit_tiles(self, text: Text, name: str, product: Product) -> None:
        """{name}.tile{height} and {name}.edge{height}: tiles of the product, of every height that occurs."""
        heights: Iterable[int] = range(1, self.rows + 1)
        if self.even:
            heights = mk.height_counts(dims.number(self.share), self.rows)
        parameters = ["ptr %left", "ptr %panel", "ptr %start", "ptr %gates"] + ["ptr %sums"] * bool(self.dot)
        for version, _, vectors, columns in self.versions(product):
            for height in sorted(heights):
                title = f"{name}.{version}{height}"
                tile = mk.Tile(height, vectors, self.lanes, self.dtype, self.dtype, self.dtype)
                with text.function(title, parameters, attributes="nounwind noinline") as f:
                    self.emit_tile(f, product, tile, columns)
                    f.statement("ret void")

    def emit_tile(self, f: Function, product: Product, tile: mk.Tile, columns: int | None) -> None:
        def place(pointer: str, stride: int) -> mk.Address:
            return lambda r, j: f.offset(pointer, r * stride + j * self.lanes * self.size)

        start = tile.zeros()
        if product.start == "b":
            start = mk.load_row(f, tile, "%start", columns)
        elif product.start is not None:
            start = mk.load_tile(f, tile, place("%start", self.strides[product.start]), columns)
        step = self.strides[product.left[0]]
        rows = mk.fixed_rows("%left", [r * step for r in range(tile.rows)], 1 if self.dot else self.size)
        # Every column of a row is summed in one order: an edge splits its sums as whole panels do.
        chains = mk.chains_for(self.target, tile.rows, self.vectors)
        if self.form is None:
            sums = mk.multiply_add(f, tile, start, rows, Panel("%panel"), self.hidden, chains=chains)
        elif self.dot is not None:
            sums = rounded_state.multiply_add(f, tile, rows, "%panel", self.form, self.dot, "%sums")
            sums = [mk.plus(f, self.dtype, self.lanes, x, y) for x, y in zip(start, sums, strict=True)]
        else:
            kept = self.bytes_of(self.op.columns) <= self.target.facts.level2_bytes // 2
            sums = stored_panel.multiply_add_decoded(f, tile, rows, "%panel", self.form, chains, not kept)
            sums = [mk.plus(f, self.dtype, self.lanes, x, y) for x, y in zip(start, sums, strict=True)]
        mk.store_tile(f, tile, sums, place("%gates", self.gates_row), columns)

    def emit_cell(self, text: Text, name: str, cell: Cell) -> None:
        """{name}: a cell for all units of one row."""
        parameters = [f"ptr %{pointer}" for pointer in cell.pointers]
        with text.function(name, parameters, attributes="nounwind noinline") as f:
            whole = self.hidden // self.lanes * self.lanes
            with f.loop(0, whole, self.lanes) as loop:
                self.emit_units(f, cell, f.mul(loop.index, self.size), None)
            if self.hidden > whole:
                self.emit_units(f, cell, whole * self.size, self.hidden - whole)
            f.statement("ret void")

    def emit_units(self, f: Function, cell: Cell, offset: int | str, count: int | None) -> None:
        """The vector of units at an offset, of which `count` are there."""

        def place(where: Place) -> str:
            return f.offset(f.offset(f"%{where[0]}", where[1] * self.unit_row), offset)

        values = lower(
            f,
            [root for root, _ in cell.results],
            lambda k: load_first(f, self.dtype, self.lanes, place(OPERANDS[k]), count),
            self.lanes,
        )
        for value, (_, places) in zip(values, cell.results, strict=True):
            for where in places:
                store_first(f, self.dtype, self.lanes, value, place(where), count)

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        if self.constant:
            return Code((self.recurrence_step(),))
        nbytes = self.directions * sum(map(self.panel_bytes, products(self.op, self.dtype)))
        return Code((self.packing_step(), self.recurrence_step()), (nbytes,))

    def recurrence_step(self) -> Step:
        k = KernelText(self.target)
        self.emit_cell(k, f"{ENTRY}.begin", beginning(self.op, self.dtype))
        if "lengths" in self.operands:
            self.emit_cell(k, f"{ENTRY}.idle", Cell(((expr.const(0.0, self.dtype), (("y", 0),)),)))
        if self.rounded is not None:
            self.rounded.emit(k, ENTRY)
        for number, stage in enumerate(self.stages[0]):
            if isinstance(stage, Product):
                self.emit_tiles(k, f"{ENTRY}.product{number}", stage)
            for kind, cell in enumerate(self.cells(number)):
                self.emit_cell(k, f"{ENTRY}.cell{number}.{kind}", cell)
        with k.entry() as f, f.loop("%first", "%last") as parts:
            direction, group = f.divide(parts.index, f.size(self.groups))
            self.emit_part(f, direction if self.directions > 1 else "0", group)
        gates = self.steps * self.batch * (self.directions * self.op.columns)
        work = costs.work(self.cost, gates)
        rows = self.share if isinstance(self.share, int) or self.part == ALL else self.part
        own = self.gates_row + (self.rounded.row_bytes if self.rounded else 0)
        scratch = dims.maximum(64, rows * own + (self.rounded.range_bytes if self.rounded else 0))
        return k.step(self.groups * self.directions, work, scratch)

    def emit_part(self, f: KernelFunction, direction: str, group: str) -> None:
        """All steps of some rows of a direction."""
        op, batch = self.op, f.size(self.batch)
        first = f.mul(group, f.size(self.share))
        rows = f.size(self.share)
        rows = rows if self.even else f.minimum(rows, f.sub(batch, first))
        state = f.mul(f.add(f.mul(direction, batch), first), self.unit_row)
        at = {"gates": "%scratch", "h": f.offset(f.output(1), state)}
        if op.kind == "lstm":
            at["c"] = f.offset(f.output(2), state)
        for name, index in self.operands.items():
            if name in "hc":
                at[f"{name}0"] = f.offset(f.input(index), state)
            elif name in "pb":
                stride = self.unit_row * (3 if name == "p" else 1)
                at[name] = f.offset(f.input(index), f.mul(direction, stride))
        begin = f.add(f.mul(first, self.x_row), f.mul(direction, op.columns * self.size))
        x, y = f.offset(f.input(0), begin), f.offset(f.output(0), state)
        if self.rounded is not None:
            at["range"], at["gates"] = at["gates"], f.offset(at["gates"], self.rounded.range_bytes)
            at["q"] = f.offset(at["gates"], f.mul(rows, self.gates_row))
        self.for_rows(f, rows, f"{ENTRY}.begin", beginning(op, self.dtype).pointers, at)
        steps = f.size(self.steps)
        with f.loop(0, steps) as loop:
            now = self.time(f, direction, loop.index, steps)
            at["x"] = f.offset(x, f.mul(now, f.mul(batch, self.x_row)))
            at["y"] = f.offset(y, f.mul(now, f.mul(batch, self.directions * self.unit_row)))
            self.emit_step(f, direction, first, rows, now, at, f.binary("and", loop.index, 1))

    def time(self, f: Function, direction: str, index: str, steps: str) -> str:
        """The step that a direction takes as number `index`; the reverse one begins with the last."""
        reverse = [name == "reverse" for name in self.op.directions]
        if not any(reverse):
            return index
        mirrored = f.sub(f.sub(steps, 1), index)
        if all(reverse):
            return mirrored
        return f.select(f.compare("eq", direction, reverse.index(True)), "i64", mirrored, index)

    def emit_step(
        self,
        f: KernelFunction,
        direction: str,
        first: str,
        rows: str,
        now: str,
        at: Mapping[str, str],
        odd: str,
    ) -> None:
        each = sum(map(self.panel_bytes, products(self.op, self.dtype)))
        first_panels = f.input(1) if self.constant else f.temporary(0)
        panels = f.offset(first_panels, f.mul(direction, each))
        lengths = None
        if "lengths" in self.operands:
            lengths = f.offset(f.input(self.operands["lengths"]), f.mul(first, 4))
        if self.rounded is not None:
            self.rounded.begin(f, at["range"])
            self.for_rows(f, rows, f"{ENTRY}.widen", ("h", "range"), at, lengths, now, behind=True)
            self.call(f, f"{ENTRY}.settle", [at["range"]])
            self.for_rows(f, rows, f"{ENTRY}.round", ("h", "range", "q"), at)
        for number, stage in enumerate(self.stages[0]):
            if isinstance(stage, Product):
                self.for_tiles(f, f"{ENTRY}.product{number}", stage, rows, panels, at, odd)
                panels = f.offset(panels, self.panel_bytes(stage))
                continue
            final = number == len(self.stages[0]) - 1
            for kind, cell in enumerate(self.cells(number)):
                given = f"{ENTRY}.cell{number}.{kind}", cell.pointers, at, lengths if final else None, now
                if self.kinds == 1:
                    self.for_rows(f, rows, *given)
                else:
                    with f.when(f.compare("eq", direction, kind)):
                        self.for_rows(f, rows, *given)

    def for_tiles(
        self,
        f: Function,
        name: str,
        product: Product,
        rows: str,
        panels: str,
        at: Mapping[str, str],
        odd: str,
    ) -> None:
        """All tiles of all panels; where a part has several tiles of rows, they share a panel."""
        pointer, gate = product.left
        left, left_row = f.offset(at[pointer], gate * self.unit_row), self.strides[pointer]
        gates = f.offset(at["gates"], product.first * self.unit_row)
        start, start_row = gates, self.gates_row
        if product.start is not None:
            start, start_row = at[product.start], self.strides[product.start]
            start = f.offset(start, 0 if product.start == "b" else product.first * self.unit_row)

        def tile(height: int, row: str, version: str, panel: str) -> None:
            column = f.mul(panel, self.width * self.size)
            arguments = [
                f.offset(left, f.mul(row, left_row)),
                f.offset(panels, f.mul(panel, self.bytes_of(self.width))),
                f.offset(f.offset(start, column), f.mul(row, start_row)),
                f.offset(f.offset(gates, column), f.mul(row, self.gates_row)),
            ]
            if self.dot is not None:
                sums = f.offset(panels, self.bytes_of(padded(product.count * self.hidden, self.lanes)))
                arguments.append(f.offset(sums, f.mul(panel, rounded_state.SUM * self.width)))
            self.call(f, f"{name}.{version}{height}", arguments)

        if self.part == self.rows:
            mk.for_equal_tiles(
                f,
                rows,
                self.rows,
                lambda height, row, _: self.for_panels(
                    f, product, odd, lambda *panel: tile(height, row, *panel)
                ),
            )
        else:
            self.for_panels(
                f,
                product,
                odd,
                lambda *panel: mk.for_equal_tiles(
                    f, rows, self.rows, lambda height, row, _: tile(height, row, *panel)
                ),
            )

    def for_panels(self, f: Function, product: Product, odd: str, body: Callable[[str, str], None]) -> None:
        """body(kind, panel) for every panel of a product, in odd steps the last first: a cache that holds but
        some of them has those that were read last."""
        done = 0
        for version, count, _, _ in self.versions(product):
            with f.loop(done, done + count) as loop:
                mirrored = f.sub(2 * done + count - 1, loop.index)
                body(version, f.select(f.compare("eq", odd, 1), "i64", mirrored, loop.index))
            done += count

    def for_rows(
        self,
        f: Function,
        rows: str,
        name: str,
        pointers: Sequence[str],
        at: Mapping[str, str],
        lengths: str | None = None,
        now: str = "0",
        behind: bool = False,
    ) -> None:
        """A function of pointers for every row, but beyond a row's length a result of zeros and the state as
        it is; `behind`: also for the step behind the last, and without that result."""
        with f.loop(0, rows) as loop:

            def place(pointer: str) -> str:
                return f.offset(at[pointer], f.mul(loop.index, self.strides[pointer]))

            arguments = [place(pointer) for pointer in pointers]
            if lengths is None:
                self.call(f, name, arguments)
                return
            length = f.load("i32", f.element(lengths, loop.index, 4), 4)
            running = f.compare("sle" if behind else "slt", now, f.cast("sext", length, "i64", "i32"))
            with f.when(running):
                self.call(f, name, arguments)
            if not behind:
                with f.when(f.invert(running)):
                    self.call(f, f"{ENTRY}.idle", [place("y")])

    def call(self, f: Function, name: str, pointers: Sequence[str]) -> None:
        f.statement(f"call void @{name}({', '.join(f'ptr {p}' for p in pointers)})")

    # Packing r at run time -----------------------------------------------------------------------

    def packing_step(self) -> Step:
        """Copies r into panels; a part is a direction."""
        k = KernelText(self.target)
        each = products(self.op, self.dtype)
        nbytes = sum(map(self.panel_bytes, each))
        with k.entry() as f, f.loop("%first", "%last") as parts:
            matrix = f.offset(f.input(1), f.mul(parts.index, self.op.columns * self.unit_row))
            target = f.offset(f.temporary(0), f.mul(parts.index, nbytes))
            for product in each:
                source = f.offset(matrix, product.first * self.hidden * self.unit_row)
                for _, count, vectors, columns in self.versions(product):
                    with f.loop(0, count, 1, [("ptr", source), ("ptr", target)]) as loop:
                        at, to = loop.carried
                        present = self.width if columns is None else columns
                        to = pack_panel(
                            f,
                            self.dtype,
                            self.lanes,
                            vectors,
                            at,
                            to,
                            self.hidden,
                            self.size,
                            self.unit_row,
                            present,
                        )
                        loop.carry(f.offset(at, self.width * self.unit_row), to)
                    source, target = loop.results
        work = costs.work(costs.move(self.target, costs.PACKING * nbytes), 1)
        return k.step(self.directions, self.directions * work)
