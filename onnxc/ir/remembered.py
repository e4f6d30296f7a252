"""What was found out about a constant or a node is remembered as long as that lives, and no longer: both hold
the model that they come from."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

Key = TypeVar("Key")
Asked = ParamSpec("Asked")
Found = TypeVar("Found")


def remembered(
    most: int = 1,
) -> Callable[[Callable[Concatenate[Key, Asked], Found]], Callable[Concatenate[Key, Asked], Found]]:
    """A function of something and of arguments that remembers its results, `most` of each thing. They must
    not hold what they are about."""

    def decorated(find: Callable[Concatenate[Key, Asked], Found]) -> Callable[Concatenate[Key, Asked], Found]:
        known: WeakKeyDictionary[Key, dict[object, Found]] = WeakKeyDictionary()

        @wraps(find)
        def found(key: Key, *args: Asked.args, **kwargs: Asked.kwargs) -> Found:
            own = known.setdefault(key, {})
            asked = args, tuple(kwargs.items())
            if asked not in own:
                result = find(key, *args, **kwargs)
                if len(own) >= most:
                    del own[next(iter(own))]
                own[asked] = result
            return own[asked]

        return found

    return decorated
