# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Random reads of a kernel's memory: where its kinds of memory are, and reads there.

A place is a range (address, size) of one kind. Where they are is asked of drgn alone.
"""

import collections
import random
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

from drgn import Program
from drgn.helpers.linux.cpumask import for_each_possible_cpu
from drgn.helpers.linux.mm import for_each_vmap_area, pfn_to_page, phys_to_virt
from drgn.helpers.linux.module import for_each_module, module_address_regions

from compare import Outcome, Read, outcome

PAGE = 4096
VM_IOREMAP = 1  # include/linux/vmalloc.h

# Never mapped: not canonical, with four levels of page tables nor with five.
NOT_CANONICAL = 0x7FFF_FFFF_FFFF_0000


class Range(NamedTuple):
    address: int
    size: int


Places = Dict[str, List[Range]]


def ram(prog: Program, physical: Range) -> List[Range]:
    """The direct map of RAM, whose physical addresses a test knows. Without the first
    page, which x86 does not map."""
    start = phys_to_virt(prog, physical.address + PAGE).value_()
    return [Range(start, physical.size - PAGE)]


def text(prog: Program) -> List[Range]:
    start, end = (prog.symbol(name).address for name in ("_stext", "_etext"))
    return [Range(start, end - start)]


def vmalloc(prog: Program) -> List[Range]:
    """Without the guard page at the end, and without devices."""
    found = []
    for area in for_each_vmap_area(prog):
        vm = area.vm
        if vm and not vm.flags.value_() & VM_IOREMAP and vm.nr_pages.value_():
            size = vm.nr_pages.value_() * prog["PAGE_SIZE"].value_()
            found.append(Range(area.va_start.value_(), size))
    return found


def modules(prog: Program) -> List[Range]:
    return [
        Range(*region)
        for module in for_each_module(prog)
        for region in module_address_regions(module)
        if region[1]
    ]


def vmemmap(prog: Program, physical: Range) -> List[Range]:
    page_size = prog["PAGE_SIZE"].value_()
    start, end = (
        pfn_to_page(prog, address // page_size).value_()
        for address in (physical.address, physical.address + physical.size)
    )
    return [Range(start, end - start)]


def percpu(prog: Program) -> List[Range]:
    """The static part. On x86-64 it begins at 0 in the kernel's image."""
    start, end = (
        prog.symbol(name).address for name in ("__per_cpu_start", "__per_cpu_end")
    )
    return [
        Range(prog["__per_cpu_offset"][cpu].value_() + start, end - start)
        for cpu in for_each_possible_cpu(prog)
    ]


def places(prog: Program, physical: Range) -> Places:
    return {
        "ram": ram(prog, physical),
        "text": text(prog),
        "vmalloc": vmalloc(prog),
        "modules": modules(prog),
        "vmemmap": vmemmap(prog, physical),
        "percpu": percpu(prog),
    }


def random_range(generator: random.Random, ranges: List[Range], limit: int) -> Range:
    """A small range within one of the ranges, each as likely as another."""
    address, size = generator.choice(ranges)
    length = min(size, generator.randint(1, limit))
    return Range(address + generator.randrange(size - length + 1), length)


def crossing(generator: random.Random, ranges: List[Range]) -> Range:
    """A range that crosses an end of one of the ranges, or of a page in it."""
    address, size = generator.choice(ranges)
    edge = generator.choice(
        (address, address + size, (address + generator.randrange(size)) & -PAGE)
    )
    before = generator.choice((1, 4, 8, 100, PAGE))
    return Range((edge - before) % 2**64, before + generator.choice((1, 4, 8, 3000)))


def random_reads(
    places: Places, ram: Range, count: int, seed: int, tags: bool = False
) -> Iterator[Read]:
    """Of all kinds, virtual and physical, good and bad. With tags, some addresses have
    a top byte that aarch64 ignores."""
    generator = random.Random(seed)
    virtual = list(places.values())
    everything = [range_ for ranges in virtual for range_ in ranges]
    methods = {1: "read_u8", 2: "read_u16", 4: "read_u32", 8: "read_u64"}
    physical = [ram]
    for _ in range(count):
        what = generator.random()
        if what < 0.35:
            # Small integers are what most scripts read.
            size = generator.choice((1, 2, 4, 8))
            address = random_range(generator, generator.choice(virtual), 1).address
            if tags and generator.random() < 0.2:
                address = address & 2**56 - 1 | generator.getrandbits(8) << 56
            yield Read(methods[size], address)
        elif what < 0.5:
            yield Read("read", *random_range(generator, generator.choice(virtual), 8192))
        elif what < 0.65:
            yield Read("read", *crossing(generator, everything))
        elif what < 0.8:
            yield Read("read", *random_range(generator, physical, 8192), True)
        elif what < 0.85:
            yield Read("read", *crossing(generator, physical), True)
        elif what < 0.9:
            address = random_range(generator, generator.choice(virtual), 1).address
            yield Read("read_c_string", address, generator.choice((8, 100)))
        else:
            # What no segment holds, and mostly no page table either.
            address = generator.choice(
                (
                    NOT_CANONICAL,
                    ram.address + ram.size + 2**32,
                    2**63 + generator.getrandbits(62),
                    generator.getrandbits(64),
                    # The hole below the kernel's half.
                    0xFF00_0000_0000_0000,
                    2**64 - PAGE - 16,
                )
            )
            size = generator.choice((1, 8, 100, PAGE))
            yield Read("read", address, size, generator.random() < 0.3)


def disagreements(
    one: Any, other: Any, all_reads: Iterable[Read]
) -> Tuple[List[Tuple[Read, Outcome, Outcome]], "collections.Counter[str]"]:
    """(read, expected, found) where they differ; how often each kind of outcome was
    expected."""
    differences = []
    kinds: "collections.Counter[str]" = collections.Counter()
    for read in all_reads:
        expected = outcome(one, read)
        kinds[expected.kind] += 1
        found = outcome(other, read)
        if found != expected:
            differences.append((read, expected, found))
    return differences, kinds
