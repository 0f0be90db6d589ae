# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Dumps of a real kernel in build/guest, made once.

vmcore: QEMU's dump-guest-memory without paging, RAM as it lies physically.
vmcore-paging: the same moment with paging, a program header for each run of virtual
addresses. vmlinux: what the kernel was built as. guest.json: what they are; it is
written last, so where it is the rest is complete.

The protocol is QMP (QEMU 7.2, docs/interop/qmp-spec.txt and qapi/dump.json).
"""

import json
import shlex
import socket
import sys
import time
from pathlib import Path
from typing import Any, Dict, NamedTuple

from . import kernels, machine

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


class _Monitor:
    """QEMU's side of a QMP socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rw")
        self._message()
        self.command("qmp_capabilities")

    def _message(self) -> Dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise machine.GuestError("the emulator closed its monitor")
        return json.loads(line)

    def command(self, name: str, **arguments: Any) -> Any:
        request = {"execute": name, "arguments": arguments}
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        while True:
            message = self._message()
            if "error" in message:
                raise machine.GuestError(f"{name}: {message['error']['desc']}")
            # Others are events.
            if "return" in message:
                return message["return"]

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


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
        monitor = _Monitor(guest.monitor, timeout=120)
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
