"""Models of sound structure whose nodes cannot work, with words that each refusal must contain, and odd ones
that must be accepted: shapes and types that do not fit, attributes out of range, what would take forever or
fill the memory while it is compiled. All are written in ONNX's text form; the node at fault makes `y`.
"""

from __future__ import annotations

import numpy as np
import onnx.parser
from onnx import numpy_helper
from support.bad_models import Case, changed, set_of
from support.few_nodes import saved

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1


def parsed(text: str, opset: int = 21, **initializers) -> bytes:
    """The model of a graph in text form and its initializers."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\ng {text}')
    for name, data in initializers.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(data), name))
    return saved(model)


def applied(call: str, shape: str = "2,3", opset: int = 21, dtype: str = "float", **initializers) -> bytes:
    """y = call, which reads the input x of that shape."""
    return parsed(f"({dtype}[{shape}] x) => ({dtype}[n] y) {{ y = {call} }}", opset, **initializers)


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def repeated(
    body: str,
    state: str = "float[2] a",
    trips=3,
    result: str = "float[2] o",
    condition: str = "",
    type_: str = "bool",
    **initializers,
) -> bytes:
    """y = what a Loop carries; its body makes `d`, whether it goes on, and `o`."""
    return parsed(
        f"""(float[2] x) => (float[n] y) {{ y = Loop(trips, {condition}, x)
        <body = b (int64 i, bool c, {state}) => ({type_} d, {result}) {{ {body} }}> }}""",
        trips=np.asarray(trips),
        **initializers,
    )


def scanned(attributes: str, scalar: bool = False) -> bytes:
    return parsed(f"""(float[2] x, float{"" if scalar else "[3,2]"} u) => (float[2] y, float[3,2] z) {{
        y, z = Scan<num_scan_inputs = 1, {attributes} body = b (float[2] s, float[2] a)
            => (float[2] o, float[2] p) {{ o = Add(s, a)  p = Add(a, s) }}>(x, u) }}""")


def chain(step: str, count: int, inputs: str = "float[2] v0", **initializers) -> bytes:
    """y after `count` times the step, in which @ is the number of the value before and # that of the next."""
    steps = " ".join(step.replace("@", str(k)).replace("#", str(k + 1)) for k in range(count))
    return parsed(f"({inputs}) => (float[n] y) {{ {steps} y = Identity(v{count}) }}", **initializers)


LSTM = {
    "w": (1, 12, 2),
    "r": (1, 12, 3),
    "b": (1, 24),
    "s": (1,),
    "h": (1, 1, 3),
    "c": (1, 1, 3),
    "p": (1, 9),
}


def lstm(attributes: str = "hidden_size = 3", shape: str = "3,1,2", **changed) -> bytes:
    tensors = {
        name: np.zeros(size, np.int32 if name == "s" else np.float32)
        for name, size in (LSTM | changed).items()
    }
    return applied(f"LSTM<{attributes}>(x, w, r, b, s, h, c, p)", shape, **tensors)


CONTROL = [
    Case(
        "branches of different types",
        parsed("""(bool c, float[2] x) => (float[2] y) {
        y = If(c)<then_branch = t () => (float[2] a) { a = Relu(x) },
                  else_branch = e () => (int64[2] b) { b = Cast<to = 7>(x) }> }"""),
        ("float32[2]", "int64[2]"),
    ),
    Case(
        "carried value of another type",
        repeated("d = Identity(c) o = Cast<to = 7>(a)", result="int64[2] o"),
        ("carried value", "int64[2]"),
    ),
    Case(
        "condition that is no bool",
        repeated("d = ReduceSum<keepdims = 0>(a) o = Relu(a)", type_="float"),
        ("condition", "float32[]"),
    ),
    Case(
        "condition of two elements",
        repeated("d = Greater(a, z) o = Relu(a)", type_="bool[2]", z=np.float32(0)),
        ("bool[2]",),
    ),
    Case(
        "trip count that is a float",
        repeated("d = Identity(c) o = Relu(a)", trips=np.float32(3)),
        ("'M'", "tensor(float)"),
    ),
    Case(
        "trip count of two elements", repeated("d = Identity(c) o = Relu(a)", trips=ints(3, 4)), ("int64[2]",)
    ),
    Case(
        "first condition that is a number",
        repeated("d = Identity(c) o = Relu(a)", condition="k", k=ints(1)),
        ("'cond'", "tensor(int64)"),
    ),
    Case("scanned axis beyond the rank", scanned("scan_input_axes = [5],"), ("axis 5",)),
    Case(
        "two axes of one scanned input", scanned("scan_input_axes = [0, 0],"), ("scan_input_axes", "2 values")
    ),
    Case("direction of a scan", scanned("scan_input_directions = [7],"), ("scan_input_directions",)),
    Case("scanned scalar", scanned("", scalar=True), ("axis 0", "0 axes")),
]

