"""Matrix products whose rows only the run counts, with a B that the run makes: a decoder's queries are the
tokens of a prompt, then one. Few rows read B where it lies, along n or along k, since to bring it into panels
would take longer than to multiply; more have it packed.

      rows m ≤ `most`:  tiles of `few`, the packing and tiles of `many` have no parts
      rows m > `most`:  packing, then tiles of `many`, those of `few` have no parts
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace

from ...ir import dims
from ...ir.graph import Node
from ...ir.ops import Contract
from ...records import dataclass
from ...target import Target
from ..costs import Estimate
from ..kernel import MORE, Choice, Code, Offer, as_it_is, either, offered
from ..tiles import gemm_tiling
from ..tiles.contraction import Product, contraction_of, product_of
from . import gemm, gemm_dots

ROWS = (16, 8, 4, 2, 1)  # that may be few


@dataclass(frozen=True)
class Tiling:
    """At most `most` rows are multiplied by the tiles `few`, whose lanes run along k where B lies `along` it,
    more by the tiles `many`."""

    most: int
    few: gemm_tiling.Tiling
    many: gemm_tiling.Tiling
    along: bool

    def few_cost(self, node: Node[Contract], product: Product, target: Target) -> Estimate:
        estimate = gemm_dots.estimate if self.along else gemm_tiling.estimate
        return estimate(node, product, self.few, target)

    def many_cost(self, node: Node[Contract], product: Product, target: Target) -> Estimate:
        return gemm_tiling.estimate(node, product, self.many, target)

    def cost(self, node: Node[Contract], product: Product, target: Target) -> Estimate:
        """Of as many rows as are typical."""
        few = dims.typical(product.m.size) <= self.most
        return (self.few_cost if few else self.many_cost)(node, product, target)

    def faster(self, node: Node[Contract], product: Product, target: Target) -> bool:
        """Whether the tiles of few take less than those of many, packing included."""
        return self.few_cost(node, product, target).total < self.many_cost(node, product, target).total


# Choosing ----------------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """The fastest tilings of few and of many rows by estimate, where these pack B."""
    contraction = contraction_of(node)
    product = None if contraction is None else product_of(contraction)
    if contraction is None or product is None or product.constant or isinstance(product.m.size, int):
        return
    with dims.of_many(MORE) if dims.typical(product.m.size) < MORE else nullcontext():
        offers = list(gemm.candidates(node, target))
    many = min(offers, key=lambda offer: offer.time).tiling if offers else None
    if many is None or many.source == "direct":
        return
    product = gemm_tiling.expected(product)
    one, *more = (_of_rows(product, rows) for rows in (1, *ROWS))
    for some in more:
        found = (Tiling(dims.number(some.m.size), few, many, along) for few, along in _unpacked(some, target))
        faster = [tiling for tiling in found if tiling.faster(contraction, some, target)]
        if faster:
            best = min(faster, key=lambda tiling: _order(contraction, one, some, tiling, target))
            yield Offer(best.cost(contraction, product, target), best)
            return


def _of_rows(product: Product, rows: int) -> Product:
    return replace(product, m=replace(product.m, size=rows))


def _unpacked(product: Product, target: Target) -> Iterator[tuple[gemm_tiling.Tiling, bool]]:
    """The tilings that read B where it lies, and whether they do so along k."""
    for tiling in gemm_tiling.tilings(product, target):
        if tiling.source == "direct":
            yield tiling, False
    if gemm_dots.fits(product, target):
        for tiling in gemm_dots.tilings(product, target):
            yield tiling, True


def _order(
    node: Node[Contract], one: Product, some: Product, tiling: Tiling, target: Target
) -> tuple[float, float]:
    """First is what a single row, which comes most, takes least instructions with, then what is the fastest
    for the most of the few."""
    single = tiling.few_cost(node, one, target)
    return single.compute + single.overhead, tiling.few_cost(node, some, target).total


pack = as_it_is


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node, choice: Choice[Tiling], target: Target) -> Code:
    node, tiling = offered(contraction_of(node), node), choice.tiling
    product = offered(product_of(node), node)
    typical, kind = gemm_tiling.expected(product), gemm_dots.Dots if tiling.along else gemm.Gemm
    few = kind(node, product, tiling.few, tiling.few_cost(node, typical, target), target)
    many = gemm.Gemm(node, product, tiling.many, tiling.many_cost(node, typical, target), target)
    return either(dims.compare("lt", tiling.most, product.m.size), many.code(), few.code())
