"""The import rules of ai.onnx: every operator in terms of core ops, one file a family, all named in this
list."""

from importlib import import_module

FAMILIES = [
    import_module(f"{__name__}.{family}")
    for family in (
        "activations",
        "attention",
        "casting",
        "constants",
        "control",
        "convolution",
        "elementwise",
        "images",
        "indexing",
        "linear",
        "loss",
        "movement",
        "normalization",
        "pooling",
        "quantization",
        "random",
        "recurrent",
        "reductions",
        "resize",
        "sampling",
        "sequences",
        "signal",
        "text",
        "training",
    )
]
