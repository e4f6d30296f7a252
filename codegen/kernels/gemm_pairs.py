"""Matrix products of bytes by sums of two products in 16 bits (`tiles/pair_sums.py`), where no instruction
adds up four in 32. Sums are exact, and the kernel is offered where further steps are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ...ir import dims
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, Offer, lasting, nearest, offered
from ..text.emitter import Function
from ..tiles import gemm_tiling
from ..tiles import microkernel as mk
from ..tiles.contraction import A, Product, product_of, tiled_product
from ..tiles.packing import pack_columns, padded
from ..tiles.pair_sums import GROUP, MOST_FURTHER, Excess, Further, further_steps, with_further
from . import gemm
from .gemm import Gemm


@dataclass(frozen=True)
class Tiling(gemm_tiling.Tiling):
    """That of `gemm`; `further`: for how many further steps vectors have room."""

    further: int = 0


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """The fastest tilings by estimate, of unsigned bytes times signed constants that are rarely large."""
    product = tiled_product(node) if target.pairs is not None else None
    if product is None or not _multiplies(product, target):
        return
    able = target.with_pairs
    share, room = further_steps(_weights(node, product), target.block)
    if share > MOST_FURTHER:
        return
    found = [
        Tiling(**vars(tiling), further=room)
        for tiling in gemm_tiling.tilings(product, able)
        if tiling.k_step == GROUP
    ]

    def timed(tiling: Tiling) -> Estimate:
        cost = gemm_tiling.estimate(node, product, tiling, able)
        return replace(cost, compute=cost.compute * (1 + costs.FURTHER * share))

    for cost, tiling in lasting(product.m.size, nearest((timed(tiling), tiling) for tiling in found), timed):
        yield Offer(cost, tiling, packed=(product.operands[1],))


def _multiplies(product: Product, target: Target) -> bool:
    """Whether these are products of bytes whose neighbours along k lie together, for which the target has no
    dot product."""
    types, depth = (product.lhs, product.rhs, product.accumulate), product.depth
    if types != ("uint8", "int8", "int32") or target.dot(*types) is not None:
        return False
    if not product.constant or product.panels_axes or not dims.is_static((depth, product.n.size)):
        return False
    together = len(product.k) == 1 and product.k[0].strides[A] == 1
    return together and dims.number(depth) >= GROUP and dims.number(product.n.size) > 0


def _weights(node: Node[Contract], product: Product) -> np.ndarray:
    """[N, K]"""
    return np.asarray(gemm.constant_matrix(node, product)()[0].T)


# Packing -----------------------------------------------------------------------------------------


def pack(node: Node[Contract], choice: Choice[Tiling], operand: int) -> Constant | None:
    product = product_of(node)
    if product is None or operand != product.operands[1]:
        return None
    tiling, columns = choice.tiling, dims.number(product.n.size)
    width, lanes, further = tiling.vectors * tiling.lanes, tiling.lanes, Further(tiling.further)
    steps = -(-dims.number(product.depth) // GROUP)
    each = steps * GROUP * lanes + further.vector_bytes(lanes)

    def make() -> np.ndarray:
        excess = Excess(_weights(node, product))
        # no element behind the last is read
        places = np.minimum(np.arange(steps) * GROUP, excess.depth - GROUP).reshape(-1, 1)
        found = []
        for first in range(0, columns, width):
            part = slice(first, min(columns, first + width))
            kept = excess.kept[part].T
            found.append(pack_columns(kept, padded(kept.shape[1], lanes), lanes, GROUP).view(np.uint8))
            found.append(excess.behind(part, lanes, further, places))
        return np.concatenate(found)

    return Constant("uint8", (-(-columns // lanes) * each,), make)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node[Contract], choice: Choice[Tiling], target: Target) -> Code:
    product = offered(product_of(node), node)
    return OfPairs(node, product, choice.tiling, choice.cost, target.with_pairs).code()


class OfPairs(Gemm):
    """Writes the steps of one product."""

    tiling: Tiling

    def panel_bytes(self) -> int:
        steps, further = dims.number(self.depth) // GROUP, Further(self.tiling.further)
        lanes = self.tiling.lanes
        return self.tiling.vectors * (steps * GROUP * lanes + further.vector_bytes(lanes))

    def sums(
        self,
        f: Function,
        tile: mk.Tile,
        level: int,
        a: str,
        b: str,
        start: Sequence[str],
        columns: int | str | None,
    ) -> list[str]:
        """The steps of all terms, then those of what is beyond."""
        found = super().sums(f, tile, level, a, b, start, columns)

        def rows(place: list[str]) -> mk.Rows:
            return mk.strided_rows(
                f, f.offset(a, place[0]), self.words.of(self.step_of(self.product.m, A)), tile.rows, 1
            )

        behind = f.offset(b, dims.number(self.depth) // GROUP * tile.panel_step)
        return with_further(f, tile, found, behind, Further(self.tiling.further), rows)
