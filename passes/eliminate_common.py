"""eliminate_common: equal nodes over equal operands become one.

%0 = map(%x) { exp($0) }; %1 = map(%x) { exp($0) }   →   %0 = map(%x) { exp($0) }, read twice
"""

from __future__ import annotations

import numpy as np

from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Rewriter, Value
from ..ir.ops import Bind, Random, RuntimeCall

_UNIQUE = (Bind, Random, RuntimeCall)  # each does what no other does for it


@everywhere
def eliminate_common(graph: Graph) -> Graph:
    """graph with one node for all that compute the same."""
    rewriter = Rewriter(graph)
    seen: dict[tuple, tuple[Value, ...]] = {}
    for node in graph.nodes:
        key = (node.op, tuple(_key(rewriter.of(v)) for v in node.inputs))
        if key in seen and not isinstance(node.op, _UNIQUE):
            rewriter.replace(node.outputs, seen[key])
        else:
            seen[key] = rewriter.copy(node).outputs
    return rewriter.finish()


def _key(value: Value) -> object:
    """Equal for small equal constants; else the value itself."""
    constant = value.constant
    if constant is None or constant.dtype == "string":
        return value
    if constant.splat is not None:
        return constant.dtype, constant.shape, np.asarray(constant.splat).tobytes()
    if constant.materialised and constant.nbytes <= 256:
        return constant.dtype, constant.shape, constant.array.tobytes()
    return value
