"""The order of the passes, and what runs them: each gives a graph to the next, cleaned and verified between.

import ─▶ require_sizes ─▶ fold_constants ─▶ … ─▶ fuse_bands ─▶ lowering
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, wraps

from ..errors import CompileError
from ..ir.graph import Graph
from ..ir.verify import verify
from ..options import DEFAULTS, Options
from ..target import Target
from .absorb_broadcasts import absorb_broadcasts
from .absorb_transposes import absorb_transposes
from .align_operands import align_operands
from .assign_slices import assign_slices
from .attend_inputs import attend_inputs
from .attend_stored import attend_stored
from .convolve_rows import convolve_rows
from .eliminate_common import eliminate_common
from .eliminate_dead import eliminate_dead
from .flatten_pixels import flatten_pixels
from .flatten_volumes import flatten_volumes
from .flatten_windows import flatten_windows
from .flush_subnormals import flush_subnormals
from .fold_affine import fold_affine
from .fold_constants import fold_constants
from .fold_pads import fold_pads
from .fuse_attention import fuse_attention
from .fuse_bands import fuse_bands
from .fuse_epilogues import fuse_epilogues
from .fuse_experts import fuse_experts
from .fuse_gathers import fuse_gathers
from .fuse_maps import fuse_maps
from .fuse_pools import fuse_pools
from .fuse_resampling import fuse_resampling
from .fuse_rows import fuse_rows
from .fuse_shuffles import fuse_shuffles
from .gather_stored import gather_stored
from .group_heads import group_heads
from .inline_scalars import inline_scalars
from .integer_products import integer_products
from .join_convolutions import join_convolutions
from .lift_reshapes import lift_reshapes
from .merge_movement import merge_movement
from .multiply_pixels import multiply_pixels
from .multiply_taps import multiply_taps
from .narrow_products import narrow_products
from .narrow_weights import Narrowing, narrow_weights
from .nest_joins import nest_joins
from .pool_channels_last import pool_channels_last
from .project_early import project_early
from .reduce_by_rows import reduce_by_rows
from .repeat_late import repeat_late
from .requantise import requantise
from .require_sizes import require_sizes
from .round_late import round_late
from .round_rows import round_rows
from .separate_volumes import separate_volumes
from .shorten_epilogues import shorten_epilogues
from .sink_reshapes import sink_reshapes
from .slice_early import slice_early
from .split_batches import split_batches
from .split_products import split_products
from .store_halves import store_halves
from .store_multiplied import store_multiplied
from .store_wide import store_wide
from .unfold_transposed import unfold_transposed
from .widen import widen


def passes(target: Target, options: Options = DEFAULTS) -> tuple[Callable[[Graph], Graph], ...]:
    """Every pass on core ops, in order; some ask what the target multiplies. `eliminate_dead` follows each,
    so that all that reads a value is seen."""

    def told(step: Callable[[Graph, Target], Graph]) -> Callable[[Graph], Graph]:
        return wraps(step)(lambda graph: step(graph, target))

    weights = Narrowing.of(options.weights)

    @wraps(narrow_weights)
    def stored(graph: Graph) -> Graph:
        return narrow_weights(graph, weights) if weights is not None else graph

    @wraps(narrow_products)
    def narrowed(graph: Graph) -> Graph:
        return narrow_products(graph, target, asked=options.precision == "bf16")

    def settled(step: Callable[[Graph], Graph], *after: Callable[[Graph], Graph]) -> Callable[[Graph], Graph]:
        """The step and, where it does something, what follows from that."""

        @wraps(step)
        def steps(graph: Graph) -> Graph:
            found = step(graph)
            return graph if found is graph else reduce(lambda made, each: each(made), after, found)

        return steps

    return (
        require_sizes,
        *((store_halves,) if weights is None else ()),
        fold_constants,
        *((stored, fold_constants) if weights is not None else ()),
        gather_stored,
        inline_scalars,
        told(store_multiplied),
        told(integer_products),
        round_late,
        told(widen),
        store_wide,
        multiply_pixels,
        unfold_transposed,
        multiply_taps,
        told(flatten_volumes),
        fold_constants,  # weights of a loop are constant in it
        told(separate_volumes),
        told(flatten_windows),
        repeat_late,
        fold_constants,  # what was widened is constant, too, and what does not meet the batch
        *((told(round_rows),) if options.precision == "int8" else ()),
        assign_slices,
        eliminate_common,
        fold_pads,
        split_products,
        merge_movement,  # a Transpose there and back is none, and nobody absorbs one of them
        convolve_rows,
        split_batches,
        absorb_transposes,
        lift_reshapes,  # between scores and what is added to them
        slice_early,
        fuse_attention,
        merge_movement,
        group_heads,
        attend_inputs,
        pool_channels_last,
        fuse_maps,
        lift_reshapes,
        sink_reshapes,
        merge_movement,  # what a Map no longer keeps apart
        eliminate_common,  # what a Map did not read before, but others did
        fuse_maps,  # what a Map took in, or was lifted, may leave another with a single reader
        fold_affine,
        project_early,
        fuse_maps,  # what reads such a convolution now reads a sum
        settled(flatten_pixels, fold_constants),  # places and weights
        fuse_resampling,
        settled(narrowed, fold_constants, fuse_maps),
        told(join_convolutions),
        attend_stored,
        fuse_epilogues,
        align_operands,
        fuse_experts,
        fuse_pools,
        requantise,
        reduce_by_rows,
        fuse_rows,
        fuse_gathers,
        flush_subnormals,
        shorten_epilogues,
        absorb_broadcasts,
        fuse_shuffles,
        nest_joins,
        told(fuse_bands),
    )


def optimise(
    graph: Graph,
    target: Target,
    dump: Callable[[str, Graph], None] = lambda name, graph: None,
    options: Options = DEFAULTS,
) -> Graph:
    """graph after the passes for the target, cleaned after each that changed it; verified then, too, or where
    time counts, once at the end."""
    verify(graph)
    dump("import", graph)
    graph = eliminate_dead(graph)
    for step in passes(target, options):
        before, graph = graph, step(graph)
        if graph is not before:
            graph = eliminate_dead(graph)
        dump(step.__name__, graph)
        if graph is not before and options.optimize == "full":
            _require_valid(graph, f"the pass {step.__name__}")
    if options.optimize != "full":
        _require_valid(graph, "a pass")
    return graph


def _require_valid(graph: Graph, culprit: str) -> None:
    try:
        verify(graph)
    except Exception as error:
        raise CompileError(f"{culprit} left an invalid graph: {error}") from error
