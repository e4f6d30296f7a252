"""The import rules of what ONNX Runtime's optimisers, quantisers and model builders write: the domains
com.microsoft and com.microsoft.nchwc, and what they put, or ONNX once had, into ai.onnx. One file a family,
all named in this list."""

from importlib import import_module

FAMILIES = [
    import_module(f"{__name__}.{family}")
    for family in (
        "activations",
        "attention",
        "attn_lstm",
        "blocked",
        "decoding",
        "engram",
        "experimental",
        "experts",
        "fused",
        "generation",
        "images",
        "integer_products",
        "linear_attention",
        "logits",
        "low_bit",
        "normalization",
        "others",
        "packed_rows",
        "quantized",
        "speculation",
        "text",
    )
]
