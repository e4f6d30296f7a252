"""Fused groups of kind "experts" (`passes/fuse_experts.py`): rows, each multiplied with the matrix that an
index picks, none of which is copied.

A part takes a group of panels through all rows: as many of one expert as follow each other are the rows of a
product, whose tiles and panels are those of `gemm`, or of `gemm_stored` where fewer bits are stored. The
panels of each expert are packed like those of a batch; those that no row picks are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.derived import put_off
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node, TensorType, Value
from ...ir.interpret import run_op
from ...ir.ops import Contract, Fused, Reshape, Transpose
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import ALL, Choice, Code, KernelFunction, Offer, nearest, offered
from ..nests.nest import fail
from ..tiles import epilogue as epilogues
from ..tiles import gemm_tiling
from ..tiles import microkernel as mk
from ..tiles.contraction import B, Product, product_of
from ..tiles.gemm_tiling import Tiling
from ..tiles.lines import Lines
from ..tiles.stored_form import packed_panels, stored_form, stored_operand
from . import gemm, gemm_stored
from .gemm import Gemm

WEIGHTS = 1  # the operand


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """The fastest tilings by estimate; numbers that stay stored in few bits where the columns of an expert
    fill whole panels."""
    if (
        not isinstance(node.op, Fused)
        or node.op.kind != "experts"
        or any(v.tensor.layout for v in node.inputs)
    ):
        return
    experts, one = node.inputs[WEIGHTS].shape[0], _one(node)
    product = product_of(one)
    if not isinstance(experts, int) or product is None or not epilogues.supported(one.op.epilogue):
        return
    n, depth = product.n.size, product.depth
    if not (isinstance(n, int) and isinstance(depth, int)) or product.operands != (0, WEIGHTS):
        return
    rows = dims.typical(node.inputs[0].shape[0])
    found = []
    for tiling in _tilings(node, one, product, target):
        stored = isinstance(tiling, gemm_stored.Tiling)
        if not stored or n % (tiling.vectors * tiling.lanes) == 0:
            found.append((_estimate(one, product, tiling, target) * min(experts, rows), tiling))
    packed = (WEIGHTS,) if product.constant else ()
    for cost, tiling in nearest(found):
        yield Offer(cost, tiling, packed=packed)


def _estimate(one: Node[Contract], product: Product, tiling: Tiling, target: Target) -> Estimate:
    """Of the rows of one expert."""
    if isinstance(tiling, gemm_stored.Tiling):
        return gemm_stored.estimate(one, product, tiling, target)
    return gemm_tiling.estimate(one, product, tiling, target)


def _tilings(node: Node[Fused], one: Node[Contract], product: Product, target: Target) -> Iterator[Tiling]:
    form = None if not product.constant else stored_form(*_all(node), target)
    if form is not None:
        stored = gemm_stored.tilings(one, product, form, target)
        # digits of rows have a step of their own, before it is known which rows an expert has
        found: Iterator[Tiling] = (replace(tiling, digits=False) for tiling in stored)
    else:
        found = gemm_tiling.tilings(product, target)
    for tiling in found:
        rows, width = tiling.rows, tiling.vectors * tiling.lanes
        tile_time = dims.typical(product.depth) * mk.step_time(target, rows, tiling.vectors) + costs.cycles(
            target, costs.TILE
        )
        _, _, group = gemm_tiling.parts_of_tiles(product, target, rows, width, tile_time, by_rows=False)
        source: gemm_tiling.Source = "constant" if product.constant else "packed"
        yield replace(tiling, order="panels", block=ALL, group=group, source=source)


# The two products --------------------------------------------------------------------------------


def _contract(node: Node[Fused]) -> Node[Contract]:
    """The product in the group."""
    return node.op.region.nodes[-1]


def _one(node: Node[Fused]) -> Node[Contract]:
    """The product of the rows of one expert, a number that only the run knows, with its matrix [n, k]."""
    rows, weights, *extra, _ = node.inputs
    count, experts = dims.typical(rows.shape[0]), dims.typical(weights.shape[0])
    several = dims.symbol("rows", 0, max(1, count // experts))

    def cut(value: Value) -> Value:
        one = value.rank < 2 or value.shape[0] == 1
        return value if one else Value(TensorType(value.dtype, (several, *value.shape[1:])))

    columns, depth = _matrix(node)
    constant = Constant(weights.dtype, dims.numbers((columns, depth)), splat=0) if weights.constant else None
    matrix = Value(TensorType(weights.dtype, (columns, depth)), "", constant)
    x = Value(TensorType(rows.dtype, (several, depth)))
    y = Value(TensorType(node.outputs[0].dtype, (several, columns)))
    op = replace(_contract(node).op, lhs="mk", rhs="nk", out="mn")
    return Node(op, (x, matrix, *map(cut, extra)), (y,), node.origin)


def _each(node: Node[Fused]) -> tuple[Node[Contract], Product]:
    """The product of some rows with the matrix of each expert, as a batch: what is packed."""
    rows, weights, *_ = node.inputs
    op, (columns, depth) = _contract(node).op, _matrix(node)
    expert, column = op.out[0], op.out[1]
    row = next(c for c in "xyzw" if c not in op.rhs)
    experts, several = weights.shape[0], dims.symbol("rows")
    x = Value(TensorType(rows.dtype, (experts, several, depth)))
    y = Value(TensorType("float32", (experts, several, columns)))
    batch = Contract(expert + row + op.summed, op.rhs, expert + row + column, "float32")
    whole = Node(batch, (x, weights), (y,), node.origin)
    return whole, offered(product_of(whole), node)


def _all(node: Node[Fused]) -> tuple[Node[Contract], Product]:
    """The product of all rows with the matrices of all experts, one under the other: [experts * n, k]."""
    rows, weights, *_ = node.inputs
    columns, depth = _matrix(node)
    experts = weights.shape[0]
    matrix = Value(TensorType(weights.dtype, (experts * columns, depth)))
    if weights.constant is not None:
        column = _column(_contract(node).op)
        perm = (0, column, 3 - column)
        crossed = _derived(Transpose(perm), weights.constant, (experts, columns, depth))
        matrix.constant = _derived(Reshape(matrix.shape), crossed, matrix.shape)
    y = Value(TensorType("float32", (rows.shape[0], experts * columns)))
    whole = Node(Contract("mk", "nk", "mn", "float32"), (rows, matrix), (y,), node.origin)
    return whole, offered(product_of(whole), node)


def _matrix(node: Node[Fused]) -> tuple[Dimension, Dimension]:
    """(n, k) of an expert's matrix."""
    op, weights = _contract(node).op, node.inputs[WEIGHTS]
    return weights.shape[_column(op)], weights.shape[3 - _column(op)]


