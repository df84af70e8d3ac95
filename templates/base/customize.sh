#!/bin/sh
# Makes a fresh Debian into the file system of a sandbox. $1 is its root.
set -eu
umask 022
root=$1
here=$(dirname "$0")

# Our own files. What they replace is in the package's place on purpose: the
# login files of Debian start id, mesg, dircolors and lesspipe at each login.
# mmdebstrap copies two files of this machine; they may be links.
rm -f "$root/etc/resolv.conf" "$root/etc/hostname" "$root/etc/skel/.bash_logout"
cp -R --no-preserve=mode,ownership,timestamps "$here/files/." "$root/"
chmod 0440 "$root/etc/sudoers.d/sandbox"

chroot "$root" useradd --create-home --uid "$CUBE_UID" --user-group --groups sudo --shell /bin/bash "$CUBE_USER"
# No day of the last password change: it would be the day of the build.
sed -i 's/^\([^:]*:[^:]*:\)[0-9]*:/\1:/' "$root/etc/shadow"

# What only the build needed, and what names the time or the machine of it.
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*
rm -rf "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old "$root"/var/cache/ldconfig
rm -rf "$root"/etc/passwd- "$root"/etc/group- "$root"/etc/shadow- "$root"/etc/gshadow-
rm -rf "$root"/etc/subuid- "$root"/etc/subgid-
find "$root/var/log" -type f -delete
# mmdebstrap still needs what is its own in there.
find "$root/tmp" "$root/var/tmp" -mindepth 1 ! -name 'mmdebstrap.*' -delete

# gVisor mounts a file system in memory over an empty /tmp. Files there are to be
# on the sandbox's disk like all others; the agent removes this one at first boot.
: >"$root/tmp/.on-disk"
