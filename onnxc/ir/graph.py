"""The intermediate representation: Value, Node, Graph and the types.

A `Graph` is a list of nodes in an order in which they can run. A `Node` applies an op (`ops.py`) to values
and produces values. A `Value` has a type and, when known, its constant data or its symbolic elements. Ops and
types are immutable and compared by content; values and nodes are objects of identity that passes share where
nothing changes and rebuild where something does (`Rewriter`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from ..records import dataclass
from . import dims, dtypes
from .dims import Dimension
from .requirements import Need, TypeMismatch

if TYPE_CHECKING:
    from ..codegen.kernel import Choice
    from .ops import Op


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory where it is not just dense and row-major. Shapes stay logical; only kernels
    and the memory plan look at layouts.

    `block`: axis 1 of [N, C, spatial...] is stored as [N, C/block, spatial + 2*halo..., block]; lanes beyond
    C hold zero. It is a fact of the target (`Target.block`), the same for every element type, so that one
    loop walks images of different types; but what matrix registers multiply may be stored in blocks of a step
    of k.
    `halo`: a border around each spatial axis, so that a convolution reads its padding from memory. All its
    lanes hold `fill`: 0, or the zero point of a quantised image.
    `pitch`: how many blocks of channels lie from one image of a batch to the next, where these are parts of
    wider ones (an operand of a Concat that is written into its result) or overlap (an Unfold's result). 0:
    they follow each other.
    """

    block: int
    halo: tuple[int, ...] = ()
    fill: int = 0
    pitch: int = 0

    def __str__(self) -> str:
        halo = f"h{'x'.join(map(str, self.halo))}" if any(self.halo) else ""
        fill = f"f{self.fill}" if self.fill else ""
        pitch = f"p{self.pitch}" if self.pitch else ""
        return f"c{self.block}{halo}{fill}{pitch}"

    @property
    def alone(self) -> Layout:
        """The same of images that are parts of no others."""
        return replace(self, pitch=0)


@dataclass(frozen=True)
class TensorType:
    """Element type, logical shape, and storage layout (None: dense, row-major)."""

    dtype: str
    shape: tuple[Dimension, ...]
    layout: Layout | None = None

    kind = "tensor"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def count(self) -> Dimension:
        """Number of elements."""
        return dims.product(self.shape)

    @property
    def storage(self) -> tuple[Dimension, ...]:
        """The shape in memory, outermost axis first, without what lies between images that are parts of
        others."""
        if self.layout is None:
            return self.shape
        batch, channels, *spatial = self.shape
        halo = self.layout.halo or (0,) * len(spatial)
        padded = [s + 2 * h for s, h in zip(spatial, halo, strict=True)]
        return (batch, dims.ceil_divide(channels, self.layout.block), *padded, self.layout.block)

    @property
    def blocked(self) -> Layout:
        """Its layout, which is in blocks; TypeError where it is not."""
        if self.layout is None:
            raise TypeError(f"{self} is not stored in blocks of channels")
        return self.layout

    @property
    def image_bytes(self) -> Dimension:
        """Bytes of one image in blocks of channels."""
        return dims.product(self.storage[1:]) * dtypes.itemsize(self.dtype)

    @property
    def batch_stride(self) -> Dimension:
        """Bytes from one image in blocks of channels to the next."""
        if not self.blocked.pitch:
            return self.image_bytes
        return self.blocked.pitch * dims.product(self.storage[2:]) * dtypes.itemsize(self.dtype)

    @property
    def nbytes(self) -> Dimension:
        """Bytes in memory, without those between images that are parts of others."""
        return dims.product(self.storage) * dtypes.itemsize(self.dtype)

    def __str__(self) -> str:
        layout = f"; {self.layout}" if self.layout else ""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}{layout}]"


@dataclass(frozen=True)
class UnrankedType:
    """A tensor whose number of axes only the run knows: it is carried and stored, and computed with once a
    branch has decided its rank."""

    dtype: str

    kind = "tensor"

    def __str__(self) -> str:
        return f"{self.dtype}[*]"


@dataclass(frozen=True)
class SequenceType:
    """A list of values of one element type (None where nothing is known of it, as for an empty one)."""

    element: Type | None

    kind = "sequence"

    def __str__(self) -> str:
        return f"seq<{self.element or '?'}>"


@dataclass(frozen=True)
class OptionalType:
    """A value or nothing."""

    element: Type | None

    kind = "optional"

    def __str__(self) -> str:
        return f"optional<{self.element or '?'}>"


@dataclass(frozen=True)
class MapType:
    """A dictionary from integers or strings to numbers or strings, by the names of their types."""

    key: str
    value: str

    kind = "map"

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


Type = TensorType | UnrankedType | SequenceType | OptionalType | MapType


