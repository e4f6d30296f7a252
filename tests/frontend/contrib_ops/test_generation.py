"""Searches for words choose the words that ONNX Runtime chooses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.contrib import Feeds, drawing, runtime
from support.generation import WORDS, decoder, encoder, gpt_decoder, search_model

import onnxc
from onnxc.diagnostics import ModelErrors
from onnxc.frontend.importer import import_model
from onnxc.ir import ops
from onnxc.ir.interpret import InterpretError, run_graph

END = {"eos_token_id": 4, "pad_token_id": 0}


def number(value: int) -> np.ndarray:
    return np.array(value, np.int32)


def real(value: float | None) -> np.ndarray | None:
    return None if value is None else np.array([value], np.float32)


def prompt(batch: int, length: int, seed: int = 0, padded: bool = False) -> np.ndarray:
    """Words; padded: rows but the first begin with padding."""
    words = np.random.default_rng(seed).integers(1, WORDS, (batch, length)).astype(np.int32)
    if padded:
        words[1:, : length // 2] = 0
    return words


def forbidding(*shape: int) -> np.ndarray:
    """A mask that leaves most words, and all that end a sequence."""
    mask = (np.random.default_rng(3).random(shape) < 0.8).astype(np.int32)
    mask[..., [0, 4, 9]] = 1
    return mask


def by_interpreter(model: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    return run_graph(import_model(model).graph, list(feeds.values()))


def agree(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Words, their scores, and the scores of all words in the steps that were taken. What ONNX Runtime leaves
    behind the last step is what memory held."""
    words, *scores = found
    last = words.shape[-1] if words.ndim == 3 else 1 + (words != 0).any(0).nonzero()[0].max()
    assert words.shape == expected[0].shape
    np.testing.assert_array_equal(words[..., : last + 1], expected[0][..., : last + 1])
    for one, other in zip(scores, expected[1:], strict=True):
        assert one.shape == other.shape
        taken = (one != 0).any(tuple(range(1, one.ndim))) if one.ndim == 4 else np.full(len(one), True)
        np.testing.assert_allclose(one[taken], other[taken], rtol=1e-5, atol=1e-4)


# One word for each row --------------------------------------------------------------------------------


def greedy(words: np.ndarray, most: int, *, layers: int = 1, seed: int = 0, **more: object) -> tuple:
    """more: optional inputs by name, and attributes."""
    names = ("min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
    inputs = [words, number(most), *(more.pop(name, None) for name in names)]
    graphs = {"decoder": gpt_decoder(layers, seed)}
    return search_model("GreedySearch", inputs, graphs, **{**END, **more})


@pytest.mark.parametrize(
    "more",
    [
        {"layers": 2},
        {"min_length": number(9)},
        {"repetition_penalty": real(2.5)},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2, "repetition_penalty": real(1.2), "min_length": number(7)},
        {"vocab_mask": forbidding(WORDS), "prefix_vocab_mask": forbidding(3, WORDS)},
        {"attention_mask": np.array([[1] * 4, [0, 0, 1, 1], [1, 0, 1, 1]], np.int32)},
    ],
    ids=", ".join,
)
def test_the_likeliest_words_are_the_same(more):
    model, feeds = greedy(prompt(3, 4), 12, **more)
    agree(by_interpreter(model, feeds), runtime(model, feeds))


@pytest.mark.slow
@drawing(12)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 12), st.booleans(), st.integers(0, 9))
def test_drawn_prompts_are_continued_alike(batch, length, more, padded, seed):
    model, feeds = greedy(prompt(batch, length, seed, padded), length + more, seed=seed)
    agree(by_interpreter(model, feeds), runtime(model, feeds))


def test_rows_that_have_ended_are_padded_until_all_have():
    model, feeds = greedy(prompt(2, 3, 0), 30, repetition_penalty=real(1.5), eos_token_id=14)
    (found,) = by_interpreter(model, feeds)
    first, second = (int((row != 0).nonzero()[0].max()) + 1 for row in found)
    assert first != second and max(first, second) < 30
    agree([found], runtime(model, feeds))


