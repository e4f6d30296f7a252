"""Models with something changed at random: bytes of the file, or parts of its graph. What comes out is seldom
valid; compiling it must succeed or give one sentence.

A mutation takes a model and a generator of random numbers and changes the model in place.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

NUMBERS = (0, 1, -1, 2, 3, 7, 255, -128, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -1.0, 0.5, 1e30, -1e30, float("inf"), float("nan"))
WORDS = (b"", b"x", b"SAME_UPPER", b"reflect", b"linear", b"sum", b"\xff\xfe", b"tanh")
OPERATORS = (
    "Add",
    "Mul",
    "Relu",
    "Reshape",
    "Transpose",
    "Concat",
    "MatMul",
    "Conv",
    "ReduceSum",
    "Softmax",
    "Cast",
    "Shape",
    "Slice",
    "Expand",
    "Not",
    "Gather",
    "Where",
    "Range",
    "NonZero",
    "Loop",
)
TYPES = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
    TensorProto.UINT8,
    TensorProto.FLOAT16,
    TensorProto.DOUBLE,
    TensorProto.INT32,
    TensorProto.COMPLEX64,
    TensorProto.INT4,
    0,
    99,
)


def graphs(model: ModelProto) -> list[GraphProto]:
    """The graph and every graph within it."""
    found = [model.graph]
    for graph in found:
        found += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return found


def _graph(model: ModelProto, rng: random.Random) -> GraphProto:
    return rng.choice(graphs(model))


def _node(model: ModelProto, rng: random.Random) -> NodeProto:
    nodes = [node for graph in graphs(model) for node in graph.node]
    return rng.choice(nodes) if nodes else model.graph.node.add(op_type="Relu")


def _name(model: ModelProto, rng: random.Random) -> str:
    """A value of some graph, or none."""
    graph = _graph(model, rng)
    names = [v.name for v in (*graph.input, *graph.initializer, *graph.output)]
    names += [name for node in graph.node for name in node.output]
    return rng.choice([*names, "", "nowhere"])


def drop_input(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.input:
        del node.input[rng.randrange(len(node.input))]


def add_input(model: ModelProto, rng: random.Random) -> None:
    _node(model, rng).input.insert(rng.randrange(3), _name(model, rng))


def change_input(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.input:
        node.input[rng.randrange(len(node.input))] = _name(model, rng)


def change_output(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.output and rng.random() < 0.5:
        node.output[rng.randrange(len(node.output))] = _name(model, rng)
    else:
        node.output.append(rng.choice(["", "more", _name(model, rng)]))


def change_operator(model: ModelProto, rng: random.Random) -> None:
    _node(model, rng).op_type = rng.choice(OPERATORS)


def change_order(model: ModelProto, rng: random.Random) -> None:
    nodes = _graph(model, rng).node
    shuffled = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    rng.shuffle(shuffled)
    del nodes[:]
    nodes.extend(shuffled)


def repeat_node(model: ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    if graph.node:
        copy = graph.node.add()
        copy.CopyFrom(rng.choice(graph.node))
        for index, name in enumerate(copy.output):
            copy.output[index] = f"{name}_again" if rng.random() < 0.8 else name


def drop_node(model: ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    if graph.node:
        del graph.node[rng.randrange(len(graph.node))]


def change_number(model: ModelProto, rng: random.Random) -> None:
    """Another value for an attribute, of its own type."""
    attributes = [a for graph in graphs(model) for node in graph.node for a in node.attribute]
    if not attributes:
        return
    attribute = rng.choice(attributes)
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = rng.choice(NUMBERS)
        case AttributeProto.FLOAT:
            attribute.f = rng.choice(FLOATS)
        case AttributeProto.STRING:
            attribute.s = rng.choice(WORDS)
        case AttributeProto.INTS if attribute.ints and rng.random() < 0.7:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
        case AttributeProto.INTS:
            attribute.ints.append(rng.choice(NUMBERS))


def drop_attribute(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def change_attribute(model: ModelProto, rng: random.Random) -> None:
    """Another type or name for an attribute, its value being left as it is."""
    node = _node(model, rng)
    if node.attribute:
        attribute = rng.choice(node.attribute)
        if rng.random() < 0.5:
            attribute.type = rng.randrange(15)
        else:
            attribute.name = rng.choice(["axis", "axes", "mode", "to", "perm", "value", "keepdims"])


def add_attribute(model: ModelProto, rng: random.Random) -> None:
    name = rng.choice(["axis", "keepdims", "group", "ceil_mode", "allowzero", "batch_dims", "num_outputs"])
    _node(model, rng).attribute.add(name=name, type=AttributeProto.INT, i=rng.choice(NUMBERS))


def change_shape(model: ModelProto, rng: random.Random) -> None:
    """Another size for an axis of an input or output, a name for it, or another number of axes."""
    graph = _graph(model, rng)
    values = [*graph.input, *graph.output]
    if not values:
        return
    shape = rng.choice(values).type.tensor_type.shape
    if not shape.dim or rng.random() < 0.2:
        shape.dim.add(dim_value=rng.choice([0, 1, 2, 3, -1, 1 << 40, (1 << 63) - 1]))
    elif rng.random() < 0.3:
        shape.dim[rng.randrange(len(shape.dim))].dim_param = rng.choice(["n", "m", "n + 1", "?", "a" * 300])
    elif rng.random() < 0.2:
        del shape.dim[rng.randrange(len(shape.dim))]
    else:
        shape.dim[rng.randrange(len(shape.dim))].dim_value = rng.choice([0, 1, 2, 5, -7, 1 << 31, 1 << 62])


def change_type(model: ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    values = [*graph.input, *graph.output]
    if values:
        rng.choice(values).type.tensor_type.elem_type = rng.choice(TYPES)


def change_tensor(model: ModelProto, rng: random.Random) -> None:
    """Other numbers, dims, type or bytes of a tensor."""
    found = graphs(model)
    tensors = [t for graph in found for t in graph.initializer]
    tensors += [a.t for graph in found for node in graph.node for a in node.attribute if a.HasField("t")]
    if not tensors:
        return
    tensor = rng.choice(tensors)
    match rng.randrange(5):
        case 0 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
        case 1:
            tensor.data_type = rng.choice(TYPES)
        case 2:
            tensor.raw_data = tensor.raw_data[: rng.randrange(1 + len(tensor.raw_data))]
        case _:
            _change_numbers(tensor, rng)


def _change_numbers(tensor: TensorProto, rng: random.Random) -> None:
    """A tensor of integers, such as a shape or axes, gets another element, or one more or less."""
    if tensor.data_type not in (TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT):
        return
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, RuntimeError):  # broken by an earlier mutation
        return
    numbers = FLOATS if tensor.data_type == TensorProto.FLOAT else NUMBERS
    flat = [*array.reshape(-1)[:4096]]
    number = rng.choice(numbers if tensor.data_type != TensorProto.INT32 else numbers[:8])
    if flat and rng.random() < 0.7:
        flat[rng.randrange(len(flat))] = number
        changed = np.array(flat, array.dtype)
        changed = changed.reshape(array.shape) if changed.size == array.size else changed
    else:
        changed = np.array([*flat, number] if rng.random() < 0.5 else flat[1:], array.dtype)
    tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))


def change_initializer(model: ModelProto, rng: random.Random) -> None:
    """An initializer becomes an input without a value, is dropped, or another's name is given to it."""
    graph = model.graph
    if not graph.initializer:
        return
    index = rng.randrange(len(graph.initializer))
    match rng.randrange(3):
        case 0:
            tensor = graph.initializer[index]
            given = graph.input.add(name=tensor.name)
            given.type.tensor_type.elem_type = tensor.data_type
            for size in tensor.dims:
                given.type.tensor_type.shape.dim.add(dim_value=max(size, 0))
            del graph.initializer[index]
        case 1:
            del graph.initializer[index]
        case 2:
            graph.initializer[index].name = _name(model, rng)


