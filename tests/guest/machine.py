# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""A guest: a stock kernel under QEMU without KVM, which sees the host's files.

The guest has the host's root read-only over 9p with a tmpfs over it, so the checkout,
its .venv and the vmlinux are where they are on the host, and nothing that it does is
seen there. Results come back through a directory that both share.

Nothing can hang: the emulator runs under timeout(1), and a panic ends it.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Sequence

from .kernels import Kernel

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent

# In the guest.
SHARE = "/run/share"


class GuestError(Exception):
    """The guest did not do its work. The text has the console's log."""


class Result(NamedTuple):
    status: int
    output: str  # standard output and standard error
    console: str
    seconds: float


def make_initramfs(
    busybox: Path, init: Path, modules: Sequence[Path], path: Path
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "bin").mkdir()
        shutil.copy(busybox, root / "bin" / "busybox")
        (root / "bin" / "busybox").chmod(0o755)
        shutil.copy(init, root / "init")
        (root / "init").chmod(0o755)
        (root / "modules").mkdir()
        for module in modules:
            shutil.copy(module, root / "modules")
        names = sorted(str(p.relative_to(root)) for p in root.rglob("*"))
        with open(path, "wb") as out:
            subprocess.run(
                ["cpio", "-o", "-H", "newc", "--quiet"],
                input="".join(f"{name}\n" for name in names).encode(),
                stdout=out,
                cwd=root,
                check=True,
            )


class Guest:
    """A running guest; a context manager that ends it.

    command: for the shell in the guest, in the checkout.
    """

    def __init__(
        self,
        kernel: Kernel,
        command: str,
        *,
        timeout: float,
        memory: int = 1024,
        env: Dict[str, str] = {},
        share: Optional[Path] = None,
    ) -> None:
        self.kernel = kernel
        self.timeout = timeout
        self._directory = tempfile.TemporaryDirectory(prefix="guest.")
        self.directory = Path(self._directory.name)
        self.share = share or self.directory / "share"
        self.share.mkdir(exist_ok=True)
        self.monitor = self.directory / "monitor"
        self.console_file = self.directory / "console"
        self._process: Optional[subprocess.Popen] = None
        try:
            self._start(command, env, memory)
        except BaseException:
            self.close()
            raise

    def _start(self, command: str, env: Dict[str, str], memory: int) -> None:
        emulator = shutil.which("qemu-system-x86_64")
        if emulator is None:
            raise GuestError(
                "qemu-system-x86_64 is needed to boot a kernel: install qemu-system-x86"
            )
        initramfs = self.directory / "initramfs"
        busybox = shutil.which("busybox")
        if busybox is None:
            raise GuestError("busybox is needed: install busybox-static")
        modules = self.kernel.modules
        make_initramfs(Path(busybox), HERE / "init.sh", modules, initramfs)
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/tmp",
            "LC_ALL": "C.UTF-8",
            "GUEST_VMLINUX": str(self.kernel.vmlinux),
            "GUEST_SERIES": self.kernel.name,
            # The host's files can't be written, and the overlay is memory.
            "PYTHONDONTWRITEBYTECODE": "1",
            **env,
        }
        lines = [f"export {k}={shlex.quote(v)}" for k, v in environment.items()]
        lines.append(f"cd {shlex.quote(str(CHECKOUT))} || exit 126")
        lines.append(command)
        (self.share / "start").write_text("\n".join(lines) + "\n")
        arguments = [emulator, "-nodefaults", "-no-user-config", "-no-reboot"]
        arguments += ["-accel", "tcg,thread=multi", "-cpu", "max"]
        arguments += ["-smp", "2", "-m", str(memory), "-display", "none"]
        arguments += ["-serial", f"file:{self.console_file}"]
        arguments += ["-kernel", str(self.kernel.image), "-initrd", str(initramfs)]
        # A panic resets the machine, and a reset ends the emulator. Slab caches keep
        # their names, so that tests can tell whose objects are whose.
        options = "console=ttyS0 panic=-1 oops=panic loglevel=4 slab_nomerge"
        arguments += ["-append", options]
        arguments += ["-object", "rng-random,id=rng,filename=/dev/urandom"]
        arguments += ["-device", "virtio-rng-pci,rng=rng"]
        for tag, path, options in (
            ("host", "/", ",readonly=on,multidevs=remap"),
            ("share", str(self.share), ""),
        ):
            path = path.replace(",", ",,")
            arguments += [
                "-fsdev",
                f"local,id={tag},path={path},security_model=none{options}",
                "-device",
                f"virtio-9p-pci,fsdev={tag},mount_tag={tag}",
            ]
        # The monitor is for dumps; so is the device, which takes the address of the
        # VMCOREINFO note from the guest.
        arguments += ["-qmp", f"unix:{self.monitor},server=on,wait=off"]
        arguments += ["-device", "vmcoreinfo"]
        # timeout(1) outlives us, so that the emulator never outlives its time.
        self._errors = open(self.directory / "errors", "w+")
        self._process = subprocess.Popen(
            ["timeout", "--kill-after=5", str(self.timeout), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
        )
        self._started = time.monotonic()

    @property
    def console(self) -> str:
        try:
            return self.console_file.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    @property
    def output(self) -> str:
        try:
            return (self.share / "output").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def error(self, text: str) -> GuestError:
        self._errors.seek(0)
        return GuestError(
            f"guest with kernel {self.kernel.release}: {text}\n"
            f"--- emulator\n{self._errors.read()}\n"
            f"--- console\n{self.console}\n--- output\n{self.output}"
        )

    def wait_for_file(self, name: str) -> None:
        """Wait until the guest has made a file in the share."""
        assert self._process is not None
        while not (self.share / name).exists():
            if self._process.poll() is not None:
                raise self.error(f"ended (or {self.timeout:g} s passed) before {name}")
            time.sleep(0.1)

    def wait(self) -> Result:
        """Wait until the command has ended.

        :raises GuestError: if the kernel died before, or time is over.
        """
        assert self._process is not None
        code = self._process.wait(self.timeout + 30)
        seconds = time.monotonic() - self._started
        try:
            status = int((self.share / "status").read_text())
        except (FileNotFoundError, ValueError):
            if code in (124, 137):
                raise self.error(f"did not end in {self.timeout:g} s")
            if "Kernel panic" in self.console:
                raise self.error("kernel panic")
            raise self.error(f"ended without a result (emulator: {code})")
        return Result(status, self.output, self.console, seconds)

    def close(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                # timeout(1) passes it on.
                self._process.terminate()
                try:
                    self._process.wait(10)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            self._process = None
            self._errors.close()
        self._directory.cleanup()

    def __enter__(self) -> "Guest":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def run(kernel: Kernel, command: str, *, timeout: float, **kwargs) -> Result:
    """Boot a guest, run a command in it, and wait for its end."""
    with Guest(kernel, command, timeout=timeout, **kwargs) as guest:
        return guest.wait()