SIZES = [
    Case(
        "input of 2^65 elements",
        applied("Relu(x)", "4611686018427387904,8"),
        ("input x", "too many elements"),
    ),
    Case(
        "expanded to 2^124 elements",
        applied("Expand(x, s)", "1", s=ints(1 << 62, 1 << 62)),
        ("too many elements",),
    ),
    Case(
        "tile of 2^126 elements",
        applied("Tile(x, s)", "2,2", s=ints(1 << 62, 1 << 62)),
        ("too many elements",),
    ),
    Case(
        "pads of 2^64 elements", applied("Pad(x, s)", "2", s=ints(GREATEST, GREATEST)), ("too many elements",)
    ),
    Case("pads of -2^63", applied("Pad(x, s)", "2", s=ints(LEAST, LEAST)), ("cut more away",)),
    Case(
        "resized to 2^80 pixels",
        applied("Resize(x, , , s)", "1,1,2,2", s=ints(1, 1, 1 << 40, 1 << 40)),
        ("too many elements",),
    ),
    *(
        Case(
            f"scale of {scale}",
            applied("Resize(x, , s)", "1,1,2,2", s=np.float32([1, 1, scale, 1])),
            (f"scale is {scale}",),
        )
        for scale in (np.inf, np.nan, 0.0, -1.0)
    ),
    Case(
        "range of 2^64 numbers",
        parsed(
            "() => (int64[n] y) { y = Range(a, b, c) }",
            a=np.int64(LEAST),
            b=np.int64(GREATEST),
            c=np.int64(1),
        ),
        ("too many elements",),
    ),
    Case(
        "range of step 0",
        parsed("() => (int64[n] y) { y = Range(a, b, a) }", a=np.int64(0), b=np.int64(1)),
        ("delta is 0",),
    ),
    Case(
        "one-hot of depth 2^62",
        parsed(
            "(int64[4] x) => (float[a,b] y) { y = OneHot(x, d, v) }",
            d=np.int64(1 << 62),
            v=np.float32([0, 1]),
        ),
        ("too many elements",),
    ),
    Case(
        "window of 2^62 samples",
        parsed("() => (float[n] y) { y = HannWindow(n) }", n=np.int64(1 << 62)),
        ("too many elements",),
    ),
    Case("doubled 63 times", chain("v# = Concat<axis = 0>(v@, v@)", 63), ("too many elements",)),
    Case(
        "8 TB of intermediate values",
        parsed(
            """(float[1000000000000] x) => (float[n] y) {
        a = CumSum(x, k) y = CumSum(a, k) }""",
            k=np.int64(0),
        ),
        ("more than the limit of 8,589,934,592",),
    ),
]

