"""Small networks that generate words, as ONNX Runtime's `convert_generation.py` puts them into GreedySearch,
Sampling, BeamSearch and WhisperBeamSearch: subgraphs of GPT, T5 and Whisper with random weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS, WIDTH, HEADS, ROOM = 30, 16, 2, 40
INT, FLOAT = TensorProto.INT32, TensorProto.FLOAT
SIZE = WIDTH // HEADS


class Subgraph:
    """A graph under construction; weights are drawn as they are asked for."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        name = f"w{len(self.stored)}"
        array = np.asarray(self.random.standard_normal(shape) * scale, np.float32)
        self.stored.append(numpy_helper.from_array(array, name))
        return name

    def constant(self, values: object) -> str:
        name = f"c{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, op: str, *inputs: str, out: str = "", domain: str = "", **attributes: object) -> str:
        out = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], domain=domain, **attributes))
        return out

    def nodes_out(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: object) -> None:
        self.nodes.append(helper.make_node(op, inputs, outputs, domain="com.microsoft", **attributes))

    def graph(self, name: str, inputs: Sequence[tuple], outputs: Sequence[tuple]) -> onnx.GraphProto:
        infos = [[helper.make_tensor_value_info(*item) for item in items] for items in (inputs, outputs)]
        return helper.make_graph(self.nodes, name, *infos, self.stored)


def gpt_decoder(layers: int = 1, seed: int = 0) -> onnx.GraphProto:
    """logits, present_0, ... of input_ids, position_ids, attention_mask, past_0, ..."""
    g = Subgraph(seed)
    places = g.node("Gather", g.weight(ROOM, WIDTH), "position_ids")
    x = g.node("Add", g.node("Gather", g.weight(WORDS, WIDTH), "input_ids"), places)
    for n in range(layers):
        y, weights = f"y{n}", [g.weight(WIDTH, 3 * WIDTH, scale=0.3), g.weight(3 * WIDTH, scale=0.1)]
        g.nodes_out(
            "Attention",
            [x, *weights, "attention_mask", f"past_{n}"],
            [y, f"present_{n}"],
            num_heads=HEADS,
            unidirectional=1,
        )
        x = g.node("Add", x, y)
    g.node("MatMul", x, g.weight(WIDTH, WORDS, scale=0.5), out="logits")
    pasts = [(f"past_{n}", FLOAT, [2, "batch", HEADS, "past", SIZE]) for n in range(layers)]
    presents = [(f"present_{n}", FLOAT, [2, "batch", HEADS, "total", SIZE]) for n in range(layers)]
    words = [(name, INT, ["batch", "length"]) for name in ("input_ids", "position_ids")]
    return g.graph(
        "decoder",
        [*words, ("attention_mask", INT, ["batch", "total"]), *pasts],
        [("logits", FLOAT, ["batch", "length", WORDS]), *presents],
    )


KINDS = [f"{part}_{place}" for place in ("self", "cross") for part in ("key", "value")]


def _decoded(
    g: Subgraph, words: str, layers: int, crossed: list[str], mask: str, past: bool, start: str = ""
) -> None:
    """logits and present_*_self_* of words, after past_*_self_* or none; crossed: keys and values of each
    layer."""
    g.random = np.random.default_rng(99)  # the same weights wherever words are decoded
    x = g.node("Gather", g.weight(WORDS, WIDTH), words)
    for n in range(layers):
        q, k, v = (g.node("MatMul", x, g.weight(WIDTH, WIDTH, scale=0.3)) for _ in range(3))
        pasts = ["", "", "", f"past_key_self_{n}", f"past_value_self_{n}"] if past else []
        y, presents = f"y{n}", [f"present_key_self_{n}", f"present_value_self_{n}"]
        causal = {} if past else {"unidirectional": 1}
        g.nodes_out("MultiHeadAttention", [q, k, v, *pasts], [y, *presents], num_heads=HEADS, **causal)
        x = g.node("Add", x, y)
        q, z = g.node("MatMul", x, g.weight(WIDTH, WIDTH, scale=0.3)), f"z{n}"
        g.nodes_out("MultiHeadAttention", [q, *crossed[2 * n : 2 * n + 2], "", mask], [z], num_heads=HEADS)
        x = g.node("Add", x, z)
    g.node("MatMul", x, g.weight(WIDTH, WORDS, scale=0.5), out="logits")


def _caches(prefix: str, kinds: Sequence[str], layers: int, length: str) -> list[tuple]:
    """Infos of keys and values of all layers, those of each place together."""
    shape = ["batch", HEADS, length, SIZE]
    pairs = [kinds[k : k + 2] for k in range(0, len(kinds), 2)]
    return [
        (f"{prefix}_{kind}_{n}", FLOAT, [shape[0], HEADS, f"{length}_{kind[-4:]}", SIZE])
        for pair in pairs
        for n in range(layers)
        for kind in pair
    ]


