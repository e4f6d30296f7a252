"""A compiled model as a step of a scikit-learn pipeline.

    make_pipeline(StandardScaler(), onnxc.sklearn.Estimator("model.onnx")).predict(X)

Nothing is fitted: the model is what it was exported as.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

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

    def _portable(self) -> Portable:
        if isinstance(self.model, Portable):
            return self.model
        if getattr(self, "_made_of", None) is not self.model:
            self._made_of, self._made = self.model, Portable(self.model, self.threads, target="native")
        return self._made

    def _run(self, X: Any, name: str | None, place: int) -> np.ndarray:
        model = self._portable().open(self.threads)
        if hasattr(X, "columns"):
            feeds = feeds_of(model, {column: X[column].to_numpy() for column in X.columns}, self.inputs)
        elif len(model.inputs) == 1:
            feeds = feeds_of(model, {model.inputs[0].name: X})
        else:
            table = np.asarray(X)
            feeds = feeds_of(model, {port.name: table[:, [k]] for k, port in enumerate(model.inputs)})
        (result,) = model.run([name or model.outputs[place].name], feeds)
        if isinstance(result, list):
            return np.array([list(row.values()) for row in result])
        return np.asarray(result)