SHAPES = [
    Case("sizes that do not broadcast", applied("Add(x, w)", w=floats(4)), ("[2, 3] and [4]",)),
    Case("operands of different types", applied("Add(x, w)", w=ints(1)), ("'B'", "tensor(int64)", "'A'")),
    Case("operator that has no such type", applied("Sqrt(x)", dtype="int64"), ("'X'", "tensor(int64)")),
    Case("logic of numbers", applied("Not(x)"), ("'X'", "tensor(float)", "tensor(bool)")),
    Case(
        "sequence where a tensor is needed",
        parsed("(float[2] x) => (float[2] y) { s = SequenceConstruct(x) y = Relu(s) }"),
        ("seq(tensor(float))",),
    ),
    Case(
        "tensor where a sequence is needed",
        applied("SequenceAt(x, k)", k=np.int64(0)),
        ("'input_sequence'", "tensor(float)"),
    ),
    Case("matrices that do not fit", applied("MatMul(x, w)", w=floats(4, 5)), ("3 and 4",)),
    Case("product with a scalar", applied("MatMul(x, w)", w=np.float32(1)), ("no matrices",)),
    Case("reshape to other elements", applied("Reshape(x, s)", s=ints(4, 2)), ("cannot be reshaped",)),
    Case("reshape with two -1", applied("Reshape(x, s)", s=ints(-1, -1)), ("more than one size",)),
    Case("reshape to a matrix of sizes", applied("Reshape(x, s)", s=ints(3, 2).reshape(1, 2)), ("vector",)),
    Case("reshape to floats", applied("Reshape(x, s)", s=floats(2)), ("'shape'", "tensor(float)")),
    Case(
        "join along another size", applied("Concat<axis = 0>(x, w)", w=floats(2, 4)), ("does not continue",)
    ),
    Case("join of scalars", parsed("(float x) => (float[n] y) { y = Concat<axis = 0>(x, x) }"), ("0 axes",)),
    Case("parts of a wrong sum", applied("Split(x, s)", s=ints(7)), ("7 elements", "2")),
    Case("both ways to split", applied("Split<num_outputs = 1>(x, s)", s=ints(2)), ("num_outputs",)),
    Case("expand to a negative size", applied("Expand(x, s)", "1", s=ints(-1)), ("negative",)),
    Case(
        "fill of a negative size",
        parsed("() => (float[n] y) { y = ConstantOfShape(s) }", s=ints(-2)),
        ("-2", "negative"),
    ),
    Case("starts without ends", applied("Slice(x, s, e)", s=ints(0), e=ints(1, 2)), ("1 starts and 2 ends",)),
    Case(
        "step of 0",
        applied("Slice(x, s, e, a, z)", s=ints(0), e=ints(1), a=ints(1), z=ints(0)),
        ("step is 0",),
    ),
    Case(
        "mirrored beyond the axis",
        applied('Pad<mode = "reflect">(x, s)', s=ints(9, 0, 0, 0)),
        ("2 elements", "9"),
    ),
    Case("edge of nothing", applied('Pad<mode = "edge">(x, s)', "0,3", s=ints(1, 0, 0, 0)), ("0 elements",)),
    Case(
        "image without channels for the kernel",
        applied("Conv(x, w)", "1,4,8,8", w=floats(4, 3, 3, 3)),
        ("4 channels",),
    ),
    Case("equation of other axes", applied('Einsum<equation = "ijk->i">(x)'), ("'ijk'", "2 axes")),
    Case(
        "updates of another shape",
        applied("ScatterND(x, i, u)", i=ints(0, 1).reshape(2, 1), u=floats(2, 5)),
        ("updates",),
    ),
    Case(
        "kernel smaller than the bias",
        applied("Conv(x, w, c)", "1,4,8,8", w=floats(4, 4, 3, 3), c=floats(400)),
        ("bias", "400"),
    ),
    *(
        Case(
            f"{name} of an LSTM too small",
            lstm(**{name: tuple(max(1, d - 1) for d in LSTM[name])}),
            (f"{name if name in 'bhcp' else name.upper()} is float32",),
        )
        for name in "wrbp"
    ),
    Case("states of an LSTM too wide", lstm(h=(1, 1, 4)), ("h is float32[1, 1, 4]",)),
    Case(
        "activation that there is not",
        lstm('hidden_size = 3, activations = ["Foo", "Tanh", "Tanh"]'),
        ("foo", "none of"),
    ),
    Case("scale of another length", applied("QuantizeLinear<axis = 1>(x, s)", s=floats(2) + 1), ("scale",)),
    Case("scale that is NaN", applied("QuantizeLinear(x, s)", s=np.float32(np.nan)), ("NaN",)),
    Case("scale that is 0", applied("QuantizeLinear(x, s)", s=np.float32(0)), ("scale is 0",)),
]

