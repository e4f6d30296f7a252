"""onnxc: compiles ONNX models ahead of time to native shared libraries."""
