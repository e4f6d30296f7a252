"""The versions of the compiler and of the interface of its libraries, which they carry."""

__version__ = "0.1.0"

#: Of runtime_c/include/onnxc.h: a loader opens libraries of its own major version.
ABI_MAJOR, ABI_MINOR = 1, 3
