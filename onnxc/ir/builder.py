"""What import rules write with: core ops appended to a graph, with everything known at once computed at once.

A `Builder` holds one graph under construction. `emit` infers types, propagates symbolic elements
(`elements.py`) and folds small constants, so that the exporters' Shape → Gather → Concat → Reshape chains
vanish while they are read. Reading a tensor as sizes (`dimensions`) gives what is known, or binds fresh
variables that the run fills in.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Self

import numpy as np

from ..errors import LimitError, UnsupportedError
from ..records import dataclass
from . import dims, dtypes, expr, interpret, ops
from . import elements as symbolic
from .derived import computed, reshaped
from .dims import Dim, Dimension
from .expr import Expr
from .graph import Constant, Graph, Node, TensorType, Type, Value, constant_value, make_node

#: Results up to this many bytes are folded while importing; larger ones are the folding pass's business.
EAGER_FOLD_BYTES = 4096

#: A tensor of more elements than this is not read as sizes.
SIZES_LIMIT = 4096

#: As many operands are joined at a time where the size of all is a large formula.
JOINED = 16

RANK_LIMIT = 32

#: A tensor of more elements than this, of the widest type, would have more bytes than 63 bits count.
ELEMENTS_LIMIT = (1 << 59) - 1

Operand = Value | int | float | bool | np.ndarray


def identifier(text: str, taken: set[str]) -> str:
    """A Python identifier close to text that is not taken yet, and takes it."""
    base = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")[:40] or "d"
    if base[0].isdigit() or keyword.iskeyword(base) or base in dims.APPLICATIONS:
        base = f"d_{base}"
    candidates = itertools.chain([base], (f"{base}_{k}" for k in itertools.count(1)))
    name = next(c for c in candidates if c not in taken)
    taken.add(name)
    return name


@dataclass
class Session:
    """What all builders of one import share: names of variables in use, the budget of nodes, and that of
    folding (`interpret.effort`)."""

    variables: set[str] = field(default_factory=set)
    nodes: int = 0
    node_limit: int = 1_000_000
    effort: int = interpret.EFFORT_LIMIT

    def fresh(self, hint: str, minimum: int | None = 0, typical: int = dims.LENGTH) -> dims.Dim:
        """A dimension variable that nothing else is called."""
        return dims.symbol(identifier(hint, self.variables), minimum, typical)


class Builder:
    """A graph under construction; a region's builder has the enclosing one as `parent` and captures what it
    reads of it.

    `facts` holds what is known inside a branch: replacements of dimension variables, applied to captured
    types.
    """

    def __init__(
        self,
        session: Session | None = None,
        parent: Self | None = None,
        facts: Mapping[str, Dimension] | None = None,
    ):
        self.session = session or Session()
        self.parent = parent
        self.facts = dict(facts or {})
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.captures: dict[Value, Value] = {}  # value of the enclosing graph -> input of this one
        self.own: set[Value] = set()
        self.names: dict[Dimension, dims.Dim] = {}  # of large formulas
        self.origin = ""  # of the nodes that are appended

    def inner(self, facts: Mapping[str, Dimension] | None = None) -> Self:
        """The builder of a region of this graph, where these facts hold too."""
        builder = type(self)(self.session, self, {**self.facts, **(facts or {})})
        builder.origin = self.origin
        return builder

    # Values ------------------------------------------------------------------------------------

    def input(self, type_: Type, name: str = "") -> Value:
        """A new input of the graph."""
        _check_size(type_)
        value = Value(type_, name)
        self.inputs.append(value)
        self.own.add(value)
        return value

    def capture(self, value: Value) -> Value:
        """What stands for a value of an enclosing graph in this one; constants stand for themselves."""
        if value.constant is not None or value in self.own or self.parent is None:
            return value
        outer = self.parent.capture(value)  # a value further out is the same one as what stands for it there
        if outer not in self.captures:
            inner = Value(self._known(outer.type), outer.name)
            if outer.elements is not None:
                inner.elements = _map_elements(outer.elements, lambda d: dims.substitute(d, self.facts))
            self.captures[outer] = inner
            self.own.add(inner)
        return self.captures[outer]

    def captured(self) -> list[tuple[Value, Value]]:
        """(value of the enclosing graph, input of this one) of everything captured."""
        return list(self.captures.items())

    def home(self, value: Value) -> tuple[Self, Value]:
        """The builder of the graph that a value comes from, this or one around it, and the value there."""
        builder = self
        while builder.parent is not None:
            outer = next((v for v, inner in builder.captures.items() if inner is value), value)
            if outer is value and value in builder.own:
                break
            builder, value = builder.parent, outer
        return builder, value

    def _known(self, type_: Type) -> Type:
        if not self.facts or not isinstance(type_, TensorType):
            return type_
        return TensorType(type_.dtype, tuple(dims.substitute(d, self.facts) for d in type_.shape))

    def constant(
        self, data: np.ndarray | Constant | int | float | bool, dtype: str | None = None, name: str = ""
    ) -> Value:
        """A constant value of an array or a number."""
        if isinstance(data, Constant):
            _check_size(TensorType(data.dtype, data.shape))
            value = constant_value(data, name)
        else:
            array = np.asarray(data, dtypes.numpy_dtype(dtype) if dtype else None)
            value = constant_value(array, name)
        if value.constant is not None:
            value.elements = _elements_of_constant(value.constant)
        return value

    def fresh(self, hint: str, minimum: int | None = 0, typical: int = dims.LENGTH) -> dims.Dim:
        return self.session.fresh(hint, minimum, typical)

    # Emitting ----------------------------------------------------------------------------------

    def emit(self, op: ops.Op, *inputs: Value) -> tuple[Value, ...]:
        """Appends op over inputs; returns its outputs, folded where they are small and known."""
        operands = [self.capture(v) for v in inputs]
        if isinstance(op, ops.Concat) and _joins_much(op, operands):
            groups = [operands[k : k + JOINED] for k in range(0, len(operands), JOINED)]
            operands = [
                self._renamed(self.emit(op, *group)[0], lambda d: not isinstance(d, int)) for group in groups
            ]
            return self.emit(op, *operands)
        try:
            node = make_node(op, operands, self.origin)
        except dims.TooComplex:
            operands = [self._renamed(v, lambda d: not isinstance(d, int)) for v in operands]
            node = make_node(op, operands, self.origin)
        types = [v.type for v in node.outputs]
        for type_ in types:
            _check_size(type_)
        folded = self._folded(op, operands, types)
        if folded is not None:
            return folded
        self.session.nodes += 1
        if self.session.nodes > self.session.node_limit:
            raise LimitError(f"the model expands to more than {self.session.node_limit:,} nodes")
        self.nodes.append(node)
        self.own.update(node.outputs)
        return tuple(self._renamed(v, dims.is_large) for v in node.outputs)

    def named(self, size: dims.Dim) -> dims.Dim:
        """A variable that the run gives the value of this formula, always the same one."""
        builder: Builder | None = self
        while builder is not None:
            if size in builder.names:
                return builder.names[size]
            builder = builder.parent
        variable = self.session.fresh("size", dims.bounds(size)[0], dims.typical(size))
        node = make_node(ops.Elements((size,), (1,), "int64"), (), self.origin)
        self.nodes.append(node)
        self.own.update(node.outputs)
        self.emit(ops.Bind(tuple(dims.symbols(variable))), *node.outputs)
        self.names[size] = variable
        return variable

    def short(self, size: Dimension) -> Dimension:
        """The size, or where its formula is large a variable that the run gives its value."""
        return self.named(size) if isinstance(size, Dim) and dims.is_large(size) else size

    def _renamed(self, value: Value, large: Callable[[Dimension], bool]) -> Value:
        """value, variables standing for the large sizes of its shape."""
        if not isinstance(value.type, TensorType) or not any(map(large, value.shape)):
            return value
        shape = tuple(self.named(d) if isinstance(d, Dim) and large(d) else d for d in value.shape)
        node = make_node(ops.Reshape(shape), (value,), self.origin)
        self.nodes.append(node)
        self.own.update(node.outputs)
        return node.outputs[0]

    def _folded(
        self, op: ops.Op, operands: Sequence[Value], types: Sequence[Type]
    ) -> tuple[Value, ...] | None:
        if len(types) == 1 and isinstance(types[0], TensorType) and _is_small_integer(types[0]):
            found = symbolic.elements(op, [v.elements for v in operands], types[0])
            if found is not None:
                return (self.elements(found, types[0].dtype),)
        if isinstance(op, ops.Reshape) and operands[0].constant is not None and dims.is_static(op.shape):
            return (self.constant(reshaped(op, operands[0].constant)),)
        small = all(
            isinstance(t, TensorType) and isinstance(t.nbytes, int) and t.nbytes <= EAGER_FOLD_BYTES
            for t in types
        )
        known = [v.constant for v in operands if v.constant is not None]
        if not (known and small and isinstance(op, _FOLDABLE) and len(known) == len(operands)):
            return None
        cost = interpret.effort(op, [v.type for v in operands])
        if cost > self.session.effort:
            return None
        self.session.effort -= cost
        made = computed(op, known)
        return None if made is None else tuple(map(self.constant, made))

    def elements(self, values: np.ndarray | Sequence[Dimension], dtype: str = "int64") -> Value:
        """An integer tensor with the given dimensions as elements: a constant when all are numbers."""
        array = values if isinstance(values, np.ndarray) else dtypes.objects(values, (len(values),))
        array = _map_elements(array, lambda d: dims.substitute(d, self.facts))
        array = _map_elements(
            array, lambda d: self.named(d) if isinstance(d, Dim) and dims.is_large(d) else d
        )
        if all(isinstance(d, int) for d in array.flat):
            return self.constant(_wrapped(array, dtype))
        node = make_node(ops.Elements(tuple(array.flat), array.shape, dtype), (), self.origin)
        self.nodes.append(node)
        self.own.update(node.outputs)
        node.outputs[0].elements = array
        return node.outputs[0]

    # Ops by name -------------------------------------------------------------------------------

    def map(self, *operands_then_body: Operand | Callable[..., Expr]) -> Value:
        """b.map(x, y, lambda x, y: x + y): the body over the operands' elements, which broadcast. Numbers
        become scalars of the first tensor's type."""
        *operands, body = operands_then_body
        values = self.values(*(o for o in operands if not callable(o)))
        if not callable(body):
            raise TypeError("the last argument is the body")
        expression = body(*(expr.input_(k, v.dtype) for k, v in enumerate(values)))
        return self.emit(ops.Map(expression), *values)[0]

    def values(self, *operands: Operand) -> list[Value]:
        """Operands as values: numbers take the type of the first that is a value."""
        dtype = next((o.dtype for o in operands if isinstance(o, Value)), None)
        return [
            o if isinstance(o, Value) else self.constant(o, None if isinstance(o, np.ndarray) else dtype)
            for o in operands
        ]

    def cast(self, x: Value, dtype: str) -> Value:
        return x if x.dtype == dtype else self.map(x, lambda e: e.cast(dtype))

    def reduce(
        self,
        kind: ops.ReduceKind,
        x: Value,
        axes: Sequence[int],
        keepdims: bool = False,
        body: Callable[[Expr], Expr] | None = None,
    ) -> Value:
        """Reduce over axes, negative ones counted from the end."""
        chosen = tuple(sorted({self.axis(a, x.rank) for a in axes}))
        element = expr.input_(0, x.dtype)
        expression = None if body is None or body(element) is element else body(element)
        return self.emit(ops.Reduce(kind, chosen, keepdims, expression), x)[0]

    def reshape(self, x: Value, shape: Sequence[Dimension]) -> Value:
        shape = tuple(shape)
        return x if shape == x.shape else self.emit(ops.Reshape(shape), x)[0]

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        perm = tuple(perm)
        return x if perm == tuple(range(x.rank)) else self.emit(ops.Transpose(perm), x)[0]

    def slice(
        self,
        x: Value,
        starts: Sequence[Dimension],
        sizes: Sequence[Dimension],
        steps: Sequence[Dimension] | None = None,
    ) -> Value:
        """sizes elements along every axis from starts; bounds are the caller's business."""
        steps = tuple(steps) if steps is not None else (1,) * x.rank
        if tuple(sizes) == x.shape and all(s == 0 for s in starts) and all(s == 1 for s in steps):
            return x
        return self.emit(ops.Slice(tuple(starts), tuple(sizes), steps), x)[0]

    def take(self, x: Value, axis: int, start: Dimension, size: Dimension) -> Value:
        """size elements along one axis from start."""
        starts: list[Dimension] = [0] * x.rank
        sizes = list(x.shape)
        starts[axis], sizes[axis] = start, size
        return self.slice(x, starts, sizes)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        return (
            values[0]
            if len(values) == 1
            else self.emit(ops.Concat(self.axis(axis, values[0].rank)), *values)[0]
        )

    def broadcast(self, x: Value, shape: Sequence[Dimension]) -> Value:
        """x repeated to shape; the shape itself broadcasts too, as ONNX's Expand has it."""
        target = ops.broadcast_shapes(x.shape, tuple(shape))
        return x if target == x.shape else self.emit(ops.Broadcast(target), x)[0]

    def contract(
        self,
        lhs: str,
        rhs: str,
        out: str,
        x: Value,
        y: Value,
        accumulate: str | None = None,
        rounded: int = 0,
    ) -> Value:
        """The einsum lhs, rhs -> out. 16-bit floats accumulate in float32, and the result is x's type
        again. rounded: blocks of x in steps of their own (`Contract.rounded`)."""
        wide = accumulate or ("float32" if x.dtype in ("float16", "bfloat16") else x.dtype)
        epilogue = None if wide == x.dtype or accumulate else expr.input_(0, wide).cast(x.dtype)
        return self.emit(ops.Contract(lhs, rhs, out, wide, epilogue, rounded=rounded), x, y)[0]

    def call(
        self, symbol: str, inputs: Sequence[Value], types: Sequence[Type], attributes: Sequence[int] = ()
    ) -> tuple[Value, ...]:
        """A function of the C runtime."""
        return self.emit(ops.RuntimeCall(symbol, tuple(types), tuple(attributes)), *inputs)

    # Reading -----------------------------------------------------------------------------------

    def shape(self, x: Value) -> Value:
        """x's shape as an int64 tensor."""
        return self.elements(dtypes.objects(x.shape, (x.rank,)))

    def dimensions(self, x: Value, minimum: int | None = None, hint: str = "n") -> list[Dimension]:
        """The elements of an integer tensor as dimensions: what is known, also of a Concat's operands one by
        one, else fresh variables that the run binds. `minimum` bounds the fresh ones; smaller elements fail
        the run."""
        if x.elements is not None:
            return list(x.elements.flat)
        count = x.tensor.count
        if not dtypes.is_integer(x.dtype):
            raise ops.TypeMismatch(f"{x.type} is given where integers are needed")
        if not isinstance(count, int):
            raise UnsupportedError(f"a tensor of {count} sizes", "make the number of sizes constant")
        if count > SIZES_LIMIT:
            raise LimitError(f"{count:,} sizes are more than the limit of {SIZES_LIMIT:,}")
        if x.constant is not None:
            return [int(v) for v in x.constant.array.flat]
        if count == 0:
            return []
        found: list[Dimension]
        if len(parts := joined(x)) > 1:
            found = [size for part in parts for size in self.dimensions(part, minimum, hint)]
        else:
            found = [self.fresh(hint, minimum) for _ in range(count)]
            atoms = tuple(next(iter(dims.symbols(d))) for d in found)
            self.emit(ops.Bind(atoms), self.cast(x, "int64"))
        captured = self.capture(x)
        captured.elements = (
            dtypes.objects(found, tuple(captured.shape)) if dims.is_static(captured.shape) else None
        )
        return found

    def dimension(self, x: Value, minimum: int | None = None, hint: str = "n") -> Dimension:
        """The one element of a tensor as a dimension."""
        found = self.dimensions(x, minimum, hint)
        if len(found) != 1:
            raise ops.TypeMismatch(f"{x.type} should have one element")
        return found[0]

    def as_data(self, x: Value) -> Value:
        """x as a tensor of which nothing is known but its type, so that sizes computed from it are bound by
        the run instead of being formulas."""
        node = make_node(ops.Map(expr.input_(0, x.dtype)), (self.capture(x),), self.origin)
        self.nodes.append(node)
        self.own.update(node.outputs)
        return node.outputs[0]

    def known(self, x: Value | None) -> np.ndarray | None:
        """x's data if it is known at compile time, else None."""
        if x is None:
            return None
        if x.constant is not None:
            return x.constant.array
        if x.elements is not None and all(isinstance(d, int) for d in x.elements.flat):
            return x.elements.astype(np.int64)
        return None

    def required(self, x: Value, what: str) -> np.ndarray:
        """x's data, which must be known at compile time."""
        data = self.known(x)
        if data is None:
            raise UnsupportedError(f"{what} is computed while the model runs", f"make {what} a constant")
        return data

    def axis(self, axis: int, rank: int) -> int:
        """A non-negative axis; one outside the rank is an error."""
        if not -rank <= axis < rank:
            raise ops.TypeMismatch(f"axis {axis} is outside a tensor of {rank} axes")
        return axis + rank if axis < 0 else axis

    def finish(
        self, outputs: Sequence[Value], name: str = "", metadata: Mapping[str, str] | None = None
    ) -> Graph:
        """The graph built; captured values follow its own inputs."""
        return Graph(
            (*self.inputs, *self.captures.values()), tuple(outputs), tuple(self.nodes), name, metadata or {}
        )


