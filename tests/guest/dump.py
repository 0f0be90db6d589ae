# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Dumps of a real kernel in build/guest, made once.

vmcore: QEMU's dump-guest-memory without paging, RAM as it lies physically.
vmcore-paging: the same moment with paging, a program header for each run of virtual
addresses. vmlinux: what the kernel was built as. guest.json: what they are; it is
written last, so where it is the rest is complete.
"""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import NamedTuple

from . import kernels, machine
from .monitor import Monitor

DIRECTORY = machine.CHECKOUT / "build" / "guest"
SERIES = "6.1"
MEMORY = 1024  # MiB

# Raised when the guest that is dumped changes.
LAYOUT = 2


class Dumps(NamedTuple):
    vmcore: Path
    vmcore_paging: Path
    vmlinux: Path
    about: Path


DUMPS = Dumps(
    DIRECTORY / "vmcore",
    DIRECTORY / "vmcore-paging",
    DIRECTORY / "vmlinux",
    DIRECTORY / "guest.json",
)


def are_made() -> bool:
    try:
        about = json.loads(DUMPS.about.read_text())
        return about["layout"] == LAYOUT and all(path.is_file() for path in DUMPS)
    except (OSError, ValueError, KeyError):
        return False


def make() -> Dumps:
    """Make the dumps unless they are there."""
    if are_made():
        return DUMPS
    kernel = kernels.get(SERIES)
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for path in DUMPS:
        path.unlink(missing_ok=True)
    command = shlex.join([sys.executable, "-m", "tests.guest.load", machine.SHARE])
    print(f"dumping a guest with kernel {kernel.release} to {DIRECTORY}", flush=True)
    started = time.monotonic()
    with machine.Guest(kernel, command, timeout=300, memory=MEMORY) as guest:
        guest.wait_for_file("ready")
        monitor = Monitor(guest.monitor, timeout=120)
        monitor.command("stop")
        for path, paging in ((DUMPS.vmcore, False), (DUMPS.vmcore_paging, True)):
            temporary = path.with_name(path.name + ".new")
            monitor.command(
                "dump-guest-memory", paging=paging, protocol=f"file:{temporary}"
            )
            temporary.rename(path)
        monitor.close()
    DUMPS.vmlinux.symlink_to(kernel.vmlinux)
    about = {
        "layout": LAYOUT,
        "release": kernel.release,
        "version": kernel.version,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "memory_mib": MEMORY,
        "bytes": {
            path.name: path.stat().st_size
            for path in (DUMPS.vmcore, DUMPS.vmcore_paging)
        },
    }
    temporary = DUMPS.about.with_name("guest.json.new")
    temporary.write_text(json.dumps(about, indent=4) + "\n")
    temporary.rename(DUMPS.about)
    print(f"dumped in {time.monotonic() - started:.0f} s", flush=True)
    return DUMPS
