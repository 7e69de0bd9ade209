#!/bin/sh
# Prints the Debian packages that contain the shared libraries of a program, one per line. An image has to install them.
#
#   runtime_packages.sh PROGRAM
set -eu

libraries=$(ldd "$1")
case $libraries in
*"not found"*) echo "$1: a library is missing here" >&2; exit 1 ;;
esac
# If /lib is a link to /usr/lib, dpkg knows some files by one name and some by the other.
echo "$libraries" | awk '$2 == "=>" { print $3 }' | while read -r library; do
	file=$(realpath "$library")
	dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "${file#/usr}"
done | cut -d: -f1 | sort -u
