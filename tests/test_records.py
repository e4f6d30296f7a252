from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass as standard
from dataclasses import field, replace

import pytest

from onnxc import records
from onnxc.records import dataclass


def classes(decorator):
    """The same classes, made by either decorator."""

    @decorator(frozen=True)
    class Point:
        x: int
        y: int = 0
        note: str = field(default="", compare=False, repr=False)

    @decorator(frozen=True)
    class Deeper(Point):
        z: tuple = (1,)

    @decorator
    class Changing:
        names: list = field(default_factory=list)

    @decorator(frozen=True, eq=False)
    class Itself:
        x: int

    @decorator(frozen=True)
    class Nothing:
        pass

    @decorator(frozen=True)
    class Named:
        x: int

        def __repr__(self):
            return "named"

        def __hash__(self):
            return 7

    return Point, Deeper, Changing, Itself, Nothing, Named


def answers(decorator):
    """What can be seen of the classes without asking for more than a dataclass promises."""
    Point, Deeper, Changing, Itself, Nothing, Named = classes(decorator)
    point, same = Point(1, note="a"), Point(1, 0, "b")
    match Deeper(1, 2, "c", (3,)):
        case Deeper(x, y, _, z=(last,)):
            parts = (x, y, last)
    itself = Itself(1)
    return (
        parts,
        (point == same, hash(point) == hash(same), point == Point(2), point == Deeper(1), point != 1),
        (repr(Deeper(1)).split(".")[-1], repr(Changing(["a"])).split(".")[-1], repr(Named(1))),
        replace(point, y=5).y,
        (Changing() == Changing(), Changing().names is Changing().names, Changing.__hash__),
        (itself == itself, itself == Itself(1), len({itself, Itself(1)})),
        (Nothing() == Nothing(), len({Nothing(), Nothing()})),
        (hash(Named(1)), Named(1) == Named(1)),
    )


def test_it_gives_what_the_standard_one_gives():
    assert answers(dataclass) == answers(standard)


@pytest.mark.parametrize("arguments", [(), (1, 2, 3, 4)])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(TypeError):
        classes(dataclass)[0](*arguments)


def test_a_class_is_looked_at_when_its_first_instance_is_made():
    Point, Deeper, *_ = classes(dataclass)
    assert {Point, Deeper} <= records._undefined.keys()
    Deeper(1)  # which inherits the fields of the other
    assert not {Point, Deeper} & records._undefined.keys()


def test_threads_may_make_the_first_instances():
    for _ in range(20):
        Deeper = classes(dataclass)[1]
        with ThreadPoolExecutor(4) as threads:
            assert len(set(threads.map(Deeper, [1] * 8))) == 1


def test_fields_that_are_given_by_name_follow_the_others():
    @dataclass
    class Step:
        text: str
        parts: list = field(default_factory=list)
        width: int = field(kw_only=True)
        made: int = field(default=3, init=False)
        found: dict = field(default_factory=dict, init=False)

    assert vars(Step("a", width=1)) == {"text": "a", "parts": [], "width": 1, "found": {}}
    assert Step("a", width=1).made == 3
    with pytest.raises(TypeError):
        Step("a", [], 1)