def _column(op: Contract) -> int:
    """The axis of the matrices that is one of the result; the other is summed over."""
    return op.rhs.index(op.out[1])


def _derived(op: Reshape | Transpose, source: Constant, shape: tuple[Dimension, ...]) -> Constant:
    numbers = dims.numbers(shape)
    return put_off(op, (source,), source.dtype, numbers, lambda: run_op(op, [source.array], {})[0])


# Packing and emission ----------------------------------------------------------------------------


def pack(node: Node[Fused], choice: Choice[Tiling], operand: int) -> Constant | None:
    """The matrices of all experts in panels."""
    tiling = choice.tiling
    stored = isinstance(tiling, gemm_stored.Tiling)
    whole, product = (_all if stored else _each)(node)
    if operand != WEIGHTS or not product.constant:
        return None
    if isinstance(tiling, gemm_stored.Tiling):
        found = offered(stored_operand(whole, product), node)
        return packed_panels(tiling.form, found, tiling.vectors * tiling.lanes, tiling.lanes)
    return gemm.pack_product(whole, product, tiling, 1, 1)


def emit(node: Node[Fused], choice: Choice[Tiling], target: Target) -> Code:
    one, tiling = _one(node), choice.tiling
    product = offered(product_of(one), node)
    if isinstance(tiling, gemm_stored.Tiling):
        return _StoredExperts(one, product, tiling, choice.cost, target).of(node).code()
    return _PlainExperts(one, product, tiling, choice.cost, target).of(node).code()


