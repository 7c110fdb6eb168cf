#!/bin/sh
# The first process of a host with cards: lays their files over /sys, makes their device files, becomes systemd.
set -eu
cards=/run/b70-lab/sys
escaped() { echo "$1" | sed 's/:/\\:/g'; }

cover() { # DIRECTORY: what the tree has there comes on top of what the kernel has
    [ -d "$cards/$1" ] && [ -d "/sys/$1" ] || return 0
    mount -t overlay b70-lab -o "ro,lowerdir=$(escaped "$cards/$1"):$(escaped "/sys/$1")" "/sys/$1"
}

for root in "$cards"/devices/*; do
    cover "devices/${root##*/}"
done
cover bus/pci
cover class
cover kernel/debug

# Numbers of devices that anyone may open and hardly anyone holds, another one for each card.
mkdir -p /dev/dri
for node in "$cards"/class/drm/*; do
    [ -e "$node" ] || continue
    name=${node##*/}
    case $name in
    renderD128 | card0) minor=7 ;;
    renderD129 | card1) minor=5 ;;
    renderD130 | card2) minor=9 ;;
    *) minor=8 ;;
    esac
    case $name in
    renderD*) group=render ;;
    *) group=video ;;
    esac
    mknod -m 0660 "/dev/dri/$name" c 1 "$minor"
    chgrp "$group" "/dev/dri/$name"
done
exec /sbin/init
