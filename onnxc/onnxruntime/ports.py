"""Inputs and outputs, and what a model says of itself, as ONNX Runtime describes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..loading.c_values import Port
from ..loading.loader import Model

_SHORT = {"float32": "float", "float64": "double"}

UNSET_VERSION = (1 << 63) - 1  # that ONNX Runtime tells of a model without one


def type_text(dtype: str) -> str:
    """A tensor's type as ONNX Runtime writes it."""
    return f"tensor({_SHORT.get(dtype, dtype)})"


class NodeArg:
    """An input or output: its name, its type as `tensor(float)`, its shape (numbers, names, None)."""

    def __init__(self, name: str, type: str, shape: list[int | str | None]):
        self.name: str = name
        self.type: str = type
        self.shape: list[int | str | None] = shape

    @classmethod
    def _of(
        cls, port: Port, sparse: Collection[str] = (), declared: Sequence[int | str | None] = ()
    ) -> NodeArg:
        """declared: the shape that the model writes, which tells what the compiler does not know."""
        kind = f"sparse_{type_of(port)}" if port.name in sparse else type_of(port)
        shape = declared if port.shape is None else port.shape
        if len(shape) == len(declared):
            shape = [d if s is None else s for s, d in zip(shape, declared)]
        return cls(port.name, kind, list(shape))

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"

    __repr__ = __str__


def type_of(port: Port) -> str:
    """The port's type as ONNX Runtime writes it."""
    inner = type_text(port.dtype or "float32")
    if port.key:
        inner = f"map({port.key},{inner})"
    if port.kind == "sequence" or port.of == "sequence":
        inner = f"seq({inner})"
    return f"optional({inner})" if port.kind == "optional" else inner


class ModelMetadata:
    """What a model says of itself."""

    def __init__(self, model: Model):
        told = model.description
        version = told.get("model_version")
        self.graph_name: str = told.get("graph", "")
        self.producer_name: str = told.get("producer", "")
        self.description: str = told.get("doc", "")
        self.graph_description: str = told.get("graph_doc", "")
        self.domain: str = told.get("domain", "")
        self.version: int = UNSET_VERSION if version is None else int(version)
        self.custom_metadata_map: dict[str, str] = dict(model.metadata)