# Drawn words ------------------------------------------------------------------------------------------


def sampled(
    words: np.ndarray, most: int, seed: int = 0, present: np.ndarray | None = None, **more: object
) -> tuple:
    inputs = [words, number(most), *(None,) * 5, present, number(seed)]
    return search_model("Sampling", inputs, {"decoder": gpt_decoder()}, **{**END, **more})


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"top_p": 1.0},
        {"top_p": 0.8},
        {"top_p": 0.01, "min_tokens_to_keep": 3},
        {"top_p": 0.7, "custom": 1},
        {"top_p": 0.95, "temperature": 2.0},
    ],
    ids=str,
)
def test_words_are_drawn_as_often_as_by_onnxruntime(more):
    model, feeds = sampled(np.repeat(prompt(1, 4), 2000, 0), 5, **more)
    counts = [
        np.bincount(words[0][:, 4], minlength=WORDS)
        for words in (by_interpreter(model, feeds), runtime(model, feeds))
    ]
    difference = (counts[0] - counts[1]) ** 2 / np.maximum(counts[0] + counts[1], 1)
    assert difference.sum() < 60  # of a chi-squared distribution with at most 29 degrees of freedom


def test_the_one_word_that_may_be_drawn_is_the_likeliest():
    words = prompt(3, 4)
    chosen = by_interpreter(*greedy(words, 12))
    agree(by_interpreter(*sampled(words, 12, top_p=0.001, custom=1)), chosen)


def test_equal_seeds_draw_equal_words_and_others_do_not():
    words = prompt(3, 4)
    one, again, other = (
        by_interpreter(*sampled(words, 12, seed, top_p=1.0, temperature=3.0))[0] for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_words_that_are_present_lose_their_penalty():
    # ONNX Runtime 1.32 takes all penalties off the first word's score
    words = prompt(2, 4)
    (plain,) = by_interpreter(*sampled(words, 5, top_p=0.001, custom=1))
    present = np.zeros((2, WORDS), np.int32)
    present[0, plain[0, 4]] = 1
    (found,) = by_interpreter(*sampled(words, 5, 0, present, top_p=0.001, custom=1, presence_penalty=50.0))
    assert found[0, 4] != plain[0, 4] and found[1, 4] == plain[1, 4]


# Beams ------------------------------------------------------------------------------------------------


def beams(
    source: np.ndarray,
    most: int,
    count: int,
    returned: int,
    *,
    graphs: dict[str, onnx.GraphProto] | None = None,
    op: str = "BeamSearch",
    penalty: float = 1.0,
    seed: int = 0,
    **more: object,
) -> tuple:
    """more: optional inputs by name, and attributes."""
    names = ("repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids")
    least = more.pop("min_length", number(0))
    inputs = [source, number(most), least, number(count), number(returned), real(penalty)]
    inputs += [more.pop(name, None) for name in names]
    graphs = graphs or {"decoder": gpt_decoder(1, seed)}
    return search_model(op, inputs, graphs, (0, 1, 2), **{**END, **more})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"early_stopping": 1, "penalty": 0.0},
        {"repetition_penalty": real(2.0), "no_repeat_ngram_size": 2, "min_length": number(8)},
        {"vocab_mask": forbidding(WORDS), "prefix_vocab_mask": forbidding(3, WORDS), "penalty": -1.0},
    ],
    ids=str,
)
def test_the_best_beams_are_the_same(more):
    model, feeds = beams(prompt(3, 4, padded=True), 11, 4, 3, **more)
    agree(by_interpreter(model, feeds), runtime(model, feeds))


