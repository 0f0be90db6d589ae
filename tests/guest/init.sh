#!/bin/busybox sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Copyright (c) 2026 The drgn-fastmem authors
#
# The guest's first process: the host's files below, a tmpfs over them, and in that
# the command that the share holds. Whatever it writes to the console is the log.

/bin/busybox mkdir -p /proc /sys /dev /bin /host /over /root
/bin/busybox --install -s /bin
export PATH=/bin

give_up() {
	echo "guest: $*"
	poweroff -f
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
for module in /modules/*; do
	insmod "$module" || echo "guest: insmod $module failed"
done

options=trans=virtio,version=9p2000.L,msize=1048576
mount -t 9p -o "ro,cache=loose,$options" host /host || give_up "no host files"
mount -t tmpfs -o size=75% over /over
mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work \
	overlay /root || give_up "no overlay"
# What the host has mounted there is not the guest's.
for directory in proc sys dev tmp run; do
	mkdir -p /root/$directory
done
mount --move /dev /root/dev
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
mount -t tmpfs run /root/run
mkdir /root/run/share
mount -t 9p -o "rw,cache=none,$options" share /root/run/share ||
	give_up "no share"
ip link set lo up 2>/dev/null
hostname guest

chroot /root /bin/sh /run/share/start </dev/null >/root/run/share/output 2>&1
status=$?
sync
echo $status >/root/run/share/status
sync
poweroff -f
