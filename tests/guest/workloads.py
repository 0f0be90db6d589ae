# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Scripts over drgn's own helpers, such as people write. Each yields lines.

    python -m tests.guest.workloads NAME... [--dump FILE] --vmlinux FILE

Without --dump the target is the running kernel. There most of memory changes while
it is read, so with --still only that is listed which nobody changes: tasks that are
asleep for good (named fastmem-...), caches in which nobody allocates, the tmpfs
trees that were made for the purpose (their source is warm).
"""

import argparse
import itertools
import sys
from typing import Callable, Dict, Iterator, Optional

from drgn import FaultError, Object, Program, cast
from drgn.helpers.linux.cpumask import for_each_possible_cpu
from drgn.helpers.linux.fs import (
    dentry_path,
    for_each_mount,
    inode_path,
    mount_dst,
    mount_fstype,
    mount_src,
)
from drgn.helpers.linux.list import hlist_for_each_entry, list_for_each_entry
from drgn.helpers.linux.module import (
    for_each_module,
    module_address_regions,
    module_percpu_region,
    module_taints,
)
from drgn.helpers.linux.kallsyms import module_kallsyms
from drgn.helpers.linux.mm import for_each_page
from drgn.helpers.linux.percpu import per_cpu, per_cpu_ptr
from drgn.helpers.linux.pid import for_each_task
from drgn.helpers.linux.slab import (
    find_slab_cache,
    for_each_slab_cache,
    slab_cache_for_each_allocated_object,
    slab_cache_objects_per_slab,
    slab_cache_usage,
)

Workload = Callable[[Program, bool], Iterator[str]]

# The names that a guest's load gives itself.
PREFIX = b"fastmem-"
WARM = b"warm"


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _is_still(task: Object) -> bool:
    return task.comm.string_().startswith(PREFIX)


def tasks(prog: Program, still: bool) -> Iterator[str]:
    for task in for_each_task(prog):
        if still and not _is_still(task):
            continue
        line = [
            str(task.pid.value_()),
            str(task.tgid.value_()),
            _text(task.comm.string_()),
            f"parent={task.real_parent.pid.value_()}",
            f"state={task.__state.value_()}",
            f"prio={task.prio.value_()}",
            f"start={task.start_time.value_()}",
        ]
        if task.mm:
            line.append(f"mm={task.mm.value_():#x} vmas={task.mm.map_count.value_()}")
        yield " ".join(line)


# In this one no object is made or freed once a guest is up.
STILL_CACHE = "Acpi-Operand"


def slab(prog: Program, still: bool) -> Iterator[str]:
    if still:
        names = (STILL_CACHE,)
    else:
        names = (STILL_CACHE, "mnt_cache", "shmem_inode_cache", "dentry", "task_struct")
        names += ("kmalloc-64", "filp")
        for cache in for_each_slab_cache(prog):
            usage = slab_cache_usage(cache)
            yield (
                f"{_text(cache.name.string_())} {cache.object_size.value_()} "
                f"{usage.num_objs} {usage.active_objs} {usage.free_objs}"
            )
    for name in names:
        cache = find_slab_cache(prog, name)
        if cache is None:
            yield f"{name}: none"
            continue
        size = slab_cache_objects_per_slab(cache)
        yield f"{name}: {size} objects a slab"
        objects = slab_cache_for_each_allocated_object(cache, "unsigned long")
        for address in sorted(o.value_() for o in objects):
            # The first word of the object too.
            yield f"{address:#x} {prog.read_u64(address):#x}"


def _children(dentry: Object) -> Iterator[Object]:
    # Linux commit da549bdd15c2 ("dentry: switch the lists of children to hlist")
    # (in v6.8) renamed both members.
    if dentry.prog_.type("struct dentry").has_member("d_children"):
        yield from hlist_for_each_entry(
            "struct dentry", dentry.d_children.address_of_(), "d_sib"
        )
    else:
        yield from list_for_each_entry(
            "struct dentry", dentry.d_subdirs.address_of_(), "d_child"
        )


def dentries(prog: Program, still: bool) -> Iterator[str]:
    roots = []
    for mount in for_each_mount(prog):
        source = mount_src(mount)
        if not still or source.startswith(WARM):
            yield (
                f"{mount.value_():#x} {_text(source)} {_text(mount_dst(mount))} "
                f"{_text(mount_fstype(mount))} {mount.mnt.mnt_flags.value_():#x}"
            )
        if source == WARM:
            roots.append(mount.mnt.mnt_root)
    for root in roots:
        waiting = [root.read_()]
        number = 0
        while waiting:
            dentry = waiting.pop()
            inode = dentry.d_inode
            line = f"{dentry.value_():#x} {_text(dentry.d_name.name.string_())}"
            if inode:
                line += f" {inode.i_ino.value_()} {inode.i_size.value_()}"
            number += 1
            if number % 50 == 0:
                line += f" {_text(dentry_path(dentry))}"
                if inode:
                    line += f" {_text(inode_path(inode) or b'')}"
            yield line
            # A negative dentry has none.
            if inode:
                waiting += [child.read_() for child in _children(dentry)]


def modules(prog: Program, still: bool) -> Iterator[str]:
    for module in for_each_module(prog):
        yield (
            f"{module.value_():#x} {_text(module.name.string_())} "
            f"{module.state.value_()} {module_taints(module)} "
            f"{module.refcnt.counter.value_()} {module_percpu_region(module)}"
        )
        for start, size in module_address_regions(module):
            yield f"  {start:#x} {size}"
        for symbol in sorted(module_kallsyms(module), key=lambda s: (s.address, s.name)):
            yield f"  {symbol.address:#x} {symbol.size} {symbol.name}"


def _frames(task: Object) -> Iterator[str]:
    try:
        trace = task.prog_.stack_trace(task)
    except FaultError as e:
        # A zombie, whose stack is gone. The text of a fault may be another's.
        yield f"  fault at {e.address:#x}"
        return
    except ValueError as e:
        # A task that is running, in a live kernel.
        yield f"  {e}"
        return
    for frame in trace:
        registers = sorted(frame.registers().items())
        values = " ".join(f"{name}={value:#x}" for name, value in registers)
        yield f"  {frame.name} {frame.pc:#x} {values}"


def percpu(prog: Program, still: bool) -> Iterator[str]:
    for cpu in for_each_possible_cpu(prog):
        yield f"cpu {cpu} offset {prog['__per_cpu_offset'][cpu].value_():#x}"
        yield f"  this_cpu_off {per_cpu(prog['this_cpu_off'], cpu).value_():#x}"
        info = per_cpu(prog["cpu_info"], cpu)
        yield f"  {_text(info.x86_model_id.string_())} {info.cpu_index.value_()}"
        queue = per_cpu(prog["runqueues"], cpu)
        yield f"  idle {_text(queue.idle.comm.string_())} rq {queue.cpu.value_()}"
        for cache in for_each_slab_cache(prog):
            pointer = per_cpu_ptr(cache.cpu_slab, cpu)
            if still:
                yield f"  {_text(cache.name.string_())} {pointer.value_():#x}"
            else:
                yield (
                    f"  {_text(cache.name.string_())} {pointer.value_():#x} "
                    f"{pointer.tid.value_()} {cast('unsigned long', pointer.freelist)!s}"
                )
    for task in for_each_task(prog):
        if not still or _is_still(task):
            yield f"{task.pid.value_()} {_text(task.comm.string_())}"
            yield from _frames(task)


NR_PAGES = 100_000
# enum pageflags, Linux 6.1 and 6.12: what is reserved stays as it is.
PG_RESERVED = "PG_reserved"


def pages(prog: Program, still: bool) -> Iterator[str]:
    """One field of each of the first struct pages."""
    reserved = 1 << prog[PG_RESERVED].value_()
    number = 0
    for page in itertools.islice(for_each_page(prog), NR_PAGES):
        flags = page.flags.value_()
        number += 1
        if flags & reserved or not still:
            yield f"{page.value_():#x} {flags:#x}"
    yield f"{number} pages"


WORKLOADS: Dict[str, Workload] = {
    "tasks": tasks,
    "slab": slab,
    "dentries": dentries,
    "modules": modules,
    "percpu": percpu,
    "pages": pages,
}


def open_program(dump: Optional[str], vmlinux: str) -> Program:
    prog = Program()
    if dump is None:
        prog.set_kernel()
    else:
        prog.set_core_dump(dump)
    prog.load_debug_info([vmlinux])
    return prog


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.guest.workloads")
    parser.add_argument("names", nargs="+", choices=WORKLOADS, metavar="NAME")
    parser.add_argument("--dump", help="default: the running kernel")
    parser.add_argument("--vmlinux", required=True)
    parser.add_argument("--still", action="store_true", help="only what stays as it is")
    args = parser.parse_args()
    prog = open_program(args.dump, args.vmlinux)
    for name in args.names:
        print(f"== {name}")
        for line in WORKLOADS[name](prog, args.still):
            print(line)


if __name__ == "__main__":
    sys.exit(main())
