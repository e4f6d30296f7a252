"""Draws of operators over windows and images: convolutions, pools, resizing, sampling, regions."""

from __future__ import annotations

from math import prod

import numpy as np

from .drawn import Draw


def _windows(d: Draw, image: list[int]) -> list[int]:
    """Kernel, strides, dilations and pads that fit the image; the kernel."""
    axes = range(len(image))
    dilations = [d.choice((1, 1, 2)) if "dilations" in d.schema.attributes else 1 for _ in axes]
    strides = [d.choice((1, 2, 3)) for _ in axes]
    most = [(n - 1) // s + 1 for n, s in zip(image, dilations)]
    kernel = [d.choice([k for k in (1, 2, 3, 5) if k <= m]) for m in most]
    pads = [d.integer(0, k - 1) for k in kernel * 2]
    d.attributes |= {"kernel_shape": kernel}
    if d.chance():
        d.attributes["strides"] = strides
    if max(dilations) > 1:
        d.attributes["dilations"] = dilations
    # Where a stride passes over more than the window ONNX Runtime's SAME cuts the image in front.
    same = max(dilations) == 1 and all(s <= k for s, k in zip(strides, kernel))
    automatic = d.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")) if same else "NOTSET"
    if automatic != "NOTSET" and d.chance():
        d.attributes["auto_pad"] = automatic
    elif d.chance():
        d.attributes["pads"] = pads
    return kernel


def _image(d: Draw, axes: int) -> list[int]:
    return [d.choice(((9, 1, 3, 7, 33), (6, 1, 3, 9, 11), (4, 1, 3))[axes - 1]) for _ in range(axes)]


def convolution(d: Draw) -> None:
    x, w = d.schema.inputs[0].name, "W" if d.is_input("W") else "w"
    image = _image(d, d.choice((2, 1, 3)))
    kernel = _windows(d, image)
    group, per, out = d.choice((1, 1, 2, 3)), d.choice((1, 2, 5)), d.choice((1, 2, 8))
    d.attributes["group"] = group
    d.take(x, [d.choice((1, 2, 0)), group * per, *image], -2, 2)
    d.take(w, [group * out, per, *kernel], -2, 2)
    d.optional("B", [group * out])
    if d.schema.name == "ConvInteger":
        d.optional("x_zero_point", (), 0, 3)
        d.optional("w_zero_point", d.choice(((), [group * out])), 0, 0)
    d.atol = 1e-1 if d.dtype(x).itemsize < 4 else 1e-4


def q_convolution(d: Draw) -> None:
    image = _image(d, 2)
    kernel = _windows(d, image)
    group, per, out = d.choice((1, 1, 2)), d.choice((1, 2, 5)), d.choice((1, 3))
    d.attributes["group"] = group
    d.take("x", [d.choice((1, 2)), group * per, *image], -100, 200)
    d.take("w", [group * out, per, *kernel], -100, 100)
    for name, low in (("x", 0.01), ("w", 0.01), ("y", 0.5)):
        d.inputs[f"{name}_scale"] = np.asarray(low * d.integer(1, 5), np.float32)
        d.inputs[f"{name}_zero_point"] = np.asarray(
            d.integer(0, 3 if name != "w" else 0), d.dtype(f"{name}_zero_point")
        )
    d.optional("B", [group * out], -99, 99)
    d.atol = 1.01


def transposed(d: Draw) -> None:
    image = _image(d, d.choice((2, 1)))
    kernel = [d.choice((1, 2, 3)) for _ in image]
    strides = [d.choice((1, 2, 3)) for _ in image]
    group, per, out = d.choice((1, 1, 2)), d.choice((1, 2, 5)), d.choice((1, 3))
    d.attributes |= {"group": group, "strides": strides}
    if d.chance():
        d.attributes["pads"] = [d.integer(0, k - 1) // 2 for k in kernel * 2]
    d.maybe("output_padding", [s - 1 for s in strides])
    d.take("X", [d.choice((1, 2)), group * per, *image], -2, 2)
    d.take("W", [group * per, out, *kernel], -2, 2)
    d.optional("B", [group * out])
    d.atol = 1e-1 if d.dtype("X").itemsize < 4 else 1e-4


def pool(d: Draw) -> None:
    image = _image(d, d.choice((2, 1, 3)))
    _windows(d, image)
    d.maybe("ceil_mode", 0, 1)
    d.maybe("count_include_pad", 0, 1)
    d.maybe("storage_order", 0, 1)
    if d.schema.name == "LpPool":
        d.maybe("p", 1.0 if d.version == 1 else 1, 2.0 if d.version == 1 else 2)
    d.take("X", [d.choice((1, 2, 0)), d.choice((1, 3, 17)), *image])
    d.outputs = d.integer(1, 2) if d.schema.name == "MaxPool" and d.version >= 8 else 1
    d.atol = 1e-2 if d.dtype("X").itemsize < 4 else 1e-5
    if d.schema.name == "MaxPool":  # which of equal ones is met first is for the implementation
        x = d.inputs["X"]
        if d.outputs == 2 and x.dtype.kind == "f" and x.size:
            d.inputs["X"] = (d.data.permutation(x.size).reshape(x.shape) / 8).astype(x.dtype)


def whole_image(d: Draw) -> None:
    axes = d.choice((2, 1)) if d.dtype("X") == np.float32 else 2  # the onnx package knows images only
    d.take("X", [d.choice((1, 2)), d.choice((1, 3, 17)), *_image(d, axes)])
    d.maybe("p", 1.0 if d.version == 1 else 1, 2.0 if d.version == 1 else 2)
    d.atol = 1e-1 if d.dtype("X").itemsize < 4 else 1e-5


def unpool(d: Draw) -> None:
    batch, channels, height, width = d.choice((1, 2)), d.choice((1, 3)), d.choice((2, 4)), d.choice((2, 3))
    d.attributes |= {"kernel_shape": [2, 2], "strides": [2, 2]}
    d.take("X", [batch, channels, height, width])
    plane = 4 * height * width
    rows, columns = np.meshgrid(np.arange(height) * 2, np.arange(width) * 2, indexing="ij")
    place = (rows * 2 * width + columns).reshape(1, 1, height, width)
    starts = np.arange(batch * channels).reshape(batch, channels, 1, 1) * plane
    d.inputs["I"] = (place + starts + d.integer(0, 1)).astype(np.int64)


def regions(d: Draw) -> None:
    channels, count = d.choice((1, 3)), d.choice((1, 2, 5))
    d.take("X", [2, channels, 9, 11])
    corners = np.sort(np.round(d.data.uniform(0, 8, (count, 2, 2)) * 4) / 4, 1).reshape(count, 4)
    dtype = d.dtype("X")
    if d.schema.name == "MaxRoiPool":
        batch = d.data.integers(0, 2, (count, 1))
        d.inputs["rois"] = np.concatenate([batch, np.round(corners)], 1).astype(dtype)
        d.attributes |= {"pooled_shape": [d.integer(1, 3), 2], "spatial_scale": 1.0}
        return
    d.inputs["rois"], d.inputs["batch_indices"] = corners.astype(dtype), d.data.integers(0, 2, count)
    d.attributes |= {"output_height": d.integer(1, 3), "output_width": d.integer(1, 4), "sampling_ratio": 2}
    d.maybe("coordinate_transformation_mode", "half_pixel", "output_half_pixel")
    d.maybe("spatial_scale", 1.0, 0.5)
    d.maybe("mode", "avg")


def upsample(d: Draw) -> None:
    d.take("X", [d.choice((1, 2)), d.choice((1, 3)), *_image(d, 2)], among=lambda t: t.kind in "fiu")
    d.attributes["mode"] = d.choice(("nearest", "linear" if d.version > 1 else "nearest"))
    scales = [float(d.choice((1, 2, 3))) for _ in range(2)]
    if d.version == 1:
        d.attributes |= {"height_scale": scales[0], "width_scale": scales[1]}
        return
    d.give("scales", [1.0, 1.0, *scales])


def resize(d: Draw) -> None:
    if d.version == 10:
        d.take("X", [1, d.choice((1, 3)), *_image(d, 2)], among=lambda t: t.kind == "f")
        d.attributes["mode"] = d.choice(("nearest", "linear"))
        d.give("scales", [1.0, 1.0, d.choice((2.0, 1.0, 3.0)), d.choice((2.0, 1.0))])
        return
    image = _image(d, 2)
    d.take("X", [1, d.choice((1, 3)), *image], among=lambda t: t in (np.float32, np.uint8, np.int8))
    modes = ("nearest", "linear", "cubic") if d.dtype("X").kind == "f" else ("nearest", "linear")
    d.attributes["mode"] = d.choice(modes)
    asked = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    d.maybe("coordinate_transformation_mode", *asked)
    if d.attributes["mode"] == "nearest":
        d.maybe("nearest_mode", "round_prefer_floor", "floor", "ceil", "round_prefer_ceil")
    if d.attributes["mode"] == "cubic":
        d.maybe("cubic_coeff_a", -0.5, -0.75)
    if d.version == 11:
        d.give("roi", np.zeros(8, np.float32))
        d.store("roi")
    if d.chance():
        if d.version == 11:
            d.give("scales", np.zeros(0, np.float32))
            d.store("scales")
        d.give("sizes", [1, d.inputs["X"].shape[1], *(d.choice((n, 2 * n, n + 3, 5)) for n in image)])
    else:
        corners = d.attributes.get("coordinate_transformation_mode") == "align_corners"
        corners &= d.version >= 19  # of whole sizes only: else ONNX Runtime departs from the specification
        factors = (2.0, 1.0) if corners else (1.0, 2.0, 0.5, 1.5)
        d.give("scales", [1.0, 1.0, *(d.choice(factors) if n > 1 else 2.0 for n in image)])
    d.atol = 1.01 if d.dtype("X").kind != "f" else 1e-4


def grid_sample(d: Draw) -> None:
    height, width, rows, columns = (d.choice((3, 5, 1, 8)) for _ in range(4))
    batch = d.choice((1, 2))
    d.take("X", [batch, d.choice((1, 3)), height, width], among=lambda t: t in (np.float32, np.float64))
    d.inputs["grid"] = d.data.uniform(-1.2, 1.2, (batch, rows, columns, 2)).astype(
        d.dtype("grid", lambda t: t == np.float32)
    )
    if d.version == 16:
        d.attributes["mode"] = d.choice(("bilinear", "nearest", "bicubic"))
    else:
        d.attributes["mode"] = d.choice(("linear", "nearest", "cubic"))
    d.maybe("padding_mode", "zeros", "border", "reflection")
    d.maybe("align_corners", 0, 1)
    d.atol = 1e-3


def affine_grid(d: Draw) -> None:
    batch, sizes = d.choice((1, 2)), [d.choice((2, 3, 5)) for _ in range(d.choice((2, 3)))]
    d.take("theta", [batch, len(sizes), len(sizes) + 1], among=lambda t: t in (np.float32, np.float64))
    d.give("size", [batch, 3, *sizes])
    d.maybe("align_corners", 0, 1)
    d.atol = 1e-4


def deformable(d: Draw) -> None:
    kernel, group, offsets = [d.choice((1, 2, 3)) for _ in range(2)], d.choice((1, 2)), d.choice((1, 2))
    image, out = [d.choice((4, 6)), d.choice((3, 5))], d.choice((1, 3))
    d.take("X", [1, 2 * group * offsets, *image], among=lambda t: t in (np.float32, np.float64))
    d.take("W", [group * out, 2 * offsets, *kernel])
    results = [n - k + 1 for n, k in zip(image, kernel)]
    d.attributes |= {"kernel_shape": kernel, "group": group, "offset_group": offsets, "pads": [0, 0, 0, 0]}
    d.inputs["offset"] = d.data.uniform(-1, 1, (1, offsets * 2 * prod(kernel), *results)).astype(d.dtype("X"))
    d.optional("B", [group * out])
    d.optional("mask", [1, offsets * prod(kernel), *results], 0, 1)
    d.atol = 1e-3


def columns_to_image(d: Draw) -> None:
    block, image = [d.choice((1, 2, 3)), d.choice((1, 2))], [d.choice((4, 6)), d.choice((3, 5))]
    strides = [d.choice((1, 2)) for _ in range(2)]
    steps = prod((n - k) // s + 1 for n, k, s in zip(image, block, strides))
    d.take("input", [d.choice((1, 2)), d.choice((1, 3)) * prod(block), steps], among=lambda t: t.kind == "f")
    d.give("image_shape", image)
    d.give("block_shape", block)
    d.attributes["strides"] = strides
    d.atol = 1e-2


DRAWS = {
    **{
        "Conv": convolution,
        "ConvInteger": convolution,
        "QLinearConv": q_convolution,
        "ConvTranspose": transposed,
    },
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), whole_image),
    **{
        "MaxUnpool": unpool,
        "MaxRoiPool": regions,
        "RoiAlign": regions,
        "Upsample": upsample,
        "Resize": resize,
    },
    **{
        "GridSample": grid_sample,
        "AffineGrid": affine_grid,
        "DeformConv": deformable,
        "Col2Im": columns_to_image,
    },
}