ATTRIBUTES = [
    *(
        Case(
            f"convolution with {text}",
            applied(f"Conv<{text}>(x, w)", "1,4,8,8", w=floats(4, 4, 3, 3)),
            (word,),
        )
        for text, word in [
            ("strides = [0, 1]", "strides"),
            ("dilations = [1, -1]", "dilations"),
            ("group = 0", "groups is 0"),
            ("group = 3", "3 groups"),
            (f"group = {GREATEST}", "groups"),
            ("kernel_shape = [0, 0]", "kernel_shape"),
            ("pads = [1, 1]", "pads"),
            (f"pads = [{LEAST}, 0, 0, 0]", "pads"),
            (f"strides = [{GREATEST}, 1]", "out of range"),
            ('auto_pad = "FOO"', "auto_pad"),
        ]
    ),
    *(
        Case(f"pooling with {text}", applied(f"MaxPool<{text}>(x)", "1,4,8,8"), (word,))
        for text, word in [
            ("kernel_shape = [0, 2]", "kernel has the size 0"),
            ("kernel_shape = [2]", "kernel"),
            ("kernel_shape = [2, 2], strides = [-1, 1]", "strides"),
            (f"kernel_shape = [{GREATEST}, 2]", "greater than an axis"),
        ]
    ),
    *(
        Case(f"{op} along axis {axis}", applied(f"{op}<axis = {axis}>(x)"), (f"axis {axis}",))
        for op in ("Softmax", "ArgMax", "Flatten", "Hardmax")
        for axis in (LEAST, -(1 << 32), 5, GREATEST)
    ),
    *(
        Case(f"blocks of {size}", applied(f"{op}<blocksize = {size}>(x)", "1,4,8,8"), (str(size),))
        for op in ("SpaceToDepth",)
        for size in (0, -1, 3)
    ),
    Case("order that names an axis twice", applied("Transpose<perm = [0, 0]>(x)"), ("no order",)),
    Case("order of one axis", applied("Transpose<perm = [0]>(x)"), ("no order",)),
    Case("type of number -5", applied("Cast<to = -5>(x)"), ("-5",)),
    Case("direction of a shift", applied('BitShift<direction = "up">(x, x)', dtype="uint8"), ("direction",)),
]

BAD = [*CONTROL, *SIZES, *SHAPES, *ATTRIBUTES]

FOREVER = "d = Identity(c) o = Add(a, a)"
LARGE = ints(1 << 31)

