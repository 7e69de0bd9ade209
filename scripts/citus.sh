#!/usr/bin/env bash
# Builds Citus for make test-citus and the bench, beside the PostgreSQL of this machine and without changing it.
#
#   scripts/citus.sh SOURCE PREFIX     SOURCE: Citus's unpacked sources; PREFIX: a folder that does not exist yet
#
# PREFIX becomes a copy of PostgreSQL's programs with Citus among its extensions. The last line that is printed says how
# to use it. Takes about four minutes on two cores.
set -euo pipefail

if [ $# -ne 2 ] || [ ! -x "$1/configure" ] || [ -e "$2" ]; then
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
source=$(cd "$1" && pwd)
version=$(pg_config --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
packages="postgresql-server-dev-$version liblz4-dev libzstd-dev libssl-dev libkrb5-dev libxml2-dev libxslt1-dev
	libselinux1-dev libpam0g-dev libreadline-dev flex"
# shellcheck disable=SC2086 # a list of names
dpkg-query -W $packages >/dev/null 2>&1 || apt-get install -y -qq $packages >/dev/null

# PostgreSQL finds its files by their place relative to its programs, so a copy works anywhere.
mkdir -p "$2/lib/postgresql" "$2/share/postgresql"
prefix=$(cd "$2" && pwd)
cp -a "/usr/lib/postgresql/$version" "$prefix/lib/postgresql/"
cp -a "/usr/share/postgresql/$version" "$prefix/share/postgresql/"
config=$prefix/lib/postgresql/$version/bin/pg_config

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cp -a "$source/." "$build"
cd "$build"
./configure "PG_CONFIG=$config" --without-libcurl >configure.out
make -j"$(nproc)" extension >make.out 2>&1 || { tail -30 make.out >&2 && exit 1; }
make install-extension >install.out 2>&1 || { tail -30 install.out >&2 && exit 1; }
echo "PG_CONFIG=$config make test-citus"
