"""The onnx package's whole backend suite through the compiler, in shards that workers share. `not_yet.txt`
beside this file names the cases that do not pass, one a line with its reason; it may only shrink.
`python tests/support/suite.py` prints the counts."""

from __future__ import annotations

import pytest
from support import suite

from onnxc.codegen.library import images
from onnxc.target import find_target

LEAST_PASSING = 2020  # may only grow
SHARDS = {"node": 240, "pytorch-converted": 10, "pytorch-operator": 4, "simple": 3, "real": 9}  # of each kind
QUICK = ("simple", 0)  # of a kind whose expected results need not be computed first


def test_list_is_sorted_and_has_no_name_twice():
    names = [name for name, _ in suite.listed()]
    assert names == sorted(set(names))


@pytest.mark.slow
def test_listed_cases_exist():
    unknown = dict(suite.listed()).keys() - suite.all_cases().keys()
    assert not unknown, f"remove these from not_yet.txt, unknown to the suite: {sorted(unknown)}"


def shards():
    for shard in ((kind, k) for kind, count in SHARDS.items() for k in range(count)):
        yield pytest.param(*shard, marks=pytest.mark.quick if shard == QUICK else pytest.mark.slow)


def test_every_kind_has_shards():
    assert tuple(SHARDS) == suite.KINDS


@pytest.mark.parametrize(("kind", "shard"), shards())
def test_exactly_the_cases_that_are_not_listed_pass(kind, shard):
    names = sorted(suite.cases_of(kind))[shard :: SHARDS[kind]]
    if images.missing(find_target()):  # tests/models/test_images.py holds what is said then
        names = [name for name in names if "image_decoder" not in name]
    outcomes = suite.run_suite(names, jobs=1)
    not_yet = dict(suite.listed())
    assert not {n: o for n, o in outcomes.items() if o.startswith(("crash", "internal"))}
    assert not {n: o for n, o in outcomes.items() if o and n not in not_yet}
    passing = [n for n, o in outcomes.items() if not o and not not_yet.get(n, "random").startswith("random")]
    assert not passing, f"remove these from not_yet.txt: {passing}"


@pytest.mark.slow
def test_no_fewer_cases_pass_than_ever():
    assert len(suite.all_cases()) - len(suite.listed()) >= LEAST_PASSING
