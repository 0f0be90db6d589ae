# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""What scripts cost over the dump of a real kernel, in the page cache: a read of a
global, a C string, listing tasks, dentries and slab objects with drgn's helpers.
Against drgn's own reader and against drgn answering through libkdumpfile.

The dumps are build/guest/vmcore and vmcore-paging; make guest-dump makes them, and
without them this does nothing and says so.
"""

import argparse
import pickle
import sys
from typing import Any, Callable, Dict, List

import harness
import readers
from harness import Contender

from drgn import Program
from drgn.helpers.linux.fs import for_each_mount
from drgn.helpers.linux.list import list_for_each_entry
from drgn.helpers.linux.pid import for_each_task
from drgn.helpers.linux.slab import (
    find_slab_cache,
    slab_cache_for_each_allocated_object,
)
import _drgn
import drgn_fastmem as fm

GUEST = harness.CHECKOUT / "build" / "guest"

FLOOR, OURS, MAPPED = "floor", "drgn-fastmem", "translate=never"
KDUMP, ALONE, COPY = "libkdumpfile", "drgn alone", "plain memcpy"

READS = 2000
SLAB_CACHES = ("kmalloc-64", "filp")
DENTRIES = 20_000
# Directories have type 2 in the bits of DCACHE_ENTRY_TYPE (include/linux/dcache.h,
# Linux 6.1).
DCACHE_ENTRY_TYPE, DCACHE_DIRECTORY_TYPE = 0x700000, 0x200000


def tasks(prog: Program) -> List[Any]:
    """Number and name of each task."""
    return [(task.pid.value_(), task.comm.string_()) for task in for_each_task(prog)]


def dentries(prog: Program) -> List[Any]:
    """The names below the guest's warm tmpfs. Only directories are asked for
    children."""
    found: List[Any] = []
    type_ = prog.type("struct dentry")
    waiting = [mount.mnt.mnt_root.read_() for mount in for_each_mount(prog, src="warm")]
    while waiting and len(found) < DENTRIES:
        parent = waiting.pop()
        head = parent.d_subdirs.address_of_()
        for dentry in list_for_each_entry(type_, head, "d_child"):
            found.append(dentry.d_name.name.string_())
            kind = dentry.d_flags.value_() & DCACHE_ENTRY_TYPE
            if kind == DCACHE_DIRECTORY_TYPE:
                waiting.append(dentry)
    return found


def every_dentry(prog: Program) -> List[Any]:
    """The same, where files are asked for children too."""
    found: List[Any] = []
    waiting = [mount.mnt.mnt_root.read_() for mount in for_each_mount(prog, src="warm")]
    while waiting and len(found) < DENTRIES:
        dentry = waiting.pop()
        found.append(dentry.d_name.name.string_())
        head = dentry.d_subdirs.address_of_()
        waiting += list_for_each_entry("struct dentry", head, "d_child")
    return found


def slab(prog: Program) -> List[Any]:
    """Address and first word of each object in some caches."""
    found = []
    for name in SLAB_CACHES:
        cache = find_slab_cache(prog, name)
        for item in slab_cache_for_each_allocated_object(cache, "unsigned long"):
            found.append((item.value_(), item[0].value_()))
    return found


def open_all(name: str) -> Dict[str, Program]:
    path, debug = str(GUEST / name), str(GUEST / "vmlinux")
    readers.fill_page_cache(path)
    ways: Dict[str, Callable[[], Program]] = {
        OURS: lambda: readers.plugin(path, debug),
        MAPPED: lambda: readers.attached(path, debug, translate="never"),
        KDUMP: lambda: readers.with_libkdumpfile(path, debug),
        ALONE: lambda: readers.alone(path, debug),
    }
    if not _drgn._with_libkdumpfile:
        del ways[KDUMP]
    return {name: way() for name, way in ways.items()}


def check_readers(programs: Dict[str, Program], address: int) -> None:
    for name, prog in programs.items():
        calls = readers.calls_of_a_read(prog, address)
        if (calls >= 1) != (name == ALONE):
            raise RuntimeError(f"{name} makes {calls} read calls a read")


def contenders_of(
    programs: Dict[str, Program], script: Callable[[Program], Any]
) -> List[Contender]:
    return [
        Contender(
            name,
            harness.repeat(script, prog),
            lambda prog=prog: pickle.dumps(script(prog)),
        )
        for name, prog in programs.items()
    ]


def plain_copy(name: str, prog: Program, address: int) -> Program:
    """A Program that copies from the page of address, wherever it is in the file."""
    mem = fm.attach(prog)
    page = address & -4096
    physical = mem.translate(page)
    for segment in mem.segments:
        offset = physical - segment.physical_address
        if 0 <= offset <= segment.file_size - 4096:
            ranges = [(page, 4096, segment.file_offset + offset)]
            return readers.plain_copy(str(GUEST / name), ranges)
    raise RuntimeError(f"{address:#x} is not in the dump")


def read_global(suite: harness.Suite, name: str, programs: Dict[str, Program]) -> Any:
    """read_u64 of what one global holds, over and over."""
    address = programs[ALONE]["init_task"].address_of_().value_()
    check_readers(programs, address)
    addresses = [address] * READS
    everybody = {
        FLOOR: readers.floor(str(GUEST / name)),
        COPY: plain_copy(name, programs[OURS], address),
        **programs,
    }
    contenders = [
        Contender(
            who,
            harness.over(prog.read_u64, addresses),
            None if who == FLOOR else lambda prog=prog: readers.u64s(prog, [address]),
        )
        for who, prog in everybody.items()
    ]
    title = f"{name}: read_u64 of a global"
    return suite.measure(title, contenders, ALONE, operations=READS)


def read_string(suite: harness.Suite, programs: Dict[str, Program]) -> Any:
    """linux_banner, some 150 to 200 characters."""
    address = programs[ALONE].symbol("linux_banner").address
    length = len(programs[OURS].read_c_string(address))
    everybody = {COPY: plain_copy("vmcore", programs[OURS], address), **programs}
    contenders = [
        Contender(
            name,
            harness.over(prog.read_c_string, [address] * 10),
            lambda prog=prog: prog.read_c_string(address),
        )
        for name, prog in everybody.items()
    ]
    title = f"C string of {length} characters"
    return suite.measure(title, contenders, ALONE, operations=10)


def claims(
    suite: harness.Suite, result: harness.Result, faster: float, than_kdump: float
) -> None:
    ratio = result.ratio(ALONE, OURS).median
    suite.claim(f"{result.title}: drgn alone / drgn-fastmem", ratio, faster, ">=")
    if KDUMP in result.seconds:
        ratio = result.ratio(KDUMP, OURS).median
        suite.claim(
            f"{result.title}: libkdumpfile / drgn-fastmem", ratio, than_kdump, ">="
        )


def physical_dump(suite: harness.Suite) -> None:
    programs = open_all("vmcore")
    result = read_global(suite, "vmcore", programs)
    claims(suite, result, 20, 1.4)
    floor = result.ratio(OURS, FLOOR).median
    suite.claim(f"{result.title}: drgn-fastmem / floor", floor, 1.35, "<=")
    above_floor = result.median(OURS) - result.median(FLOOR)
    claims(suite, read_string(suite, programs), 100, 1)
    for title, script, faster, budget in (
        ("tasks", tasks, 8, 5),
        ("names of {} dentries", dentries, 12, 15),
        ("names of {} dentries, files asked for children", every_dentry, None, 15),
        ("{} slab objects", slab, 3.5, 40),
    ):
        number = len(script(programs[OURS]))
        title = title.format(f"{number:,}")
        if script is tasks:
            title = f"{number} tasks"
        contenders = contenders_of(programs, script)
        result = suite.measure(title, contenders, ALONE, budget=budget)
        if faster:
            claims(suite, result, faster, 1)
        show_bound(suite, result, script, programs[OURS], above_floor)


def show_bound(
    suite: harness.Suite,
    result: harness.Result,
    script: Callable[[Program], Any],
    prog: Program,
    above_floor: float,
) -> None:
    """What a script would take if a read cost no more than the floor: the rest is
    drgn's and Python's, and no reader can take it away."""
    mem = fm.attach(prog)
    mem.reset_stats()
    script(prog)
    reads = mem.stats.reads
    seconds = result.median(OURS) - reads * above_floor
    bound = result.median(ALONE) / seconds
    suite.value(
        f"{result.title}: with reads as fast as the floor's",
        bound,
        f"{bound:.3g} times as fast as drgn alone ({reads:,} reads)",
    )


def paging_dump(suite: harness.Suite) -> None:
    """The same kernel, with 66,000 program headers."""
    programs = open_all("vmcore-paging")
    result = read_global(suite, "vmcore-paging", programs)
    suite.claim(
        f"{result.title}: drgn-fastmem / translate=never",
        result.ratio(OURS, MAPPED).median,
        # No slower, with room for noise: both are nearly the floor.
        1.05,
        "<=",
    )


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    missing = [
        name
        for name in ("vmcore", "vmcore-paging", "vmlinux")
        if not (GUEST / name).exists()
    ]
    if missing:
        print(f"skipped: {GUEST} has no {', '.join(missing)} (make guest-dump)")
        return 0
    suite = harness.Suite("dump", readers.PACKAGES)
    if not _drgn._with_libkdumpfile:
        suite.note("this drgn was built without libkdumpfile, so it is not measured")
    physical_dump(suite)
    paging_dump(suite)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
