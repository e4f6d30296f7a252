"""The types that a model declares of its inputs and values, and what its dimensions become: numbers where
they are known, else variables, one for each name and one for each dimension without a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from ..errors import ModelError, UnsupportedError, quote
from ..ir import dims as dimension
from ..ir import dtypes
from ..ir.builder import identifier
from ..ir.dims import Dimension
from ..ir.graph import MapType, OptionalType, SequenceType, TensorType, Type, UnrankedType
from ..options import Options
from .tensors import DTYPE_NAMES

Declared = Sequence[onnx.TensorShapeProto.Dimension]


class DeclaredTypes:
    """The types of one import, and what became of the dimensions that they name.

    variables: the names of variables in use. lengths: how long signals usually are, by variable. equal: what
    to take for variables that must equal others, or numbers."""

    def __init__(
        self,
        inputs: Sequence[onnx.ValueInfoProto],
        options: Options,
        variables: set[str],
        lengths: Mapping[str, int],
        equal: Mapping[str, Dimension],
    ):
        self.inputs, self.options, self.variables = inputs, options, variables
        self.lengths, self.equal = lengths, equal
        self.dim_names: dict[str, str] = {}  # variable → what the model calls it
        self.settled: dict[str, tuple[str, int]] = {}  # what the model calls it → variable, and its number
        self.original: dict[str, Dimension] = {}  # what the model calls it → variable, or number
        self.usual = _usual_sizes(inputs)

    def of_input(self, information: onnx.ValueInfoProto) -> Type:
        """The type of an input, with the shape that the user gave it, if any."""
        type_ = self.of(information.type, information.name)
        shape = self.options.shapes.get(information.name)
        if shape is None:
            return type_
        if not isinstance(type_, TensorType):
            raise ModelError("only a tensor can be given a shape")
        tensor = tensor_of(information.type)
        if tensor.HasField("shape") and len(shape) != type_.rank:
            raise ModelError(f"the shape given has {len(shape)} axes where the model has {type_.rank}")
        for size, dim in zip(shape, tensor.shape.dim):
            known = self.options.dims.get(dim.dim_param)
            if known is not None and size not in (None, known):
                name = quote(dim.dim_param)
                raise ModelError(f"the shape given has {size} for the dimension {name}, which is {known}")
        declared = type_.shape or self._shape(
            information.name, [onnx.TensorShapeProto.Dimension()] * len(shape)
        )
        return TensorType(type_.dtype, tuple(d if s is None else s for s, d in zip(shape, declared)))

    def of(self, proto: onnx.TypeProto, name: str) -> Type:
        """The type that is declared of a value of this name; ModelError or UnsupportedError where it is
        none."""
        match proto.WhichOneof("value"):
            case "tensor_type" | "sparse_tensor_type":
                tensor = tensor_of(proto)
                if not tensor.HasField("shape") and name not in self.options.shapes:
                    return UnrankedType(_dtype(tensor.elem_type))
                return TensorType(_dtype(tensor.elem_type), self._shape(name, tensor.shape.dim))
            case "sequence_type":
                return SequenceType(self.of(proto.sequence_type.elem_type, name))
            case "map_type":
                codes = proto.map_type.key_type, proto.map_type.value_type.tensor_type.elem_type
                key, value = (DTYPE_NAMES.get(code, "nothing") for code in codes)
                if key not in ("string", *dtypes.SIGNED, *dtypes.UNSIGNED) or value not in dtypes.ALL:
                    raise UnsupportedError(f"a map from {key} to {value}")
                return MapType(key, value)
            case "optional_type":
                return OptionalType(self.of(proto.optional_type.elem_type, name))
        raise UnsupportedError(f"values of type {proto.WhichOneof('value') or 'nothing'}")

    def told(self) -> set[str]:
        """The variables whose typical size the user told."""
        return {str(v) for name, v in self.original.items() if name in self.options.typical}

    def not_there(self) -> Iterator[str]:
        """A sentence for each input or dimension of which the user speaks and the model does not."""
        names = {information.name for information in self.inputs}
        for missing in self.options.shapes:
            if missing not in names:
                yield f"the model has no input '{missing}' to give a shape"
        known = {d.dim_param for i in self.inputs for d in tensor_of(i.type).shape.dim if d.dim_param}
        for missing in dict.fromkeys((*self.options.dims, *self.options.typical)):
            if missing not in known:
                there = ", ".join(map(quote, sorted(known))) or "none"
                yield f"no input of the model has a dimension {quote(missing)}; there is {there}"

    def _shape(self, name: str, declared: Declared) -> tuple[Dimension, ...]:
        usual = [dimension.usual(k, _known_sizes(declared)) for k in range(len(declared))]
        return tuple(self._dimension(d, f"{name}_{k}", usual[k]) for k, d in enumerate(declared))

    def _dimension(self, proto: onnx.TensorShapeProto.Dimension, hint: str, usual: int) -> Dimension:
        if proto.HasField("dim_value") and proto.dim_value >= 0:
            return proto.dim_value
        called = proto.dim_param if _is_named(proto) else ""
        if called in self.options.dims:
            return self.options.dims[called]
        if called in self.original:
            return self.original[called]
        name = identifier(called or hint, self.variables)
        usual = self.lengths.get(name, self.usual.get(called, usual))
        typical = self.options.typical.get(called, usual)
        variable = self.equal.get(name, dimension.symbol(name, typical=typical))
        if not isinstance(variable, int):
            self.dim_names[str(variable)] = self.dim_names.get(str(variable)) or called
        elif called:
            self.settled[called] = name, variable
        if called:
            self.original[called] = variable
        return variable


def tensor_of(proto: onnx.TypeProto) -> onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor:
    """What a type says of a tensor. Sparse ones are computed as dense ones."""
    return proto.sparse_tensor_type if proto.HasField("sparse_tensor_type") else proto.tensor_type


def dims_of_shapes(
    inputs: Iterable[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int | None]]
) -> dict[str, int]:
    """The sizes of named dimensions that whole shapes of inputs tell, the first's where they differ."""
    found: dict[str, int] = {}
    for information in inputs:
        for size, dim in zip(shapes.get(information.name, ()), tensor_of(information.type).shape.dim):
            if size is not None and _is_named(dim):
                found.setdefault(dim.dim_param, size)
    return found


