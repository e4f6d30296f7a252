"""Regular expressions in RE2's syntax as trees of characters, sequences, choices, repetitions and assertions.

What RE2 refuses is refused, with its words. Groups capture nothing and repetitions are neither greedy nor
lazy: asked is only whether a whole text matches. See https://github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Literal

from ..errors import LimitError, ModelError, shorten
from ..records import dataclass
from .text_tables import cased_characters, lower, upper
from .unicode_scripts import scripts

REPEAT_LIMIT = 1000
NESTING_LIMIT = 100
LAST = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
AssertionKind = Literal["begin_text", "end_text", "begin_line", "end_line", "word_boundary", "inside_word"]


@dataclass(frozen=True)
class Characters:
    """One character of these ranges of code points, sorted and apart."""

    ranges: Ranges


@dataclass(frozen=True)
class AnyByte:
    """One byte, whatever it is."""


@dataclass(frozen=True)
class Assertion:
    """Nothing, at a place of this kind."""

    kind: AssertionKind


@dataclass(frozen=True)
class Chain:
    """One after the other."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True)
class Choice:
    """Any of these."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True)
class Repeat:
    """At least and at most so many times (None: any number)."""

    part: Regex
    least: int
    most: int | None


Regex = Characters | AnyByte | Assertion | Chain | Choice | Repeat


# Sets of characters ------------------------------------------------------------------------------


def ranges_of(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same code points in ranges that are sorted and apart."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def negated(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """All other code points."""
    found, begin = [], 0
    for first, last in ranges_of(ranges):
        found.append((begin, first - 1))
        begin = last + 1
    return tuple((a, b) for a, b in [*found, (begin, LAST)] if a <= b)


def _of(text: str) -> Ranges:
    """Ranges written as pairs of characters."""
    return ranges_of((ord(a), ord(b)) for a, b in zip(text[::2], text[1::2]))


_PERL = {"d": _of("09"), "s": _of("\t\n\f\r  "), "w": _of("09AZ__az")}
_POSIX = {
    "alnum": _of("09AZaz"),
    "alpha": _of("AZaz"),
    "ascii": _of("\x00\x7f"),
    "blank": _of("\t\t  "),
    "cntrl": _of("\x00\x1f\x7f\x7f"),
    "digit": _of("09"),
    "graph": _of("!~"),
    "lower": _of("az"),
    "print": _of(" ~"),
    "punct": _of("!/:@[`{~"),
    "space": _of("\t\r  "),
    "upper": _of("AZ"),
    "word": _of("09AZ__az"),
    "xdigit": _of("09AFaf"),
}
_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@cache
def _category(name: str) -> Ranges | None:
    """The characters of a general category ("Lu"), of a group of them ("L") or of a script ("Greek"); None
    where there is none."""
    if name == "Any":
        return ((0, LAST),)
    if name in scripts():
        return scripts()[name]
    if not name or len(name) > 2:
        return None
    found = ranges_of((c, c) for c in range(LAST + 1) if unicodedata.category(chr(c)).startswith(name))
    return found or None


@cache
def _other_cases() -> dict[int, tuple[int, ...]]:
    """For each character that has another case, all its others: k has K and the sign of Kelvin."""
    alone = {"\u0130", "\u0131"}  # the Turkish i's
    groups: dict[str, set[str]] = {}
    for character in set(cased_characters()) - alone:
        same = {character, lower(character), upper(character), lower(upper(character))} - alone
        if len(same) > 1:
            for known in [groups[c] for c in same if c in groups]:
                same |= known
            groups.update(dict.fromkeys(same, same))
    return {ord(c): tuple(ord(o) for o in group if o != c) for c, group in groups.items()}


def folded(ranges: Ranges) -> Ranges:
    """The ranges with every character in its other cases too."""
    others = _other_cases()
    more = [(o, o) for c, found in others.items() if any(a <= c <= b for a, b in ranges) for o in found]
    return ranges_of([*ranges, *more])


# Parsing -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Flags:
    """Which of (?imsU) are set: whether case is of no account, ^ and $ match at lines, the dot takes a
    newline. U, as few repetitions as will do, is read by nobody: lazy or not, the same texts match."""

    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


class _Parser:
    """Recursive descent over a pattern; `at` is where it reads."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.depth = pattern, 0, 0

    def refuse(self, reason: str, text: str = "") -> ModelError:
        detail = f": {shorten(text)}" if text else ""
        return ModelError(f"'{shorten(self.pattern)}' is no regular expression: {reason}{detail}")

    def ahead(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def taken(self, text: str) -> bool:
        """Whether the text is next; then it is passed."""
        if not self.ahead(text):
            return False
        self.at += len(text)
        return True

    def next(self, what: str) -> str:
        if self.at >= len(self.pattern):
            raise self.refuse(what)
        self.at += 1
        return self.pattern[self.at - 1]

    def until(self, end: str, what: str) -> str:
        """What comes before `end`, which is passed too."""
        found = self.pattern.find(end, self.at)
        if found < 0:
            raise self.refuse(what, self.pattern[self.at :])
        text, self.at = self.pattern[self.at : found], found + len(end)
        return text

    # Structure

    def whole(self) -> Regex:
        found = self.choice(_Flags())
        if self.at < len(self.pattern):
            raise self.refuse("unexpected )", self.pattern)
        return found

    def choice(self, flags: _Flags) -> Regex:
        """Alternatives up to a closing parenthesis or the end. Flags set inside hold to its end."""
        self.depth += 1
        if self.depth > NESTING_LIMIT:
            raise LimitError(f"a regular expression is nested more than {NESTING_LIMIT} deep")
        choices, parts = [], list[Regex]()
        repeated = False  # whether what is last has its repetition already
        while self.at < len(self.pattern) and not self.ahead(")"):
            begin = self.at
            if self.taken("|"):
                choices.append(Chain(tuple(parts)))
                parts, repeated = [], False
                continue
            if self.taken("(?") and not self.ahead("P<") and not self.ahead("<"):
                changed, is_group = self.flags(flags, begin)
                if not is_group:
                    flags, repeated = changed, False
                    continue
                parts.append(self.group(changed, begin))
                repeated = False
                continue
            self.at = begin
            times = self.repetition()
            if times is None:
                found = self.atoms(flags)
                repeated = repeated and not found
                parts += found
            elif repeated or not parts:
                reason = "bad repetition operator" if repeated else "missing argument to repetition operator"
                raise self.refuse(reason, self.pattern[begin : self.at])
            else:
                parts[-1], repeated = Repeat(parts[-1], *times), True
        self.depth -= 1
        return Choice((*choices, Chain(tuple(parts)))) if choices else Chain(tuple(parts))

    def group(self, flags: _Flags, begin: int) -> Regex:
        found = self.choice(flags)
        if not self.taken(")"):
            raise self.refuse("missing )", self.pattern[begin:])
        return found

    def flags(self, flags: _Flags, begin: int) -> tuple[_Flags, bool]:
        """Behind "(?": the flags set, and whether a group follows that they are for."""
        value, seen = True, False
        while True:
            letter = self.next("missing )")
            if letter in "imsU":
                flags, seen = replace(flags, **{letter: value}), True
            elif letter == "-" and value:
                value, seen = False, False
            elif letter in ":)" and (value or seen):
                return flags, letter == ":"
            else:
                raise self.refuse("invalid perl operator", self.pattern[begin : self.at])

    def repetition(self) -> tuple[int, int | None] | None:
        """How often a repetition that is next repeats; None where none is."""
        letters: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        letter = self.pattern[self.at]
        times = self.counts() if letter == "{" else letters.get(letter)
        if times is not None:
            self.at += letter != "{"
            self.taken("?")  # lazy or not, the same texts match
        return times

    def counts(self) -> tuple[int, int | None] | None:
        """{n}, {n,} or {n,m}; anything else is no repetition but characters."""
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at + 1 : end].partition(",")
        if end < 0 or not _is_number(low) or (high and not _is_number(high)):
            return None
        least, most = int(low[:9]), int((high or low)[:9])
        text, self.at = self.pattern[self.at : end + 1], end + 1
        if max(least, most) > REPEAT_LIMIT or least > most:
            raise self.refuse("invalid repetition size", text)
        return least, None if comma and not high else most

    # One thing

    def atoms(self, flags: _Flags) -> list[Regex]:
        """What is next and can be repeated; a quotation is one of each of its characters."""
        begin = self.at
        if self.taken("\\Q"):
            end = self.pattern.find("\\E", self.at)
            quoted = self.pattern[self.at : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            return [self.one(((ord(c), ord(c)),), flags) for c in quoted]
        letter = self.next("nothing")
        match letter:
            case "(":
                if self.taken("?P<") or self.taken("?<"):
                    name = self.until(">", "invalid named capture group")
                    if not name or not all(c == "_" or c.isalnum() for c in name):
                        raise self.refuse("invalid named capture group", name)
                return [self.group(flags, begin)]
            case "[":
                return [self.set(flags, begin)]
            case ".":
                return [Characters(((0, LAST),) if flags.s else negated([(10, 10)]))]
            case "^":
                return [Assertion("begin_line" if flags.m else "begin_text")]
            case "$":
                return [Assertion("end_line" if flags.m else "end_text")]
            case "\\":
                return [self.escape(flags)]
        return [self.one(((ord(letter), ord(letter)),), flags)]

    def one(self, ranges: Ranges, flags: _Flags) -> Characters:
        return Characters(folded(ranges) if flags.i else ranges)

    def escape(self, flags: _Flags) -> Regex:
        """Behind a backslash, outside of sets."""
        kinds: dict[str, AssertionKind] = {
            "A": "begin_text",
            "z": "end_text",
            "b": "word_boundary",
            "B": "inside_word",
        }
        letter = self.pattern[self.at : self.at + 1]
        if letter in kinds:
            self.at += 1
            return Assertion(kinds[letter])
        if self.taken("C"):
            return AnyByte()
        ranges = self.named()
        if ranges is None:
            code = self.escaped()
            ranges = ((code, code),)
        return self.one(ranges, flags)

    def named(self) -> Ranges | None:
        """Behind a backslash: the set that d, s, w or p and their negations name, if one does."""
        letter = self.pattern[self.at : self.at + 1]
        if letter.lower() in _PERL and letter:
            self.at += 1
            ranges = _PERL[letter.lower()]
            return ranges if letter.islower() else negated(ranges)
        if letter not in ("p", "P"):
            return None
        self.at += 1
        begin = self.at - 2
        name = self.next("invalid character class range")
        if name == "{":
            name = self.until("}", "invalid character class range")
        inverted = name.startswith("^")
        found = _category(name.removeprefix("^"))
        if found is None:
            raise self.refuse("invalid character class range", self.pattern[begin : self.at])
        return negated(found) if inverted != (letter == "P") else found

    def escaped(self) -> int:
        """Behind a backslash: the one character meant."""
        begin = self.at - 1
        letter = self.next("trailing \\")
        digits = self.pattern[self.at : self.at + 2]
        if letter in _ESCAPES:
            return ord(_ESCAPES[letter])
        if letter == "0" or (letter in "1234567" and digits[:1] in tuple("01234567")):
            octal = letter
            while len(octal) < 3 and self.pattern[self.at : self.at + 1] in tuple("01234567"):
                octal += self.next("")
            return int(octal, 8)
        if letter == "x":
            digits = self.until("}", "invalid escape sequence") if self.taken("{") else self._two()
            if digits and all(c in "0123456789abcdefABCDEF" for c in digits) and int(digits, 16) <= LAST:
                return int(digits, 16)
        elif letter.isascii() and letter != "_" and not letter.isalnum():
            return ord(letter)
        raise self.refuse("invalid escape sequence", self.pattern[begin : self.at])

    def _two(self) -> str:
        return self.next("invalid escape sequence") + self.next("invalid escape sequence")

    def set(self, flags: _Flags, begin: int) -> Regex:
        """Behind an opening bracket."""
        inverted, first, ranges = self.taken("^"), True, list[tuple[int, int]]()
        while first or not self.ahead("]"):
            first = False
            if self.ahead("[:") and ":]" in self.pattern[self.at :]:
                self.at += 2
                name = self.until(":]", "invalid character class range")
                if name.removeprefix("^") not in _POSIX:
                    raise self.refuse("invalid character class range", f"[:{name}:]")
                known = _POSIX[name.removeprefix("^")]
                ranges += negated(known) if name.startswith("^") else known
                continue
            if self.taken("\\"):
                found = self.named()
                if found is not None:
                    ranges += found
                    continue
                self.at -= 1
            ranges.append(self.range(begin))
        self.at += 1
        found = ranges_of(ranges)
        found = folded(found) if flags.i else found
        return Characters(negated(found) if inverted else found)

    def range(self, begin: int) -> tuple[int, int]:
        """One character of a set, or two with a hyphen between."""

        def character() -> int:
            letter = self.next("missing ]")
            return self.escaped() if letter == "\\" else ord(letter)

        start = self.at
        low = high = character()
        if self.ahead("-") and not self.ahead("-]") and self.at + 1 < len(self.pattern):
            self.at += 1
            high = character()
        if high < low:
            raise self.refuse("invalid character class range", self.pattern[start : self.at])
        if self.at >= len(self.pattern):
            raise self.refuse("missing ]", self.pattern[begin:])
        return low, high


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def parse_regex(pattern: str) -> Regex:
    """The tree of a pattern; ModelError where it is none, LimitError where it is beyond what can be
    compiled."""
    parser = _Parser(pattern)
    if any(0xD800 <= ord(c) < 0xE000 for c in pattern):
        raise parser.refuse("invalid UTF-8")
    return parser.whole()
