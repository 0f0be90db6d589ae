#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors
#
# check-dist.sh [PYTHON]: build the sdist and the wheel, install each into a
# clean venv of its own, and import it there.

set -eu
python=${1:-python3}
top=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

rm -rf dist
"$python" -m venv "$scratch/build"
"$scratch/build/bin/pip" install -q build
"$scratch/build/bin/python" -m build -o dist . >"$scratch/log" 2>&1 || {
	cat "$scratch/log"
	exit 1
}
ls dist
for file in dist/*.tar.gz dist/*.whl; do
	"$python" -m venv "$scratch/venv"
	"$scratch/venv/bin/pip" install -q "$top/$file"
	(cd / && "$scratch/venv/bin/python" -c '
import drgn_fastmem
print(drgn_fastmem.__file__, drgn_fastmem.__version__)')
	rm -rf "$scratch/venv"
done
echo "sdist and wheel build and install"
