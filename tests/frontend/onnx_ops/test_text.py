"""Operators on text mean what ONNX Runtime makes of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.interpreting import runtime
from support.one_node import evaluate, model, reference

from onnxc.diagnostics import ModelErrors

TEXTS = st.text(alphabet=list("ab, é\u0301ß"), max_size=6)


def array(texts, *shape):
    found = np.empty(len(texts), object)
    found[:] = texts
    return found.reshape(shape or len(texts))


def check(op, inputs, outputs=1, opset=21, **attributes):
    expected = runtime(op, inputs, outputs, opset, **attributes)
    found = evaluate(model(op, opset, inputs, attributes, symbolic=True, outputs=outputs), inputs)
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == e.dtype and f.shape == e.shape
        if e.dtype == np.float32:
            np.testing.assert_allclose(f, e, rtol=1e-6)
        else:
            assert f.tolist() == e.tolist()


def test_texts_are_joined_and_broadcast():
    check("StringConcat", [array(["a", "é", ""], 3, 1), array(["x", ""])])
    check("StringConcat", [array([], 0, 1), array(["x", ""])])


@settings(deadline=None, max_examples=25)
@given(
    texts=st.lists(TEXTS, max_size=4),
    attributes=st.fixed_dictionaries(
        {}, optional={"delimiter": st.sampled_from(["", ",", "ab", "é"]), "maxsplit": st.integers(0, 3)}
    ),
)
def test_texts_are_split(texts, attributes):
    if attributes.get("delimiter"):  # of no text ONNX Runtime makes no piece, the reference one
        texts = [text or "a" for text in texts]
    check("StringSplit", [array(texts)], 2, **attributes)


def test_no_text_is_one_piece_without_delimiters():
    x = [array(["", "a,"])]
    for attributes in ({"delimiter": ","}, {}):
        proto = model("StringSplit", 21, x, attributes, outputs=2)
        assert [y.tolist() for y in evaluate(proto, x)] == [y.tolist() for y in reference(proto, x)]


def test_every_space_of_unicode_separates():
    x = [array(["a\u3000b\u00a0\n c\u2009", "\u2028"])]
    pieces, numbers = evaluate(model("StringSplit", 21, x, {}, outputs=2), x)
    assert pieces.tolist() == [["a", "b", "c"], ["", "", ""]] and numbers.tolist() == [3, 0]


@pytest.mark.parametrize("action", ["LOWER", "UPPER", "NONE"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("stopwords", [["Monday", "a"], []])
def test_words_are_left_out_and_change_case(action, sensitive, stopwords):
    attributes = {"case_change_action": action, "is_case_sensitive": sensitive, "locale": "C"}
    attributes |= {"stopwords": stopwords} if stopwords else {}
    for words in (["Monday", "monday", "A", "Tuesday", "", "a b"], ["Monday", "a"]):
        check("StringNormalizer", [array(words)], **attributes)
        check("StringNormalizer", [array(words, 1, len(words))], **attributes)
    x = [array([], 1, 0)]
    assert evaluate(model("StringNormalizer", 21, x, attributes), x)[0].tolist() == [[""]]


def test_letters_of_all_alphabets_change_case_one_by_one():
    x = [array(["Straße ΑΒΓ ЖЗ \u0130 ⱥ \U00010400 ﬁ \udcff"])]
    changed = [
        evaluate(model("StringNormalizer", 21, x, {"case_change_action": a}), x)[0]
        for a in ("LOWER", "UPPER")
    ]
    assert changed[0].tolist() == ["straße αβγ жз i ⱥ \U00010428 ﬁ \udcff"]
    assert changed[1].tolist() == ["STRAßE ΑΒΓ ЖЗ \u0130 Ⱥ \U00010400 ﬁ \udcff"]


POOL = [2, 3, 5, 4, 5, 6, 5, 5, 7, 8, 6, 7, 5, 5, 5]
VECTORIZER = {"ngram_counts": [0, 4, 12], "ngram_indexes": [0, 1, 2, 3, 6, 5, 4, 8, 7], "pool_int64s": POOL}
TOKENS = st.lists(st.integers(2, 8), min_size=1, max_size=12)


@settings(deadline=None, max_examples=25)
@given(
    rows=st.lists(TOKENS, min_size=1, max_size=3).map(lambda rows: [r[: min(map(len, rows))] for r in rows]),
    lengths=st.sampled_from([(1, 1), (1, 2), (2, 2), (2, 3), (1, 3), (3, 3)]),
    skips=st.integers(0, 5),
    mode=st.sampled_from(["TF", "IDF", "TFIDF"]),
    words=st.booleans(),
)
def test_ngrams_are_counted(rows, lengths, skips, mode, words):
    attributes = {
        **VECTORIZER,
        "mode": mode,
        "min_gram_length": lengths[0],
        "max_gram_length": lengths[1],
        "max_skip_count": skips,
        "weights": [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    }
    tokens = np.array(rows, np.int32)
    if words:
        attributes["pool_strings"] = [f"w{k}" for k in attributes.pop("pool_int64s")]
        tokens = array([f"w{k}" for k in tokens.reshape(-1)], *tokens.shape)
    check("TfIdfVectorizer", [tokens if len(rows) > 1 else tokens[0]], opset=9, **attributes)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"ngram_counts": [0, 5, 12]}, "2-grams from 5 to 12"),
        ({"ngram_counts": [0, 4, 20]}, "2-grams from 4 to 20"),
        ({"ngram_indexes": [0, 1]}, "9 n-grams and ngram_indexes 2"),
        ({"weights": [1.0]}, "weights has 1 values"),
        ({"mode": "SUM"}, "mode is SUM"),
        ({"max_gram_length": 0}, "max_gram_length"),
    ],
)
def test_a_pool_that_contradicts_itself_is_refused(wrong, reason):
    given = {"mode": "IDF", "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0}
    x = [np.arange(3)]
    with pytest.raises(ModelErrors, match=reason):
        evaluate(model("TfIdfVectorizer", 9, x, {**VECTORIZER, **given, **wrong}), x)
