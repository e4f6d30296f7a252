"""Matrix products of many terms, a slice of them after the other: the tiles of `gemm.py`, in several steps.

    step 0:  sums  = A[:, :s]   B[:s]        all panels run through rows of A which the second-level cache
    step 1:  sums += A[:, s:2s] B[s:2s]      holds, so that B is read once, however many rows there are
    ...      C     = epilogue(sums + ...)
Sums wait in a buffer, [panel][row][column]; every element adds its terms in the order in which one step does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Argument, Choice, Code, KernelFunction, Offer, nearest, offered
from ..text.emitter import Function
from ..tiles import gemm_tiling
from ..tiles import microkernel as mk
from ..tiles.contraction import A, Product, product_of, tiled_product
from ..tiles.stored_form import stored_form
from . import gemm
from .gemm import Gemm

LEAST = 256  # terms of a slice
WHOLE = 64  # of which slices have multiples


# Choosing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling(gemm_tiling.Tiling):
    """That of `gemm` for `slice` terms, which a step adds."""

    slice: int = 0


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """The fastest by estimate, for one product of floats with a constant."""
    product = tiled_product(node)
    if product is None or not _fits(product) or stored_form(node, product, target) is not None:
        return
    options = (
        (estimate(node, product, t, target), t) for t in tilings(gemm_tiling.expected(product), target)
    )
    for cost, tiling in nearest(options):
        yield Offer(cost, tiling, packed=(product.operands[1],))


def _fits(product: Product) -> bool:
    """Whether it is one product of known depth."""
    single = not product.outer and len(product.k) == 1 and isinstance(product.depth, int)
    return single and product.constant and dtypes.is_float(product.accumulate)


def tilings(product: Product, target: Target) -> Iterator[Tiling]:
    """Where rows of all terms are too many for the second-level cache: slices of every size that is worth it,
    and as many rows a part as leave theirs in a third of it. Panels and sums have the others."""
    depth, m, size = dims.number(product.depth), product.m.size, dtypes.itemsize(product.lhs)
    if dims.typical(m) * depth * size <= target.facts.level2_bytes // 2:
        return
    for terms in dict.fromkeys(-(-depth // (n * WHOLE)) * WHOLE for n in range(2, depth // LEAST + 1)):
        for tiling in gemm_tiling.tilings(sliced(product, terms), target):
            if tiling.k_step > 1 or mk.chains_for(target, tiling.rows, tiling.vectors) > 1:
                continue
            block = max(1, target.facts.level2_bytes // 3 // (terms * size * tiling.rows))
            tiles = -(-dims.typical(m) // tiling.rows)
            if isinstance(m, int) and tiles:
                block = -(-tiles // -(-tiles // block))  # blocks of equal size
            parts = {"order": "panels", "block": block, "group": 1, "slice": terms}
            yield Tiling(**vars(tiling) | parts)


def sliced(product: Product, terms: int) -> Product:
    """The product of so many terms."""
    return replace(product, k=(replace(product.k[0], size=terms),))


def slices(product: Product, size: int) -> list[int]:
    """The terms of each slice; the last may have fewer."""
    depth = dims.number(product.depth)
    return [min(size, depth - first) for first in range(0, depth, size)]


def estimate(node: Node, product: Product, tiling: Tiling, target: Target) -> Estimate:
    """That of `gemm`, whose panels use the rows of a slice in turns; sums are written and read while no tile
    multiplies."""
    found = gemm_tiling.estimate(node, product, tiling, target, tiling.slice)
    between = len(slices(product, tiling.slice)) - 1
    m, n = dims.typical(product.m.size), dims.typical(product.n.size)
    sums = 2 * m * n * dtypes.itemsize(product.accumulate)
    rows = m * tiling.slice * dtypes.itemsize(product.lhs)
    moved = sums / costs.rate(target, sums + rows)
    return found + Estimate(overhead=moved) * between + costs.step(target, between)


def pack(node: Node[Contract], choice: Choice[Tiling], operand: int) -> Constant | None:
    return gemm.pack(node, choice, operand)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node[Contract], choice: Choice[Tiling], target: Target) -> Code:
    product, tiling = offered(product_of(node), node), choice.tiling
    steps, before, whole = [], 0, dims.number(product.depth)
    for terms in slices(product, tiling.slice):
        cost = choice.cost * (terms / whole)
        slice_ = Slice(node, product, tiling, cost, target, before, terms)
        steps.append(slice_.product_step())
        before += terms
    return Code(tuple(steps), (slice_.sums_bytes,), tuple(slice_.extra))


class Slice(Gemm):
    """Writes the step that adds `terms` terms to the sums of those `before`."""

    def __init__(
        self,
        node: Node[Contract],
        product: Product,
        tiling: Tiling,
        cost: Estimate,
        target: Target,
        before: int,
        terms: int,
    ):
        super().__init__(node, sliced(product, terms), tiling, cost, target)
        self.depth = product.depth  # what is between panels
        self.before, self.last = before, before + terms == product.depth
        # In the entry: the number of the first term, and where the sums of a matrix are.
        self.first, self.sums_of_all = "0", ""

    # Sums ----------------------------------------------------------------------------------------

    @property
    def sums_row(self) -> int:
        """Bytes of a row of a panel's sums."""
        return self.width * dtypes.itemsize(self.product.accumulate)

    @property
    def sums_bytes(self) -> Dimension:
        return self.panels * self.product.m.size * self.sums_row

    def sums_address(self, f: Function, tile: mk.Tile, row: int, vector: int) -> str:
        size = dtypes.itemsize(tile.accumulate)
        return f.offset("%sums", row * self.sums_row + vector * tile.lanes * size)

    def start(self, f: Function, tile: mk.Tile) -> list[str]:
        if self.before == 0:
            return tile.zeros()
        return mk.load_tile(f, tile, lambda row, vector: self.sums_address(f, tile, row, vector))

    def finish(
        self, f: Function, name: str, tile: mk.Tile, sums: Sequence[str], columns: int | str | None
    ) -> None:
        if self.last:
            return super().finish(f, name, tile, sums, columns)
        mk.store_tile(f, tile, sums, lambda row, vector: self.sums_address(f, tile, row, vector))

    # Places --------------------------------------------------------------------------------------

    def parameters(self) -> tuple[list[str], list[str]]:
        pointers, numbers = super().parameters()
        behind = pointers.index("%scratch")
        return [*pointers[:behind], "%sums", *pointers[behind:]], numbers

    def places(self, f: KernelFunction, index: str) -> dict[int, str]:
        """Of A that of the first term. It is a word, so that all steps in the middle are one text."""
        found = super().places(f, index)
        if self.before:
            self.first = f.word(Argument("size", dimension=self.before), "i64")
            found[A] = f.offset(found[A], f.mul(self.first, f.size(self.step_of(self.product.k[0], A))))
        self.sums_of_all = f.temporary(0)
        return found

    def panel_start(self, f: KernelFunction, name: str, panel: str) -> str:
        """That of the first term, in panels as wide as their kind."""
        (vectors,) = (vectors for kind, vectors, _ in self.versions if kind == name)
        return f.offset(panel, f.mul(self.first, self.tile(1, vectors).panel_step))

    def tile_places(self, f: KernelFunction, places: dict[int, str], row: str, panel: str) -> list[str]:
        rows = f.add(f.mul(panel, f.size(self.product.m.size)), row)
        sums = f.offset(self.sums_of_all, f.mul(rows, self.sums_row))
        return [*super().tile_places(f, places, row, panel), sums]
