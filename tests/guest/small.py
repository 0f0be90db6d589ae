# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Small physical dumps of kernels whose page tables are of other kinds: aarch64 with
each geometry that Debian's kernels have, and x86-64 without a fifth level.

The guest is a kernel, busybox, and nothing else. Dumps are made once, into
build/guest/small/NAME/vmcore.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Tuple

from . import kernels, machine
from .monitor import Monitor

DIRECTORY = machine.CHECKOUT / "build" / "guest" / "small"
MEMORY = 512  # MiB
TIMEOUT = 180

# Raised when the guest that is dumped changes.
LAYOUT = 1


class Variant(NamedTuple):
    kernel: str
    cpu: str
    options: str  # of the kernel
    # What a Memory of the dump says of its translation.
    translation: str


# Linux's rodata=off leaves the direct map in blocks and contiguous ranges (arch/arm64/
# mm/mmu.c, can_set_direct_map); on 6.12 KFENCE would split it, unless it allocates its
# pool early.
_BLOCKS = "rodata=off kfence.sample_interval=100"

# With 52 bits of address; the other way of signing pointers takes minutes.
_LPA2 = "max,pauth-impdef=on"
_KIB_4, _KIB_16 = (f"aarch64, {size} KiB granule, " for size in (4, 16))

VARIANTS: Dict[str, Variant] = {
    "x86_64-4-levels": Variant("6.12", "max,la57=off", "", "x86-64, 4 levels"),
    "aarch64-48-bit": Variant("6.1-cloud-arm64", "max", "", _KIB_4 + "48 bits"),
    "aarch64-52-bit": Variant(
        "6.12-cloud-arm64", _LPA2, "", _KIB_4 + "52 bits"
    ),
    "aarch64-48-of-52-bit": Variant(
        "6.12-cloud-arm64", "cortex-a57", "", _KIB_4 + "48 bits"
    ),
    "aarch64-16k-52-bit": Variant(
        "6.12-arm64-16k", _LPA2, "", _KIB_16 + "52 bits"
    ),
    "aarch64-16k-47-bit": Variant(
        "6.12-arm64-16k", "cortex-a76", "", _KIB_16 + "47 bits"
    ),
    "aarch64-48-bit-blocks": Variant(
        "6.1-cloud-arm64", "max", _BLOCKS, _KIB_4 + "48 bits"
    ),
    "aarch64-52-bit-blocks": Variant(
        "6.12-cloud-arm64", _LPA2, _BLOCKS, _KIB_4 + "52 bits"
    ),
}

# One of each architecture; the others need up to 1 GB of debug packages each.
USUAL = ("x86_64-4-levels", "aarch64-52-bit")


class Dump(NamedTuple):
    name: str
    variant: Variant
    vmcore: Path
    vmlinux: Path
    # Of RAM: physical address and size, in bytes.
    ram: Tuple[int, int]


def chosen() -> Tuple[str, ...]:
    """The dumps to test: GUEST_DUMPS=all, a comma list of names, or the usual ones."""
    text = os.environ.get("GUEST_DUMPS", "")
    if text == "all":
        return tuple(VARIANTS)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in VARIANTS:
            raise ValueError(f"GUEST_DUMPS: {name!r} is not one of {list(VARIANTS)}")
    return names or USUAL


def _arguments(variant: Variant, kernel: kernels.Kernel) -> "list[str]":
    architecture = kernels.FLAVOURS[kernel.name].architecture
    if architecture == "arm64":
        name, package = "qemu-system-aarch64", "qemu-system-arm"
        options, console = ["-machine", "virt"], "ttyAMA0"
    else:
        name, package = "qemu-system-x86_64", "qemu-system-x86"
        options, console = [], "ttyS0"
    emulator = shutil.which(name)
    if emulator is None:
        raise machine.GuestError(f"{name} is needed: install {package}")
    command_line = f"console={console} panic=-1 loglevel=4 {variant.options}"
    arguments = [emulator, "-nodefaults", "-no-user-config", "-no-reboot"]
    arguments += options
    arguments += ["-accel", "tcg,thread=multi", "-cpu", variant.cpu, "-smp", "2"]
    arguments += ["-m", str(MEMORY), "-display", "none", "-append", command_line]
    return arguments + ["-kernel", str(kernel.image), "-device", "vmcoreinfo"]


def _boot_and_dump(variant: Variant, kernel: kernels.Kernel, vmcore: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="guest.") as name:
        directory = Path(name)
        machine.make_initramfs(
            kernels.busybox(kernels.FLAVOURS[kernel.name].architecture),
            machine.HERE / "small-init.sh",
            kernel.modules,
            directory / "initramfs",
        )
        console = directory / "console"
        arguments = _arguments(variant, kernel)
        arguments += ["-initrd", str(directory / "initramfs")]
        arguments += ["-serial", f"file:{console}"]
        arguments += ["-qmp", f"unix:{directory}/monitor,server=on,wait=off"]
        with open(directory / "errors", "w+") as errors:
            process = subprocess.Popen(
                ["timeout", "--kill-after=5", str(TIMEOUT), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
            try:
                while "guest: ready" not in _text(console):
                    if process.poll() is not None:
                        errors.seek(0)
                        raise machine.GuestError(
                            f"guest with kernel {kernel.release} did not come up\n"
                            f"{errors.read()}{_text(console)}"
                        )
                    time.sleep(0.1)
                monitor = Monitor(directory / "monitor", timeout=120)
                monitor.command("stop")
                monitor.command(
                    "dump-guest-memory", paging=False, protocol=f"file:{vmcore}"
                )
                monitor.close()
            finally:
                process.terminate()
                process.wait()


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _load(name: str) -> Optional[Dump]:
    directory = DIRECTORY / name
    try:
        about = json.loads((directory / "guest.json").read_text())
        if about["layout"] != LAYOUT:
            return None
    except (OSError, ValueError, KeyError):
        return None
    variant = VARIANTS[name]
    vmlinux = kernels.get(variant.kernel).vmlinux
    # Where QEMU 7.2 puts RAM: hw/arm/virt.c, base_memmap; hw/i386/pc.c.
    start = 0x40000000 if "arm64" in variant.kernel else 0
    return Dump(name, variant, directory / "vmcore", vmlinux, (start, MEMORY << 20))


def make(name: str) -> Dump:
    """Make a dump unless it is there."""
    dump = _load(name)
    if dump is None:
        variant = VARIANTS[name]
        kernel = kernels.get(variant.kernel)
        directory = DIRECTORY / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        _boot_and_dump(variant, kernel, directory / "vmcore")
        about = {"layout": LAYOUT, "release": kernel.release, **variant._asdict()}
        (directory / "guest.json").write_text(json.dumps(about, indent=4) + "\n")
        dump = _load(name)
        assert dump is not None
    return dump


def main() -> None:
    for name in sys.argv[1:] or chosen():
        started = time.monotonic()
        print(f"{make(name).vmcore} ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
