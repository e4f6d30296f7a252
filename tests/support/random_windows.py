"""Templates of random graphs: convolutions, pools, resizes, quantisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from support.random_graphs import GREATEST, Dim, Random, Term, Unfit, limits, rounded
from support.random_sums import extent, product

# Windows ------------------------------------------------------------------------------------------


def image(r: Random, dtypes=("float32",)) -> Term:
    """[N, C, spatial...] with some pixels."""
    found = [
        t
        for t in r.terms
        if 3 <= t.rank <= 5
        and t.dtype in dtypes
        and len(set(t.dims[1])) == 1
        and not any(0 in d for d in t.dims[1:])
    ]
    if found and not r.chance(3):
        return r.choice(found)
    spatial = [d for d in r.sizes if 0 not in d]
    rank = r.choice((1, 2, 2, 2, 3))
    channels = r.fixed(r.choice((1, 2, 3, 4, 6, 8, 16, 17)))
    for _ in range(8):
        dims = (r.size(), channels, *(r.choice(spatial) for _ in range(rank)))
        if Term("", "bool", dims).count() <= GREATEST:
            return r.leaf(r.choice(dtypes), dims)
    raise Unfit


def window(r: Random, x: Term, kernels: Sequence[int]) -> tuple[dict, list[int], list[int], list[int]]:
    """(attributes, kernel sizes, strides, dilations) for each spatial axis."""
    rank = x.rank - 2
    kernel = [r.choice(kernels) for _ in range(rank)]
    strides = [r.choice((1, 1, 2, 3)) for _ in range(rank)]
    dilations = [r.choice((1, 1, 1, 2)) for _ in range(rank)]
    attributes = {"kernel_shape": kernel}
    if r.chance(2) or any(s > 1 for s in strides):
        attributes["strides"] = strides
    if any(d > 1 for d in dilations):
        attributes["dilations"] = dilations
    return attributes, kernel, strides, dilations


def placed(r: Random, x: Term, attributes: dict, kernel, strides, dilations, most_pad) -> tuple[Dim, ...]:
    """The spatial sizes of the result, pads or auto_pad being chosen."""
    rank = len(kernel)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    auto = r.choice(("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    pads = [0] * (2 * rank)
    if auto == "NOTSET":
        if r.chance(2):
            pads = [r.integer(0, most_pad(extents[k % rank], kernel[k % rank])) for k in range(2 * rank)]
            attributes["pads"] = pads
    else:
        attributes["auto_pad"] = auto
    sizes = []
    for axis in range(rank):
        dim = []
        for size in x.dims[axis + 2]:
            if auto.startswith("SAME"):
                dim.append(-(-size // strides[axis]))
            else:
                free = size + pads[axis] + pads[axis + rank] - extents[axis]
                if free < 0:
                    raise Unfit
                dim.append(free // strides[axis] + 1)
        sizes.append(tuple(dim))
    return tuple(sizes)


def conv(r: Random):
    x = image(r, ("float32", "float32", "float32", "float16", "float64"))
    channels = x.dims[1][0]
    groups = r.choice([1, *(g for g in (1, 2, 3, 4, channels) if channels % g == 0)])
    attributes, kernel, strides, dilations = window(r, x, (1, 1, 2, 3, 3, 5))
    sizes = placed(r, x, attributes, kernel, strides, dilations, lambda extent, k: extent + 1)
    out = groups * r.choice((1, 2, 3, 5, 8, 17) if groups < 4 else (1, 2))
    w = r.leaf(x.dtype, [r.fixed(n) for n in (out, channels // groups, *kernel)], -1, 1, 2)
    bias = [r.leaf(x.dtype, [r.fixed(out)])] if r.chance(2) else []
    if groups > 1:
        attributes["group"] = groups
    new = product(x, w, channels // groups * math.prod(kernel), (x.dims[0], r.fixed(out), *sizes), bias)
    r.add("Conv", [x, w, *bias], new, **attributes)


def layers(r: Random):
    """Convolutions of many channels with what stands around them in networks, joined by sums: layouts go
    through all of it."""
    x = image(r)
    for _ in range(r.integer(2, 5)):
        channels = r.choice((8, 16, 24, 32, 33))
        kernel, depthwise = r.choice((1, 1, 3, 3, 5)), r.chance(4)
        x = r.within(x, -4, 4)
        groups, out = (x.dims[1][0], x.dims[1]) if depthwise else (1, r.fixed(channels))
        taps = x.dims[1][0] // groups
        w = r.leaf(
            "float32",
            [r.fixed(n) for n in (out[0], taps, *[kernel] * (x.rank - 2))],
            -1,
            1,
            2,
            constant=True if r.chance(2) else None,
        )
        n = taps * kernel ** (x.rank - 2)
        new = product(x, w, n, (x.dims[0], out, *x.dims[2:]))
        new = replace(new, error=new.error + 64 * n * x.most * 2.0**-24)  # transforms round as they like
        shape = [kernel] * (x.rank - 2)
        y = r.add("Conv", [x, w], new, kernel_shape=shape, auto_pad="SAME_UPPER", group=groups)
        if r.chance(2):
            scale = r.leaf("float32", [out], 0.5, 1, 1)
            shift, mean = (r.leaf("float32", [out], -2, 2) for _ in range(2))
            variance = r.leaf("float32", [out], 1, 1)
            y = r.add(
                "BatchNormalization",
                [y, scale, shift, mean, variance],
                replace(y, low=y.low - 5, high=y.high + 5, error=2 * y.error + y.most * 1e-5, grid=99),
                epsilon=0.0,
            )
        kind = r.choice(("Relu", "Sigmoid", "HardSwish", "LeakyRelu", None))
        if kind:
            most = 1 if kind == "Sigmoid" else y.most
            y = r.add(kind, [y], rounded(replace(y, low=-most, high=most, grid=99, error=1.5 * y.error), 8))
        found = [t for t in r.terms if t.dtype == "float32" and t.dims == y.dims and t is not y]
        if found and r.chance(2):
            other = r.choice(found)
            y = r.add(
                "Add",
                [y, other],
                rounded(
                    replace(
                        y,
                        low=y.low + other.low,
                        high=y.high + other.high,
                        error=y.error + other.error,
                        grid=99,
                    )
                ),
            )
        if r.chance(3):
            y = r.add(
                "Concat",
                [x, y],
                replace(
                    y,
                    dims=(y.dims[0], r.fixed(x.dims[1][0] + out[0]), *y.dims[2:]),
                    low=min(x.low, y.low),
                    high=max(x.high, y.high),
                    error=max(x.error, y.error),
                ),
                axis=1,
            )
        x = y


def conv_transpose(r: Random):
    x = image(r, ("float32",))
    channels, rank = x.dims[1][0], x.rank - 2
    groups = r.choice([1, *(g for g in (1, 2, channels) if channels % g == 0)])
    attributes, kernel, strides, dilations = window(r, x, (1, 2, 3, 4))
    out = r.choice((1, 2, 3, 8)) if groups < 4 else 1
    pads = [0] * (2 * rank)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    if r.chance(2):
        pads = [r.integer(0, e - 1) for e in (*extents, *extents)]
        attributes["pads"] = pads
    extra = [0] * rank
    if r.chance(3):
        extra = [r.integer(0, max(s, d) - 1) for s, d in zip(strides, dilations)]
        attributes["output_padding"] = extra
    sizes = []
    for axis in range(rank):
        dim = tuple(
            (size - 1) * strides[axis] + extents[axis] - pads[axis] - pads[axis + rank] + extra[axis]
            for size in x.dims[axis + 2]
        )
        if min(dim) < 1:
            raise Unfit
        sizes.append(dim)
    w = r.leaf(x.dtype, [r.fixed(n) for n in (channels, out, *kernel)], -1, 1, 2)
    bias = [r.leaf(x.dtype, [r.fixed(out * groups)])] if r.chance(2) else []
    if groups > 1:
        attributes["group"] = groups
    dims = (x.dims[0], r.fixed(out * groups), *sizes)
    new = product(x, w, channels // groups * math.prod(kernel), dims, bias)
    r.add("ConvTranspose", [x, w, *bias], new, **attributes)


def pool(r: Random):
    x = image(r, ("float32", "float32", "float64"))
    operator = r.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"))
    if operator.startswith("Global"):
        n = extent(x, range(2, x.rank))
        new = replace(x, dims=(*x.dims[:2], *[r.fixed(1)] * (x.rank - 2)), known=None)
        new = new if operator == "GlobalMaxPool" else rounded(replace(new, grid=99), n + 2, n * x.most)
        return r.add(operator, [x], new)
    attributes, kernel, strides, dilations = window(r, x, (1, 2, 3, 3, 4))
    sizes = placed(r, x, attributes, kernel, strides, dilations, lambda extent, k: k // 2 if k > 1 else 0)
    if attributes.get("auto_pad", "VALID") != "VALID" and max(dilations) > 1:
        raise Unfit  # ONNX Runtime pads as if there were no dilations
    n = math.prod(kernel)
    new = replace(x, dims=(*x.dims[:2], *sizes), known=None)
    if operator == "MaxPool":
        return r.add(operator, [x], new, **attributes)
    if operator == "AveragePool":
        attributes["count_include_pad"] = r.integer(0, 1)
        new = rounded(replace(new, low=-x.most, high=x.most, grid=99), n + 2, n * x.most)
        return r.add(operator, [x], new, **attributes)
    attributes["p"] = 1
    new = replace(new, low=0, high=n * x.most, error=n * x.error)
    return r.add(operator, [x], rounded(new, n + 8), **attributes)


# Sizes --------------------------------------------------------------------------------------------


def resize(r: Random):
    x = r.within(r.pick(lambda t: 3 <= t.rank <= 4 and not any(0 in d for d in t.dims), ("float32",)), -8, 8)
    mode = r.choice(("nearest", "linear"))
    coordinates = r.choice(("half_pixel", "asymmetric", "align_corners"))
    sizes = [
        d if a < 2 else r.choice([s for s in r.sizes if 0 not in s] + [d, tuple(2 * n for n in d)])
        for a, d in enumerate(x.dims)
    ]
    new = replace(x, dims=tuple(sizes), known=None)
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if r.chance(2):
        scale = r.choice((2, 3))
        new = replace(x, dims=(*x.dims[:2], *(tuple(n * scale for n in d) for d in x.dims[2:])), known=None)
        inputs = [x, None, r.array([1, 1, *[scale] * (x.rank - 2)], "float32")]
    else:
        inputs = [x, None, None, r.numbers(r.per_run(sizes))]
    if mode == "nearest":
        if coordinates != "asymmetric":
            raise Unfit  # places that lie halfway are rounded in the reference's float32 or float64
        attributes["nearest_mode"] = "floor"
        if len(inputs) == 4:
            raise Unfit
    else:
        new = rounded(replace(new, low=-x.most, high=x.most, grid=99, error=2 * x.error), 400)
    r.add("Resize", inputs, new, **attributes)


# Quantisation -------------------------------------------------------------------------------------


def quantize(r: Random):
    x = r.within(r.pick(lambda t: t.exact and t.rank, ("float32",)), -16, 16)
    dtype = r.choice(("uint8", "int8"))
    axis = r.integer(0, x.rank - 1)
    per_axis = r.chance(3) and len(set(x.dims[axis])) == 1 and x.dims[axis][0] > 1
    shape = [x.dims[axis]] if per_axis else []
    scale = r.leaf("float32", shape, 0.25, 0.25, 2) if r.chance(2) else r.leaf("float32", shape, 0.5, 0.5, 1)
    zero = r.leaf(dtype, shape, -5 if dtype == "int8" else 100, 120)
    attributes = {"axis": axis} if per_axis else {}
    low, high = limits(dtype)
    whole = replace(x, dtype=dtype, low=low, high=high, grid=0, known=None)
    q = r.add("QuantizeLinear", [x, scale, zero], whole, **attributes)
    if r.chance(2):
        r.add(
            "DequantizeLinear",
            [q, scale, zero],
            replace(x, low=-128, high=128, grid=2, known=None),
            **attributes,
        )


def dynamic_quantize(r: Random):
    x = r.within(r.pick(lambda t: t.exact and not any(0 in d for d in t.dims), ("float32",)), -16, 16)
    q = Term("", "uint8", x.dims, 0, 255, 0, 1)
    r.add(
        "DynamicQuantizeLinear",
        [x],
        q,
        Term("", "float32", (), 0, 1, 99, 1e-7),
        Term("", "uint8", (), 0, 255, 0, 1),
    )


def integer_products(r: Random):
    x = r.pick(lambda t: t.rank >= 2 and t.exact, ("uint8", "int8"))
    y = r.leaf(r.choice(("uint8", "int8")), [x.dims[-1], r.size()], -128, 255)
    zeros = [r.leaf(t.dtype, (), 1, 9) if r.chance(2) else None for t in (x, y)]
    n, most = max(x.dims[-1]), 256 * 256
    r.add("MatMulInteger", [x, y, *zeros], Term("", "int32", (*x.dims[:-1], y.dims[-1]), -n * most, n * most))


def integer_conv(r: Random):
    """The sums of 8-bit products alone, or scaled and rounded to 8 bits again."""
    x = image(r, ("uint8", "int8"))
    channels = x.dims[1][0]
    groups = r.choice([1, *(g for g in (2, channels) if channels % g == 0)])
    attributes, kernel, strides, dilations = window(r, x, (1, 2, 3))
    sizes = placed(r, x, attributes, kernel, strides, dilations, lambda extent, k: k - 1)
    attributes["group"] = groups
    out = groups * r.choice((1, 2, 5))
    w = r.leaf(x.dtype, [r.fixed(n) for n in (out, channels // groups, *kernel)], -9, 9)
    dims, most = (x.dims[0], r.fixed(out), *sizes), channels // groups * math.prod(kernel) * 2**16
    zero_x, zero_w = r.leaf(x.dtype, (), 0, 9), r.leaf(x.dtype, (), 0, 0)
    if r.chance(2):
        r.add("ConvInteger", [x, w, zero_x, zero_w], Term("", "int32", dims, -most, most), **attributes)
    else:
        low, high = limits(x.dtype)
        scales = [r.leaf("float32", (), 2**-k, 2**-k, 8, constant=True) for k in (1, 3, r.integer(0, 2))]
        bias = [r.leaf("int32", [r.fixed(out)], -99, 99)] if r.chance(2) else []
        inputs = [x, scales[0], zero_x, w, scales[1], zero_w, scales[2], r.leaf(x.dtype, (), 0, 99), *bias]
        r.add("QLinearConv", inputs, Term("", x.dtype, dims, low, high), **attributes)


def scaled_integer_product(r: Random):
    x = r.pick(lambda t: t.rank >= 2 and t.exact, ("uint8", "int8"))
    y = r.leaf(x.dtype, [x.dims[-1], r.size()], -9, 9)
    scales = [r.leaf("float32", (), 2**-k, 2**-k, 8) for k in (1, 3, r.integer(0, 2))]
    zeros = [r.leaf(x.dtype, (), 0, 9) for _ in range(3)]
    low, high = limits(x.dtype)
    r.add(
        "QLinearMatMul",
        [x, scales[0], zeros[0], y, scales[1], zeros[1], scales[2], zeros[2]],
        Term("", x.dtype, (*x.dims[:-1], y.dims[-1]), low, high),
    )


TEMPLATES = (
    conv,
    conv,
    layers,
    conv_transpose,
    pool,
    pool,
    resize,
    quantize,
    dynamic_quantize,
    integer_products,
    integer_conv,
    scaled_integer_product,
)
