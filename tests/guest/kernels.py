# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Debian's stock kernels, fetched with apt and unpacked into a cache.

For each flavour one kernel is kept: its image, its vmlinux with DWARF, and the few
modules that a guest loads. A kernel that is in the cache is used as it is, without
the network, even when the archive has a newer one by now. Nothing is installed, and
the packages of another architecture are found without telling the system of it.
"""

import contextlib
import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator, List, NamedTuple, Tuple

# 6.1 is the kernel of bookworm; bookworm-security has 6.12 too. Of these the tests
# that run in a guest boot the generic x86-64 kernels.
SERIES = ("6.1", "6.12")


class Flavour(NamedTuple):
    series: str
    architecture: str  # of Debian
    suffix: str  # of the release
    # What a guest loads, without what these depend on.
    modules: Tuple[str, ...]


# 9p for the host's files, overlay to write over them, qemu_fw_cfg to tell QEMU where
# the VMCOREINFO note is. The cloud flavours have no 9p.
_GENERIC = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "qemu_fw_cfg")
_DUMPED = ("qemu_fw_cfg",)

FLAVOURS = {
    "6.1": Flavour("6.1", "amd64", "amd64", _GENERIC),
    "6.12": Flavour("6.12", "amd64", "amd64", _GENERIC),
    "6.1-cloud-arm64": Flavour("6.1", "arm64", "cloud-arm64", _DUMPED),
    "6.12-cloud-arm64": Flavour("6.12", "arm64", "cloud-arm64", _DUMPED),
    "6.12-arm64-16k": Flavour("6.12", "arm64", "arm64-16k", _DUMPED),
}

# Raised when what is kept in the cache changes.
LAYOUT = 1


class FetchError(Exception):
    """A kernel could not be had. The text says why."""


class Kernel(NamedTuple):
    name: str  # of the flavour
    release: str  # uname -r
    version: str  # of the Debian package
    directory: Path

    @property
    def image(self) -> Path:
        return self.directory / "vmlinuz"

    @property
    def vmlinux(self) -> Path:
        return self.directory / "vmlinux"

    @property
    def modules(self) -> List[Path]:
        """In the order in which they can be loaded."""
        return sorted((self.directory / "modules").iterdir())


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "drgn-fastmem"


def chosen_series() -> Tuple[str, ...]:
    """The series to test: GUEST_KERNELS=6.1,6.12, or all."""
    text = os.environ.get("GUEST_KERNELS", "")
    chosen = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in chosen:
        if name not in SERIES:
            raise ValueError(
                f"GUEST_KERNELS: {name!r} is not one of {', '.join(SERIES)}"
            )
    return chosen or SERIES


def get(name: str) -> Kernel:
    """The kernel of a flavour, fetched if it is not in the cache.

    :raises FetchError: if it can't be had.
    """
    if name not in FLAVOURS:
        raise ValueError(f"there is no kernel {name!r}, only {', '.join(FLAVOURS)}")
    directory = cache_directory() / "kernels" / name
    try:
        return _load(name, directory)
    except (OSError, ValueError, KeyError):
        pass
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.parent / "lock"):
        # Another process may have fetched it meanwhile.
        try:
            return _load(name, directory)
        except (OSError, ValueError, KeyError):
            pass
        for old in directory.parent.glob(f".{name}.*"):
            shutil.rmtree(old)
        with tempfile.TemporaryDirectory(
            prefix=f".{name}.", dir=directory.parent
        ) as work:
            new = _fetch(FLAVOURS[name], Path(work))
            if directory.exists():
                shutil.rmtree(directory)
            new.rename(directory)
        return _load(name, directory)


def _load(name: str, directory: Path) -> Kernel:
    about = json.loads((directory / "kernel.json").read_text())
    if about["layout"] != LAYOUT:
        raise ValueError("made by another version of this program")
    kernel = Kernel(name, about["release"], about["version"], directory)
    if not kernel.image.is_file() or not kernel.vmlinux.is_file():
        raise ValueError("incomplete")
    return kernel


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(*command: "str | Path", **kwargs) -> str:
    try:
        return subprocess.run(
            [str(word) for word in command],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            **kwargs,
        ).stdout
    except FileNotFoundError as e:
        raise FetchError(
            f"{command[0]} is needed to fetch a kernel: {e}; "
            "kernels are fetched on Debian 12"
        )
    except subprocess.CalledProcessError as e:
        raise FetchError(
            f"{' '.join(map(str, command))}: exit status {e.returncode}\n{e.stderr}"
        )


class Apt:
    """apt's commands for the packages of one architecture."""

    def __init__(self, architecture: str) -> None:
        self._options: List[str] = []
        self.may_update = os.geteuid() == 0
        if architecture == _run("dpkg", "--print-architecture").strip():
            return
        # With lists of its own, which anybody may update.
        self.may_update = True
        state = cache_directory() / f"apt-{architecture}"
        for name in ("lists/partial", "cache/archives/partial"):
            (state / name).mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        for option in (
            f"APT::Architecture={architecture}",
            f"APT::Architectures={architecture}",
            f"Dir::State::Lists={state}/lists",
            f"Dir::State::status={state}/status",
            f"Dir::Cache={state}/cache",
        ):
            self._options += ["-o", option]

    def cache(self, *words: str) -> str:
        return _run("apt-cache", *self._options, *words)

    def update(self) -> None:
        _run("apt-get", *self._options, "-qq", "update")

    def download(self, directory: Path, *packages: str) -> None:
        command = ["apt-get", *self._options, "download", *packages]
        try:
            _run(*command, cwd=directory)
        except FetchError:
            # The list of packages may be older than the archive.
            if not self.may_update:
                raise
            self.update()
            _run(*command, cwd=directory)


