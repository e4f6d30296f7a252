"""The same as `_pybind_state`, under the name of ONNX Runtime's extension module."""

from ._pybind_state import *  # noqa: F403