def change_header(model: ModelProto, rng: random.Random) -> None:
    if rng.random() < 0.7 and model.opset_import:
        rng.choice(model.opset_import).version = rng.choice([*range(1, 29), 0, -1, 99, 1 << 62])
    else:
        model.ir_version = rng.choice([*range(3, 15), 0, -1, 99])


def change_outputs(model: ModelProto, rng: random.Random) -> None:
    """A value inside the graph becomes an output, or an output goes."""
    graph = _graph(model, rng)
    if len(graph.output) > 1 and rng.random() < 0.3:
        del graph.output[rng.randrange(len(graph.output))]
    else:
        graph.output.add(name=_name(model, rng))


MUTATIONS: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    drop_input,
    add_input,
    change_input,
    change_output,
    change_operator,
    change_order,
    repeat_node,
    drop_node,
    change_number,
    change_number,
    drop_attribute,
    change_attribute,
    add_attribute,
    change_shape,
    change_type,
    change_tensor,
    change_tensor,
    change_initializer,
    change_header,
    change_outputs,
)


def mutant(model: ModelProto, seed: int) -> bytes:
    """The file of a changed copy of the model: one to three mutations; of one in eight some bytes too."""
    rng = random.Random(seed)
    copy = ModelProto.FromString(model.SerializeToString())
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(MUTATIONS)(copy, rng)
    data = bytearray(copy.SerializeToString())
    for _ in range(rng.randint(1, 4) if rng.randrange(8) == 0 else 0):
        place = rng.randrange(min(len(data), 2000))
        match rng.randrange(3):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                del data[place : place + rng.randint(1, 8)]
            case 2:
                data[place:place] = rng.randbytes(rng.randint(1, 8))
    return bytes(data)
