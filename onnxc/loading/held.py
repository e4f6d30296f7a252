"""A context that one caller has for longer than a call."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .context import Context
    from .loader import Model


class Held:
    """Has a context of a model's until `close`."""

    _context: Context | None = None

    def __init__(self, model: Model):
        self._model, self._context = model, model.acquire()
        try:
            self._prepare(self._context)
        except BaseException:
            self.close()
            raise

    def _prepare(self, context: Context) -> None:
        """What is done once, before the first call."""

    def close(self) -> None:
        """Ends the calls; the arrays stay."""
        context, self._context = self._context, None  # before it is given back: it is never given twice
        if context is not None:
            self._model.give_back(context)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()