#: Ops whose constant results may be computed while importing.
_FOLDABLE = (
    ops.Map,
    ops.Reduce,
    ops.Contract,
    ops.Reshape,
    ops.Transpose,
    ops.Slice,
    ops.Pad,
    ops.Broadcast,
    ops.Concat,
    ops.Gather,
    ops.Scatter,
    ops.Cumulate,
    ops.Sort,
    ops.TreeEnsemble,
    ops.RuntimeCall,
)


def joined(x: Value) -> Sequence[Value]:
    """The vectors that a vector consists of, one after the other: the operands of a Concat."""
    made = x.producer
    return made.inputs if made is not None and isinstance(made.op, ops.Concat) and x.rank == 1 else (x,)


def _joins_much(op: ops.Concat, operands: Sequence[Value]) -> bool:
    """Whether a Concat of many operands has a size that is a large formula."""
    shapes = [v.shape for v in operands if isinstance(v.type, TensorType)]
    if len(operands) <= JOINED or not all(0 <= op.axis < len(shape) for shape in shapes):
        return False
    try:
        return dims.is_large(dims.total(shape[op.axis] for shape in shapes))
    except dims.TooComplex:
        return True


def _check_size(type_: Type) -> None:
    """Refuses tensors of too many axes, and those whose bytes 64 bits could not count."""
    if not isinstance(type_, TensorType):
        return
    if type_.rank > RANK_LIMIT:
        raise LimitError(f"a tensor of {type_.rank} axes is over the limit of {RANK_LIMIT}")
    if any(isinstance(d, int) and d < 0 for d in type_.shape):
        raise ops.TypeMismatch(f"{type_} would have a negative size")
    if dims.is_static(type_.shape) and dims.product(max(d, 1) for d in type_.shape) > ELEMENTS_LIMIT:
        raise LimitError(f"a tensor of type {type_} has too many elements to address")


