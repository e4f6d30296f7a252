"""Import rules of tree ensembles: attributes become a `Forest`, whose sums the rules finish.

The special cases of two classes are those of ONNX Runtime (tree_ensemble_aggregator.h): a single score stands
for both classes, by signs or by their sum of 1, whichever the weights suggest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ...ir import dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.graph import Value
from ..rules import onnx_op
from .forests import MODES, Aggregate, Forest
from .scores import (
    TRANSFORMS,
    checked_length,
    floats,
    is_positive,
    labels_of,
    named,
    rows_of,
    single_score,
    top_class,
    transformed,
    two_columns,
)

ml_op = partial(onnx_op, domain="ai.onnx.ml")

#: What a core op has for each; the average is a sum that is divided.
AGGREGATES: dict[str, Aggregate] = {"AVERAGE": "sum", "SUM": "sum", "MIN": "min", "MAX": "max"}


# Attributes --------------------------------------------------------------------------------------


def _places(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where nodes, each a (tree, number) in a column, are among the known ones."""
    order = np.lexsort((known[1], known[0]))
    span = int(known[1].max(initial=0)) + 1
    keys = (known[0] * span + known[1])[order]
    if np.any(keys[1:] == keys[:-1]):
        raise ops.TypeMismatch("a tree has two nodes of one number")
    found = wanted[0] * span + wanted[1]
    places = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
    if np.any((keys[places] != found) | (wanted[1] < 0) | (wanted[1] >= span)):
        raise ops.TypeMismatch("a node is named that its tree does not have")
    return order[places]


def _forest(
    dtype: str,
    nodes_treeids: Sequence[int] | None,
    nodes_nodeids: Sequence[int] | None,
    nodes_featureids: Sequence[int] | None,
    nodes_modes: Sequence[str] | None,
    nodes_values: Sequence[float] | np.ndarray | None,
    nodes_truenodeids: Sequence[int] | None,
    nodes_falsenodeids: Sequence[int] | None,
    nodes_missing_value_tracks_true: Sequence[int] | None,
    weights: tuple[Sequence | np.ndarray | None, ...],
) -> Forest:
    """The forest of TreeEnsembleClassifier and TreeEnsembleRegressor; weights: (tree, node, target, weight)
    of each."""
    treeids, count = np.array(nodes_treeids or (), np.int64), len(nodes_treeids or ())
    if not count:
        raise ops.TypeMismatch("there are no nodes")
    given = {
        "nodes_nodeids": nodes_nodeids,
        "nodes_featureids": nodes_featureids,
        "nodes_modes": nodes_modes,
        "nodes_values": nodes_values,
        "nodes_truenodeids": nodes_truenodeids,
        "nodes_falsenodeids": nodes_falsenodeids,
    }
    for name, values in given.items():
        checked_length(values, count, name)
    names = [mode.removeprefix("BRANCH_") for mode in nodes_modes or ()]
    unknown = sorted(set(names) - set(MODES) - {"LEAF"})
    if unknown:
        raise ops.TypeMismatch(f"there is no mode '{unknown[0]}' of nodes")
    modes = np.array([MODES.get(name, -1) for name in names], np.int64)
    leaf = modes < 0
    place = np.where(leaf, ~(np.cumsum(leaf) - 1), np.cumsum(~leaf) - 1)  # number of the node, or ~leaf
    inner = np.flatnonzero(~leaf)
    known = np.stack([treeids, np.array(nodes_nodeids, np.int64)])
    missing = np.zeros(count, bool)
    tracks = np.asarray(nodes_missing_value_tracks_true or (), np.int64)[:count]
    missing[: len(tracks)] = tracks == 1
    trees, nodes, targets, numbers = (np.asarray(() if w is None else w) for w in weights)
    for other in (trees, nodes, targets):
        checked_length(other, len(numbers), "weights of leaves")
    at = place[_places(known, np.stack([trees, nodes]).astype(np.int64))]
    kept = at < 0
    return Forest(
        features=np.array(nodes_featureids, np.int64)[inner],
        thresholds=np.asarray(nodes_values).astype(dtypes.numpy_dtype(dtype))[inner],
        modes=modes[inner],
        yes=place[_places(known, np.stack([treeids, np.array(nodes_truenodeids, np.int64)])[:, inner])],
        no=place[_places(known, np.stack([treeids, np.array(nodes_falsenodeids, np.int64)])[:, inner])],
        missing=missing[inner],
        roots=place[np.flatnonzero(np.diff(treeids, prepend=treeids[0] - 1))],
        leaves=int(leaf.sum()),
        weight_leaves=~at[kept],
        weight_targets=targets.astype(np.int64)[kept],
        weights=numbers.astype(dtypes.numpy_dtype(dtype))[kept],
    )


