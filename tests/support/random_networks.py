"""Random networks of images, sequences and volumes: convolutions of any window, group, stride and padding
between pools, tails, joins and changes of size, of sizes that are known or not.

Layers are as large as real ones, so that every kernel, layout and border that costs may prefer is met.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnx
from support.exporter import Exporter, normal
from support.random_graphs import Unfit

GREATEST = 400_000  # elements of a value
CHANNELS = 1, 3, 8, 16, 17, 20, 24, 32, 48, 64, 96
TAILS = "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Sigmoid", "Tanh"


@dataclass(frozen=True)
class Feature:
    """A value, its channels and how long its spatial axes are, a line for each run."""

    name: str
    channels: int
    sizes: np.ndarray


class Network:
    """A model that is being drawn."""

    def __init__(self, seed: int):
        self.draw, self.e = random.Random(seed), Exporter(seed, opset=20)
        rank = self.draw.choice((1, 2, 2, 2, 3))
        longest = {1: 257, 2: 64, 3: 24}[rank]
        channels = self.draw.choice((1, 3, 4, 8, 16, 20))
        sizes = [self.draw.randint(5, longest) for _ in range(rank)]
        batch = self.draw.choice((1, 1, 2, 3))
        self.open = [self.draw.random() < 0.4 for _ in range(rank + 1)]  # the batch, and axis by axis
        longer = [
            size + self.draw.choice((0, 1, 2, 5, 16)) * o for size, o in zip((batch, *sizes), self.open)
        ]
        self.runs = np.array([(batch, *sizes), longer])
        first, *rest = (
            f"d{k}" if o else int(size) for k, (o, size) in enumerate(zip(self.open, self.runs[0]))
        )
        self.e.input("x", first, channels, *rest)
        self.features = [Feature("x", channels, self.runs[:, 1:])]

    @property
    def rank(self) -> int:
        return self.runs.shape[1] - 1

    def every(self, choices: tuple[int, ...]) -> list[int]:
        """The same for all spatial axes, or one for each."""
        if self.draw.random() < 0.7:
            return [self.draw.choice(choices)] * self.rank
        return [self.draw.choice(choices) for _ in range(self.rank)]

    def partner(self, x: Feature, channels: bool) -> Feature:
        """A value as long as x, with as many channels if need be."""
        return self.draw.choice(
            [
                y
                for y in self.features
                if np.array_equal(y.sizes, x.sizes) and (y.channels == x.channels or not channels)
            ]
        )

    def vector(self, count: int, *ones: int) -> str:
        """So many numbers, seen with these axes behind them, which the run computes one time in four."""
        if self.draw.random() < 0.75:
            return self.e.weight(count, *ones, scale=0.5)
        x = self.features[0]
        mean = self.e.op("ReduceMean", x.name, self.e.constant([0, *range(2, 2 + self.rank)]), keepdims=0)
        made = self.e.op("Tanh", self.e.op("MatMul", mean, self.e.weight(x.channels, count)))
        return self.e.reshape(made, count, *ones) if ones else made

    def per_channel(self, x: Feature) -> str:
        return self.vector(x.channels, *[1] * self.rank)

    def grow(self) -> None:
        """Adds a layer, if the one that is drawn suits what there is."""
        layer = self.draw.choices(list(LAYERS), list(LAYERS.values()))[0]
        try:
            made = layer(self, self.draw.choice(self.features[-3:]))
        except Unfit:
            return
        elements = self.runs[:, 0] * made.channels * made.sizes.prod(axis=1)
        if made.sizes.min() > 0 and elements.max() <= GREATEST:
            self.features.append(made)

    def feeds(self) -> list[dict[str, np.ndarray]]:
        """Inputs of a run, and of one in which what may be longer is."""
        channels = self.features[0].channels
        return [{"x": normal(self.e.rng, (batch, channels, *sizes))} for batch, *sizes in self.runs]

    def model(self) -> onnx.ModelProto:
        read = {name for node in self.e.nodes for name in node.input}
        last = [x.name for x in self.features[1:] if x.name not in read]
        return self.e.model(*(last or [self.features[-1].name]))  # what layers that were dropped read


# Layers ------------------------------------------------------------------------------------------


def convolution(n: Network, x: Feature) -> Feature:
    """Dense, depthwise or in groups, padded to keep the size, or by anything less than the window."""
    groups = n.draw.choice([1, 1, 1, x.channels, *(g for g in range(2, x.channels) if x.channels % g == 0)])
    made = n.draw.choice(CHANNELS) if groups == 1 else groups * n.draw.choice((1, 1, 2, 4))
    kernel, strides = n.every((1, 1, 2, 3, 3, 3, 4, 5, 7)), n.every((1, 1, 1, 2, 3))
    dilations = [n.draw.choice((1, 1, 1, 2, 3))] * n.rank
    over = [(k - 1) * d for k, d in zip(kernel, dilations)]
    if n.draw.random() < 0.7:
        pads = [o // 2 for o in over] * 2
    else:
        pads = [n.draw.randint(0, o) for o in over * 2]
    sizes = (x.sizes + pads[: n.rank] + pads[n.rank :] - np.array(over) - 1) // strides + 1
    operands = [x.name, n.e.weight(made, x.channels // groups, *kernel)]
    if sizes.min() < 1:
        raise Unfit
    if n.draw.random() < 0.7:
        operands.append(n.vector(made))
    name = n.e.op("Conv", *operands, group=groups, strides=strides, dilations=dilations, pads=pads)
    return tail(n, Feature(name, made, sizes))


def tail(n: Network, x: Feature) -> Feature:
    kind = n.draw.choice((*TAILS, "none", "none", "scaled", "silu", "clipped", "slope"))
    if kind == "none":
        return x
    operands = {
        "scaled": lambda: ("Add", n.e.op("Mul", x.name, n.per_channel(x)), n.per_channel(x)),
        "silu": lambda: ("Mul", x.name, n.e.op("Sigmoid", x.name)),
        "clipped": lambda: ("Clip", x.name, n.e.number(0), n.e.number(6)),
        "slope": lambda: ("PRelu", x.name, n.per_channel(x)),
    }.get(kind, lambda: (kind, x.name))()
    return replace(x, name=n.e.op(*operands))


def pool(n: Network, x: Feature) -> Feature:
    kernel = np.minimum(n.every((2, 3, 3, 5)), x.sizes.min(axis=0))
    strides, padded = n.every((1, 2, 2)), n.draw.random() < 0.5
    pads = kernel // 2 * padded
    sizes = (x.sizes + 2 * pads - kernel) // strides + 1
    kind = n.draw.choice(("MaxPool", "AveragePool"))
    more = {"count_include_pad": n.draw.randint(0, 1)} if kind == "AveragePool" else {}
    name = n.e.op(kind, x.name, kernel_shape=kernel, strides=strides, pads=[*pads, *pads], **more)
    return Feature(name, x.channels, sizes)


def transposed(n: Network, x: Feature) -> Feature:
    groups = n.draw.choice([g for g in (1, 1, 2, x.channels) if x.channels % g == 0])
    made, kernel, strides = n.draw.choice((1, 3, 8, 16, 20)), n.every((2, 3, 4)), n.every((1, 2))
    pad = n.draw.choice((0, 0, 1))
    sizes = (x.sizes - 1) * strides + kernel - 2 * pad
    weights = n.e.weight(x.channels, made, *kernel)
    if sizes.min() < 1:
        raise Unfit
    name = n.e.op("ConvTranspose", x.name, weights, group=groups, strides=strides, pads=[pad] * 2 * n.rank)
    return Feature(name, made * groups, sizes)


def excite(n: Network, x: Feature) -> Feature:
    """Channels weighed by what their means say."""
    few, ones = max(1, x.channels // 4), [1] * n.rank
    inner = n.e.op("Conv", n.e.op("GlobalAveragePool", x.name), n.e.weight(few, x.channels, *ones))
    gate = n.e.op("Conv", n.e.op("Relu", inner), n.e.weight(x.channels, few, *ones))
    gates = [x.name, n.e.op(n.draw.choice(("Sigmoid", "HardSigmoid")), gate)]
    return replace(x, name=n.e.op("Mul", *n.draw.sample(gates, 2)))


def instance_norm(n: Network, x: Feature) -> Feature:
    scale, shift = (n.e.weight(x.channels, scale=0.5) for _ in range(2))
    return replace(x, name=n.e.op("InstanceNormalization", x.name, scale, shift))


def upsampled(n: Network, x: Feature) -> Feature:
    by, linear = n.draw.choice((2, 2, 3)), n.draw.random() < 0.5
    how = {"mode": "linear"} if linear else {"mode": "nearest", "nearest_mode": "floor"}
    place = n.draw.choice(("asymmetric", "half_pixel", "align_corners") if linear else ("asymmetric",))
    scales = n.e.constant([1, 1, *[by] * n.rank], np.float32)
    name = n.e.op("Resize", x.name, "", scales, coordinate_transformation_mode=place, **how)
    return Feature(name, x.channels, x.sizes * by)


def part(n: Network, x: Feature) -> Feature:
    """Of an axis whose size is known some elements, every second one, or all backwards."""
    axis = n.draw.choice([0, *(a + 1 for a in range(n.rank) if not n.open[a + 1])])
    shapes = np.insert(x.sizes, 0, x.channels, axis=1)
    whole = int(shapes[0, axis])
    first = n.draw.randint(0, whole // 2)
    last, step = n.draw.randint(first + 1, whole), n.draw.choice((1, 1, 1, 2, -1))
    bounds = (first, last) if step > 0 else (last - 1, first - 1 if first else -(1 << 31))
    words = [n.e.constant([word]) for word in (*bounds, axis + 1, step)]
    shapes[:, axis] = -(-(last - first) // abs(step))
    return Feature(n.e.op("Slice", x.name, *words), int(shapes[0, 0]), shapes[:, 1:])


def padded(n: Network, x: Feature) -> Feature:
    most = np.minimum(2, x.sizes.min(axis=0) - 1)
    before, after = ([n.draw.randint(0, int(size)) for size in most] for _ in range(2))
    mode = n.draw.choice(("constant", "reflect", "edge"))
    name = n.e.op("Pad", x.name, n.e.constant([0, 0, *before, 0, 0, *after]), mode=mode)
    return Feature(name, x.channels, x.sizes + before + after)


def shuffled(n: Network, x: Feature) -> Feature:
    groups = [g for g in range(2, x.channels) if x.channels % g == 0]
    if not groups or any(n.open[1:]):
        raise Unfit
    few = n.draw.choice(groups)
    sizes = x.sizes[0].tolist()
    apart = n.e.reshape(x.name, -1, few, x.channels // few, *sizes)
    turned = n.e.transpose(apart, 0, 2, 1, *range(3, 3 + n.rank))
    return replace(x, name=n.e.reshape(turned, -1, x.channels, *sizes))


def joined(n: Network, x: Feature) -> Feature:
    parts = [x, *(n.partner(x, channels=False) for _ in range(n.draw.randint(1, 3)))]
    name = n.e.op("Concat", *(p.name for p in parts), axis=1)
    return Feature(name, sum(p.channels for p in parts), x.sizes)


def stacked(n: Network, x: Feature) -> Feature:
    """Images one after the other, between the channels of others, and added up."""
    others = [n.partner(x, channels=True) for _ in range(3)]
    pairs = [(x, others[0]), (others[1], others[2])]
    batches = [n.e.op("Concat", a.name, b.name, axis=0) for a, b in pairs]
    halves = n.e.op("Split", n.e.op("Concat", *batches, axis=1), results=2, axis=0, num_outputs=2)
    return Feature(n.e.op("Add", *halves), 2 * x.channels, x.sizes)


def combined(n: Network, x: Feature) -> Feature:
    kind, other = n.draw.choice(("Add", "Add", "Mul", "Sub", "Max")), n.partner(x, channels=True)
    return tail(n, replace(x, name=n.e.op(kind, x.name, other.name)))


#: How often each layer is drawn.
LAYERS: dict[Callable[[Network, Feature], Feature], int] = {
    convolution: 40,
    combined: 12,
    joined: 10,
    pool: 7,
    excite: 5,
    upsampled: 5,
    part: 5,
    padded: 4,
    transposed: 4,
    shuffled: 4,
    instance_norm: 3,
    stacked: 3,
}


def network(seed: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """The network of a seed, and the inputs of its runs."""
    drawn = Network(seed)
    while len(drawn.features) < 2 or drawn.draw.random() < 0.88:
        drawn.grow()
    return drawn.model(), drawn.feeds()
