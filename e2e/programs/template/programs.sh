#!/bin/sh
# Compiles the Java programs into the new file system, and puts npm there as it is
# published: Debian's is four hundred packages. $1 is its root.
set -eu
umask 022
root=$1
here=$(dirname "$0")

mkdir -p "$root/opt/jvm" "$root/opt/npm"
cp "$here"/*.java "$root/opt/jvm/"
chroot "$root" ecj -17 -proc:none -d /opt/jvm /opt/jvm/Work.java /opt/jvm/Server.java
rm "$root"/opt/jvm/*.java

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent npm@10.9.9 >/dev/null
echo "c80bd097147cce32e31010b791bab8c71a26a5e10668210ec9d2e7f4c7cea2a1  npm-10.9.9.tgz" | sha256sum --check --quiet
tar -xzf npm-10.9.9.tgz -C "$root/opt/npm" --strip-components=1 --no-same-owner --exclude=package/docs --exclude=package/man
