"""Which layers' weights are stored in fewer bits: by what that does to the model's outputs.

One library, in which the weights of all layers are inputs, runs the model with any of them narrowed. Where
rows that are multiplied with narrowed weights are rounded, too (`--precision int8`), libraries compiled with
the layers narrowed tell what is lost.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .inputs import expected_inputs, runnable_inputs
from .ir.dtypes import is_float
from .options import Options
from .passes.narrow_weights import Layer, Narrowing
from .records import dataclass
from .target import find_targets, runs_here

if TYPE_CHECKING:
    from .loading.loader import Model


@dataclass(frozen=True)
class Narrowed:
    """What was chosen: how many layers are narrowed, their bytes before and after, the errors of the outputs
    relative to their largest magnitudes, and the inputs with which these were measured."""

    narrowing: Narrowing
    count: int
    bytes_before: int
    bytes_after: int
    errors: Mapping[str, float]
    inputs: str

    def as_json(self) -> dict[str, object]:
        return {
            "format": self.narrowing.format,
            "layers": self.count,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "errors": dict(self.errors),
            "kept": sorted(self.narrowing.kept),
        }


def choose_layers(
    model: object,
    options: Options,
    error: float,
    calibration: Sequence[str] | Mapping[str, Any] = (),
    *,
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Narrowed:
    """The narrowing of a model to the format that the options name: the layers that alone cost most are kept
    until no output loses more than `error` of its largest magnitude on the calibration, inputs or the files
    that hold them; the others are generated."""
    from .driver import compile_model
    from .loading.loader import load

    found: list[Layer] = []
    format = str(options.weights)
    here = any(map(runs_here, find_targets(options.target)))
    options = options if here else options.with_(target="native")  # layers are the same for all
    with tempfile.TemporaryDirectory(prefix="onnxc-") as folder:
        number = count()

        def compiled(narrowing: Narrowing) -> Model:
            library = Path(folder) / f"{next(number)}.so"
            compile_model(
                model,
                library,
                options.with_(weights=narrowing, header=None, weights_file=None),
                jobs=jobs,
                progress=progress and (lambda stage: progress(f"{stage}, to measure")),
            )
            return load(library)

        plain = compiled(Narrowing(format, given=found.extend))
        rounded = compiled if options.precision == "int8" else None
        return _chosen(_Measured(plain, model, format, found, options, calibration, rounded), error)


class _Measured:
    """A model whose layers' weights are inputs, its outputs with those in float32, and the other inputs, as
    runs of it need them. source: the model as it was given. rounded: compiles it where narrowed weights mean
    rounded rows."""

    def __init__(
        self,
        model: Model,
        source: object,
        format: str,
        found: list[Layer],
        options: Options,
        calibration: Sequence[str] | Mapping[str, Any],
        rounded: Callable[[Narrowing], Model] | None = None,
    ):
        self.model, self.format, self.rounded = model, format, rounded
        self.layers = {layer.name: layer for layer in found}
        self.inputs = [port for port in model.inputs if port.name not in self.layers]
        expected = {} if options.operators else expected_inputs(source, self.inputs, options)
        made = runnable_inputs(self, {}, options.shapes, expected, calibration)  # dims are compiled in
        self.feeds, self.described = made.feeds, made.describe()
        self.expected = self._with_weights(())

    def run(self, outputs: None, feeds: Mapping[str, object]) -> list[Any]:
        """The model as it is, on its own inputs."""
        return self.model.run(outputs, {**feeds, **self._weights(())})

    def _with_weights(self, narrowed: Collection[str]) -> dict[str, np.ndarray]:
        """The outputs with these layers' weights narrowed, and nothing else."""
        return self._outputs(self.model, {**self.feeds, **self._weights(narrowed)})

    def _weights(self, narrowed: Collection[str]) -> dict[str, np.ndarray]:
        """All layers' weights, those of some narrowed."""
        return {
            name: layer.narrowed(self.format) if name in narrowed else np.ascontiguousarray(layer.array)
            for name, layer in self.layers.items()
        }

    def _as_compiled(self, narrowed: Collection[str]) -> dict[str, np.ndarray]:
        """The outputs of the library that has these layers narrowed."""
        if self.rounded is None:
            return self._with_weights(narrowed)
        kept = frozenset(self.layers).difference(narrowed)
        return self._outputs(self.rounded(Narrowing(self.format, kept)), self.feeds)

    @staticmethod
    def _outputs(model: Model, feeds: Mapping[str, object]) -> dict[str, np.ndarray]:
        return {
            port.name: np.asarray(value)
            for port, value in zip(model.outputs, model.run(None, feeds))
            if port.kind == "tensor" and port.dtype is not None and is_float(port.dtype)
        }

    def alone(self, name: str) -> float:
        """What a layer costs whose weights alone are narrowed: the order in which layers stay."""
        return max(self._lost(self._with_weights([name])).values(), default=0.0)

    def errors(self, narrowed: Collection[str]) -> dict[str, float]:
        """What each output loses with these layers narrowed, relative to its largest magnitude."""
        return self._lost(self._as_compiled(narrowed))

    def _lost(self, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        return {name: lost(self.expected[name], got) for name, got in outputs.items()}

    def worst(self, narrowed: Collection[str]) -> float:
        return max(self.errors(narrowed).values(), default=0.0)


def lost(want: np.ndarray, got: np.ndarray) -> float:
    """The greatest difference, relative to the greatest finite magnitude. Infinities and NaNs are to be the
    same in both; where nothing is finite, it is infinite."""
    finite = np.isfinite(want)
    if got.shape != want.shape or (want.size and not finite.any()):
        return np.inf
    if not np.array_equal(want[~finite], got[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return np.inf
    before, after = want[finite].astype(np.float64), got[finite].astype(np.float64)
    whole = max(float(np.abs(before).max(initial=0)), float(np.finfo(np.float32).tiny))
    return float(np.abs(after - before).max(initial=0)) / whole


def _chosen(measured: _Measured, most: float) -> Narrowed:
    names = list(measured.layers)
    kept = 0
    if measured.worst(names) > most:
        names.sort(key=lambda name: -measured.alone(name))
        low, high = 0, len(names)  # keeping `high` is enough, keeping `low` is not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if measured.worst(names[middle:]) <= most else (middle, high)
        kept = high
    stored = [measured.layers[name] for name in names[kept:]]
    return Narrowed(
        Narrowing(measured.format, frozenset(names[:kept])),
        len(stored),
        sum(layer.nbytes(None) for layer in stored),
        sum(layer.nbytes(measured.format) for layer in stored),
        measured.errors(names[kept:]),
        measured.described,
    )
