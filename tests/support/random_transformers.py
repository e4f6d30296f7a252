"""Random transformers as exporters write them: layers of attention with drawn heads, masks, positions, norms
and tails, ways to come by shapes, and what is read of the last one, over tokens of sizes that are known or
not."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import TensorProto
from support.exporter import Exporter

LONGEST = 128  # tokens
LEAST = float(np.finfo(np.float32).min)


class Transformer:
    """A model that is being drawn, and the (sequences, tokens) of its runs."""

    def __init__(self, seed: int):
        self.draw, self.e = random.Random(seed), Exporter(seed, opset=20)
        choice, chance = self.draw.choice, self.chance
        self.heads, self.depth = choice((1, 2, 3, 4, 6)), choice((4, 8, 16, 20, 32, 64))
        self.groups = (
            choice([g for g in range(1, self.heads + 1) if self.heads % g == 0])
            if chance(0.35)
            else self.heads
        )
        self.width = self.heads * self.depth
        first = choice((1, 1, 2, 3)), choice((1, 2, 3, 7, 8, 16, 17, 33, 64, 100))
        others = [(choice((1, 2, 4)), choice((1, 2, 5, 13, 40, LONGEST))) for _ in range(2)]
        named = chance(0.6), chance(0.6)
        self.runs = [first, *(tuple(o if n else f for f, o, n in zip(first, run, named)) for run in others)]
        self.shape = [name if n else size for name, size, n in zip("bs", first, named)]
        self.open, self.computed = named, chance(0.3)  # whether shapes come from nodes
        self.norm = choice((self.layer_norm, self.spelled_norm, self.rms_norm))
        self.source = "ids" if chance(0.4) else "x"
        self.added, self.kept = self.masks()
        self.turns = self.angles() if chance(0.25) and self.depth % 2 == 0 else None

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def tokens(self) -> str:
        """Their number, as a list of one."""
        return self.e.op("Unsqueeze", self.e.size(self.source, 1), self.e.constant([0]))

    # Inputs --------------------------------------------------------------------------------------

    def embedded(self) -> str:
        """Vectors, or those of ids and of their positions."""
        if self.source == "x":
            return self.e.input("x", *self.shape, self.width)
        self.e.input(
            "ids", *self.shape, dtype=TensorProto.INT64, draw=lambda rng, shape: rng.integers(0, 50, shape)
        )
        x = self.e.op("Gather", self.e.weight(50, self.width, scale=1.0), "ids")
        if self.chance(0.5):
            return x
        places = self.e.weight(LONGEST, self.width, scale=1.0)
        near = self.e.op("Slice", places, self.e.constant([0]), self.tokens(), self.e.constant([0]))
        return self.e.op("Add", x, near)

    def masks(self) -> tuple[str | None, str | None]:
        """What is added to scores, and where scores are kept."""
        e, kind = self.e, self.draw.choice(("none", "added", "kept", "causal", "causal, added"))
        added = kept = None
        if "added" in kind or kind == "kept":
            e.input("mask", *self.shape, dtype=TensorProto.INT64, draw=_padding)
            wide = e.op("Unsqueeze", "mask", e.constant([1, 2]))
            if kind == "kept":
                kept = e.op("Cast", wide, to=TensorProto.BOOL)
            else:
                left_out = e.op("Sub", e.number(1), e.op("Cast", wide, to=TensorProto.FLOAT))
                added = e.op("Mul", left_out, e.number(self.draw.choice((-1e4, LEAST))))
        if "causal" in kind:
            if self.open[1]:
                square = e.op("Concat", self.tokens(), self.tokens(), axis=0)
                ones = e.op(
                    "ConstantOfShape",
                    square,
                    value=onnx.helper.make_tensor("one", TensorProto.FLOAT, [1], [1]),
                )
            else:
                ones = e.constant(np.ones([self.runs[0][1]] * 2), np.float32)
            seen = e.op("Trilu", ones, upper=0)
            if added is None and self.chance(0.4):
                kept = e.op("Cast", e.op("Unsqueeze", seen, e.constant([0, 1])), to=TensorProto.BOOL)
            else:
                later = e.op("Mul", e.op("Sub", e.number(1), seen), e.number(-1e9))
                added = later if added is None else e.op("Add", added, later)
        return added, kept

    def angles(self) -> list[str]:
        """Cosines and sines of the tokens' positions."""
        e, turns = self.e, np.arange(LONGEST)[:, None] * 0.9 ** np.arange(self.depth)
        count = self.tokens() if self.open[1] else e.constant([self.runs[0][1]])
        tables = (e.constant(f(turns), np.float32) for f in (np.cos, np.sin))
        return [e.op("Slice", t, e.constant([0]), count, e.constant([0])) for t in tables]

    # Layers --------------------------------------------------------------------------------------

    def layer_norm(self, x: str, width: int) -> str:
        return self.e.layer_norm(x, width)

    def spelled_norm(self, x: str, width: int) -> str:
        e, last = self.e, self.e.constant([-1])
        centred = e.op("Sub", x, e.op("ReduceMean", x, last, keepdims=1))
        squares = e.op("Pow", centred, e.number(2)) if self.chance(0.5) else e.op("Mul", centred, centred)
        deviation = e.op("Sqrt", e.op("Add", e.op("ReduceMean", squares, last, keepdims=1), e.number(1e-5)))
        scaled = e.op("Mul", e.op("Div", centred, deviation), e.weight(width, scale=1.0))
        return e.op("Add", scaled, e.weight(width, scale=1.0))

    def rms_norm(self, x: str, width: int) -> str:
        e = self.e
        squares = e.op("ReduceMean", e.op("Pow", x, e.number(2)), e.constant([-1]), keepdims=1)
        root = e.op("Sqrt", e.op("Add", squares, e.number(1e-6)))
        scaled = e.op("Div", x, root) if self.chance(0.5) else e.op("Mul", x, e.op("Reciprocal", root))
        return e.op("Mul", e.weight(width, scale=1.0), scaled)

    def linear(self, x: str, inside: int, out: int) -> str:
        if self.chance(0.7):
            return self.e.linear(x, inside, out)
        return self.e.op("MatMul", x, self.e.weight(inside, out, scale=inside**-0.5))

    def tail(self, x: str) -> str:
        e, kind = self.e, self.draw.choice(("Relu", "Gelu", "gelu", "silu", "tanh"))
        if kind == "gelu":
            return e.gelu(x)
        if kind == "silu":
            return e.op("Mul", x, e.op("Sigmoid", x))
        if kind == "tanh":
            cube = e.op("Mul", e.number(0.044715), e.op("Pow", x, e.number(3)))
            curve = e.op("Tanh", e.op("Mul", e.number((2 / np.pi) ** 0.5), e.op("Add", x, cube)))
            return e.op("Mul", e.op("Mul", e.number(0.5), x), e.op("Add", e.number(1), curve))
        return e.op(kind, x)

    def apart(self, x: str, heads: int) -> str:
        """[sequence, head, token, depth] of vectors of heads side by side."""
        if self.computed:
            split = self.e.reshape(x, self.e.size(x, 0), self.e.size(x, 1), heads, self.depth)
        else:
            split = self.e.op(
                "Reshape", x, self.e.constant([0, self.draw.choice((0, -1)), heads, self.depth])
            )
        return self.e.transpose(split, 0, 2, 1, 3)

    def turned(self, x: str) -> str:
        """With each pair of a half's number and the other half's rotated by its angle."""
        e, half = self.e, self.depth // 2
        other = e.op("Concat", e.op("Neg", e.slice(x, 3, half, self.depth)), e.slice(x, 3, 0, half), axis=-1)
        return e.op("Add", e.op("Mul", x, self.turns[0]), e.op("Mul", other, self.turns[1]))

    def repeated(self, x: str) -> str:
        """The groups' keys or values, once for every head."""
        if self.groups == self.heads:
            return x
        e, times = self.e, self.heads // self.groups
        shape = e.sizes([e.size(x, 0), self.groups, times, e.size(x, 2), self.depth])
        wide = e.op("Expand", e.op("Unsqueeze", x, e.constant([2])), shape)
        return e.op("Reshape", wide, e.constant([0, self.heads, -1, self.depth]))

    def attention(self, x: str) -> str:
        e, inside = self.e, self.groups * self.depth
        if self.groups == self.heads and self.chance(0.3):
            parts = e.op(
                "Split", self.linear(x, self.width, 3 * self.width), axis=-1, num_outputs=3, results=3
            )
        else:
            parts = [self.linear(x, self.width, out) for out in (self.width, inside, inside)]
        q, k, v = (self.apart(p, n) for p, n in zip(parts, (self.heads, self.groups, self.groups)))
        if self.chance(0.15):
            q, k = self.norm(q, self.depth), self.norm(k, self.depth)
        if self.turns is not None:
            q, k = self.turned(q), self.turned(k)
        k, v, early = (
            e.transpose(self.repeated(k), 0, 1, 3, 2),
            self.repeated(v),
            self.draw.choice((1, 0.5, 0)),
        )
        q, k = (
            e.op("Mul", y, e.number(self.depth ** (-0.5 * share)))
            for y, share in ((q, early), (k, 1 - early))
        )
        scores = e.op("MatMul", q, k)
        if self.chance(0.1):
            scores = e.op("Mul", e.op("Tanh", e.op("Div", scores, e.number(5))), e.number(5))
        if self.chance(0.15):
            scores = e.op("Add", scores, e.weight(self.heads, 1, 1, scale=1.0))
        if self.added is not None:
            scores = e.op("Add", *self.draw.sample([scores, self.added], 2))
        if self.kept is not None:
            scores = e.op("Where", self.kept, scores, e.number(self.draw.choice((-1e9, LEAST))))
        seen = e.transpose(e.op("MatMul", e.op("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
        joined = e.op("Reshape", seen, e.constant([0, self.draw.choice((0, -1)), self.width]))
        return self.linear(joined, self.width, self.width)

    def feed_forward(self, x: str) -> str:
        inner = self.draw.choice((10, self.width, 2 * self.width, 4 * self.width))
        found = self.tail(self.linear(x, self.width, inner))
        if self.chance(0.3):
            found = self.e.op("Mul", found, self.linear(x, self.width, inner))
        return self.linear(found, inner, self.width)

    def layer(self, x: str, normed_before: bool) -> str:
        for part in (self.attention, self.feed_forward):
            made = part(self.norm(x, self.width) if normed_before else x)
            x = self.e.op("Add", *self.draw.sample([x, made], 2))
            x = x if normed_before else self.norm(x, self.width)
        return x

    def read(self, x: str) -> str:
        """All tokens, one of them, some, or their mean."""
        e, kind = (
            self.e,
            self.draw.choice(("all", "all", "first", "last", "last kept", "behind", "mean", "chosen")),
        )
        if kind in ("first", "last"):
            return e.op("Gather", x, e.constant(0 if kind == "first" else -1), axis=1)
        if kind in ("last kept", "behind"):
            first = -1 if kind == "last kept" else min(1, min(tokens for _, tokens in self.runs) - 1)
            return e.slice(x, 1, first, 1 << 62)
        if kind == "mean":
            return e.op("ReduceMean", x, e.constant([1]), keepdims=0)
        if kind == "chosen" and self.source == "ids":
            place = e.op("Unsqueeze", e.op("ArgMax", "ids", axis=1, keepdims=0), e.constant([1, 2]))
            wide = e.op("Expand", place, e.sizes([e.size(x, 0), 1, self.width]))
            return e.op("GatherElements", x, wide, axis=1)
        return x

    def model(self) -> onnx.ModelProto:
        x, results, before = self.embedded(), [], self.chance(0.5)
        for _ in range(self.draw.randint(1, 3)):
            x = self.layer(x, before)
            results += [x] * self.chance(0.1)
        x = self.read(self.norm(x, self.width) if self.chance(0.4) else x)
        if self.chance(0.5):
            x = self.tail(self.linear(x, self.width, self.draw.choice((1, 2, 7, 64))))
        return self.e.model(*dict.fromkeys([*results, x]))

    def feeds(self) -> list[dict[str, np.ndarray]]:
        last = {"x": (self.width,)}
        return [
            {name: draw(self.e.rng, (*run, *last.get(name, ()))) for name, draw in self.e.draws.items()}
            for run in self.runs
        ]


def _padding(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """1 for the tokens of each sequence, at least one, 0 behind them."""
    return (np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (shape[0], 1))).astype(np.int64)


def network(seed: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """The transformer of a seed, and the inputs of its runs."""
    drawn = Transformer(seed)
    return drawn.model(), drawn.feeds()
