"""Dense convolutions of single pixels whose weights are stored as halves: the product of `gemm` with pixels
as columns, of which a tile widens its rows of weights before it goes through a group of panels.

        k →                     n →  pixels, where they lie
      ┌─────────┐            ┌──────┬──────┬───┐
   m  │ halves  │ → floats   │ tile │      │   │   a row of floats begins a line further than its terms end,
   ↓  └─────────┘            └──────┴──────┴───┘   so that rows do not share sets of the cache
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...ir.stored import half_weights
from ...target import LINE, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, Offer, offered
from ..text.emitter import scalar_type, vector_type
from ..tiles import gemm_tiling
from ..tiles.contraction import A, Product, contraction_of, product_of, tiled_product
from ..tiles.gemm_tiling import Tiling
from ..tiles.packing import padded
from ..tiles.panel_operand import load_widened
from ..tiles.stored_form import stored_halves
from .gemm import Gemm

# Choosing ----------------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """The fastest tiling by estimate, where weights are halves that the processor widens."""
    contraction = contraction_of(node, of_halves=True)
    product = None if contraction is None else tiled_product(contraction)
    if contraction is None or product is None or stored_halves(_weights(node), target) is None:
        return
    timed = ((estimate(contraction, product, tiling, target), tiling) for tiling in tilings(product, target))
    cost, tiling = min(timed, key=lambda each: each[0].total)
    yield Offer(cost, tiling, packed=(product.operands[A],))


def _weights(node: Node) -> Constant | None:
    return node.inputs[1].constant


def tilings(product: Product, target: Target) -> Iterator[Tiling]:
    """Those of `gemm`, by rows, as many panels at a time as stay in a quarter of the second-level cache."""
    for tiling in gemm_tiling.tilings(product, target):
        panel = dims.number(product.depth) * dtypes.itemsize(product.rhs) * tiling.lanes * tiling.vectors
        held = max(1, target.facts.level2_bytes // 4 // max(1, panel))
        group = tiling.group if tiling.order == "rows" else held
        yield replace(tiling, order="rows", group=group, copied=True)


def estimate(node: Node[Contract], product: Product, tiling: Tiling, target: Target) -> Estimate:
    """That of `gemm`, and to widen all weights for each group of panels."""
    found = gemm_tiling.estimate(node, product, replace(tiling, copied=False), target)
    panels = -(-dims.typical(product.n.size) // (tiling.vectors * tiling.lanes))
    vectors = dims.number(product.m.size) * -(-dims.number(product.depth) // tiling.lanes)
    again = -(-panels // tiling.group) * dims.typical(product.repeats)
    return found + costs.compute(target, costs.CONVERTED * vectors * again)


def pack(node: Node, choice: Choice[Tiling], operand: int) -> Constant | None:
    """Rows of whole vectors."""
    if operand != 1:
        return None
    halves = offered(half_weights(_weights(node)), node)
    rows, depth = dims.numbers(halves.shape[:2])
    width = padded(depth, choice.tiling.lanes)

    def make() -> np.ndarray:
        return np.pad(halves.array.reshape(rows, depth), [(0, 0), (0, width - depth)])

    return Constant(halves.dtype, (rows, width), make)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node, choice: Choice[Tiling], target: Target) -> Code:
    stored = offered(stored_halves(_weights(node), target), node)
    node = offered(contraction_of(node, of_halves=True), node)
    return _Halves(node, offered(product_of(node), node), choice, target, stored).code()


class _Halves(Gemm):
    """Writes the step; `stored`: the type of the weights."""

    def __init__(
        self, node: Node[Contract], product: Product, choice: Choice[Tiling], target: Target, stored: str
    ):
        super().__init__(node, product, choice.tiling, choice.cost, target)
        self.stored = stored
        self.width_of_rows = padded(dims.number(product.depth), self.tiling.lanes)

    @property
    def copied_apart(self) -> tuple[int, int]:
        return self.width_of_rows * self.sizes[A] + LINE, self.sizes[A]

    @property
    def bytes_of_copy(self) -> int:
        return self.tiling.rows * self.copied_apart[0]

    def copy_rows(self, f: KernelFunction, a: str, height: int, row: str) -> None:
        """Widens the rows of a tile."""
        lanes, item = self.tiling.lanes, dtypes.itemsize(self.stored)
        source = f.offset(a, f.mul(row, self.width_of_rows * item))
        wide = self.product.accumulate
        with f.loop(0, height) as rows, f.loop(0, self.width_of_rows, lanes) as terms:
            halves = f.offset(source, f.mul(f.add(f.mul(rows.index, self.width_of_rows), terms.index), item))
            floats = load_widened(f, self.stored, wide, lanes, halves)
            place = f.offset(self.copied_rows(f), f.mul(rows.index, self.copied_apart[0]))
            f.store(
                vector_type(scalar_type(wide), lanes), floats, f.element(place, terms.index, self.sizes[A])
            )