def _thresholds(X: Value) -> str:
    """The type that features are compared in."""
    return "float64" if X.dtype == "float64" else "float32"


def _first(*given: Sequence[float] | np.ndarray | None) -> Sequence[float] | np.ndarray:
    """The first that is there: numbers may come as a tensor or as a list."""
    return next((g for g in given if g is not None), ())


# Regressors --------------------------------------------------------------------------------------


def _regression(
    b: Builder, x: Value, forest: Forest, aggregate: str, targets: int, base: np.ndarray, transform: str
) -> Value:
    """The finished scores [N, targets]. With one target, a leaf that lists several weights has the first:
    skl2onnx lists a leaf's number once for each class, and ONNX Runtime reads it so. Of several targets, one
    that none of a row's leaves has stays 0, whatever its base value."""
    if targets < 1:
        raise ops.TypeMismatch(f"{targets} targets")
    if targets == 1:
        forest = forest.with_one_weight()
    if aggregate not in AGGREGATES:
        raise ops.TypeMismatch(f"there is no aggregate '{aggregate}'")
    scores = forest.emit(b, x, AGGREGATES[aggregate], targets)
    if aggregate == "AVERAGE":
        scores = b.map(scores, lambda s: s / float(len(forest.roots)))
    if len(base):
        checked_length(base, targets, "base_values")
        moved = b.map(scores, floats(b, base, x.dtype), lambda s, c: s + c)
        has = forest.scored(b, x, targets) if targets > 1 else None
        scores = moved if has is None else _where(b, has, moved, scores)
    return transformed(b, scores, transform)


@ml_op(since=3)
def TreeEnsembleRegressor(
    b,
    X,
    *,
    aggregate_function="SUM",
    base_values=None,
    base_values_as_tensor=None,
    n_targets=None,
    nodes_falsenodeids=None,
    nodes_featureids=None,
    nodes_hitrates=None,
    nodes_hitrates_as_tensor=None,
    nodes_missing_value_tracks_true=None,
    nodes_modes=None,
    nodes_nodeids=None,
    nodes_treeids=None,
    nodes_truenodeids=None,
    nodes_values=None,
    nodes_values_as_tensor=None,
    post_transform="NONE",
    target_ids=None,
    target_nodeids=None,
    target_treeids=None,
    target_weights=None,
    target_weights_as_tensor=None,
):
    x = rows_of(b, X, _thresholds(X))
    forest = _forest(
        x.dtype,
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        nodes_modes,
        _first(nodes_values_as_tensor, nodes_values),
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        (target_treeids, target_nodeids, target_ids, _first(target_weights_as_tensor, target_weights)),
    )
    base = np.asarray(_first(base_values_as_tensor, base_values))
    scores = _regression(b, x, forest, aggregate_function, n_targets or 1, base, post_transform)
    return b.cast(scores, "float32")