def _available(apt: Apt, flavour: Flavour) -> List[Tuple[str, str, str]]:
    """(version, release, package) of each image that has a debug package of the
    same version."""
    series = re.escape(flavour.series)
    pattern = rf"linux-image-({series}\.[0-9.]+[-+~.a-z0-9]*-{flavour.suffix})(-dbg)?"
    names = []
    for line in apt.cache(
        "search", "--names-only", f"^linux-image-{series}"
    ).splitlines():
        name = line.split()[0]
        if re.fullmatch(pattern, name) and not (
            re.search(r"-(rt|cloud)-", name) and "cloud" not in flavour.suffix
        ):
            names.append(name)
    if not names:
        return []
    versions = set()
    for line in apt.cache("madison", *names).splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) == 3 and words[2].endswith("Packages"):
            versions.add((words[0], words[1]))
    return [
        (version, name[len("linux-image-") :], name)
        for name, version in versions
        if not name.endswith("-dbg") and (f"{name}-dbg", version) in versions
    ]


def _newest(available: List[Tuple[str, str, str]]) -> Tuple[str, str, str]:
    def order(a: Tuple[str, str, str], b: Tuple[str, str, str]) -> int:
        for relation, value in (("lt", -1), ("gt", 1)):
            command = ["dpkg", "--compare-versions", a[0], relation, b[0]]
            if subprocess.call(command) == 0:
                return value
        return 0

    return max(available, key=functools.cmp_to_key(order))


def _fetch(flavour: Flavour, work: Path) -> Path:
    apt = Apt(flavour.architecture)
    available = _available(apt, flavour)
    if not available and apt.may_update:
        apt.update()
        available = _available(apt, flavour)
    if not available:
        raise FetchError(
            f"apt knows no linux-image-{flavour.series}.*-{flavour.suffix} with a debug "
            "package of the same version; is this Debian 12 with bookworm-security, and "
            "was 'apt-get update' run?"
        )
    version, release, package = _newest(available)
    print(
        f"fetching Debian's kernel {release} {version} (up to 1 GB, once, into "
        f"{work.parent})",
        flush=True,
    )
    apt.download(work, f"{package}={version}", f"{package}-dbg={version}")
    (image_deb,) = work.glob(f"{package}_*.deb")
    (debug_deb,) = work.glob(f"{package}-dbg_*.deb")
    _run("dpkg-deb", "-x", image_deb, work / "image")
    new = work / "new"
    new.mkdir()
    shutil.copy(work / "image" / "boot" / f"vmlinuz-{release}", new / "vmlinuz")
    _copy_modules(work / "image", release, flavour.modules, new / "modules")
    _unpack_vmlinux(debug_deb, release, new / "vmlinux")
    (new / "kernel.json").write_text(
        json.dumps({"layout": LAYOUT, "release": release, "version": version}) + "\n"
    )
    return new


def busybox(architecture: str) -> Path:
    """A static busybox of an architecture, fetched if it is not in the cache."""
    path = cache_directory() / f"busybox-{architecture}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        apt = Apt(architecture)
        with tempfile.TemporaryDirectory(dir=path.parent) as work:
            if apt.may_update and not apt.cache("madison", "busybox-static"):
                apt.update()
            apt.download(Path(work), "busybox-static")
            (deb,) = Path(work).glob("busybox-static_*.deb")
            _run("dpkg-deb", "-x", deb, f"{work}/unpacked")
            os.rename(f"{work}/unpacked/bin/busybox", path)
    return path


def _copy_modules(
    root: Path, release: str, names: Tuple[str, ...], destination: Path
) -> None:
    _run("depmod", "-b", root, release)
    paths: List[str] = []
    for name in names:
        for line in _run(
            "modprobe", "-d", root, "-S", release, "--show-depends", name
        ).splitlines():
            words = line.split()
            # The other word is "builtin".
            if words[0] == "insmod" and words[1] not in paths:
                paths.append(words[1])
    destination.mkdir()
    for number, path in enumerate(paths):
        name = os.path.basename(path)
        target = destination / f"{number:02}-{name}"
        shutil.copy(path, target)
        if name.endswith(".xz"):
            _run("xz", "-d", target)


def _unpack_vmlinux(deb: Path, release: str, target: Path) -> None:
    """Of the gigabytes in the debug package one file. It is among the first, and
    tar stops there."""
    member = f"./usr/lib/debug/boot/vmlinux-{release}"
    with open(target, "wb") as out, subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(deb)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as unpacker:
        code = subprocess.call(
            ["tar", "-xOf", "-", "--occurrence=1", member],
            stdin=unpacker.stdout,
            stdout=out,
        )
        assert unpacker.stdout is not None
        unpacker.stdout.close()
    if code != 0 or target.stat().st_size == 0:
        raise FetchError(f"{deb.name} has no {member}")