#: What must neither be computed nor written out while it is compiled.
BOMBS = [
    Case("doubled 80 times from any size", chain("v# = Concat<axis = 0>(v@, v@)", 80, "float[k] v0")),
    Case("size squared again and again", chain("s@ = Shape(v@) v# = Tile(v@, s@)", 30, "float[a, b] v0")),
    Case(
        "constant trip count of 2^63 - 1",
        parsed(
            f"""() => (float[2] y) {{ y = Loop(m, , x)
        <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] o) {{ {FOREVER} }}> }}""",
            m=np.int64(GREATEST),
            x=floats(2),
        ),
    ),
    Case(
        "loop without an end",
        parsed(
            f"""() => (float[2] y) {{ y = Loop(, k, x)
        <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] o) {{ {FOREVER} }}> }}""",
            k=np.bool_(True),
            x=floats(2),
        ),
    ),
    Case("8 GB of zeros", parsed("() => (float[n] y) { y = ConstantOfShape(s) }", s=LARGE)),
    Case(
        "sum of 8 GB of zeros",
        parsed("() => (float y) { a = ConstantOfShape(s) y = ReduceSum<keepdims = 0>(a) }", s=LARGE),
    ),
    Case(
        "8 GB of one number",
        parsed("() => (float[n] y) { a = Expand(x, s) y = Exp(a) }", s=LARGE, x=np.float32(3)),
    ),
    Case(
        "4 GB of rows",
        parsed(
            "() => (float[n] y) { a = Tile(x, s) y = Exp(a) }",
            s=ints(1 << 22),
            x=np.arange(256, dtype=np.float32),
        ),
    ),
    Case(
        "product of long constants",
        parsed(
            """() => (float[a,b] y) {
        a = ConstantOfShape(s) b = ConstantOfShape(r) y = MatMul(a, b) }""",
            s=ints(1, 1 << 30),
            r=ints(1 << 30, 1),
        ),
    ),
    Case("products of constant matrices", chain("v# = MatMul(v@, v@)", 30, "", v0=floats(900, 900) + 1)),
    Case(
        "boxes that all overlap",
        parsed(
            "() => (int64[a,b] y) { y = NonMaxSuppression(x, s, k) }",
            x=floats(1, 3000, 4),
            s=floats(1, 1, 3000),
            k=np.int64(3000),
        ),
    ),
    Case("tokens doubled 28 times", chain("v# = Concat<axis = 0>(v@, v@)", 28, "", v0=floats(2))),
    Case(
        "1,000 divisions of a size", chain("q@ = Div(v@, k) v# = Add(q@, v@)", 1000, "int64[2] v0", k=ints(3))
    ),
    Case(
        "formulas of sizes",
        parsed(
            "(float[a,b,c,d] x) => (int64[n] y) { s = Shape(x) v0 = ReduceSum<keepdims = 1>(s) "
            + " ".join(f"v{k + 1} = Mul(v{k}, v{k})" for k in range(12))
            + " y = Identity(v12) }"
        ),
    ),
    Case("900 transposes of a constant", chain("v# = Transpose(v@)", 900, "", v0=floats(60, 50))),
]

ODD = [
    Case(
        "value_info that lies",
        parsed("(float[2] x) => (float[2] y) <float[1000] a> { a = Relu(x) y = Relu(a) }"),
    ),
    Case("output whose declared shape lies", applied("Relu(x)")),
    Case(
        "negative size of an input",
        changed(lambda m: set_of(m.graph.input[0].type.tensor_type.shape.dim[0], dim_value=-5)),
    ),
    Case(
        "gather of rows without elements",
        parsed("(int64[1] i) => (float[1,0] y) { y = Gather(x, i) }", x=floats(2, 0)),
    ),
    Case("product over nothing", applied("MatMul(x, w)", "2,0", w=floats(0, 3))),
    Case("product of 2^40 rows", applied("MatMul(x, w)", "1099511627776,3", w=floats(3, 2))),
    Case("no images", applied("Conv(x, w)", "0,4,8,8", w=floats(4, 4, 3, 3))),
    Case("no kernels", applied("Conv(x, w)", "1,4,8,8", w=floats(0, 4, 3, 3))),
    Case(
        "slice of extreme bounds", applied("Slice(x, s, e)", s=ints(LEAST, LEAST), e=ints(GREATEST, GREATEST))
    ),
    Case(
        "carried value that grows",
        repeated("d = Identity(c) o = Concat<axis = 0>(a, a)", state="float[k] a", result="float[q] o"),
    ),
    Case(
        "condition of one element", repeated("d = Unsqueeze(c, at) o = Relu(a)", type_="bool[1]", at=ints(0))
    ),
    Case(
        "sum of 3,000 inputs",
        parsed(
            f"({', '.join(f'float[2] x{k}' for k in range(3000))}) => (float[2] y) "
            f"{{ y = Sum({', '.join(f'x{k}' for k in range(3000))}) }}"
        ),
    ),
    Case(
        "axis of 3,000 parts",
        parsed(
            f"(float[3000] x) => (float[n] y0) {{ {', '.join(f'y{k}' for k in range(3000))} "
            "= Split<num_outputs = 3000>(x) }"
        ),
    ),
]
