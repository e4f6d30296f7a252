"""The package that this stands for."""

from ..environment import VERSION as __version__

package_name = "onnxruntime"

__all__ = ["__version__", "package_name"]
