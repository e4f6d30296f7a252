"""A compiled model as a pandas UDF of Spark.

    score = onnxc.spark.udf("model.onnx", columns=["age", "income"])
    frame.withColumn("score", score("age", "income"))

The model is compiled once, by the driver, for the cluster's processors; its library goes along with the
function, and each Python worker opens it once, with as many threads as a task has processors.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .errors import RunError, quote
from .ir.dtypes import COMPLEX
from .loading.c_values import Port
from .portable import Inputs, Portable, feeds_of

#: Spark's names of element types; what is not among them becomes float.
_TYPES = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint8": "short",
    "uint16": "int",
    "uint32": "long",
    "uint64": "long",
    "float64": "double",
    "string": "string",
}


def udf(
    model: Any,
    *,
    columns: Sequence[str],
    inputs: Inputs | None = None,
    output: str | None = None,
    target: str | Sequence[str] | None = None,
) -> Callable[..., Any]:
    """A pandas UDF of these columns, in this order, whose value is an output of the model: a number or text
    for each row, or an array.

    model: a Portable, a library, or what `onnxc.compile` takes, compiled for `target` (None: as
    Portable says). inputs: which columns an input is read from, as `onnxc.portable.feeds_of` takes them.
    output: its name (None: the first). Raises RunError for an output that is not there, is no tensor or is of
    complex numbers."""
    from pyspark.sql.functions import pandas_udf

    portable = model if isinstance(model, Portable) else Portable(model, target=target)
    port = _output(portable, output)
    names, rank = tuple(columns), len(port.shape) if port.shape is not None else 1
    element = _TYPES.get(port.dtype or "", "float")
    spark_type = element if rank <= 1 else f"array<{element}>"

    def score(batches: Iterator[Any]) -> Iterator[Any]:
        import pandas

        opened = portable.open(_threads())
        for batch in batches:
            table = dict(zip(names, batch if isinstance(batch, tuple) else (batch,)))
            feeds = feeds_of(opened, {name: series.to_numpy() for name, series in table.items()}, inputs)
            (result,) = opened.run([port.name], feeds)
            array = np.asarray(result)
            if port.dtype not in _TYPES:
                array = array.astype(np.float32, copy=False)
            yield pandas.Series(_rows(array, rank))

    return pandas_udf(_typed(score, len(names)), spark_type)


def _output(portable: Portable, name: str | None) -> Port:
    """The output of that name, or the first."""
    ports = portable.open().outputs
    port = next((port for port in ports if name in (None, port.name)), None)
    if port is None or port.kind != "tensor":
        tensors = ", ".join(quote(port.name) for port in ports if port.kind == "tensor") or "none"
        raise RunError(f"no output {quote(name or 'of the model')} is a tensor; tensors are {tensors}")
    if port.dtype in COMPLEX:
        raise RunError(f"output {quote(port.name)} is {port.dtype}, and Spark has no complex numbers")
    return port


def _rows(result: np.ndarray, rank: int) -> list[Any]:
    """An element of the column for each row: of more axes than two all behind the first are one."""
    return list(result) if rank <= 1 else list(result.reshape(len(result), math.prod(result.shape[1:])))


def _threads() -> int:
    """Processors of a task, as Spark gives them."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return max(1, context.cpus()) if context is not None else int(os.environ.get("OMP_NUM_THREADS", 1))


def _typed(score: Callable[..., Any], columns: int) -> Callable[..., Any]:
    """The function with the annotations by which Spark knows an iterator of batches of one or of several
    columns."""
    import pandas

    one, several = Iterator[pandas.Series], Iterator[tuple[pandas.Series, ...]]
    score.__annotations__ = {"batches": one if columns == 1 else several, "return": one}
    return score
