"""The import rules of what ONNX Runtime's optimisers, quantisers and model builders write: the domain
com.microsoft, and one operator that they put into ai.onnx. One file a family, all named in this list."""

from . import (
    activations,
    attention,
    decoding,
    experts,
    fused,
    integer_products,
    low_bit,
    normalization,
    others,
    quantized,
)

FAMILIES = (
    activations,
    attention,
    decoding,
    experts,
    fused,
    integer_products,
    low_bit,
    normalization,
    others,
    quantized,
)
