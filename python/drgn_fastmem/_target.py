# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Which file holds the memory: what a user names, and what a Program reads."""

import math
import os
import stat
from typing import TYPE_CHECKING, Iterator, List, NamedTuple, Optional, Tuple, Union

from drgn_fastmem import _core

if TYPE_CHECKING:
    import drgn

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

KCORE = "/proc/kcore"


TRANSLATE_MODES = ("auto", "never")


def _translates(translate: str) -> bool:
    if translate not in TRANSLATE_MODES:
        raise ValueError(f"translate must be 'auto' or 'never', not {translate!r}")
    return translate == "auto"


class Options(NamedTuple):
    """What :func:`open` and :func:`attach` are asked for."""

    mmap: str = "try"
    translate: str = "auto"
    max_age: Optional[float] = None

    def open(
        self, file: Union[str, bytes, int], path: Union[str, bytes], *, kernel: bool
    ) -> _core.Memory:
        """Open ``file``; ``path`` is its name.

        :param kernel: Whether it is known to be a kernel's.
        """
        mem = _core.open(file, self.mmap, kernel, _translates(self.translate), path)
        try:
            if self.max_age is not None:
                mem.max_age = self.max_age
            elif not mem.is_live:
                mem.max_age = math.inf
        except BaseException:
            mem.close()
            raise
        return mem


def open(
    path: Union[Path, int] = KCORE,
    *,
    mmap: str = "try",
    translate: str = "auto",
    max_age: Optional[float] = None,
) -> _core.Memory:
    """Open a core file or the memory of the running kernel.

    :param path: Path of an ELF core file or of ``/proc/kcore`` (the default),
        or an open file descriptor, which is duplicated.
    :param mmap: ``"try"``: map what can be mapped and read the rest with
        pread; ``"never"``; ``"always"``: fail if a segment can't be mapped.
    :param translate: ``"auto"``: walk the page tables for virtual addresses
        that no segment holds, where the kernel's MMU is known and physical
        memory is mapped or in a dump; ``"never"``.
    :param max_age: The first value of :attr:`Memory.max_age`: how many
        seconds old bytes may be that are not mapped. ``None``: 0 for the
        running kernel, ``math.inf`` for core files, which do not change.
    :raises OSError: if the file can't be opened or read, or mapped with
        ``"always"``.
    :raises ValueError: if it is not an ELF core file (dumps of other kinds,
        FIFOs and character devices are not), or an option makes no sense.
    """
    if isinstance(path, bool):
        raise TypeError("path must be a path or a file descriptor, not bool")
    if isinstance(path, int):
        name: Union[str, bytes] = f"descriptor {path}"
    else:
        name = path = os.fspath(path)
    return Options(mmap, translate, max_age).open(path, name, kernel=False)


class OpenFile(NamedTuple):
    """A descriptor of this process and the file behind it."""

    fd: int
    file: Tuple[int, int]
    is_kcore: bool


def _open_files() -> Iterator[OpenFile]:
    """Our descriptors that could be a core dump."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            st = os.fstat(fd)
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            # The one of listdir itself, or closed meanwhile.
            continue
        if stat.S_ISREG(st.st_mode) or stat.S_ISBLK(st.st_mode):
            yield OpenFile(fd, (st.st_dev, st.st_ino), target == KCORE)


def _is_elf_core(fd: int) -> bool:
    try:
        header = os.pread(fd, 18, 0)
    except OSError:
        return False
    if len(header) < 18 or header[:4] != b"\x7fELF":
        return False
    order = "big" if header[5] == 2 else "little"
    # e_type, ET_CORE (System V ABI, "ELF Header").
    return int.from_bytes(header[16:18], order) == 4


def _flag(prog: "drgn.Program", name: str) -> bool:
    import drgn

    return bool(prog.flags & getattr(drgn.ProgramFlags, name))


def _candidates(prog: "drgn.Program") -> List[OpenFile]:
    """The descriptors that can be the one that ``prog`` reads."""
    files = list(_open_files())
    if _flag(prog, "IS_LIVE"):
        return [file for file in files if file.is_kcore]
    path: Optional[str] = getattr(prog, "core_dump_path", None)
    if path is not None:
        # If another file has the name now, none of ours is that one.
        try:
            st = os.stat(path)
        except OSError:
            # Deleted or renamed: drgn still has it open, but which is it?
            wanted = None
        else:
            wanted = (st.st_dev, st.st_ino)
        return [file for file in files if file.file == wanted]
    # drgn before core_dump_path.
    return [file for file in files if _is_elf_core(file.fd)]


def open_target(prog: "drgn.Program", options: Options) -> _core.Memory:
    """Open the memory that ``prog`` reads.

    :raises ValueError: if that is not a file of ours to read, or if it is not
        certain which file it is.
    """
    kernel = _flag(prog, "IS_LINUX_KERNEL")
    if prog.platform is None:
        raise ValueError("the program has no target yet")
    if _flag(prog, "IS_LIVE") and not kernel:
        raise ValueError("the memory of a running process is left to drgn")
    # drgn reads the variable when it opens the dump (libdrgn/program.c).
    if kernel and os.environ.get("DRGN_USE_LIBKDUMPFILE_FOR_ELF", "0") not in ("", "0"):
        raise ValueError("drgn was told to read this dump with libkdumpfile")
    found = {file.file: file for file in _candidates(prog)}
    if not found:
        raise ValueError("the file that the program reads is not among our open files")
    if len(found) > 1:
        raise ValueError(
            "more than one open file could be the one that the program reads; "
            "say which: attach(prog, drgn_fastmem.open(path))"
        )
    (file,) = found.values()
    path: Optional[str] = getattr(prog, "core_dump_path", None)
    if file.is_kcore:
        path = KCORE
    memory = None
    if path is not None:
        memory = _open_same_file(path, file, options, kernel)
    if memory is None:
        name = path or f"descriptor {file.fd}"
        memory = options.open(file.fd, name, kernel=kernel)
    return memory


def _open_same_file(
    path: str, file: OpenFile, options: Options, kernel: bool
) -> Optional[_core.Memory]:
    """Open ``path`` anew, so that no open file is shared with drgn; ``None`` if
    that is not allowed (drgn may have been given it by sudo) or if it is
    another file by now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        st = os.fstat(fd)
        if (st.st_dev, st.st_ino) != file.file:
            return None
        return options.open(fd, path, kernel=kernel)
    finally:
        os.close(fd)
