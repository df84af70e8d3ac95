#!/bin/sh
# Compiles the Java program into the new file system. $1 is its root.
set -eu
umask 022
root=$1
here=$(dirname "$0")

mkdir -p "$root/opt/jvm"
cp "$here/Work.java" "$root/opt/jvm/"
chroot "$root" ecj -17 -proc:none -d /opt/jvm /opt/jvm/Work.java
rm "$root/opt/jvm/Work.java"
