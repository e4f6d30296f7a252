"""What runs are fed, as ONNX Runtime takes it: looked at where a library refuses it as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..loading.c_values import Port


def as_taken(ports: Sequence[Port], feeds: Mapping[str, Any]) -> Mapping[str, Any]:
    """The feeds without what has no value and is no input, such as initializers that keep theirs, and with
    texts in the place of other objects; the very feeds where that changes nothing."""
    of_name = {port.name: port for port in ports}
    found = {
        name: _texts(of_name[name], value) if name in of_name else value
        for name, value in feeds.items()
        if value is not None or name in of_name
    }
    same = len(found) == len(feeds) and all(value is feeds[name] for name, value in found.items())
    return feeds if same else found


def _texts(port: Port, value: Any) -> Any:
    """The value of an input with the texts of all objects where strings are needed; keys are numbers or
    texts."""
    if isinstance(value, Mapping):
        numbers = port.key == "string" and any(isinstance(key, int) for key in value)
        return {str(k) if isinstance(k, int) else k: v for k, v in value.items()} if numbers else value
    if isinstance(value, (list, tuple)) and "sequence" in (port.kind, port.of):
        items = [_texts(port, item) for item in value]
        return value if all(a is b for a, b in zip(items, value)) else items
    if port.key is not None or port.dtype != "string" or not isinstance(value, (list, tuple, np.ndarray)):
        return value
    array = np.asarray(value, object) if isinstance(value, (list, tuple)) else value
    if array.dtype != object or all(isinstance(element, (str, bytes)) for element in array.flat):
        return value
    texts = (e if isinstance(e, (str, bytes)) else str(e) for e in array.flat)
    return np.fromiter(texts, object, array.size).reshape(array.shape)
