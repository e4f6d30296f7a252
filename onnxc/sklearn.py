"""A compiled model as a step of a scikit-learn pipeline.

    make_pipeline(StandardScaler(), onnxc.sklearn.Estimator("model.onnx")).predict(X)

Nothing is fitted: the model is what it was exported as.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from .errors import RunError, quote
from .loading.c_values import Port
from .loading.loader import Model
from .portable import Inputs, Portable, feeds_of


class Estimator(TransformerMixin, BaseEstimator):
    """A transformer and predictor of one model.

    model: a Portable, a library, or what `onnxc.compile` takes. inputs: which columns of a table an input is
    read from, as `onnxc.portable.feeds_of` takes them; an array is the input of a model that has one. output:
    the name of what `transform` and `predict` give (None: the first). probabilities: the name of what
    `predict_proba` gives (None: the second). threads: of a run."""

    def __init__(
        self,
        model: Any,
        inputs: Inputs | None = None,
        output: str | None = None,
        probabilities: str | None = None,
        threads: int | None = None,
    ):
        self.model = model
        self.inputs = inputs
        self.output = output
        self.probabilities = probabilities
        self.threads = threads

    def fit(self, X: Any = None, y: Any = None) -> Estimator:
        """Compiles the model, where it is not compiled yet, and opens it."""
        self._portable()
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def transform(self, X: Any) -> np.ndarray:
        """The output for every row."""
        return self._run(X, self.output, 0)

    def predict(self, X: Any) -> np.ndarray:
        """The output for every row: of classifiers the label."""
        return self._run(X, self.output, 0)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of every row, in the order of the classes, whether the model gives an array or a
        map for each row."""
        return self._run(X, self.probabilities, 1)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the columns that `transform` gives, after its output; frames have them with
        `set_output`. Raises RunError where only a run tells how many there are."""
        port = _output(self._portable().open(self.threads), self.output, 0)
        shape = port.shape or ()
        if port.kind == "tensor" and len(shape) == 1:
            return np.array([port.name], object)
        if port.kind == "tensor" and len(shape) == 2 and isinstance(shape[1], int):
            return np.array([f"{port.name}{k}" for k in range(shape[1])], object)
        raise RunError(
            f"how many columns the output {quote(port.name)} has is known in a run only: {port.type_text()}"
        )

    def _portable(self) -> Portable:
        if isinstance(self.model, Portable):
            return self.model
        if getattr(self, "_made_of", None) is not self.model:
            self._made_of, self._made = self.model, Portable(self.model, self.threads, target="native")
        return self._made

    def _run(self, X: Any, name: str | None, place: int) -> np.ndarray:
        model = self._portable().open(self.threads)
        port = _output(model, name, place)
        if hasattr(X, "toarray"):
            raise RunError(
                f"expected a table or an array, got a {type(X).__name__}",
                remedy="give its toarray(), and sparse_output=False to the encoders before",
            )
        if hasattr(X, "columns"):
            feeds = feeds_of(model, {column: X[column].to_numpy() for column in X.columns}, self.inputs)
        elif len(model.inputs) == 1:
            feeds = feeds_of(model, {model.inputs[0].name: X})
        else:
            feeds = feeds_of(model, _by_place(model, X))
        (result,) = model.run([port.name], feeds)
        if port.kind != "sequence":
            return np.asarray(result)
        rows = len(result)
        if not rows:  # only a row tells how many classes there are
            (result,) = model.run([port.name], {name: _one_row(feed) for name, feed in feeds.items()})
        return np.array([list(row.values()) for row in result])[:rows]


def _output(model: Model, name: str | None, place: int) -> Port:
    """The output of that name, or else at that place. Raises RunError for what no array can be made of."""
    if name is not None:
        (place,) = model.output_numbers([name])
    elif place >= len(model.outputs):
        raise RunError(
            f"the model has no second output, only {quote(model.outputs[0].name)}",
            remedy="say which output `probabilities` are",
        )
    port = model.outputs[place]
    if port.kind == "map" or (port.kind == "sequence" and port.key is None):
        kind = port.type_text()
        raise RunError(f"output {quote(port.name)} is a {kind}, neither an array nor a map for each row")
    return port


def _by_place(model: Model, X: Any) -> dict[str, np.ndarray]:
    """The columns of an array as those of the inputs' names."""
    table = X if isinstance(X, np.ndarray) else np.asarray(X, object)
    if table.ndim != 2 or table.shape[1] > len(model.inputs):
        raise RunError(
            f"expected an array of {len(model.inputs)} columns, one for each input, "
            f"got one of shape {list(table.shape)}"
        )
    return {port.name: column for port, column in zip(model.inputs, table.T)}


def _one_row(feed: np.ndarray) -> np.ndarray:
    """A row for an input of no rows."""
    return np.full((1, *feed.shape[1:]), "" if feed.dtype == object else 0, feed.dtype)
