#!/bin/sh
# Prints the version of the program. Its one place is meson.build.
set -eu
sed -n "s/^  version: '\(.*\)',$/\1/p" "$(dirname "$0")/../meson.build"