def _is_small_integer(type_: TensorType) -> bool:
    whole = dtypes.is_integer(type_.dtype) or type_.dtype == "bool"
    return whole and dims.is_static(type_.shape) and dims.product(type_.shape) <= 256


def _map_elements(array: np.ndarray, function: Callable[[Dimension], Dimension]) -> np.ndarray:
    result = np.empty(array.shape, object)
    for place, dimension in np.ndenumerate(array):
        result[place] = function(dimension)
    return result


def _elements_of_constant(constant: Constant) -> np.ndarray | None:
    type_ = TensorType(constant.dtype, constant.shape)
    if not _is_small_integer(type_):
        return None
    return dtypes.objects([int(v) for v in constant.array.flat], constant.shape)


def _wrapped(array: np.ndarray, dtype: str) -> np.ndarray:
    """Integers of any size as an array of dtype, wrapping."""
    bits = dtypes.bits(dtype)
    if dtype == "bool":
        return np.array([bool(v) for v in array.flat], bool).reshape(array.shape)
    plain = [int(v) & ((1 << bits) - 1) for v in array.flat]
    signed = [v - (1 << bits) if dtypes.is_signed(dtype) and v >> (bits - 1) else v for v in plain]
    return (
        np.array(signed, np.int64 if dtypes.is_signed(dtype) else np.uint64)
        .astype(dtypes.numpy_dtype(dtype))
        .reshape(array.shape)
    )
