# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""``python -m drgn_fastmem [PATH]``: what would be mapped, what not, and how
drgn would be attached. The place to look first when something is slow."""

import argparse
import sys
from collections import Counter
from typing import List, Optional

import drgn_fastmem
from drgn_fastmem._target import KCORE


def _size(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _print_segments(mem: drgn_fastmem.Memory, limit: int) -> None:
    print(f"{'address':>18} {'size':>10} {'physical':>18} {'kind':8} access")
    for segment in mem.segments[:limit]:
        physical = (
            "-" if segment.physical_address is None else f"{segment.physical_address:#x}"
        )
        print(
            f"{segment.address:#18x} {_size(segment.size):>10} {physical:>18} "
            f"{segment.kind:8} {segment.access}"
        )
    if len(mem.segments) > limit:
        print(f"... and {len(mem.segments) - limit} more")
    total: "Counter[str]" = Counter()
    for segment in mem.segments:
        total[segment.access] += segment.size
    for access, size in sorted(total.items()):
        print(f"{access}: {_size(size)}")


def _drgn() -> str:
    try:
        import _drgn
        import drgn
    except ImportError as e:
        return f"not installed ({e})"
    version = getattr(drgn, "__version__", "of unknown version")
    try:
        with open(_drgn.__file__, "rb") as f:
            native = b"drgn_program_add_memory_segment\0" in f.read()
    except OSError as e:
        return f"{version}, but its module can't be read: {e}"
    how = "native callback" if native else "C callable (it exports no C API)"
    return f"{version}, {how}"


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m drgn_fastmem",
        description="Show how a core file or the running kernel would be read.",
    )
    parser.add_argument("path", nargs="?", default=KCORE, help=f"default: {KCORE}")
    parser.add_argument(
        "--mmap", choices=("try", "never", "always"), default="try", help="default: try"
    )
    parser.add_argument(
        "--limit", type=int, default=40, help="segments to print (default: 40)"
    )
    args = parser.parse_args(argv)
    print(f"drgn-fastmem {drgn_fastmem.__version__}, drgn {_drgn()}")
    try:
        mem = drgn_fastmem.open(args.path, mmap=args.mmap)
    except (OSError, ValueError) as e:
        print(f"{args.path} can't be read: {e}", file=sys.stderr)
        return 1
    with mem:
        order = "little" if mem.is_little_endian else "big"
        bits = 64 if mem.is_64_bit else 32
        live = ", the running kernel" if mem.is_live else ""
        print(f"{args.path}: {bits} bits, {order}-endian{live}")
        print(f"page tables: {mem.translation}")
        _print_segments(mem, args.limit)
        if mem.is_live and all(segment.access == "pread" for segment in mem.segments):
            print(
                "This kernel offers no mmap on /proc/kcore, as no mainline kernel does: "
                "reads cost a system call each."
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