@pytest.mark.slow
@drawing(15)
@given(st.data())
def test_drawn_beams_end_alike(data):
    count, length, seed = (data.draw(st.integers(1, most)) for most in (4, 4, 40))
    batch, returned = data.draw(st.integers(1, 3)), data.draw(st.integers(1, count))
    more = {
        "early_stopping": data.draw(st.integers(0, 1)),
        "penalty": data.draw(st.sampled_from([0.0, 1.0, 2.0])),
    }
    most, end = length + data.draw(st.integers(1, 12)), data.draw(st.integers(1, WORDS - 1))
    model, feeds = beams(
        prompt(batch, length, seed), most, count, returned, seed=seed, eos_token_id=end, **more
    )
    agree(by_interpreter(model, feeds), runtime(model, feeds))


def test_the_first_step_may_have_a_decoder_of_its_own():
    graphs = {"decoder": gpt_decoder(1, 0), "init_decoder": gpt_decoder(1, 1)}
    words = prompt(2, 3)
    model, feeds = search_model("GreedySearch", [words, number(8)], graphs, **END)
    expected = runtime(model, feeds)
    agree(by_interpreter(model, feeds), expected)
    assert (expected[0] != by_interpreter(*greedy(words, 8))[0]).any()
    model, feeds = beams(words, 8, 2, 1, graphs=graphs)
    agree(by_interpreter(model, feeds), runtime(model, feeds))


def pair(layers: int, sound: bool, hidden: bool, whole: bool = False) -> dict[str, onnx.GraphProto]:
    return {"encoder": encoder(layers, sound), "decoder": decoder(layers, sound, hidden, whole)}


@pytest.mark.parametrize(
    ("layers", "hidden", "whole", "more"),
    [
        (1, True, False, {}),
        (2, False, False, {"early_stopping": 1}),
        (1, True, True, {"repetition_penalty": real(1.5)}),
        (1, False, False, {"attention_mask": np.array([[1, 1, 0], [0, 1, 1]], np.int32)}),
    ],
)
def test_words_are_translated_alike(layers, hidden, whole, more):
    graphs = pair(layers, False, hidden, whole)
    attributes = {"model_type": 1, "decoder_start_token_id": 2, **more}
    model, feeds = beams(prompt(2, 3, padded=True), 9, 3, 2, graphs=graphs, **attributes)
    agree(by_interpreter(model, feeds), runtime(model, feeds))


def test_a_decoder_of_all_words_may_add_all_of_them_to_its_keys():
    graphs = {"encoder": encoder(1, False), "decoder": decoder(1, False, False, whole=True, every=True)}
    attributes = {"graphs": graphs, "model_type": 1, "decoder_start_token_id": 2}
    model, feeds = beams(prompt(2, 3, padded=True), 7, 3, 2, **attributes)
    agree(by_interpreter(model, feeds), runtime(model, feeds))


def test_an_encoder_may_leave_the_first_word_to_the_decoder():
    graphs = {"encoder": encoder(2, False, alone=True), "decoder": decoder(2, False, False)}
    attributes = {"graphs": graphs, "model_type": 1, "decoder_start_token_id": 2}
    for count in (1, 3):
        model, feeds = beams(prompt(2, 3, padded=True), 9, count, 1, **attributes)
        agree(by_interpreter(model, feeds), runtime(model, feeds))


@pytest.mark.parametrize("op", ["BeamSearch", "WhisperBeamSearch"])
@pytest.mark.parametrize("words", [None, np.array([[2, 4, 5], [2, 6, 5]], np.int32)], ids=["start", "words"])
def test_sound_is_transcribed_alike(op, words):
    sound = np.random.default_rng(0).standard_normal((2, 5, 7)).astype(np.float32)
    more = {"model_type": 2, "decoder_start_token_id": 2, "decoder_input_ids": words}
    model, feeds = beams(sound, 11, 3, 2, graphs=pair(1, True, words is None), op=op, **more)
    agree(by_interpreter(model, feeds), runtime(model, feeds))


#: Words with a meaning of their own: those from 20 on are timestamps.
MARKS = {
    "eos_token_id": 14,
    "decoder_start_token_id": 15,
    "translate_token_id": 16,
    "transcribe_token_id": 17,
    "start_of_lm_token_id": 18,
    "no_timestamps_token_id": 19,
    "beginning_timestamp_token_id": 20,
}


