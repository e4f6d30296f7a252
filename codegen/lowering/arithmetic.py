"""In which arithmetic nodes run, and why one is left to loop_nest: what dumps and `onnxc inspect` tell.

uint8 * int8 -> int32      products of these types, added up in that one; rows may be rounded to the first
float32 in bfloat16 * 3    products of float32, each number as a sum of three, or of two
float32                    everything else, by the type that it computes in
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.graph import Graph, Node, TensorType, Value, walk
from ...ir.ops import Attention, Contract, Conv, Pool
from ...target import Target
from ..kernel import Choice
from ..kernels import attention, conv_thirds, gemm_thirds, loop_nest
from ..tiles.blocked import bounded_halo, plane_axes
from ..tiles.contraction import product_of
from ..tiles.epilogue import supported as is_supported
from ..tiles.microkernel import supported as is_added

BY_PARTS = (gemm_thirds, conv_thirds)  # on registers that hold matrices
MOST_TOLD = 50  # nodes, of those that are left to loop_nest


def arithmetic_of(node: Node) -> str:
    """`uint8 * int8 -> int32`, or the type of all numbers."""
    op = node.op
    if node.choice is not None and node.choice.arithmetic:
        return node.choice.arithmetic
    if not isinstance(op, (Contract, Conv)):
        types = [v.dtype for v in node.outputs if isinstance(v.type, TensorType)]
        return types[0] if types else ""
    w = node.inputs[1].dtype
    x = w if isinstance(op, Conv) and op.narrow else node.inputs[0].dtype
    if op.exact:
        return f"integers in {op.accumulate}"
    return op.accumulate if x == w == op.accumulate else f"{x} * {w} -> {op.accumulate}"


def reason_of(node: Node) -> str:
    """Why a node that faster kernels are made for is left to loop_nest, or why its integers are added up as
    real numbers; empty where neither is so."""
    left = node.choice is not None and node.choice.kernel is loop_nest
    if isinstance(node.op, (Contract, Conv)) and node.op.exact and not left:
        return "the target has no products of these integers"
    if not left or not isinstance(node.op, (Contract, Conv, Pool, Attention)):
        return ""
    return next(_obstacles(node), "it was expected to be the fastest")


def _obstacles(node: Node) -> Iterator[str]:
    op, tensors = node.op, [v for v in node.inputs if isinstance(v.type, TensorType)]
    types = " and ".join(dict.fromkeys(v.dtype for v in tensors[:2]))
    if isinstance(op, Contract):
        if not is_added(tensors[0].dtype, tensors[1].dtype, op.accumulate):
            yield f"no tile adds products of {types} in {op.accumulate}"
        if product_of(node) is None:
            yield "its axes are not those of a product of matrices"
        if not is_supported(op.epilogue):
            yield "what becomes of the sums depends on their places"
    elif isinstance(op, Attention):
        if any(v.dtype != "float32" for v in tensors):
            yield f"of {types}"
        elif attention.shape_of(node) is None:
            yield "its rows are not contiguous, or their lengths are not known"
    elif isinstance(op, (Conv, Pool)):
        yield from _obstacles_of_windows(op, tensors, types)


def _obstacles_of_windows(op: Conv | Pool, tensors: list[Value], types: str) -> Iterator[str]:
    if len(op.strides) > 2:
        yield f"{len(op.strides)} spatial axes"
    if not isinstance(tensors[0].shape[1], int):
        yield "the run tells how many channels there are"
    if isinstance(op, Conv):
        if not dims.is_static(tensors[1].shape):
            yield "the run tells the sizes of its weights"
        if types not in ("float32", "float64"):
            grouped = " in groups" if op.groups > 1 else " transposed" if op.transposed else ""
            known = "" if tensors[1].constant is not None else " with weights of the run"
            yield f"no kernel adds products of {types}{grouped}{known} in {op.accumulate}"
    elif not dtypes.is_float(tensors[0].dtype):
        yield f"of {types}"
    if len(op.strides) in (1, 2):
        rank = len(op.strides)
        sides = plane_axes(op.pads[:rank], 0), plane_axes(op.pads[rank:], 0)
        if bounded_halo(zip(*sides)) is None:
            yield "its padding has no known bound"


def unmeasured(graph: Graph, target: Target) -> int:
    """How many products of float32 would take the registers that hold matrices, did `onnxc calibrate` see
    that a core sustains their rate."""
    sustained = replace(target.facts, matrix_sustained=target.facts.matrix_products)
    fast = replace(target, facts=sustained)
    return sum(
        any(offer.time < node.choice.time for kernel in BY_PARTS for offer in kernel.candidates(node, fast))
        for node in walk(graph)
        if isinstance(node.choice, Choice) and node.choice.kernel not in BY_PARTS
    )


def summary(graph: Graph) -> dict[str, object]:
    """How many nodes run in which arithmetic, and those that are left to loop_nest with the reason."""
    nodes = [node for node in walk(graph) if isinstance(node.choice, Choice)]
    left = [(node.origin, reason) for node in nodes if (reason := reason_of(node))]
    return {
        "arithmetic": dict(Counter(filter(None, map(arithmetic_of, nodes))).most_common()),
        "fallbacks": {origin: reason for origin, reason in left[:MOST_TOLD]},
    }
