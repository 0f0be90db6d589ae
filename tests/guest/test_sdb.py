# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""Delphix sdb, unchanged, on a dump of a real kernel: its commands and pipelines print
the same with and without the plugin.

sdb 0.6.0 does not start on a dump without a panic with drgn 0.1.0 or newer: it expects
a ValueError from Program.crashed_thread(), which is a LookupError there. So it runs
with drgn 0.0.33.
"""

import os
import re
import subprocess

import pytest

import venvs

PACKAGES = ("drgn==0.0.33", "sdb-debugger==0.6.0")

# (what is typed, the fewest lines, one that is among them)
COMMANDS = [
    ("threads | count", 1, r"\(unsigned long long\)\d{3}"),
    ("threads | member comm", 300, r'.*"fastmem-0"'),
    ("stacks", 100, r" +context_switch \(inlined\)"),
    ("find_task 1 | stack", 10, r" +__schedule\+0x\w+"),
    ("slabs", 100, r"dentry +192 .*"),
    ("slabs -v", 100, r"0x\w+ dentry .*"),
    ("dmesg", 200, r".*Linux version 6\.1\..*"),
    ("addr init_task | member comm", 1, r'\(char \[16\]\)"swapper/0"'),
    ("find_task 1 | member pid", 1, r"\(pid_t\)1"),
    ("find_task 1 | member mm | deref | member map_count", 1, r"\(int\)\d+"),
    (
        'addr modules | lxlist "struct module" list | member name',
        5,
        r'.*"qemu_fw_cfg"',
    ),
    (
        'addr super_blocks | lxlist "struct super_block" s_list | member s_id',
        20,
        r'.*"tmpfs"',
    ),
    (
        'addr slab_caches | lxlist "struct kmem_cache" list | member name',
        100,
        r'.*"mnt_cache"',
    ),
    ("slabs | count", 1, r"\(unsigned long long\)\d{3}"),
    ("addr init_uts_ns | deref | member name", 5, r".*\.nodename = .*guest.*"),
    (
        "addr init_task | deref | member tasks.next | container_of task_struct tasks"
        " | member comm",
        1,
        r'\(char \[16\]\)"init"',
    ),
]


@pytest.fixture(scope="session")
def sdb():
    return venvs.make("venv-sdb", PACKAGES).with_name("sdb")


def run_sdb(sdb, dumps, command, setting, home):
    """(lines printed, standard error). home is for its history file."""
    process = subprocess.run(
        [sdb, "-q", "-A", "-s", dumps.vmlinux, "-e", command]
        + [dumps.vmlinux, dumps.vmcore],
        env={**os.environ, "DRGN_FASTMEM": setting, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout.splitlines(), process.stderr


@pytest.mark.parametrize("command, fewest, line", COMMANDS)
def test_prints_the_same_with_and_without_the_plugin(
    sdb, dumps, tmp_path, command, fewest, line
):
    expected, errors = run_sdb(sdb, dumps, command, "off", tmp_path)
    assert "drgn_fastmem" not in errors
    assert len(expected) >= fewest
    assert any(re.fullmatch(line, text) for text in expected), expected[:20]
    lines, errors = run_sdb(sdb, dumps, command, "stats", tmp_path)
    assert lines == expected
    counters = re.search(r"drgn_fastmem: .*mapped_reads=(\d+)", errors)
    assert counters is not None, errors
    assert int(counters.group(1)) > 10


def test_many_commands_typed_one_after_the_other(sdb, dumps, tmp_path):
    # One process, as people use it: typed one after the other.
    typed = "".join(f"{command}\n" for command, _, _ in COMMANDS)
    outputs = []
    for setting in ("off", "stats"):
        process = subprocess.run(
            [sdb, "-q", "-A", "-s", dumps.vmlinux, "-", dumps.vmlinux, dumps.vmcore],
            env={**os.environ, "DRGN_FASTMEM": setting, "HOME": str(tmp_path)},
            input=typed,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        outputs.append(process.stdout.splitlines())
    assert len(outputs[0]) > 1000
    assert outputs[1] == outputs[0]