def contradiction(proto: onnx.TypeProto, type_: Type, sizes: bool) -> str:
    """How a declared type contradicts the type that a value has: in its kind or element type and, if asked,
    in its sizes; empty where it does not."""
    kind = (proto.WhichOneof("value") or "").removeprefix("sparse_")
    if kind == "tensor_type" and isinstance(type_, (TensorType, UnrankedType)):
        tensor = tensor_of(proto)
        name = DTYPE_NAMES.get(tensor.elem_type)
        if name is not None and name != type_.dtype:
            return f"it is declared with elements of type {name} and has {type_.dtype}"
        if sizes and tensor.HasField("shape") and isinstance(type_, TensorType):
            declared = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
            unlike = any(d is not None and d != s for d, s in zip(declared, type_.shape))
            if len(declared) != type_.rank or unlike:
                shape = ", ".join("?" if d is None else str(d) for d in declared)
                return f"it is declared with the shape [{shape}] and is {type_}"
    elif kind == "tensor_type" and isinstance(type_, (SequenceType, MapType)):
        return f"it is declared as a tensor and is {type_}"
    elif kind == "sequence_type" and isinstance(type_, TensorType):
        return f"it is declared as a sequence and is {type_}"
    return ""


def _usual_sizes(inputs: Iterable[onnx.ValueInfoProto]) -> dict[str, int]:
    """How long the named dimensions of inputs usually are; what is a batch in one is one in all."""
    sizes: dict[str, int] = {}
    for information in inputs:
        shape = tensor_of(information.type).shape.dim
        for axis, dim in enumerate(shape):
            usual = dimension.usual(axis, _known_sizes(shape))
            if _is_named(dim):
                sizes[dim.dim_param] = min(usual, sizes.get(dim.dim_param, usual))
    return sizes


def _known_sizes(declared: Declared) -> list[int | None]:
    """The sizes that a shape declares."""
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None for dim in declared]


def _is_named(proto: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a dimension has a name, other than what some exporters write for none: "?"."""
    return any(c.isalnum() for c in proto.dim_param)


def _dtype(code: int) -> str:
    dtype = DTYPE_NAMES.get(code)
    if dtype is None:
        raise ModelError(f"its element type {code} is unknown")
    return dtype