@ml_op(since=1, name="TreeEnsembleRegressor")
def _regressor_1(
    b,
    X,
    *,
    aggregate_function="SUM",
    base_values=None,
    n_targets=None,
    nodes_falsenodeids=None,
    nodes_featureids=None,
    nodes_hitrates=None,
    nodes_missing_value_tracks_true=None,
    nodes_modes=None,
    nodes_nodeids=None,
    nodes_treeids=None,
    nodes_truenodeids=None,
    nodes_values=None,
    post_transform="NONE",
    target_ids=None,
    target_nodeids=None,
    target_treeids=None,
    target_weights=None,
):
    return TreeEnsembleRegressor(
        b,
        X,
        aggregate_function=aggregate_function,
        base_values=base_values,
        n_targets=n_targets,
        nodes_falsenodeids=nodes_falsenodeids,
        nodes_featureids=nodes_featureids,
        nodes_missing_value_tracks_true=nodes_missing_value_tracks_true,
        nodes_modes=nodes_modes,
        nodes_nodeids=nodes_nodeids,
        nodes_treeids=nodes_treeids,
        nodes_truenodeids=nodes_truenodeids,
        nodes_values=nodes_values,
        post_transform=post_transform,
        target_ids=target_ids,
        target_nodeids=target_nodeids,
        target_treeids=target_treeids,
        target_weights=target_weights,
    )


@ml_op(since=5)
def TreeEnsemble(
    b,
    X,
    *,
    aggregate_function=1,
    leaf_targetids,
    leaf_weights,
    membership_values=None,
    n_targets=None,
    nodes_falseleafs,
    nodes_falsenodeids,
    nodes_featureids,
    nodes_hitrates=None,
    nodes_missing_value_tracks_true=None,
    nodes_modes,
    nodes_splits,
    nodes_trueleafs,
    nodes_truenodeids,
    post_transform=0,
    tree_roots,
):
    if not 0 <= aggregate_function < len(AGGREGATES) or not 0 <= post_transform < len(TRANSFORMS):
        raise ops.TypeMismatch(f"aggregate {aggregate_function} or transform {post_transform} is unknown")
    x = rows_of(b, X, _thresholds(X))
    dtype, count, leaves = dtypes.numpy_dtype(x.dtype), len(nodes_splits), len(leaf_weights)
    given = {
        "nodes_falseleafs": nodes_falseleafs,
        "nodes_falsenodeids": nodes_falsenodeids,
        "nodes_featureids": nodes_featureids,
        "nodes_modes": nodes_modes,
        "nodes_trueleafs": nodes_trueleafs,
        "nodes_truenodeids": nodes_truenodeids,
    }
    for name, values in given.items():
        checked_length(values, count, name)
    checked_length(leaf_targetids, leaves, "leaf_targetids")
    modes = np.asarray(nodes_modes, np.int64)
    if np.any(modes >= len(MODES)):
        raise ops.TypeMismatch(f"there is no mode {modes.max()} of nodes")

    def ends(nodes: Sequence[int], are_leaves: Sequence[int]) -> np.ndarray:
        places, at_leaf = np.array(nodes, np.int64), np.array(are_leaves, np.int64) != 0
        if np.any((places < 0) | (places >= np.where(at_leaf, leaves, count))):
            raise ops.TypeMismatch("a node or leaf is named that is not there")
        return np.where(at_leaf, ~places, places)

    missing = np.zeros(count, bool)
    tracks = np.asarray(nodes_missing_value_tracks_true or (), np.int64)[:count]
    missing[: len(tracks)] = tracks == 1
    forest = Forest(
        features=np.array(nodes_featureids, np.int64),
        thresholds=np.asarray(nodes_splits).astype(dtype),
        modes=modes,
        yes=ends(nodes_truenodeids, nodes_trueleafs),
        no=ends(nodes_falsenodeids, nodes_falseleafs),
        missing=missing,
        roots=ends(tree_roots, [0] * len(tree_roots)),
        leaves=leaves,
        weight_leaves=np.arange(leaves),
        weight_targets=np.array(leaf_targetids, np.int64),
        weights=np.asarray(leaf_weights).astype(dtype),
        members=_members(modes, membership_values, dtype),
    )
    aggregate, transform = list(AGGREGATES)[aggregate_function], TRANSFORMS[post_transform]
    scores = _regression(b, x, forest, aggregate, n_targets or 1, np.zeros(0), transform)
    return b.cast(scores, X.dtype)