class _Experts(Gemm):
    """The product of one expert, written for each run of rows that go to the same."""

    def of(self, node: Node[Fused]) -> _Experts:
        self.node, self.indices = node, len(node.inputs) - 1
        self.every = node.inputs[0].shape[0]  # row
        self.experts = dims.number(node.inputs[WEIGHTS].shape[0])
        self.run = "0"  # rows of the expert that is being written
        return self

    @property
    def strips(self) -> Lines:
        return Lines(1, 1)  # which is all that an expert has

    @property
    def pieces(self) -> Dimension:
        return 1

    def matrix_bytes(self) -> Dimension:
        """Of the panels of one expert."""
        return self.panels_bytes()

    def multiply_adds(self) -> Dimension:
        return self.every * self.product.n.size * self.product.depth

    def rows(self, f: KernelFunction) -> str:
        return self.run

    def emit_part(self, f: KernelFunction, places: dict[int, str], part: tuple[str, str], group: str) -> None:
        indices, rows = f.input(self.indices), f.size(self.every)
        with f.loop(0, rows, carried=[("i64", "0")]) as loop:
            here, (first,) = loop.index, loop.carried
            following = f.add(here, 1)
            expert = self.index(f, indices, here)
            ends = f.compare("eq", following, rows, "i64")
            other = self.index(f, indices, f.select(ends, "i64", here, following))
            ends = f.binary("or", ends, f.compare("ne", expert, other), "i1")
            with f.when(ends):
                self.run = f.sub(following, first)
                every = "0", self.number_of_tiles(f)
                self.share(f, every)
                super().emit_part(f, self.run_places(f, places, first, expert), every, group)
            loop.carry(f.select(ends, "i64", following, first))

    def index(self, f: KernelFunction, indices: str, row: str) -> str:
        dtype = self.node.inputs[self.indices].dtype
        number = f.load(f"i{8 * dtypes.itemsize(dtype)}", f.element(indices, row, dtypes.itemsize(dtype)))
        return f.cast("sext", number, "i64")

    def run_places(
        self, f: KernelFunction, places: dict[int, str], first: str, expert: str
    ) -> dict[int, str]:
        """The addresses for the rows from `first` on and an expert, which is checked, below 0 counted from
        the end."""
        negative = f.compare("slt", expert, 0)
        wrapped = f.add(expert, f.select(negative, "i64", str(self.experts), "0"))
        with f.when(f.compare("uge", wrapped, self.experts)):
            fail(f, "index_out_of_range", expert)
        matrix = f.mul(wrapped, dims.number(self.matrix_bytes()))

        def here(operand: int) -> str:
            return matrix if operand == B else f.mul(first, f.size(self.step_of(self.product.m, operand)))

        return {operand: f.offset(pointer, here(operand)) for operand, pointer in places.items()}


class _PlainExperts(_Experts):
    def code(self) -> Code:
        if self.product.constant:
            return Code((self.product_step(),))
        whole, product = _each(self.node)
        packing = Gemm(whole, product, self.tiling, self.cost, self.target)
        nbytes = dims.number(packing.panels_bytes()) * self.experts
        return Code((packing.packing_step(), self.product_step()), (nbytes,))


class _StoredExperts(_Experts, gemm_stored.Stored):
    def matrix_bytes(self) -> Dimension:
        return self.panels * self.panel_bytes()

    def code(self) -> Code:
        return Code((self.product_step(),))
