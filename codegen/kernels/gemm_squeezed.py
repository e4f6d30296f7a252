"""Matrix products of few rows with constant float32 weights that come from far: panels hold each weight in 28
bits (`squeezed_panel.py`), of which an eighth less has to arrive.

A tile decodes its panel in registers. Products whose rows only the run counts may have many, for which
panels are not squeezed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import dims
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, Offer, nearest, offered
from ..text.emitter import Function
from ..tiles import epilogue as epilogues
from ..tiles import microkernel as mk
from ..tiles.contraction import Product, product_of
from ..tiles.squeezed_panel import Squeezed, multiply_add_squeezed, packed_squeezed, squeezed_forms
from ..tiles.stored_panel import few_rows
from . import gemm_stored
from .gemm import constant_matrix
from .gemm_stored import Stored, Tiling

PARTS = 4  # of the second-level cache, one of which weights fill at least: less is there soon, or still

# Choosing ----------------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """The fastest tiling by estimate, where a run touches more than the second-level cache holds."""
    product = product_of(node)
    if product is None or not epilogues.supported(node.op.epilogue) or not mk.waits(target):
        return
    together = product.constant and not product.panels_axes and len(product.k) == 1
    types = {product.lhs, product.rhs, product.accumulate}
    m = product.m.size
    few = isinstance(m, int) and 0 < m <= few_rows(target, 1)
    if not together or types != {"float32"} or node.op.rounded or not few:
        return
    constant = offered(node.inputs[product.operands[1]].constant, node)
    if constant.splat is not None or constant.nbytes < target.facts.level2_bytes // PARTS:
        return
    forms = squeezed_forms(constant, dims.number(product.depth))
    found = [tiling for form in forms for tiling in tilings(node, product, form, target)]
    if found:
        cost, tiling = nearest((estimate(node, product, t, target), t) for t in found)[0]
        yield Offer(cost, tiling, packed=(product.operands[1],))


def tilings(node: Node[Contract], product: Product, form: Squeezed, target: Target) -> list[Tiling]:
    """Those whose tiles are as wide as the form's panels and decode them in registers."""
    found = gemm_stored.tilings(node, product, form, target)
    rows = dims.number(product.m.size)
    return [tiling for tiling in found if tiling.vectors == form.vectors and rows <= tiling.few]


def estimate(node: Node[Contract], product: Product, tiling: Tiling, target: Target) -> Estimate:
    """That of `gemm_stored`, and to mend exceptions."""
    form, tiles = _form(tiling), -(-dims.typical(product.m.size) // tiling.rows)
    mended = costs.overhead(target, costs.MENDED * form.exceptions * tiles)
    return gemm_stored.estimate(node, product, tiling, target) + mended


def _form(tiling: Tiling) -> Squeezed:
    assert isinstance(tiling.form, Squeezed)
    return tiling.form


def pack(node: Node[Contract], choice: Choice[Tiling], operand: int) -> Constant | None:
    product = product_of(node)
    if product is None or operand != product.operands[1]:
        return None
    tiling, matrices = choice.tiling, constant_matrix(node, product)
    columns = dims.number(product.n.size)
    return packed_squeezed(_form(tiling), lambda: matrices()[0], columns, tiling.lanes)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node[Contract], choice: Choice[Tiling], target: Target) -> Code:
    return _SqueezedProduct(node, offered(product_of(node), node), choice.tiling, choice.cost, target).code()


class _SqueezedProduct(Stored):
    """Writes the steps of one product."""

    def _versions(self) -> list[tuple[str, int, int | str | None]]:
        """Panels are of one width; the last has zeros beside its columns."""
        return [(name, self.tiling.vectors, columns) for name, _, columns in super()._versions()]

    def decoding_sums(self, f: Function, tile: mk.Tile, rows: mk.Rows, panel: str, chains: int) -> list[str]:
        streams = self.target.facts.streams
        return multiply_add_squeezed(f, tile, rows, panel, _form(self.tiling), chains, streams)
