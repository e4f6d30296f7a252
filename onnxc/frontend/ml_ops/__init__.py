"""The import rules of ai.onnx.ml: classifiers, regressors and what prepares their features, one file a
family, all named in this list."""

from . import features, labels, linear, maps, trees

FAMILIES = (features, labels, linear, maps, trees)