def _members(modes: np.ndarray, values: np.ndarray | None, dtype: np.dtype) -> list[np.ndarray]:
    """The numbers of each node: of those of mode MEMBER, what lies between NaNs, in their order."""
    numbers = np.asarray(() if values is None else values).astype(dtype)
    sets = np.split(numbers, np.flatnonzero(np.isnan(numbers)))
    sets = [part[~np.isnan(part)] for part in sets]
    wanted = int((modes == MODES["MEMBER"]).sum())
    if wanted > len(sets):
        raise ops.TypeMismatch(f"'membership_values' has {len(sets)} sets where {wanted} nodes need one")
    rest = iter(sets)
    return [next(rest) if mode == MODES["MEMBER"] else numbers[:0] for mode in modes]


# Classifiers -------------------------------------------------------------------------------------


@ml_op(since=3)
def TreeEnsembleClassifier(
    b,
    X,
    *,
    base_values=None,
    base_values_as_tensor=None,
    class_ids=None,
    class_nodeids=None,
    class_treeids=None,
    class_weights=None,
    class_weights_as_tensor=None,
    classlabels_int64s=None,
    classlabels_strings=None,
    nodes_falsenodeids=None,
    nodes_featureids=None,
    nodes_hitrates=None,
    nodes_hitrates_as_tensor=None,
    nodes_missing_value_tracks_true=None,
    nodes_modes=None,
    nodes_nodeids=None,
    nodes_treeids=None,
    nodes_truenodeids=None,
    nodes_values=None,
    nodes_values_as_tensor=None,
    post_transform="NONE",
):
    x = rows_of(b, X, _thresholds(X))
    forest = _forest(
        x.dtype,
        nodes_treeids,
        nodes_nodeids,
        nodes_featureids,
        nodes_modes,
        _first(nodes_values_as_tensor, nodes_values),
        nodes_truenodeids,
        nodes_falsenodeids,
        nodes_missing_value_tracks_true,
        (class_treeids, class_nodeids, class_ids, _first(class_weights_as_tensor, class_weights)),
    )
    labels = labels_of(classlabels_strings, classlabels_int64s)
    count = len(labels)
    base = np.asarray(_first(base_values_as_tensor, base_values))
    finish = {1: _one_class, 2: _two_classes}.get(count, _many_classes)
    index, scores = finish(b, x, forest, base, post_transform, count)
    if count == 1 and labels.dtype == object:
        labels = labels.repeat(2)  # there is no text for the other
    elif count == 1 or (count == 2 and labels.dtype != object and len(np.unique(forest.weight_targets)) == 2):
        labels = np.arange(2)  # what ONNX Runtime calls them, whatever the model does
    return named(b, index, labels), b.cast(scores, "float32")


@ml_op(since=1, name="TreeEnsembleClassifier")
def _classifier_1(
    b,
    X,
    *,
    base_values=None,
    class_ids=None,
    class_nodeids=None,
    class_treeids=None,
    class_weights=None,
    classlabels_int64s=None,
    classlabels_strings=None,
    nodes_falsenodeids=None,
    nodes_featureids=None,
    nodes_hitrates=None,
    nodes_missing_value_tracks_true=None,
    nodes_modes=None,
    nodes_nodeids=None,
    nodes_treeids=None,
    nodes_truenodeids=None,
    nodes_values=None,
    post_transform="NONE",
):
    return TreeEnsembleClassifier(
        b,
        X,
        base_values=base_values,
        class_ids=class_ids,
        class_nodeids=class_nodeids,
        class_treeids=class_treeids,
        class_weights=class_weights,
        classlabels_int64s=classlabels_int64s,
        classlabels_strings=classlabels_strings,
        nodes_falsenodeids=nodes_falsenodeids,
        nodes_featureids=nodes_featureids,
        nodes_missing_value_tracks_true=nodes_missing_value_tracks_true,
        nodes_modes=nodes_modes,
        nodes_nodeids=nodes_nodeids,
        nodes_treeids=nodes_treeids,
        nodes_truenodeids=nodes_truenodeids,
        nodes_values=nodes_values,
        post_transform=post_transform,
    )


