"""The import rules of what ONNX Runtime's optimisers, quantisers and model builders write: the domains
com.microsoft and com.microsoft.nchwc, and what they put, or ONNX once had, into ai.onnx. One file a family,
all named in this list."""

from . import (
    activations,
    attention,
    blocked,
    decoding,
    experimental,
    experts,
    fused,
    integer_products,
    low_bit,
    normalization,
    others,
    quantized,
    text,
)

FAMILIES = (
    activations,
    attention,
    blocked,
    decoding,
    experimental,
    experts,
    fused,
    integer_products,
    low_bit,
    normalization,
    others,
    quantized,
    text,
)
