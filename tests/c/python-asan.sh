#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors
#
# The extension under AddressSanitizer and UBSan, driven by the Python tests of
# lifetimes, bad input and answers. Python itself is not instrumented, so leaks
# are not looked for: test_lifetime.py counts descriptors and mappings.
# Ends with "N passed, N failed, N skipped".

set -eu
cd "$(dirname "$0")/../.."

python=$PWD/.venv/bin/python
target=$PWD/build/asan-python
sanitizers=-fsanitize=address,undefined

# Where the tests were not reached, that is what failed.
trap 'echo "0 passed, 1 failed, 0 skipped"; exit 1' EXIT

# From a copy: objects of an ordinary build would be used as they are.
rm -rf "$target"
mkdir -p "$target/source"
cp -r setup.py pyproject.toml MANIFEST.in README.md LICENSE ext python "$target/source"
CFLAGS="$sanitizers -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1 -g" \
	LDFLAGS=$sanitizers \
	"$python" -m pip install --quiet --no-deps --target "$target" "$target/source"

LD_PRELOAD=$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so)
# SIGBUS is ours to handle. Reports go to files: pytest would die with what it
# captured.
log=log_path=$target/report
ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0:quarantine_size_mb=1:$log
UBSAN_OPTIONS=print_stacktrace=1:$log
PYTHONPATH=$target
PYTHONMALLOC=malloc
export ASAN_OPTIONS UBSAN_OPTIONS PYTHONPATH PYTHONMALLOC

# Without sanitizers everything would pass, too.
nm -D "$target"/drgn_fastmem/_core*.so >"$target/symbols"
grep -q __asan_report_load8 "$target/symbols"
grep -q __ubsan_handle "$target/symbols"
LD_PRELOAD=$LD_PRELOAD "$python" - "$target" <<'EOF'
import ctypes, sys
import drgn_fastmem._core
assert drgn_fastmem._core.__file__.startswith(sys.argv[1] + "/drgn_fastmem/")
process = ctypes.CDLL(None)
process.malloc.restype = ctypes.c_void_p
block = process.malloc(ctypes.c_size_t(16))
for offset, poisoned in (0, 0), (15, 0), (16, 1):
    address = ctypes.c_void_p(block + offset)
    assert process.__asan_address_is_poisoned(address) == poisoned
EOF

# They test the comparison, and the reference, for minutes.
PYTEST_ADDOPTS="--deselect tests/test_oracle.py::test_comparison_notices_a_seeded_defect
	--deselect tests/test_oracle.py::test_more_headers_than_e_phnum_can_say"
export LD_PRELOAD PYTEST_ADDOPTS

echo "the extension is instrumented; its tests take a minute or two"
trap - EXIT
status=0
timeout 600 "$python" tools/run_tests.py sanitized >"$target/output" 2>&1 || status=$?
# Only now, without the sanitizers for cat, and with the count as the last line.
unset LD_PRELOAD
for report in "$target"/report.*; do
	[ ! -e "$report" ] || cat "$report"
done
cat "$target/output"
[ $status -ne 124 ] || echo "0 passed, 1 failed, 0 skipped"
exit $status
