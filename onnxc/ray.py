"""Batches of a Ray dataset through a compiled model.

    scored = onnxc.ray.map_batches(dataset, "model.onnx", concurrency=4)

The model is compiled once, here, for the cluster's processors; its library goes to the workers as bytes, and
each opens it once, with as many threads as processors were given to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .portable import Inputs, Portable, feeds_of


class Predictor:
    """A callable class for `Dataset.map_batches(..., batch_format="numpy")`: adds the model's outputs to the
    columns of a batch.

    model: a Portable. inputs: as `onnxc.portable.feeds_of` takes them. outputs: the column for each output
    that is wanted (None: all, under their own names). keep: whether the batch's columns stay."""

    def __init__(
        self,
        model: Portable,
        inputs: Inputs | None = None,
        outputs: Mapping[str, str] | None = None,
        keep: bool = True,
    ):
        import ray

        given = int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))
        self.model = model.open(max(1, given))
        self.inputs, self.keep = inputs, keep
        self.outputs = dict(outputs or {port.name: port.name for port in self.model.outputs})

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = self.model.run(list(self.outputs), feeds_of(self.model, batch, self.inputs))
        found = {column: np.asarray(result) for column, result in zip(self.outputs.values(), results)}
        return {**batch, **found} if self.keep else found


def map_batches(
    dataset: Any,
    model: Any,
    *,
    inputs: Inputs | None = None,
    outputs: Mapping[str, str] | None = None,
    keep: bool = True,
    concurrency: int | tuple[int, int] = 1,
    num_cpus: int = 1,
    batch_size: int = 1024,
    target: str | Sequence[str] | None = None,
    **settings: Any,
) -> Any:
    """The dataset with the model's outputs as columns.

    model: a Portable, a library, or what `onnxc.compile` takes, compiled for `target` (None: as
    Portable says). inputs, outputs, keep: see Predictor. concurrency: workers. num_cpus: processors, and so
    threads, of each. settings: further arguments of `Dataset.map_batches`."""
    portable = model if isinstance(model, Portable) else Portable(model, target=target)
    return dataset.map_batches(
        Predictor,
        fn_constructor_kwargs={"model": portable, "inputs": inputs, "outputs": outputs, "keep": keep},
        batch_format="numpy",
        batch_size=batch_size,
        concurrency=concurrency,
        num_cpus=num_cpus,
        **settings,
    )