def _one_class(
    b: Builder, x: Value, forest: Forest, base: np.ndarray, transform: str, count: int
) -> tuple[Value, Value]:
    """(1 where the score is above 0, else 0; scores [N, 1]): those of a regressor of one target."""
    scores = _regression(b, x, forest, "SUM", count, base, "NONE")
    return is_positive(b, scores), transformed(b, scores, transform)


def _many_classes(
    b: Builder, x: Value, forest: Forest, base: np.ndarray, transform: str, count: int
) -> tuple[Value, Value]:
    """(the class of the greatest score, scores). Classes without a weight among a row's leaves are not
    chosen, nor changed by base values that are not there."""
    scores = forest.emit(b, x, "sum", count)
    if len(base):
        checked_length(base, count, "base_values")
        scores = b.map(scores, floats(b, base, x.dtype), lambda s, c: s + c)
    chosen, has = scores, None if len(base) else forest.scored(b, x, count)
    if has is not None:
        chosen = b.map(scores, has, lambda s, h: expr.where(h > 0, s, float("-inf")))
    return top_class(b, chosen), transformed(b, scores, transform)


def _two_classes(
    b: Builder, x: Value, forest: Forest, base: np.ndarray, transform: str, count: int
) -> tuple[Value, Value]:
    """(class, scores [N, 2]) of two classes. Where a row's leaves have a weight for the second, that decides,
    made of the first if there are base values for both; else the first is the only one, and decides."""
    if len(base) > 2:
        checked_length(base, count, "base_values")
    alike = len(np.unique(forest.weight_targets)) == 1
    sums_to_one = alike and bool(np.all(forest.weights >= 0))
    scores = forest.emit(b, x, "sum", 2)
    known = forest.present(2)
    first, second = (b.take(scores, 1, k, 1) for k in range(2))
    has: Sequence[bool | Value]
    if known is not None:
        has = known.tolist()
    else:
        weights = forest.counting().emit(b, x, "sum", 2)
        has = [b.take(weights, 1, k, 1) for k in range(2)]
    moved = first
    if len(base):
        moved = b.map(first, lambda s: s + float(base[0]))
    if len(base) == 2:
        made = b.map(first, lambda s: s + float(base[1]))
        moved = _where(b, has[1], b.map(made, lambda s: -s), moved)
        second = _where(b, has[1], made, second)
    first = _where(b, has[0], moved, first)
    decisive = _where(b, has[1], second, first)
    index = b.map(decisive, lambda s: (s > (0.5 if sums_to_one else 0.0)).cast("int64"))
    pair = two_columns(b, first, second)
    found = transformed(b, pair, transform)
    if len(base) < 2:  # of one base value and weights for both ONNX Runtime makes no second score
        bare = len(base) == 1 and not alike and transform != "PROBIT"
        found = _where(b, has[1], found, pair if bare else single_score(b, first, sums_to_one, transform))
    return b.reshape(index, (x.shape[0],)), found


def _where(b: Builder, has: bool | Value, yes: Value, no: Value) -> Value:
    """yes in the rows whose leaves have a weight, no in the others."""
    if isinstance(has, bool):
        return yes if has else no
    return b.map(has, yes, no, lambda h, y, n: expr.where(h > 0, y, n))
