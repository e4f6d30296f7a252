"""Templates of random graphs: what indexes, sorts and selects, branches and repeats; and all templates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import helper
from support import random_elementwise, random_movement, random_sums, random_windows
from support.random_elementwise import either
from support.random_graphs import Dim, Random, Term, Unfit, attempt, onnx_type, rounded
from support.random_movement import ANY
from support.random_sums import signed

# Indices ------------------------------------------------------------------------------------------


def indices(r: Random, sizes: Dim, dims: Sequence[Dim], anonymous: bool | None = None) -> Term:
    """Places inside an axis, some counted from its end."""
    least = min(sizes)
    if least < 1:
        raise Unfit
    return r.leaf(r.choice(("int64", "int64", "int32")), dims, -least, least - 1, 0, anonymous=anonymous)


def gather(r: Random):
    x = r.pick(lambda t: t.rank, ANY)
    axis, form = r.integer(0, x.rank - 1), r.integer(0, 2)
    if form == 0:
        places = indices(r, x.dims[axis], r.shape(r.integer(0, 2)))
        dims = (*x.dims[:axis], *places.dims, *x.dims[axis + 1 :])
        r.add("Gather", [x, places], replace(x, dims=dims, known=None), axis=signed(r, x, [axis])[0])
    elif form == 1:
        dims = [r.size() if a == axis else d for a, d in enumerate(x.dims)]
        places = indices(r, x.dims[axis], dims)
        r.add("GatherElements", [x, places], replace(x, dims=tuple(dims), known=None), axis=axis)
    else:
        batch = r.integer(0, 1) if x.rank > 1 else 0
        depth = r.integer(1, x.rank - batch)
        least = tuple(min(d[run] for d in x.dims[batch : batch + depth]) for run in range(r.runs))
        places = indices(r, least, [*x.dims[:batch], *r.shape(r.integer(0, 1)), r.fixed(depth)], False)
        if places.dtype != "int64":
            places = r.add("Cast", [places], replace(places, dtype="int64"), to=onnx_type("int64"))
        dims = (*places.dims[:-1], *x.dims[batch + depth :])
        r.add("GatherND", [x, places], replace(x, dims=dims, known=None), batch_dims=batch)


def scatter(r: Random):
    x = r.pick(lambda t: t.rank, ("float32", "float32", "float64", "int32", "int64"))
    axis = r.integer(0, x.rank - 1)
    reduction = r.choice(("none", "none", "add", "max", "min"))
    length = x.dims[axis]
    if min(length) < 1:
        raise Unfit
    if r.chance(2):
        count = min(length) if reduction == "none" else r.integer(0, 5)
        dims = tuple(
            r.fixed(min(count, min(d))) if a == axis else r.fixed(min(d)) if r.chance(2) else d
            for a, d in enumerate(x.dims)
        )
        if reduction == "none":  # every place at most once
            order = list(range(dims[axis][0]))
            r.source.shuffle(order)
            data = [
                np.broadcast_to(
                    np.array(order, np.int64).reshape([-1 if a == axis else 1 for a in range(x.rank)]),
                    [d[run] for d in dims],
                )
                for run in range(r.runs)
            ]
            places = r.given("int64", dims, data, 0, max(order, default=0))
        else:
            places = indices(r, length, dims)
        updates, operator, attributes = r.leaf(x.dtype, dims), "ScatterElements", {"axis": axis}
    else:
        depth = r.integer(1, x.rank)
        if min(min(d) for d in x.dims[:depth]) < 1:
            raise Unfit
        shape = [min(d) for d in x.dims[:depth]]
        places_all = list(itertools.islice(itertools.product(*map(range, shape)), 64))
        r.source.shuffle(places_all)
        count = r.integer(0, min(5, len(places_all)))
        places = r.array(np.array(places_all[:count], np.int64).reshape(count, depth))
        updates = r.leaf(x.dtype, [r.fixed(count), *x.dims[depth:]])
        operator, attributes = "ScatterND", {}
    n = 1 if reduction != "add" else 1 + max(1, updates.count())
    new = replace(
        x,
        low=min(x.low, updates.low),
        high=max(x.high, updates.high),
        known=None,
        grid=max(x.grid, updates.grid),
    )
    if reduction == "add":
        new = rounded(replace(new, low=-n * 8 - x.most, high=n * 8 + x.most), n)
    r.add(operator, [x, places, updates], new, reduction=reduction, **attributes)


def top_k(r: Random):
    x = r.pick(lambda t: t.rank and t.exact, ("float32", "float64", "int64", "int32"))
    axis = r.integer(0, x.rank - 1)
    count = tuple(min(n, r.integer(0, 3)) for n in x.dims[axis]) if r.chance(2) else x.dims[axis]
    dims = tuple(count if a == axis else d for a, d in enumerate(x.dims))
    r.add(
        "TopK",
        [x, r.numbers([[n] for n in count])],
        replace(x, dims=dims, known=None),
        Term("", "int64", dims, 0, max(x.dims[axis])),
        axis=signed(r, x, [axis])[0],
        largest=r.integer(0, 1),
        sorted=1,
    )


def one_hot(r: Random):
    x = r.leaf("int64", r.shape(r.integer(0, 2)), -3, 2)
    depth, axis = r.integer(1, 5), r.integer(-1, x.rank)
    at = axis if axis >= 0 else x.rank
    dims = (*x.dims[:at], r.fixed(depth), *x.dims[at:])
    r.add(
        "OneHot",
        [x, r.array(depth), r.leaf("float32", [r.fixed(2)])],
        Term("", "float32", dims, -4, 4, 3),
        axis=axis,
    )


def nonzero(r: Random):
    """What it finds indexes the tensor again."""
    x = r.leaf("float32", r.shape(r.integer(1, 2)), 0, 1, 0)
    counts = tuple(int(np.count_nonzero(r.data(x, run))) for run in range(r.runs))
    found = r.add("NonZero", [x], Term("", "int64", (r.fixed(x.rank), counts), 0, 40))
    turned = r.add("Transpose", [found], replace(found, dims=(counts, r.fixed(x.rank))), perm=[1, 0])
    r.add("GatherND", [x, turned], replace(x, dims=(counts,)))


def compress(r: Random):
    x = r.pick(lambda t: t.rank, ("float32", "int64"))
    axis = r.integer(0, x.rank - 1)
    chosen = r.leaf("bool", [x.dims[axis]])
    counts = tuple(int(np.count_nonzero(r.data(chosen, run))) for run in range(r.runs))
    dims = tuple(counts if a == axis else d for a, d in enumerate(x.dims))
    r.add("Compress", [x, chosen], replace(x, dims=dims, known=None), axis=axis)


def reverse_sequence(r: Random):
    x = r.pick(lambda t: t.rank >= 2, ("float32", "int64", "float64"))
    time = r.integer(0, 1)
    if min(x.dims[time]) < 1:
        raise Unfit
    lengths = r.leaf("int64", [x.dims[1 - time]], 1, min(x.dims[time]), 0)
    r.add("ReverseSequence", [x, lengths], replace(x, known=None), time_axis=time, batch_axis=1 - time)


def sequence(r: Random):
    """A tensor cut into a list of equal parts, of which one is taken and all are joined."""
    x = r.pick(lambda t: t.rank, ("float32", "int64", "float64"))
    axis, size = r.integer(0, x.rank - 1), r.integer(1, 3)
    counts = tuple(-(-n // size) for n in x.dims[axis])
    if min(counts) < 1:
        raise Unfit
    parts = r.name()
    r.nodes.append(helper.make_node("SplitToSequence", [x.name, r.array(size).name], [parts], axis=axis))
    place = r.choice((0, min(counts) - 1, -1))
    length = tuple(
        n - (c - 1) * size if place == -1 or place == c - 1 else size for n, c in zip(x.dims[axis], counts)
    )
    listed = replace(x, name=parts)
    r.add(
        "SequenceAt",
        [listed, r.array(place)],
        replace(x, dims=tuple(length if a == axis else d for a, d in enumerate(x.dims)), known=None),
    )
    r.add("SequenceLength", [listed], Term("", "int64", (), 0, 200))
    r.add("ConcatFromSequence", [listed], replace(x, known=None), axis=axis)


# Control ------------------------------------------------------------------------------------------


def inside(r: Random) -> None:
    attempt(r, r.choice(EVERY))


def if_(r: Random):
    """Branches that capture what is outside; with results of one shape, or of two."""
    if r.depth > 1:
        raise Unfit
    x = r.pick(dtypes=("float32", "int64", "bool"))
    condition = r.leaf("bool", (), constant=None)

    def branch(r: Random) -> list[Term]:
        for _ in range(r.integer(0, 3)):
            inside(r)
        found = [t for t in r.terms if t.dtype == x.dtype and t.rank == x.rank and (t.dims == x.dims or free)]
        return [found[-1] if found else x]

    free = r.chance(3)
    (then, (a,)), (otherwise, (b,)) = r.region(branch), r.region(branch)
    taken = [bool(r.data(condition, run)) for run in range(r.runs)]
    dims = tuple(
        tuple((d if first else e)[run] for run, first in enumerate(taken)) for d, e in zip(a.dims, b.dims)
    )
    r.add("If", [condition], replace(a, dims=dims, **either(a, b)), then_branch=then, else_branch=otherwise)


def loop(r: Random):
    """A carried tensor and a scanned one; what is outside is captured."""
    if r.depth > 1:
        raise Unfit
    x = r.within(r.pick(dtypes=("float32", "float32")), -4, 4)
    trips = r.integer(0, 3)
    number = r.leaf("int64", (), trips, trips)
    error = max(x.error, 1e-6)
    carried = replace(x, name=r.name(), error=error, known=None, low=-4, high=4, grid=99)
    iteration, going = Term(r.name(), "int64", (), 0, 5), Term(r.name(), "bool", ())

    def body(r: Random) -> list[Term]:
        for _ in range(r.integer(1, 3)):
            inside(r)
        found = [t for t in r.terms if t.dtype == x.dtype and t.dims == x.dims and t.name != x.name]
        following = r.within(replace(r.choice(found), known=None), -4, 4)
        scanned = r.choice([t for t in r.terms if t.is_float])
        return [
            r.add("Identity", [going], going),
            r.add("Add", [following, r.array(0, x.dtype)], following),
            scanned,
        ]

    graph, (_, following, scanned) = r.region(body, [iteration, going, carried])
    growth = max(1.0, following.error / error)
    last = replace(carried, error=error * growth**trips, low=-4, high=4)
    stacked = replace(
        scanned,
        dims=(r.fixed(trips), *scanned.dims),
        known=None,
        error=max(scanned.error, error) * growth**trips if trips else 0,
    )
    r.add("Loop", [number, r.array(True, "bool") if r.chance(2) else None, x], last, stacked, body=graph)
    if not trips:
        r.terms.pop()  # no round tells its sizes


def growing_loop(r: Random):
    """A carried tensor that becomes longer in each round."""
    if r.depth > 1:
        raise Unfit
    x = r.pick(lambda t: t.rank, ("float32", "int64"))
    trips, axis = r.integer(0, 3), r.integer(0, x.rank - 1)
    piece = r.leaf(x.dtype, [r.size() if a == axis else d for a, d in enumerate(x.dims)])
    iteration, going = Term(r.name(), "int64", (), 0, 5), Term(r.name(), "bool", ())
    grown = tuple(
        tuple(n + trips * m for n, m in zip(d, e)) if a == axis else d
        for a, (d, e) in enumerate(zip(x.dims, piece.dims))
    )
    carried = replace(x, name=r.name(), known=None)
    open_ = replace(carried, dims=tuple((-1,) * r.runs if a == axis else d for a, d in enumerate(x.dims)))

    def body(r: Random) -> list[Term]:
        more = r.add("Concat", [carried, piece], replace(carried, dims=x.dims), axis=axis)
        return [r.add("Identity", [going], going), more]

    graph, _ = r.region(body, [iteration, going, open_])
    shape = graph.input[2].type.tensor_type.shape.dim[axis]
    shape.Clear()
    r.add(
        "Loop",
        [r.leaf("int64", (), trips, trips), None, x],
        replace(
            carried, dims=grown, low=min(x.low, piece.low), high=max(x.high, piece.high), grid=max(x.grid, 3)
        ),
        body=graph,
    )


def scan(r: Random):
    """Running sums along the first axis of a tensor."""
    x = r.pick(lambda t: t.rank >= 1 and not any(0 in d for d in t.dims[:1]), ("float32", "float64"))
    state = r.leaf(x.dtype, x.dims[1:])
    total, row = (replace(state, name=r.name()), replace(x, name=r.name(), dims=x.dims[1:], known=None))
    n = max(x.dims[0])
    most = state.most + n * x.most
    last = rounded(replace(state, low=-most, high=most, grid=max(x.grid, state.grid), error=n * x.error), n)

    def body(r: Random) -> list[Term]:
        new = r.add("Add", [total, row], last)
        return [new, r.add("Neg", [new], last)]

    graph, _ = r.region(body, [total, row])
    r.add("Scan", [state, x], last, replace(last, dims=x.dims), body=graph, num_scan_inputs=1)


TEMPLATES = (
    gather,
    gather,
    scatter,
    top_k,
    one_hot,
    nonzero,
    compress,
    reverse_sequence,
    sequence,
    if_,
    loop,
    growing_loop,
    scan,
)

#: Every template, the common ones more than once.
EVERY = (
    *random_elementwise.TEMPLATES,
    *random_sums.TEMPLATES,
    *random_windows.TEMPLATES,
    *random_movement.TEMPLATES,
    *TEMPLATES,
)
