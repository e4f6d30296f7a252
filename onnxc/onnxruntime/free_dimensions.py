"""Sizes of free dimensions that `SessionOptions` overrides, by name and by denotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..record import Record

if TYPE_CHECKING:
    import onnx


class FreeDimensions(Record):
    """Sizes of dimensions that have a name, and of those that are denoted so."""

    by_name: Mapping[str, int]
    by_denotation: Mapping[str, int]

    def __call__(self, model: onnx.ModelProto) -> tuple[dict[str, int], dict[str, list[int | None]]]:
        """Of a model: sizes of the named dimensions that it has, and shapes of inputs with nameless ones."""
        dims: dict[str, int] = {}
        shapes: dict[str, list[int | None]] = {}
        for port in model.graph.input:
            sizes = port.type.tensor_type.shape.dim
            for axis, dim in enumerate(sizes):
                if dim.dim_param in self.by_name:
                    dims[dim.dim_param] = self.by_name[dim.dim_param]
                elif dim.denotation in self.by_denotation and not dim.HasField("dim_value"):
                    if dim.dim_param:
                        dims[dim.dim_param] = self.by_denotation[dim.denotation]
                    else:
                        shape = shapes.setdefault(port.name, [None] * len(sizes))
                        shape[axis] = self.by_denotation[dim.denotation]
        return dims, shapes

    def __repr__(self) -> str:
        """The same for the same sizes, in whichever order they were given."""
        return f"FreeDimensions({sorted(self.by_name.items())}, {sorted(self.by_denotation.items())})"
