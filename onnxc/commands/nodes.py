"""`onnxc verify --per-node`: which node of a model is the first whose value departs.

The model is compiled once more with the value of every node as an output. Where it is quantised or computes
in halves, what differs by one rounding would differ ever more behind it, so that nodes read the values of few
bits that the other implementation gives, and a second model, whose outputs are these alone, keeps the
products of integers whole.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..options import DEFAULTS, Options
from ..records import dataclass
from . import comparison
from .comparison import Difference, Feeds, compare
from .ending import ending_clean

#: Types of few bits: where a value falls on the other side between two of theirs, what follows differs more.
ROUNDED = ("int8", "uint8", "int16", "uint16", "float16")
QUANTA = 1  # that rounding to integers may differ by
COMPUTED = ".computed"  # behind the name of a value that others read as it is given


@dataclass(frozen=True)
class NodeDifference:
    """A node of the model, one of its outputs, and how far that is from what was expected."""

    node: str
    op_type: str
    output: str
    difference: Difference


def compare_nodes(
    path: str | os.PathLike,
    against: str,
    feeds: Feeds,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    options: Options = DEFAULTS,
    progress: Callable[[str], None] | None = None,
) -> list[NodeDifference]:
    """Every tensor that the main graph computes, in the order of its nodes. Integers of 8 and 16 bits may
    differ by a quantum. What departs only when values stay inside kernels (a wrong fusion) does not show
    here, but for quantised products."""
    from ..driver import compile_model
    from ..loading.loader import load

    proto, nodes = with_all_outputs(path)
    names = [output.name for output in proto.graph.output]
    values = dict(zip(names, comparison.reference(proto, against)(feeds)))
    tensors = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    given = {name: value for name, value in tensors.items() if value.dtype.name in ROUNDED}

    def computed(outputs: Iterable[str]) -> dict[str, Any]:
        """The values of some nodes, of which quantised ones are given to those that read them."""
        cut = with_values_given(proto, given, outputs)
        with tempfile.TemporaryDirectory(prefix="onnxc-verify-") as folder:
            library = Path(folder) / "model.so"
            with ending_clean():
                compile_model(cut, library, options, progress=progress)
            model = load(library)
            taken = {port.name for port in model.inputs}
            found = model.run(None, {k: v for k, v in (dict(feeds) | given).items() if k in taken})
        return dict(zip((output.name.removesuffix(COMPUTED) for output in cut.graph.output), found))

    ways = [computed(outputs) for outputs in (tensors, given) if outputs]
    found = []
    for node, name in nodes:
        if name in tensors:
            quanta = QUANTA if name in given else 0
            each = [
                compare(name, tensors[name], way[name], rtol, atol, quanta) for way in ways if name in way
            ]
            worst = max(each, key=lambda difference: (not difference.agrees, difference.absolute))
            found.append(NodeDifference(node.name or name, node.op_type, name, worst))
    return found


def with_all_outputs(path: str | os.PathLike) -> tuple[Any, list[tuple[Any, str]]]:
    """(the model with every value of its main graph as an output, the nodes in order with these values)."""
    from ..frontend.model_file import open_model
    from ..frontend.tensors import whole
    from ..frontend.walk import topological_order

    proto = whole(open_model(path))
    outputs = {output.name for output in proto.graph.output}
    nodes = []
    for index in topological_order(proto.graph.node)[0]:
        node = proto.graph.node[index]
        for name in node.output if node.op_type != "Constant" else ():
            if name and name not in outputs:
                proto.graph.output.add(name=name)
            if name:
                nodes.append((node, name))
    return proto, nodes


def with_values_given(proto: Any, given: Mapping[str, np.ndarray], outputs: Iterable[str]) -> Any:
    """The model with these outputs, and with some of its values as inputs: who reads one reads the input, the
    node that computes it gives an output with COMPUTED behind its name."""
    import onnx
    from onnx import helper

    cut = onnx.ModelProto()
    cut.CopyFrom(proto)
    graph = cut.graph
    types = {output.name: output for output in proto.graph.output}
    del graph.output[:]
    for name in outputs:
        graph.output.add().CopyFrom(types[name])
        if name in given:
            graph.output[-1].Clear()
            graph.output[-1].name = name + COMPUTED
    for node in graph.node:
        for k, name in enumerate(node.output):
            if name in given:
                node.output[k] = name + COMPUTED
    inferred = [value for value in graph.value_info if value.name not in given]
    del graph.value_info[:]
    graph.value_info.extend(inferred)
    for name, value in given.items():
        element = helper.np_dtype_to_tensor_dtype(value.dtype)
        graph.input.append(helper.make_tensor_value_info(name, element, value.shape))
    return cut