@pytest.mark.slow
@drawing(15)
@given(st.integers(0, 99), st.sampled_from([None, [15, 17], [15, 17, 20]]), st.integers(0, 1))
def test_timestamps_come_where_onnxruntime_has_them(seed, words, wanted):
    sound = np.random.default_rng(seed).standard_normal((2, 5, 7)).astype(np.float32)
    words = None if words is None else np.array([words] * 2, np.int32)
    inputs = [sound, *(number(n) for n in (14, 0, 3, 2)), real(1.0), *(None,) * 4, words, number(wanted)]
    graphs = {"encoder": encoder(1, True, seed), "decoder": decoder(1, True, True)}
    model, feeds = search_model("WhisperBeamSearch", inputs, graphs, (0, 1, 2), pad_token_id=0, **MARKS)
    agree(by_interpreter(model, feeds), runtime(model, feeds))


def test_what_a_search_does_around_its_network_comes_from_the_search():
    graph = import_model(beams(prompt(2, 3), 8, 3, 2)[0]).graph
    (loop,) = [node for node in graph.nodes if isinstance(node.op, ops.Loop)]
    for nodes in (graph.nodes, loop.op.body.nodes):
        assert nodes[-1].origin == "search (BeamSearch)"


@pytest.mark.parametrize("returned", [0, 4])
def test_at_least_one_sequence_is_returned_and_at_most_as_many_as_there_are_beams(returned):
    with pytest.raises(InterpretError, match="invalid value"):
        by_interpreter(*beams(prompt(1, 2), 5, 3, returned))


# Libraries and refusals -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["greedy", "gpt", "t5"])
def test_a_library_searches_at_every_size(kind, tmp_path):
    if kind == "greedy":
        model, feeds = greedy(
            prompt(3, 4), 12, layers=2, repetition_penalty=real(1.3), no_repeat_ngram_size=3
        )
        others = [{"x0": prompt(1, 4), "x1": number(6)}, {"x0": prompt(2, 1), "x1": number(20)}]
    else:
        more = {"graphs": pair(1, False, True), "model_type": 1, "decoder_start_token_id": 2}
        model, feeds = beams(prompt(3, 4), 12, 4, 2, **(more if kind == "t5" else {}))
        others = [{"x0": prompt(1, 3), "x1": number(7), "x3": number(2)}, {"x3": number(3), "x4": number(1)}]
    library = onnxc.load(onnxc.compile(model, tmp_path / "search.so"), threads=2)
    for other in ({}, *others):
        agree(library.run(None, {**feeds, **other}), runtime(model, {**feeds, **other}))


def changed(case: tuple, change: Callable[[onnx.ModelProto], object]) -> tuple:
    change(case[0])
    return case


def _subgraph(model: onnx.ModelProto) -> onnx.GraphProto:
    return next(a.g for a in model.graph.node[0].attribute if a.name == "decoder")


REFUSED = [
    (greedy(np.ones((1, 2, 1), np.int32), 5), "two axes are needed"),
    (changed(greedy(prompt(1, 2), 5), lambda m: _subgraph(m).ClearField("output")), "gives 0 outputs"),
    (changed(greedy(prompt(1, 2), 5), lambda m: _subgraph(m).output.pop(0)), "three axes are needed"),
    (greedy(prompt(1, 2), 5, model_type=1), "has no beams"),
    (beams(prompt(1, 2), 5, 2, 1, model_type=1), "has no encoder"),
    (beams(prompt(1, 2), 5, 2, 1, graphs=pair(1, False, True)), "input_ids, position_ids"),
    (
        beams(
            prompt(1, 2),
            5,
            2,
            1,
            graphs={"encoder": encoder(1, False, alone=True), "decoder": decoder(1, False, True)},
            model_type=1,
        ),
        "does not give the states",
    ),
]


@pytest.mark.parametrize(("case", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_a_sentence_says_what_is_wrong(case, sentence):
    with pytest.raises(ModelErrors) as caught:
        import_model(case[0])
    assert sentence in str(caught.value)