def encoder(layers: int, sound: bool, seed: int = 0, alone: bool = False) -> onnx.GraphProto:
    """Of T5, or of Whisper where there is sound: also the scores of the word after decoder_input_ids. alone:
    keys and values for the decoder, and nothing else."""
    g = Subgraph(seed)
    if sound:
        x = g.node("Transpose", "encoder_input_ids", perm=[0, 2, 1])
        x = g.node("MatMul", x, g.weight(5, WIDTH))
        inputs = [("encoder_input_ids", FLOAT, ["batch", 5, "frames"])]
    else:
        x = g.node("Gather", g.weight(WORDS, WIDTH), "encoder_input_ids")
        names = ("encoder_input_ids", "encoder_attention_mask")
        inputs = [(name, INT, ["batch", "frames"]) for name in names]
    g.node("Tanh", g.node("MatMul", x, g.weight(WIDTH, WIDTH)), out="encoder_hidden_states")
    heads = g.constant(np.array([0, 0, HEADS, SIZE]))
    crossed = []
    for n in range(layers):
        for part in ("key", "value"):
            y = g.node("MatMul", "encoder_hidden_states", g.weight(WIDTH, WIDTH, scale=0.5))
            y = g.node("Reshape", y, heads)
            crossed.append(g.node("Transpose", y, out=f"present_{part}_cross_{n}", perm=[0, 2, 1, 3]))
    if alone:
        return g.graph("encoder", inputs, _caches("present", KINDS[2:], layers, "length"))
    _decoded(g, "decoder_input_ids", layers, crossed, "" if sound else "encoder_attention_mask", False)
    return g.graph(
        "encoder",
        [*inputs, ("decoder_input_ids", INT, ["batch", "words"])],
        [
            ("logits", FLOAT, ["batch", "words", WORDS]),
            ("encoder_hidden_states", FLOAT, ["batch", "frames", WIDTH]),
            *_caches("present", KINDS, layers, "length"),
        ],
    )


def decoder(
    layers: int, sound: bool, hidden: bool, whole: bool = False, every: bool = False
) -> onnx.GraphProto:
    """hidden: it takes the encoder's states, and makes nothing of them. whole: it is given all words, and
    looks at the last one, or, `every`, at all, of which it adds keys and values in each step."""
    g = Subgraph(0)
    words = "input_ids"
    if whole and not every:
        bounds = [g.constant(np.array([k])) for k in (-1, 1 << 40, 1)]
        words = g.node("Slice", "input_ids", *bounds[:2], bounds[2])
    crossed = [f"past_{part}_cross_{n}" for n in range(layers) for part in ("key", "value")]
    _decoded(g, words, layers, crossed, "" if sound else "encoder_attention_mask", True)
    states = [("encoder_hidden_states", FLOAT, ["batch", "frames", WIDTH])] if hidden else []
    masks = [] if sound else [("encoder_attention_mask", INT, ["batch", "frames"])]
    return g.graph(
        "decoder",
        [
            ("input_ids", INT, ["batch", "words" if whole else 1]),
            *masks,
            *states,
            *_caches("past", KINDS, layers, "length"),
        ],
        [
            ("logits", FLOAT, ["batch", "words" if every else 1, WORDS]),
            *_caches("present", KINDS[:2], layers, "total"),
        ],
    )


def search_model(
    op: str,
    inputs: Sequence[np.ndarray | None],
    graphs: dict[str, onnx.GraphProto],
    outputs: Sequence[int] = (0,),
    **attributes: object,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one search, and its inputs, of which the sizes are symbolic."""
    declared, feeds, names = [], {}, []
    for k, array in enumerate(inputs):
        names.append("" if array is None else f"x{k}")
        if array is not None:
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            shape = [f"x{k}_{axis}" for axis in range(array.ndim)]
            declared.append(helper.make_tensor_value_info(f"x{k}", element, shape))
            feeds[f"x{k}"] = array
    results = [f"y{k}" if k in outputs else "" for k in range(max(outputs) + 1)]
    node = helper.make_node(op, names, results, name="search", domain="com.microsoft", **attributes, **graphs)
    ranks = {"BeamSearch": 3, "WhisperBeamSearch": 3}.get(op, 2)
    kinds = {0: (INT, ranks), 1: (FLOAT, 2), 2: (FLOAT, 4), 4: (FLOAT, 1)}
    infos = [
        helper.make_tensor_value_info(f"y{k}", kinds[k][0], [f"y{k}_{n}" for n in range(kinds[k][1])])
        for k in outputs
    ]
    graph = helper.make_graph([node], "generation", declared, infos)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return model, feeds