class Constant:
    """Data known at compile time: an array, one value repeated (`splat`), or a function that makes the array.

    Arrays stay lazy until a kernel packs them: a model's weights are views of the mapped file, and what is
    derived from them (a transpose, a packed panel) is computed when it is written into the library. `steps`
    counts the constants that are made one from the other before. Where an op over other constants makes the
    array, `derivation` tells: who can do better than with the array (weights that are stored as int8 behind
    DequantizeLinear, as float16 behind a Cast) looks through.
    """

    __slots__ = (
        "__weakref__",
        "_array",
        "_magnitude",
        "_make",
        "derivation",
        "dtype",
        "shape",
        "splat",
        "steps",
    )

    def __init__(
        self,
        dtype: str,
        shape: Sequence[int],
        make: Callable[[], np.ndarray] | None = None,
        splat: object = None,
    ):
        self.dtype, self.shape, self._make, self.splat = dtype, tuple(shape), make, splat
        self._array: np.ndarray | None = None
        self._magnitude: float | None = None
        self.steps = 0
        self.derivation: Derivation | None = None

    @staticmethod
    def of(array: np.ndarray) -> Constant:
        constant = Constant(dtypes.from_numpy(array.dtype), array.shape)
        constant._array = array
        return constant

    @property
    def array(self) -> np.ndarray:
        """The data, read-only. A derived array is made anew at each use and not kept."""
        if self._array is not None:
            return self._array
        if self._make is not None:
            return self._make()
        return np.broadcast_to(np.asarray(self.splat, dtypes.numpy_dtype(self.dtype)), self.shape)

    @property
    def magnitude(self) -> float:
        """The greatest absolute value of a constant of floats; infinite where one is not finite."""
        if self._magnitude is None:
            some = (
                self.array if self.splat is None else np.asarray(self.splat, dtypes.numpy_dtype(self.dtype))
            )
            most = float(np.abs(some.astype(np.float64)).max(initial=0.0))
            self._magnitude = most if np.isfinite(most) else np.inf
        return self._magnitude

    @property
    def nbytes(self) -> int:
        return dims.product(self.shape) * dtypes.itemsize(self.dtype)

    @property
    def materialised(self) -> bool:
        """Whether the elements are stored somewhere already, so that looking at them costs no memory."""
        return self._array is not None


@dataclass(frozen=True)
class Derivation:
    """The op and the constants that a constant is made of: `operands` are as an ordinary node's would be."""

    op: Op
    operands: tuple[Constant, ...]


