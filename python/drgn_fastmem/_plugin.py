# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The drgn plugin: attaches to every target that drgn opens.

drgn loads it through the entry point group ``drgn.plugins`` and calls
:func:`drgn_prog_set` for each Program whose target was set (drgn 0.0.31 and
newer). It never breaks drgn: whatever goes wrong is logged once, on the logger
``drgn_fastmem``, and drgn goes on with its own reader.
"""

import atexit
import logging
import os
import sys
from typing import TYPE_CHECKING, List, Set

from drgn_fastmem import _settings
from drgn_fastmem._attach import attach
from drgn_fastmem._core import Memory

if TYPE_CHECKING:
    import drgn

logger = logging.getLogger("drgn_fastmem")


class _Once:
    """Says each thing once."""

    def __init__(self) -> None:
        self._said: Set[str] = set()

    def warning(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)


_once = _Once()


class _StatsAtExit:
    """Prints the counters of memories when Python exits; keeps them open until
    then."""

    def __init__(self) -> None:
        self._memories: List[Memory] = []

    def add(self, mem: Memory) -> None:
        if not self._memories:
            atexit.register(self._print)
        self._memories.append(mem)

    def _print(self) -> None:
        for mem in self._memories:
            if not mem.closed:
                print(f"drgn_fastmem: {mem.path}: {mem.stats}", file=sys.stderr)


_stats_at_exit = _StatsAtExit()


def drgn_prog_set(prog: "drgn.Program") -> None:
    """Called by drgn when the target of ``prog`` was set."""
    try:
        settings = _settings.parse(os.environ.get("DRGN_FASTMEM", ""))
    except ValueError as e:
        _once.warning(f"DRGN_FASTMEM is ignored, and drgn left alone: {e}")
        return
    if not settings.enabled:
        return
    try:
        mem = attach(
            prog,
            mmap=settings.mmap,
            translate=settings.translate,
            max_age=settings.max_age,
        )
        if settings.stats:
            _stats_at_exit.add(mem)
    except ValueError as e:
        # A target that is drgn's own business: nothing went wrong.
        logger.info("not attached: %s", e)
    except Exception as e:
        _once.warning(f"not attached: {type(e).__name__}: {e}")
