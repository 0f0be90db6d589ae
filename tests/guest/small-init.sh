#!/bin/busybox sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors
#
# The first process of a guest that is only dumped: processes that sleep, files
# in a tmpfs, and then "guest: ready" on the console.

/bin/busybox mkdir -p /proc /sys /dev /bin /warm
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do
	insmod "$module" || echo "guest: insmod $module failed"
done
mount -t tmpfs warm /warm
number=0
while [ $number -lt 40 ]; do
	sleep 1000000 &
	mkdir /warm/folder-$number
	for name in a b c d e f g h; do
		echo $number >/warm/folder-$number/file-with-a-long-name-that-needs-memory-$name
	done
	number=$((number + 1))
done
ls -lR /warm >/dev/null
sleep 1
echo "guest: ready"
sleep 1000000
