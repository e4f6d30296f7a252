"""What a library is to tell of itself, and what its runtime must know: data alone, no code.

`tables.py` makes the tables of the library from it, `header.py` its header, and `as_json` its description.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from ...records import dataclass
from ...version import ABI_MAJOR, ABI_MINOR
from ..abi import ALIGNMENT, aligned


@dataclass(frozen=True)
class Port:
    """An input or output. `shape` holds numbers and names of symbolic dimensions (None: unnamed);
    it is None itself when the rank is unknown. Of a sequence or optional, `dtype` is the element's; of a
    map, or a sequence of maps, that of the values, and `key` that of the keys. Of an input with symbolic
    dimensions, `typical` is the shape that it has most of the time."""

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"  # or "sequence", "optional", "map"
    optional: bool = False  # an input that may be left out
    state: int | None = None  # of an input: the number of the output that is its next value
    key: str | None = None
    holds: tuple[str, ...] = ()  # of a sequence or optional: the kind of its items, that of theirs, ...
    typical: tuple[int, ...] | None = None

    @property
    def static(self) -> bool:
        return (
            self.kind == "tensor"
            and self.dtype is not None
            and self.shape is not None
            and not self.optional
            and all(isinstance(dim, int) for dim in self.shape)
        )

    def as_json(self, outputs: Sequence[Port] = ()) -> dict[str, object]:
        """What the description in the library says of the port."""
        entry: dict[str, object] = {
            "name": self.name,
            "kind": self.kind,
            "dtype": self.dtype,
            "shape": None if self.shape is None else list(self.shape),
        }
        entry |= {"optional": True} if self.optional else {}
        entry |= {"key": self.key} if self.key else {}
        entry |= {"of": self.holds[0]} if self.kind == "optional" and self.holds else {}
        entry |= {"typical": list(self.typical)} if self.typical else {}
        return entry | ({"state": outputs[self.state].name} if self.state is not None else {})


@dataclass(frozen=True)
class LoweredDescription:
    """What the runtime must know of the code for one target.

    `node_names` are what messages call the nodes; `operators` the runtime's operators behind RuntimeCalls, in
    the order of `api.call`'s index. A static model has `arena_bytes` and `scratch_bytes`; another has
    `lifetimes`, the first and last step of each planned buffer, of which the last `branch_buffers` are placed
    when the run enters a branch."""

    target: str
    features: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    dim_count: int = 0
    value_count: int = 0
    slot_count: int = 0
    lifetimes: tuple[tuple[int, int], ...] = ()
    branch_buffers: int = 0
    static: bool = True
    arena_bytes: int = 0
    scratch_bytes: int = 0

    @property
    def workspace_bytes(self) -> int:
        """Bytes of arena and scratch for one thread, -1 when the inputs decide."""
        if not self.static:
            return -1
        return aligned(self.arena_bytes) + max(aligned(self.scratch_bytes), ALIGNMENT)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.target,
            "features": list(self.features),
            "workspace_bytes": self.workspace_bytes if self.static else None,
            "arena_bytes": self.arena_bytes if self.static else None,
            "scratch_bytes": self.scratch_bytes if self.static else None,
        }


@dataclass(frozen=True)
class LibraryDescription:
    """All that a library's tables and header tell about a model.

    Every symbol begins with `prefix` (see `symbol_prefix`). `lowered` has an entry for each target, the best
    first. `weights_file` is the path of the side file of weights, if there is one, from the library's
    folder."""

    prefix: str
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    version: str
    lowered: tuple[LoweredDescription, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    threads: int = 0
    weights_bytes: int = 0
    weights_file: str | None = None
    weights_digest: bytes = bytes(32)
    string_table: int = 0
    string_count: int = 0
    checks_handles: bool = False  # whether contexts are looked up before they are used
    details: Mapping[str, object] = field(default_factory=dict)  # further entries of the JSON

    @property
    def static(self) -> bool:
        return all(lowered.static for lowered in self.lowered)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of arena and scratch for one thread, of the target that takes most; -1 when the inputs
        decide."""
        return max(lowered.workspace_bytes for lowered in self.lowered) if self.static else -1

    @property
    def features(self) -> tuple[str, ...]:
        """What the processor must have, whichever target is used."""
        first, *others = self.lowered
        return tuple(f for f in first.features if all(f in other.features for other in others))

    def as_json(self) -> str:
        """The description that the library carries."""
        return json.dumps(
            {
                **self.details,
                "onnxc": self.version,
                "abi": [ABI_MAJOR, ABI_MINOR],
                "name": self.name,
                "inputs": [port.as_json(self.outputs) for port in self.inputs],
                "outputs": [port.as_json() for port in self.outputs],
                "metadata": dict(self.metadata),
                "target": ",".join(lowered.target for lowered in self.lowered),
                "features": list(self.features),
                "targets": [lowered.as_json() for lowered in self.lowered],
                "threads": self.threads,
                "weights_bytes": self.weights_bytes,
                "weights_file": self.weights_file,
                "workspace_bytes": self.workspace_bytes if self.static else None,
            }
        )


def symbol_prefix(name: str) -> str:
    """A C identifier for a model's name: itself if it is one; `-`, `.` and spaces become `_`; any other
    character, a leading digit, more than 60 characters or the prefix `onnxc` also add a hash of the name."""
    plain = re.sub(r"[-. ]", "_", name)
    ours = re.match(r"onnxc(_|$)", plain, re.IGNORECASE)
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,59}", plain) and "__" not in plain and not ours:
        return plain
    made = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:40]
    made = made if made[:1].isalpha() else f"m{made}"
    return f"{made}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