class Value:
    """What a node produces or a graph takes in.

    `elements`: for small integer tensors, an object array of Dimensions, the symbolic value of each element.
    """

    __slots__ = ("constant", "elements", "index", "name", "producer", "type")

    def __init__(
        self, type: Type, name: str = "", constant: Constant | None = None, elements: np.ndarray | None = None
    ):
        self.type, self.name, self.constant, self.elements = type, name, constant, elements
        self.producer: Node | None = None
        self.index = 0

    @property
    def tensor(self) -> TensorType:
        """Its type, which is a tensor's; TypeMismatch where it is not."""
        if isinstance(self.type, TensorType):
            return self.type
        raise TypeMismatch(f"{self.type} is given where a tensor is needed")

    @property
    def node(self) -> Node:
        """The node that makes it, where one is known to."""
        if self.producer is None:
            raise TypeError(f"{self!r} is no node's output")
        return self.producer

    @property
    def data(self) -> Constant:
        """Its constant, where it is known to be one."""
        if self.constant is None:
            raise TypeError(f"{self!r} is no constant")
        return self.constant

    @property
    def shape(self) -> tuple[Dimension, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def rank(self) -> int:
        return len(self.tensor.shape)

    def __repr__(self) -> str:
        return f"%{self.name or hex(id(self))}: {self.type}"


OpT = TypeVar("OpT", bound="Op", covariant=True)


@dataclass(frozen=True, eq=False)
class Node(Generic[OpT]):
    """One application of an op; Node[Conv] is that of a convolution. `origin` names the ONNX node it came
    from, for messages. `choice` is the kernel that `select_kernels` decided on (`codegen/kernels`), with its
    tiling."""

    op: OpT
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: str = ""
    choice: Choice | None = None

    def __post_init__(self) -> None:
        for index, value in enumerate(self.outputs):
            value.producer, value.index = self, index


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, outputs and the nodes between, in an order in which they can run. Constants are values without
    producer and belong to no list. A region (a branch, a loop body, a fused group) sees only its inputs and
    constants.

    `states`: numbers of an input and of the output that is its next value. Callers may give both the same
    memory, so that a run changes it in place. They are of one type but for one axis, along which a state may
    grow: the first that is not 1, so that what is there stays where it is."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    name: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    states: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        from .text import graph_text

        return graph_text(self)


def make_node(op: Op, inputs: Sequence[Value], origin: str = "", names: Sequence[str] = ()) -> Node:
    """A node whose outputs have the types that the op infers. Operands that do not fit raise TypeMismatch."""
    types = op.infer(Need(origin), *(value.type for value in inputs))
    names = tuple(names) + ("",) * (len(types) - len(names))
    return Node(op, tuple(inputs), tuple(Value(t, n) for t, n in zip(types, names, strict=True)), origin)


def constant_value(data: np.ndarray | Constant, name: str = "") -> Value:
    """A value of which all elements are known."""
    constant = data if isinstance(data, Constant) else Constant.of(data)
    return Value(TensorType(constant.dtype, constant.shape), name, constant)


def reshaped_constant(value: Value, shape: tuple[Dimension, ...]) -> Value:
    """A constant value's elements under another shape, of known sizes."""
    sizes, constant = dims.numbers(shape), value.data
    made = Constant(value.dtype, sizes, lambda: constant.array.reshape(sizes), constant.splat)
    return constant_value(made, value.name)


class Rewriter:
    """Copies the nodes of a graph one after the other under a growing map from old to new values: how every
    pass rebuilds a graph. What stands for a value counts as read as often as that."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.map: dict[Value, Value] = {}
        self.nodes: list[Node] = []

    @cached_property
    def readers(self) -> Counter[Value]:
        """How often each value of the old graph and of the new one is read."""
        return count_readers(self.graph)

    @cached_property
    def reading(self) -> Mapping[Value, Sequence[Node]]:
        """The nodes of the old graph that read each value, none twice, in order."""
        found: dict[Value, list[Node]] = {}
        for node in self.graph.nodes:
            for value in dict.fromkeys(node.inputs):
                found.setdefault(value, []).append(node)
        return found

    def only_reader(self, value: Value) -> Node | None:
        """The node of the old graph that reads a value, where nobody else does, nor that one twice."""
        readers = self.reading.get(value, ())
        return readers[0] if readers and self.readers[value] == 1 else None

    def of(self, value: Value) -> Value:
        """What stands for value in the new graph."""
        return self.map.get(value, value)

    def add(
        self, op: Op, inputs: Sequence[Value], origin: str = "", names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        """Appends a node over new values; returns its outputs."""
        node = make_node(op, inputs, origin, names)
        self.nodes.append(node)
        return node.outputs

    def copy(self, node: Node, inputs: Sequence[Value] | None = None) -> Node:
        """Appends node over the new values that stand for its inputs; the node itself where nothing
        changed."""
        inputs = tuple(self.of(v) for v in node.inputs) if inputs is None else tuple(inputs)
        if inputs != node.inputs:
            old, node = node, clone(node, inputs)
            self.replace(old.outputs, node.outputs)
        self.nodes.append(node)
        return node

    def replace(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Lets new values stand for old ones."""
        for before, after in zip(old, new, strict=True):
            if self.of(before) is not after:
                self.map[before] = after
                self.readers[after] += self.readers[before]

    def finish(self) -> Graph:
        """The graph with the new nodes, and its outputs mapped; the graph itself where nothing changed."""
        nodes, outputs = tuple(self.nodes), tuple(self.of(v) for v in self.graph.outputs)
        if nodes == self.graph.nodes and outputs == self.graph.outputs:
            return self.graph
        return replace(self.graph, nodes=nodes, outputs=outputs)


def clone(node: Node, inputs: Sequence[Value]) -> Node:
    """node over other inputs, its outputs new values of the same types and names."""
    outputs = []
    for old in node.outputs:
        new = Value(old.type, old.name, old.constant, old.elements)
        outputs.append(new)
    return Node(node.op, tuple(inputs), tuple(outputs), node.origin, node.choice)


def count_readers(graph: Graph) -> Counter[Value]:
    """How often each value is read: once for each operand that it is, and each output."""
    return Counter(v for node in graph.nodes for v in node.inputs) + Counter(graph.outputs)


def regions(op: Op) -> tuple[Graph, ...]:
    """The graphs inside an op, and inside tuples of its fields: branches, bodies, fused groups."""
    return tuple(_graphs(vars(op).values()))


def _graphs(fields: Iterable[object]) -> Iterator[Graph]:
    for value in fields:
        if isinstance(value, Graph):
            yield value
        elif isinstance(value, tuple):
            yield from _graphs(value)


def walk(graph: Graph) -> Iterator[Node]:
    """Every node, those of nested regions just before the node that holds them."""
    stack: list[Iterator[Node]] = [iter(graph.nodes)]
    pending: list[Node | None] = [None]
    while stack:
        for node in stack[-1]:
            inner = regions(node.op)
            if inner:
                stack.append(iter([n for g in inner for n in g.nodes]))
                pending.append(node)
                break
            yield node
        else:
            stack.pop()
            done = pending.pop()
            if done is not None:
                yield done
