"""onnxc: compiles ONNX models ahead of time to native shared libraries."""
__version__ = "0.1.0"
