"""Regular expressions become automata that take the texts that Python's `re` and ONNX Runtime's RE2 match."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.interpreting import runtime

from onnxc.errors import LimitError, ModelError
from onnxc.frontend.automaton import regex_automaton
from onnxc.frontend.unicode_scripts import scripts
from onnxc.ir.text_twins import match_strings

ALPHABET = ["a", "b", "c", "B", " ", "\n", "1", "é", "k", "\u212a", "_", "𝒳", "-"]


def matches(pattern: str, texts: list[str]) -> list[bool]:
    automaton = regex_automaton(pattern)
    operands = [np.array(texts, object), automaton.classes, automaton.following, automaton.final]
    return match_strings(operands, [])[0].tolist()


def every_text(length: int) -> list[str]:
    texts, found = [""], [""]
    for _ in range(length):
        texts = [t + c for t in texts for c in ALPHABET]
        found += texts
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a|bc|",
        "(ab|b)*c?",
        "[a-cé-ü]{2,3}",
        "[^a]",
        "[^]a-b]?",
        ".b",
        "(?s).b|a(?-s:.)",
        r"\w+\s\d",
        r"[\d\s]\W",
        r"\ba\b.*",
        r"a\B.b",
        "^ab$",
        "(?m)^a$\n^b?$",
        "(?i)k|É[b-c]",
        "(?i)[^k]b",
        "(?i:a)B",
        "(?P<name>a)(?<other>b)",
        r"a{0,2}?b{2}|c{1,}+?",
        r"\x61\x{1d4b3}|\101|\-",
        r"\Qa\E+\Q\\E?",
        r"[[:alpha:]][[:^digit:]]",
        r"\pL\p{Nd}|\P{L}\p{^L}",
        r"\Aa\z",
        r"\p{Latin}\P{Latin}|\p{Common}{2}|[\p{^Greek}&&a]",
        "(a|b)*a(a|b)",
    ],
)
def test_the_same_texts_match_as_in_re2(pattern):
    texts = every_text(3)
    pattern = pattern.replace("+?", "?")  # a repetition is repeated only in a group
    expected = runtime("RegexFullMatch", [np.array(texts, object)], pattern=pattern)[0]
    assert matches(pattern, texts) == expected.tolist()


PIECES = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "é", "", "^", "$", r"\b", r"\B"])
PATTERNS = st.recursive(
    PIECES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}"])).map("(?:{0[0]}){0[1]}".format),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(pattern=PATTERNS)
def test_random_patterns_match_as_in_python(pattern):
    texts = [t for t in every_text(3) if t and set(t) <= set("ab\né")]  # r"\B" is another's in no text
    whole = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    assert matches(pattern, texts) == [whole.fullmatch(t) is not None for t in texts]


def test_bytes_that_are_no_text_match_no_character():
    assert matches(".*", ["a\udcff", "\udcc3", "é"]) == [False, False, True]
    assert matches(r"a\C", ["a\udcff", "ab", "aé"]) == [True, True, False]


@pytest.mark.parametrize(
    ("pattern", "states"), [("a*", 2), ("(a|b)*abb", 5), ("a{7}", 9), ("b|bb|bbb|b*", 2), (r"(a?){3}", 5)]
)
def test_automata_have_no_state_too_many(pattern, states):
    assert len(regex_automaton(pattern).final) == states


def test_a_pattern_that_nothing_matches_leads_nowhere():
    automaton = regex_automaton(r"\Ba\b")
    assert not automaton.final.any() and not automaton.following.any()


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a", "missing )"),
        ("a)", "unexpected )"),
        ("[a", "missing ]"),
        ("*a", "missing argument to repetition operator"),
        ("a**", "bad repetition operator"),
        ("a{1001}", "invalid repetition size"),
        ("a{2,1}", "invalid repetition size"),
        ("[b-a]", "invalid character class range"),
        ("[[:no:]]", "invalid character class range"),
        (r"\p{Klingon}", r"invalid character class range: \p{Klingon}"),
        (r"\1", "invalid escape sequence"),
        (r"\x{110000}", "invalid escape sequence"),
        ("a\\", "trailing"),
        ("(?=a)", "invalid perl operator"),
        ("(?P<a b>c)", "invalid named capture group"),
    ],
)
def test_what_re2_refuses_is_refused(pattern, reason):
    with pytest.raises(ModelError, match=re.escape(reason)):
        regex_automaton(pattern)
    with pytest.raises(Exception, match=r"(?i)regex"):
        runtime("RegexFullMatch", [np.array(["a"], object)], pattern=pattern)


@pytest.mark.slow
def test_scripts_are_those_of_re2():
    """At the ends of their ranges; RE2 may have newer characters, which no script here has."""
    known = {c for ranges in scripts().values() for first, last in ranges for c in (first, last)}
    characters = sorted(known - set(range(0xD800, 0xE000)))
    texts = [chr(c) for c in characters]
    for name, ranges in scripts().items():
        (expected,) = runtime("RegexFullMatch", [np.array(texts, object)], pattern=rf"\p{{{name}}}")
        own = [any(first <= c <= last for first, last in ranges) for c in characters]
        assert own == expected.tolist(), name


def test_what_would_be_too_large_is_refused():
    with pytest.raises(LimitError, match="more than 5,000 states"):
        regex_automaton("(a|b)*a(a|b){20}")
    with pytest.raises(LimitError, match="more than 50,000 parts"):
        regex_automaton("((a{50}){50}){50}")
    with pytest.raises(LimitError, match="nested more than 100 deep"):
        regex_automaton("(" * 200 + ")" * 200)
