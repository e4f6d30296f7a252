"""Groups over rows, written as a few reductions and maps."""

from onnxc.ir import dims, dtypes
from onnxc.ir.expr import input_
from onnxc.ir.graph import Graph, TensorType, Value, make_node
from onnxc.ir.ops import Fused, Map, Reduce


class Rows:
    """A region being written: `map` and `reduce` append nodes to it."""

    def __init__(self, types, axes):
        self.inputs, self.axes, self.nodes = [Value(t) for t in types], axes, []

    def map(self, body, *values):
        arguments = [input_(k, v.dtype) for k, v in enumerate(values)]
        self.nodes.append(make_node(Map(body(*arguments)), values))
        return self.nodes[-1].outputs[0]

    def gather(self, op, source, places):
        self.nodes.append(make_node(op, [source, places]))
        return self.nodes[-1].outputs[0]

    def reduce(self, kind, value):
        self.nodes.append(make_node(Reduce(kind, self.axes, True), [value]))
        return self.nodes[-1].outputs[0]


def group(types, axes, write):
    """A Fused node over operands of these types; `write(region, *operands)` gives its results."""
    region = Rows(types, axes)
    results = write(region, *region.inputs)
    results = results if isinstance(results, tuple) else (results,)
    graph = Graph(tuple(region.inputs), results, tuple(region.nodes))
    return make_node(Fused("rows", graph), [Value(t) for t in types])


def symbolic_types(arrays):
    """A variable for every axis that is not 1, the same one for the same axis of the whole."""
    rank = max(a.ndim for a in arrays)
    return [
        TensorType(
            dtypes.from_numpy(a.dtype),
            tuple(
                1 if size == 1 else dims.symbol(f"d{axis}")
                for axis, size in enumerate(a.shape, rank - a.ndim)
            ),
        )
        for a in arrays
    ]
