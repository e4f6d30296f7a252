"""Where ONNX Runtime refuses the size of an input, so does the run of a model that leaves every size open."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnxruntime
import pytest
from support import contrib
from support.contrib import Case, as_model, same
from support.open_sizes import opened, resized

from onnxc.commands.comparison import onnxruntime_session
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import InterpretError, run_graph
from onnxc.passes.pipeline import optimise
from onnxc.target import TARGETS

rng = np.random.default_rng(11)
floats = partial(contrib.floats, rng)


def whole(high: int, *shape: int, dtype: type = np.int32) -> np.ndarray:
    return rng.integers(0, high, shape).astype(dtype)


bytes_ = partial(whole, 9, dtype=np.uint8)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def longs(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


SCALES = np.array([1, 1, 2, 2], np.float32)
STEP, ZERO = np.float32(0.1), np.uint8(3)
X, ROW, IMAGE = floats(2, 3, 8), floats(8), floats(2, 2, 6, 6)
ONNX = partial(Case, domain="")
EMBEDDED = [whole(5, 2, 3), whole(2, 2, 3), floats(5, 8), floats(4, 8), floats(2, 8), ROW, floats(8)]
TABLES = (2, 3, 4, 5, 6)
HEADS, STATE = floats(2, 3, 8), floats(2, 2, 4, 4)
PACKED, LISTED = floats(5, 2, 4), floats(2, 3, 2, 4)
COUNTS = (floats(2), floats(2))
PLACES, RATES = abs(floats(5, 2)), abs(floats(2, 3, 2))
KEY = floats(2, 3, 2, 8)


CASES = {
    "gamma, beta and bias": Case("SkipLayerNormalization", [X, floats(2, 3, 8), ROW, ROW, ROW]),
    "a skip of every row": Case("SkipLayerNormalization", [X, floats(3, 8), ROW]),
    "a skip of a batch": Case("SkipLayerNormalization", [X, floats(1, 3, 8), ROW]),
    "gamma and bias": Case("SkipSimplifiedLayerNormalization", [X, floats(2, 3, 8), ROW, ROW]),
    "embeddings": Case(
        "EmbedLayerNormalization", [*EMBEDDED, whole(2, 2, 3), whole(4, 2, 3)], outputs=(0, 1), stored=TABLES
    ),
    "embeddings without segments": Case(
        "EmbedLayerNormalization",
        [EMBEDDED[0], None, *EMBEDDED[2:4], None, *EMBEDDED[5:], None, whole(4, 1, 3)],
        outputs=(0, 1),
        stored=TABLES,
    ),
    "quantised embeddings": Case(
        "QEmbedLayerNormalization",
        [*EMBEDDED[:2], *(bytes_(*x.shape) for x in EMBEDDED[2:]), whole(2, 2, 3), *[STEP] * 5, *[ZERO] * 5],
        outputs=(0, 1),
        stored=TABLES,
    ),
    "tokens one behind the other": Case(
        "GatedDeltaNet", [PACKED, PACKED, PACKED, ints(0, 2, 5), -PLACES, PLACES, STATE], outputs=(0, 1)
    ),
    "rows of tokens": Case(
        "GatedDeltaNet", [LISTED, LISTED, LISTED, None, -RATES, RATES, STATE], outputs=(0, 1)
    ),
    "decays that are made": Case(
        "GatedDeltaNet",
        [LISTED, LISTED, LISTED, None, -RATES, RATES, STATE, *COUNTS],
        {"gate_activation": "softplus"},
        outputs=(0, 1),
    ),
    **{
        f"attention of the rule {rule}": Case(
            "LinearAttention",
            [
                HEADS,
                HEADS,
                HEADS,
                STATE,
                -RATES if "gated" in rule else None,
                RATES if "delta" in rule else None,
            ],
            {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": rule},
            outputs=(0, 1),
        )
        for rule in ("linear", "gated", "delta", "gated_delta")
    },
    "a convolution with its state": Case(
        "CausalConvWithState", [floats(2, 4, 6), floats(4, 1, 3), floats(4), floats(2, 4, 2)], outputs=(0, 1)
    ),
    "a convolution of channels that are last": Case(
        "CausalConvWithState",
        [floats(2, 6, 4), floats(4, 1, 3), floats(4), floats(2, 2, 4)],
        {"channels_last": 1},
        outputs=(0, 1),
    ),
    "a convolution of sequences": Case(
        "VarlenCausalConvWithState",
        [floats(5, 4), floats(4, 1, 3), ints(0, 2, 5), floats(4), floats(2, 4, 2)],
        outputs=(0, 1),
    ),
    "gates of attention": Case(
        "LinearAttentionGate", [floats(2, 3, 4), floats(4), floats(4), floats(2, 3, 4)], outputs=(0, 1)
    ),
    "a gated norm": Case("GatedRMSNorm", [X, ROW, floats(2, 3, 8)]),
    "a gated sum": Case("GatedAdd", [X, floats(2, 3, 8), floats(2, 3, 1)]),
    "how much is let in": Case(
        "EngramGate", [KEY, KEY, X, floats(2, 8), floats(2, 8), floats(2, 8)], outputs=(0, 1)
    ),
    "what is added to a convolution": Case(
        "FusedConv", [IMAGE, floats(3, 2, 3, 3), floats(3), floats(2, 3, 4, 4)], {"activation": "Relu"}
    ),
    "operands that are rounded": Case(
        "DynamicQuantizeMatMul", [floats(2, 4), bytes_(4, 5), STEP, ZERO, floats(5)]
    ),
    "columns of steps": Case(
        "DynamicQuantizeMatMul", [floats(2, 4), bytes_(4, 5), abs(floats(5)), bytes_(5), floats(5)]
    ),
    "columns of steps in a batch": Case(
        "DynamicQuantizeMatMul", [floats(3, 2, 4), bytes_(3, 4, 5), abs(floats(3, 1, 5)), bytes_(3, 1, 5)]
    ),
    "a product that becomes numbers": Case(
        "MatMulIntegerToFloat", [bytes_(2, 4), bytes_(4, 5), STEP, STEP, ZERO, ZERO, floats(5)]
    ),
    "columns that become numbers": Case(
        "MatMulIntegerToFloat", [bytes_(2, 4), bytes_(4, 5), STEP, abs(floats(5)), ZERO, bytes_(5), floats(5)]
    ),
    "a quantised product": Case(
        "QGemm", [bytes_(3, 4), STEP, ZERO, bytes_(4, 5), abs(floats(5)), bytes_(5), whole(9, 5), STEP, ZERO]
    ),
    "a quantised product of one scale": Case(
        "QGemm", [bytes_(3, 4), STEP, ZERO, bytes_(4, 5), STEP, ZERO, whole(9, 3, 5), STEP, ZERO]
    ),
    "branches": Case("BranchwiseRMSNorm", [floats(3, 2, 8), floats(2, 8)]),
    "a quantised average": Case("QLinearGlobalAveragePool", [bytes_(2, 3, 4, 5), STEP, ZERO, STEP, ZERO]),
    "a product of vectors": ONNX(
        "QLinearMatMul",
        [bytes_(2, 4), floats(1), bytes_(1), bytes_(4, 3), abs(floats(3)), bytes_(3), STEP, ZERO],
    ),
    "a product of integers": ONNX("MatMulInteger", [bytes_(2, 4), bytes_(4, 3), bytes_(1), bytes_(3)]),
    "a summand without weight": ONNX("Gemm", [floats(3, 4), floats(4, 5), floats(3, 5)], {"beta": 0.0}),
    "an old summand without weight": ONNX(
        "Gemm", [floats(3, 4), floats(4, 5), floats(5)], {"beta": 0.0}, opset=7
    ),
    "elements of samples": ONNX(
        "BatchNormalization",
        [floats(2, 2, 3), *(abs(floats(2, 3)) for _ in range(4))],
        {"spatial": 0},
        opset=8,
    ),
    **{
        f"{what} and its kernel": ONNX("Conv", [image, kernel], attributes, opset=13)
        for what, image, kernel, attributes in (
            ("a row", floats(1, 2, 3), floats(3, 2, 3), {}),
            ("a row of each channel", floats(1, 2, 3), floats(2, 1, 3), {"group": 2, "strides": [2]}),
            ("an image", IMAGE, floats(3, 2, 3, 1), {"dilations": [2, 1], "pads": [1, 0, 1, 0]}),
            ("a volume", floats(1, 2, 2, 2, 3), floats(3, 2, 2, 2, 3), {}),
            ("a padded row", floats(1, 2, 3), floats(3, 2, 3), {"auto_pad": "SAME_UPPER"}),
        )
    },
    "an image of integers": ONNX("ConvInteger", [bytes_(1, 2, 3), bytes_(3, 2, 3), ZERO, ZERO]),
    "a quantised image": ONNX(
        "QLinearConv",
        [
            bytes_(1, 2, 3),
            STEP,
            ZERO,
            bytes_(3, 2, 3),
            abs(floats(3)),
            bytes_(3) * 0,
            STEP,
            ZERO,
            whole(9, 3),
        ],
    ),
    "scales": ONNX("Resize", [floats(1, 1, 2, 2), None, SCALES], {"mode": "nearest"}, opset=13),
    "scales of some axes": ONNX(
        "Resize", [floats(1, 1, 2, 2), None, SCALES[2:]], {"mode": "linear", "axes": [2, 3]}, opset=19
    ),
    "scales of an old operator": ONNX("Upsample", [floats(1, 1, 2, 2), SCALES], opset=9),
    "a region": ONNX(
        "Resize",
        [floats(1, 1, 2, 2), np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32), SCALES],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        opset=13,
    ),
    "starts and ends": ONNX("Slice", [floats(4, 6), longs(0, 1), longs(3, 3)], opset=13),
}

#: Inputs without elements by which ONNX Runtime divides, or over which it does not end.
NEVER_EMPTY = {
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), range(5)),
    **dict.fromkeys(("Conv", "ConvInteger", "FusedConv"), (1,)),
    "QLinearConv": (3,),
}

#: The specification has scales and zero points of rows, which ONNX Runtime refuses.
BY_ROWS = {"QLinearMatMul": (1, 2), "MatMulInteger": (2,)}


def is_apart(case: Case, k: int, other: np.ndarray) -> bool:
    """Whether ONNX Runtime is not asked of an input, or has nothing to say of it."""
    if k in (BY_ROWS if other.size else NEVER_EMPTY).get(case.op, ()):
        return True
    # scales and zero points of one matrix are those of all, and of one column those of all
    return case.op == "DynamicQuantizeMatMul" and other.ndim == 3 and k in (2, 3) and other.size in (3, 5)


def is_refused(session: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray]) -> bool:
    try:
        session.run(None, feeds)
    except Exception:  # of whatever class
        return True
    return False


@pytest.mark.parametrize("name", CASES)
def test_the_run_refuses_the_sizes_that_onnxruntime_refuses(name):
    case = CASES[name]
    proto = opened(as_model([case])[0])
    graph = optimise(import_model(proto).graph, TARGETS["x86-64-v3"])
    session = onnxruntime_session(proto, optimise=False)
    given = {k: np.asarray(x) for k, x in enumerate(case.inputs) if x is not None and k not in case.stored}
    feeds = {f"x0_{k}": x for k, x in given.items()}
    for found, expected in zip(run_graph(graph, list(feeds.values())), session.run(None, feeds), strict=True):
        same(found, expected, 1 if found.dtype.kind in "iu" else 1e-4)
    for k, x in given.items():
        for _, other in resized(x):
            bad = {**feeds, f"x0_{k}": other}
            if not is_apart(case, k, other) and is_refused(session, bad):
                with pytest.raises(InterpretError):
                    run_graph(graph, list(bad.values()))
                    pytest.fail(f"input {k} of {x.shape} is taken as {other.shape}")
