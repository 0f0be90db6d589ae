# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""The same drgn script over the same memory, with drgn's own reader and with
drgn-fastmem: are the answers the same, and what did they cost?

Reads /proc/kcore if it can be read and drgn finds debugging symbols for it;
else the dump given with --dump and --vmlinux; else the core file of a small
program of ours, made on the spot with gcore.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import scripts

HERE = os.path.dirname(os.path.abspath(__file__))
KCORE = "/proc/kcore"


def open_program(target):
    """A Program of drgn's for the target, and the scripts to run over it."""
    import drgn

    prog = drgn.Program()
    if target["core"] == KCORE:
        prog.set_kernel()
        prog.load_debug_info(default=not target["debug"], paths=target["debug"])
    else:
        prog.set_core_dump(target["core"])
        prog.load_debug_info(target["debug"])
    is_kernel = bool(prog.flags & drgn.ProgramFlags.IS_LINUX_KERNEL)
    return prog, scripts.KERNEL if is_kernel else scripts.OBJECTS


def run_one(target, output):
    """In a process of its own: run the scripts, print what they cost."""
    import drgn_fastmem as fm

    prog, todo = open_program(target)
    attachment = fm.attachment(prog)
    reads = None
    if attachment is not None:
        fm.attach(prog).reset_stats()
    start = time.perf_counter()
    with open(output, "w") as file:
        for script in todo:
            for line in script(prog):
                print(line, file=file)
    seconds = time.perf_counter() - start
    if attachment is not None:
        reads = fm.attach(prog).stats.reads
    print(json.dumps({"seconds": seconds, "reads": reads, "attachment": attachment}))


def child(target, output, setting, strace=None):
    command = [sys.executable, os.path.abspath(__file__), "--run", json.dumps(target), output]
    if strace:
        # strace -c -f: the calls of all threads, counted, not printed.
        command = ["strace", "-c", "-f", "-o", strace, *command]
    result = subprocess.run(
        command,
        env={**os.environ, "DRGN_FASTMEM": setting},
        stdout=subprocess.PIPE,
        universal_newlines=True,
    )
    if result.returncode:
        raise SystemExit(f"the script failed with DRGN_FASTMEM={setting!r}")
    return json.loads(result.stdout)


def count_calls(path, names=("pread64",)):
    """Calls of the table that strace -c wrote: % seconds usecs calls name."""
    calls = 0
    with open(path) as file:
        for line in file:
            words = line.split()
            if words and words[-1] in names:
                calls += int(words[3])
    return calls


def make_core(directory):
    """The core file of objects.c, with its program beside it."""
    program = os.path.join(directory, "objects")
    core = os.path.join(directory, "objects.core")
    if os.path.exists(core):
        return core, program
    os.makedirs(directory, exist_ok=True)
    cc = os.environ.get("CC", "cc")
    subprocess.check_call(
        [cc, "-g", "-O1", "-o", program, os.path.join(HERE, "objects.c")]
    )
    process = subprocess.Popen([program], stdout=subprocess.PIPE)
    try:
        if process.stdout.readline() != b"ready\n":
            raise SystemExit("objects.c did not get ready")
        subprocess.check_call(
            ["gcore", "-o", core + ".new", str(process.pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.CalledProcessError) as e:
        raise SystemExit(f"gcore (package gdb) made no core file: {e}")
    finally:
        process.kill()
        process.wait()
    # A core file that has its name is a whole one.
    os.rename(f"{core}.new.{process.pid}", core)
    return core, program


def kcore_target():
    """/proc/kcore, if it can be read and drgn has symbols for it."""
    try:
        with open(KCORE, "rb") as file:
            file.read(4)
    except OSError as e:
        print(f"{KCORE} can't be read: {e.strerror}")
        return None
    target = {"core": KCORE, "debug": []}
    try:
        prog, _ = open_program(target)
        prog["init_task"]
    except Exception as e:
        print(f"{KCORE} can be read, but not understood: {e}")
        return None
    return target


def choose_target(args):
    target = kcore_target()
    if target is None and args.dump:
        target = {"core": args.dump, "debug": [args.vmlinux] if args.vmlinux else []}
    if target is None:
        core, program = make_core(args.build)
        target = {"core": core, "debug": [program]}
    return target


def compare(target, directory):
    outputs = {}
    rows = []
    for name, setting in (("drgn", "off"), ("drgn-fastmem", "")):
        output = os.path.join(directory, name)
        # The best of three: the first one fills the page cache for both.
        runs = [child(target, output, setting) for _ in range(3)]
        result = min(runs, key=lambda run: run["seconds"])
        trace = os.path.join(directory, "strace")
        child(target, output, setting, strace=trace)
        result["calls"] = count_calls(trace)
        with open(output, "rb") as file:
            outputs[name] = file.read()
        rows.append((name, result))
    return outputs, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump")
    parser.add_argument("--vmlinux")
    parser.add_argument("--build", default="build/demo")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        return run_one(json.loads(args.run[0]), args.run[1])
    target = choose_target(args)
    print(f"Reading {target['core']} with one script, once through each reader.")
    with tempfile.TemporaryDirectory() as directory:
        outputs, rows = compare(target, directory)
    lines = outputs["drgn"].splitlines()
    for line in lines[:4]:
        print("   ", line.decode(errors="replace"))
    if len(lines) > 4:
        print(f"    ... {len(lines)} lines")
    same = outputs["drgn"] == outputs["drgn-fastmem"]
    base = rows[0][1]["seconds"]
    # What one asks is what the other asks: drgn does not count.
    reads = rows[1][1]["reads"]
    print(f"{'reader':14} {'seconds':>8} {'reads':>10} {'pread calls':>12} {'faster':>7}")
    for name, result in rows:
        print(
            f"{name:14} {result['seconds']:8.2f} {reads:10,} {result['calls']:12,} "
            f"{base / result['seconds']:6.1f}x"
        )
    print(f"attached: {rows[1][1]['attachment']}")
    if rows[1][1]["attachment"] is None:
        print("drgn-fastmem did not attach")
        return 1
    print("the answers are the same" if same else "THE ANSWERS DIFFER")
    return 0 if same and lines else 1


if __name__ == "__main__":
    sys.exit(main())
