# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The extension module; everything else is in pyproject.toml."""

import glob
import shlex
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# In the order of the layers: each file includes headers of those above only.
SOURCES = [
    "ext/error.c",
    "ext/file_lock.c",
    "ext/source_file.c",
    "ext/fault_guard.c",
    "ext/fault_guard_copy_x86_64.c",
    "ext/fault_guard_copy_aarch64.c",
    "ext/fault_guard_copy_generic.c",
    "ext/segment_index.c",
    "ext/vmcoreinfo.c",
    "ext/elf_core.c",
    "ext/page_cache.c",
    "ext/mmu_x86_64.c",
    "ext/mmu_aarch64.c",
    "ext/translate.c",
    "ext/tlb.c",
    "ext/planner.c",
    "ext/memory.c",
    "ext/memory_read.c",
    "ext/memory_cache.c",
    "ext/memory_string.c",
    "ext/memory_vector.c",
    "ext/overlay.c",
    "ext/drgn_api.c",
    "ext/py_util.c",
    "ext/py_types.c",
    "ext/py_memory.c",
    "ext/py_snapshot.c",
    "ext/py_vector.c",
    "ext/py_attach.c",
    "ext/module.c",
]

NO_LIBELF = """
drgn-fastmem needs the headers of libelf (elfutils), and pkg-config did not find them:
    {reason}
Install them and try again:
    Debian, Ubuntu:  apt-get install pkg-config libelf-dev
    Fedora, RHEL:    dnf install pkgconf elfutils-libelf-devel
    openSUSE:        zypper install pkg-config libelf-devel
    Arch:            pacman -S pkgconf libelf
"""


def pkg_config(*options):
    try:
        out = subprocess.run(
            ["pkg-config", *options, "libelf"],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
    except FileNotFoundError:
        sys.exit(NO_LIBELF.format(reason="there is no pkg-config"))
    except subprocess.CalledProcessError as e:
        reason = (e.stderr or e.stdout).strip().splitlines() or ["no libelf.pc"]
        sys.exit(NO_LIBELF.format(reason=reason[0]))
    return shlex.split(out.stdout)


class build_ext_with_libelf(build_ext):
    """Asks pkg-config only when there is something to compile."""

    def build_extensions(self):
        for extension in self.extensions:
            extension.extra_compile_args += pkg_config("--cflags")
            extension.extra_link_args += pkg_config("--libs")
        super().build_extensions()


setup(
    ext_modules=[
        Extension(
            "drgn_fastmem._core",
            SOURCES,
            include_dirs=["ext"],
            # Else a build directory that is there already hides their changes.
            depends=sorted(glob.glob("ext/*.h")),
            define_macros=[("_GNU_SOURCE", "1")],
            extra_compile_args=[
                "-std=gnu11",
                "-O2",
                "-fvisibility=hidden",
                "-fno-strict-aliasing",
                "-Wall",
                "-Wextra",
                "-Wno-missing-field-initializers",
                "-pthread",
            ],
            extra_link_args=["-pthread", "-ldl"],
        )
    ],
    cmdclass={"build_ext": build_ext_with_libelf},
)
