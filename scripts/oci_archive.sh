#!/bin/sh
# Builds the image with every role and writes it as an OCI archive, for docker load, podman load or skopeo copy. All
# times in it are SOURCE_DATE_EPOCH, so the same sources on the same base give the same bytes. Nothing else of the build
# is kept.
#
#   oci_archive.sh FILE
#
# ENGINE is podman or buildah; docker cannot set the times. OPTIONS as for scripts/image.sh.
set -eu
file=$(realpath -m "$1")
cd "$(dirname "$0")/.."
version=$(scripts/version.sh)
engine=${ENGINE:-$(command -v buildah || command -v podman || true)}
if [ -z "$engine" ]; then
	echo "buildah or podman is needed to build the image" >&2
	exit 1
fi
tag=release-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

log=$work/log
if ! ENGINE="$engine" OPTIONS="--format oci --no-cache --timestamp $SOURCE_DATE_EPOCH ${OPTIONS:-}" IMAGES=quipu TAG="$tag" \
	scripts/image.sh > "$log" 2>&1; then
	tail -30 "$log" >&2
	echo "the image could not be built" >&2
	exit 1
fi
$engine push -q --format oci "quipu:$tag" "oci:$work/image:$version"
$engine rmi "quipu:$tag" > /dev/null
scripts/docker_manifest.py "$work/image" "quipu:$version"
# Without "./" before the names, which some readers do not find otherwise.
(cd "$work/image" && tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go=rX,u=rwX \
	-cf "$file" -- *)
