#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors
#
# install-debian-packages.sh LIST...: install the Debian packages named in the
# lists that are missing, if run as root; say which ones are missing, and fail,
# if not. Does nothing on other systems.

set -eu

command -v dpkg-query >/dev/null || exit 0

missing=
for package in $(cat "$@" | sed 's/#.*//'); do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "These Debian packages are missing; install them with" >&2
	echo "    sudo apt-get install$missing" >&2
	exit 1
fi
echo "Installing Debian packages:$missing"
export DEBIAN_FRONTEND=noninteractive
# The list of packages may be old or not there at all.
# shellcheck disable=SC2086
apt-get install -qq -y --no-install-recommends $missing >/dev/null 2>&1 || {
	apt-get update -qq
	apt-get install -qq -y --no-install-recommends $missing >/dev/null
}
