# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The ways to read one core file that are measured. Each opens a Program of its
own, and is checked to be what it says: a contender that silently read through
another's code would make a fine ratio.

Does not measure. Importing it turns the plugin off, except where it is asked for.
"""

import contextlib
import ctypes
import functools
import os
import shlex
import subprocess
import sys
from typing import Any, Iterable, Iterator, List, Optional, Tuple

import harness

os.environ["DRGN_FASTMEM"] = "off"
os.environ.pop("DRGN_USE_LIBKDUMPFILE_FOR_ELF", None)

import _drgn  # noqa: E402
import drgn  # noqa: E402
import drgn_fastmem as fm  # noqa: E402

sys.path.insert(0, str(harness.CHECKOUT / "tests"))

# The whole address space but the last byte: 2^64 is no size.
EVERYTHING = (0, 2**64 - 1)

PACKAGES = ("drgn", "drgn-fastmem")


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set for what is opened meanwhile; drgn and the plugin look at it then."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def read_calls() -> int:
    """The read system calls of this process so far (proc(5), /proc/pid/io)."""
    with open("/proc/self/io") as file:
        fields = dict(line.split(": ") for line in file)
    return int(fields["syscr"])


def calls_of_a_read(prog: drgn.Program, address: int) -> float:
    """Read system calls that prog makes for a small read."""
    prog.read_u64(address)
    # What looking costs is taken off.
    looking = -(read_calls() - read_calls())
    before = read_calls()
    for _ in range(100):
        prog.read_u64(address)
    return (read_calls() - before - looking) / 100


def _open(path: str, debug: Optional[str]) -> drgn.Program:
    prog = drgn.Program()
    prog.set_core_dump(path)
    if debug:
        prog.load_debug_info([debug])
    return prog


def _expect(condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(f"not the reader that was meant: {text}")


def alone(path: str, debug: Optional[str] = None) -> drgn.Program:
    """drgn's own reader."""
    prog = _open(path, debug)
    _expect(fm.attachment(prog) is None, "the plugin attached")
    return prog


def plugin(path: str, debug: Optional[str] = None) -> drgn.Program:
    """What a user has: the plugin attaches through the entry point."""
    with environment(DRGN_FASTMEM=""):
        prog = _open(path, debug)
    _expect(fm.attachment(prog) == "native", f"{fm.attachment(prog)}")
    return prog


def attached(
    path: str, debug: Optional[str] = None, *, native: bool = True, **options: Any
) -> drgn.Program:
    """Attached by hand, with options of attach()."""
    prog = _open(path, debug)
    fm.attach(prog, _native=native, **options)
    expected = "native" if native else "callable"
    _expect(fm.attachment(prog) == expected, f"{fm.attachment(prog)}")
    return prog


def with_libkdumpfile(path: str, debug: Optional[str] = None) -> drgn.Program:
    """drgn, answering through libkdumpfile."""
    _expect(_drgn._with_libkdumpfile, "this drgn was built without libkdumpfile")
    with environment(DRGN_USE_LIBKDUMPFILE_FOR_ELF="1"):
        prog = _open(path, debug)
    _expect(fm.attachment(prog) is None, "the plugin attached")
    return prog


def _noop_attach(prog: drgn.Program, address: int, size: int, source: int) -> None:
    error = _library().noop_attach(
        os.fsencode(_drgn.__file__),
        id(prog),
        object.__basicsize__,
        drgn.Program.__basicsize__,
        address,
        size,
        source,
    )
    if error:
        raise RuntimeError(error.decode())


def floor(path: str, ranges: Iterable[Tuple[int, int]] = (EVERYTHING,)) -> drgn.Program:
    """drgn with a callback that does nothing, over (address, size) each."""
    prog = alone(path)
    for address, size in ranges:
        _noop_attach(prog, address, size, 0)
        _expect(calls_of_a_read(prog, address) == 0, "the floor reads")
    return prog


def plain_copy(path: str, ranges: Iterable[Tuple[int, int, int]]) -> drgn.Program:
    """drgn with a callback that is a memcpy, for (address, size, file offset) each:
    the fastest that gives right answers as long as nothing goes wrong."""
    prog = alone(path)
    mapping = _library().noop_map(os.fsencode(path))
    if not mapping:
        raise RuntimeError(f"can't map {path}")
    for address, size, offset in ranges:
        _noop_attach(prog, address, size, mapping + offset)
    return prog


@functools.lru_cache(maxsize=None)
def _library() -> ctypes.PyDLL:
    source = harness.CHECKOUT / "benchmarks" / "noop_callback.c"
    target = harness.DIRECTORY / "noop_callback.so"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        harness.DIRECTORY.mkdir(parents=True, exist_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        options = ["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-D_GNU_SOURCE"]
        temporary = f"{target}.{os.getpid()}"
        command = [*compiler, *options, "-o", temporary, str(source), "-ldl"]
        subprocess.run(command, check=True)
        os.rename(temporary, target)
    # PyDLL keeps the GIL, which protects the Program.
    library = ctypes.PyDLL(str(target))
    library.noop_attach.restype = ctypes.c_char_p
    library.noop_attach.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_void_p,
    ]
    library.noop_map.restype = ctypes.c_void_p
    library.noop_map.argtypes = [ctypes.c_char_p]
    return library


def u64s(reader: Any, addresses: List[int]) -> bytes:
    """All that read_u64 says at the addresses, for comparing."""
    return b"".join(reader.read_u64(a).to_bytes(8, "little") for a in addresses)


def fill_page_cache(path: str) -> None:
    """Read a file once."""
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass
