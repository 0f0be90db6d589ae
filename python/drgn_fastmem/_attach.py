# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Attaching a Memory to a drgn Program."""

import functools
import logging
from typing import TYPE_CHECKING, Optional

from drgn_fastmem import _core, _target

if TYPE_CHECKING:
    import drgn

logger = logging.getLogger("drgn_fastmem")


def _check_platform(prog: "drgn.Program", mem: _core.Memory) -> None:
    import drgn

    platform = prog.platform
    if platform is None:
        raise ValueError("the program has no platform yet")
    for flag, value in (
        (drgn.PlatformFlags.IS_64_BIT, mem.is_64_bit),
        (drgn.PlatformFlags.IS_LITTLE_ENDIAN, mem.is_little_endian),
    ):
        if bool(platform.flags & flag) != value:
            raise ValueError("the program and the memory are of different platforms")


@functools.lru_cache(maxsize=None)
def _callables_can_fault() -> bool:
    """Whether the FaultError of a callable reaches whoever reads.

    drgn 0.0.22 makes a plain Exception of it, except in ``Program.read``.
    """
    import drgn

    def fault(address: int, count: int, offset: int, physical: bool) -> bytes:
        raise drgn.FaultError("a fault", address)

    prog = drgn.Program(drgn.host_platform)
    prog.add_memory_segment(0, 1, fault, False)
    try:
        prog.read_u8(0)
    except drgn.FaultError:
        return True
    except Exception:
        pass
    return False


def attach(
    prog: "drgn.Program",
    mem: Optional[_core.Memory] = None,
    *,
    mmap: str = "try",
    translate: str = "auto",
    max_age: Optional[float] = None,
    _native: bool = True,
) -> _core.Memory:
    """Make ``prog`` read its memory through this package.

    Every range that the program headers of the file describe, virtual and
    physical, is answered by ``mem`` from then on, and if ``mem`` translates
    addresses, so is every other virtual address; the rest stays drgn's. (With
    a drgn that loses the faults of a callable, 0.0.22 for one, what the file
    does not hold stays drgn's too.) What
    drgn needs lives as long as ``prog``, whatever happens to the Memory that
    is returned. If ``prog`` is attached already, nothing changes.

    :param prog: A program whose target was set.
    :param mem: The memory to attach; the file that ``prog`` reads by default.
    :param mmap: As in :func:`open`, if ``mem`` is not given.
    :param translate: As in :func:`open`, if ``mem`` is not given.
    :param max_age: As in :func:`open`, if ``mem`` is not given.
    :return: The Memory that is attached.
    :raises ValueError: if the target is not one that this package reads (it
        says why), or if ``prog`` is attached to another Memory.
    """
    import drgn

    if not isinstance(prog, drgn.Program):
        raise TypeError(f"expected a drgn.Program, not {type(prog).__name__}")
    if mem is not None and not isinstance(mem, _core.Memory):
        raise TypeError(f"expected a Memory, not {type(mem).__name__}")
    attached = _core.attached(prog)
    if attached is not None:
        if mem is not None and mem is not attached[0]:
            raise ValueError("the program is attached to another Memory")
        return attached[0]
    if mem is None:
        mem = _target.open_target(prog, _target.Options(mmap, translate, max_age))
    _check_platform(prog, mem)
    if _native:
        import _drgn

        try:
            _core.attach(prog, mem, _drgn.__file__, True)
            return mem
        except ValueError as e:
            # An older drgn, or a build that keeps its symbols to itself.
            if _core.attached(prog) is not None:
                raise
            logger.debug("no native callback: %s", e)
    _core.attach(prog, mem, None, _callables_can_fault())
    return mem


def attachment(prog: "drgn.Program") -> Optional[str]:
    """How ``prog`` reads through this package.

    :return: ``"native"`` if drgn calls C directly, ``"callable"`` if it goes
        through a Python call, ``None`` if it is not attached.
    """
    attached = _core.attached(prog)
    return None if attached is None else attached[1]
