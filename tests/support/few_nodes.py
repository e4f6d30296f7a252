"""Sound models of a few nodes, and their parts."""

from __future__ import annotations

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

FLOAT = TensorProto.FLOAT


def value(name: str, shape=(2,), dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op_type: str, inputs: str, outputs: str, **attributes) -> NodeProto:
    """A node named `n_` and its first output. Names are separated by blanks, `-` stands for ''."""
    names = [["" if name == "-" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op_type, *names, name=f"n_{names[1][0] if names[1] else ''}", **attributes)


def referring(op_type: str, inputs: str, outputs: str, reference: str, **attributes) -> NodeProto:
    """A node with a float attribute `alpha` that refers to the function's attribute `reference`."""
    made = node(op_type, inputs, outputs, **attributes)
    made.attribute.add(name="alpha", type=AttributeProto.FLOAT, ref_attr_name=reference)
    return made


def graph(*nodes: NodeProto, inputs="x", outputs="y", initializers=()) -> GraphProto:
    return helper.make_graph(
        list(nodes),
        "g",
        [value(name) for name in inputs.split()],
        [value(name) for name in outputs.split()],
        list(initializers),
    )


def sparse(name: str) -> onnx.SparseTensorProto:
    """The vector [0, 3] under a name, as a sparse tensor."""
    values = helper.make_tensor(name, FLOAT, [1], [3.0])
    return helper.make_sparse_tensor(values, helper.make_tensor("", TensorProto.INT64, [1], [1]), [2])


def with_sparse_default() -> ModelProto:
    """y = x + w, where w is [0, 3], a sparse tensor, unless the run gives it."""
    proto = model(node("Add", "x w", "y"), inputs="x w")
    proto.graph.sparse_initializer.append(sparse("w"))
    return proto


def model(*nodes: NodeProto, opset: int = 18, functions=(), **parts) -> ModelProto:
    """A model of float vectors of two elements, IR version 9."""
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(
        graph(*nodes, **parts), opset_imports=imports, ir_version=9, functions=list(functions)
    )


def function(
    name: str, inputs: str, outputs: str, *nodes: NodeProto, attributes=(), defaults=(), opset: int = 18
) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_function(
        "local", name, inputs.split(), outputs.split(), list(nodes), imports, list(attributes), list(defaults)
    )


def relu() -> ModelProto:
    return model(node("Relu", "x", "y"))


def saved(proto: ModelProto) -> bytes:
    return proto.SerializeToString()


def branch(*nodes: NodeProto, outputs: str) -> GraphProto:
    return graph(*nodes, inputs="", outputs=outputs)


def conditional(then: GraphProto, otherwise: GraphProto, outputs: str = "y") -> ModelProto:
    choice = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    return model(
        node("If", "c", outputs, then_branch=then, else_branch=otherwise),
        initializers=[choice],
        outputs=outputs.split()[0],
    )


def looping(body: GraphProto, outputs: str = "y") -> ModelProto:
    trips = helper.make_tensor("m", TensorProto.INT64, [], [3])
    return model(node("Loop", "m - x", outputs, body=body), initializers=[trips])
