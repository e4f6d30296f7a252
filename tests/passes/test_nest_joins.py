"""nest_joins: what joins the operands of another Concat, and more, joins its result."""

import pytest
from support.pass_text import agrees, becomes, stays

from onnxc.passes.nest_joins import LONGEST, nest_joins

INPUTS = "%w: float32[2, 3], %x: float32[2, n], %y: float32[2, 4], %z: float32[2, 1]"


def joins(*joined):
    """A graph with a Concat for each text."""
    nodes = [f"%{k} = concat({operands}) axis=1" for k, operands in enumerate(joined)]
    results = ", ".join(f"%{k}" for k in range(len(joined)))
    return "\n".join([f"graph g({INPUTS}) {{", *nodes, f"return {results}", "}"])


@pytest.mark.parametrize(
    "before, after",
    [
        # one lies in the next
        (["%w, %x", "%w, %x, %y", "%w, %x, %y, %z"], ["%w, %x", "%0, %y", "%1, %z"]),
        # at the end, or between others
        (["%x, %y", "%w, %x, %y", "%z, %x, %y, %z"], ["%x, %y", "%w, %0", "%z, %0, %z"]),
        # the longest first, then what follows
        (["%w, %x", "%w, %x, %y", "%z, %z", "%w, %x, %y, %z, %z"], ["%w, %x", "%0, %y", "%z, %z", "%1, %2"]),
        # as often as it is joined
        (["%x, %y", "%x, %y, %x, %y"], ["%x, %y", "%0, %0"]),
    ],
)
def test_what_is_joined_already_is_joined_as_a_whole(before, after):
    becomes(nest_joins, joins(*before), joins(*after))
    agrees(nest_joins, joins(*before), n=2)


@pytest.mark.parametrize("joined", [["%w, %x", "%x, %w, %y"], ["%w, %x", "%w, %y, %x"], ["%w, %x", "%w, %x"]])
def test_other_joins_stay(joined):
    stays(nest_joins, joins(*joined))


def test_what_very_many_make_is_not_looked_for():
    many = ", ".join(["%w, %x"] * (LONGEST // 2))
    becomes(nest_joins, joins(many, f"{many}, %y"), joins(many, "%0, %y"))
    stays(nest_joins, joins(f"{many}, %y", f"{many}, %y, %z"))


def test_joins_along_another_axis_stay():
    stays(
        nest_joins,
        """graph g(%x: float32[2, 2], %y: float32[2, 2]) {
        %0 = concat(%x, %y) axis=0
        %1 = concat(%x, %y, %y) axis=1
        return %0, %1
    }""",
    )
