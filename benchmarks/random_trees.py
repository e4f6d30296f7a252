"""Decision trees made at random, as attributes of the operators of ai.onnx.ml.

Trees split random nodes until they have enough leaves. Thresholds are normal within the range that a node
sees, so that rows of normal features spread.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np

FEATURES = 20
NORMAL = NormalDist()


def tree(random: np.random.Generator, leaves: int, depth: int) -> list[list]:
    """Nodes as (feature, threshold, true, false), None for a leaf."""
    whole = (0.0, 1.0)
    nodes: list[list] = [[None, 0, {}]]  # split, depth, ranges of quantiles by feature
    open_nodes = [0]
    while len(open_nodes) and len(nodes) // 2 + 1 < leaves:
        at = open_nodes.pop(int(random.integers(len(open_nodes))))
        _, level, ranges = nodes[at]
        feature = int(random.integers(FEATURES))
        low, high = ranges.get(feature, whole)
        cut = low + (high - low) * random.uniform(0.3, 0.7)
        nodes[at][0] = [feature, NORMAL.inv_cdf(cut), len(nodes), len(nodes) + 1]
        for part in ((low, cut), (cut, high)):
            if level + 1 < depth:
                open_nodes.append(len(nodes))
            nodes.append([None, level + 1, {**ranges, feature: part}])
    return [node[0] for node in nodes]


@cache
def ensemble(trees: int, leaves: int, depth: int, classes: int, kind: str = "target") -> dict[str, list]:
    """The attributes of so many trees, each with a weight for each class at a leaf. kind: what the operator
    calls what is summed, `target` or `class`. Callers do not write to them."""
    random = np.random.default_rng(0)
    columns: dict[str, list] = {}

    def put(**values: object) -> None:
        for name, value in values.items():
            columns.setdefault(name, []).append(value)

    for t in range(trees):
        for k, split in enumerate(tree(random, leaves, depth)):
            feature, threshold, true, false = split or (0, 0.0, 0, 0)
            mode = "BRANCH_LEQ" if split else "LEAF"
            put(nodes_treeids=t, nodes_nodeids=k, nodes_featureids=feature, nodes_modes=mode)
            put(nodes_values=threshold, nodes_truenodeids=true, nodes_falsenodeids=false)
            for c in range(0 if split else classes):
                weight = float(np.float32(random.standard_normal()))
                names = (f"{kind}_{name}" for name in ("treeids", "nodeids", "ids", "weights"))
                put(**dict(zip(names, (t, k, c, weight))))
    return columns
