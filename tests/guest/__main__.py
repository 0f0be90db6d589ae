# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors

"""``python -m tests.guest``: fetch kernels, run a command in a guest, make dumps."""

import argparse
import shlex
import sys

from . import kernels


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.guest")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch the kernels into the cache")
    commands.add_parser("dump", help="make the dumps in build/guest")
    run = commands.add_parser("run", help="run a command in a guest")
    run.add_argument("--kernel", choices=kernels.SERIES, default=kernels.SERIES[0])
    run.add_argument("--timeout", type=float, default=300)
    run.add_argument("--console", action="store_true", help="print the console's log")
    run.add_argument("words", nargs="+", metavar="COMMAND")
    args = parser.parse_args()
    try:
        if args.command == "fetch":
            for series in kernels.chosen_series():
                kernel = kernels.get(series)
                print(f"{series}: {kernel.release} {kernel.version} {kernel.directory}")
        elif args.command == "dump":
            from . import dump, small

            dump.make()
            for name in small.chosen():
                small.make(name)
        else:
            from . import machine

            result = machine.run(
                kernels.get(args.kernel), shlex.join(args.words), timeout=args.timeout
            )
            if args.console:
                print(result.console, file=sys.stderr)
            sys.stdout.write(result.output)
            return result.status
    except Exception as e:
        from . import machine, monitor

        expected = kernels.FetchError, machine.GuestError, monitor.MonitorError
        if not isinstance(e, expected):
            raise
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
