"""Limits of kernels that passes know: a pass makes of a node what a kernel takes, or leaves it alone."""

from __future__ import annotations

from .dtypes import FLOATS

TRANSFORMED_CHANNELS = 16  # of a group: with fewer Winograd's transforms cost more than the products save
UNROLLED_PRODUCTS = 128  # of one result of a depthwise convolution whose groups have several channels
#: Of rows and images that are gathered: what is computed of them may be rounded, or quantised, as the result.
GATHERED_TYPES = (*FLOATS, "int8", "uint8")
