"""The version of the compiler, which its libraries carry."""

__version__ = "0.1.0"
