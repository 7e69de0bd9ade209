#!/bin/sh
# Builds the images, all with the same binary: quipu, which runs every role, and one image per role.
#
#   ENGINE   docker, podman or buildah, with options if needed; default: the first that is installed
#   OPTIONS  additional options for its build command
#   TAG      default: latest
#   IMAGES   the images to build; default: all
set -eu
cd "$(dirname "$0")/.."

roles="all counts gateway sender entitlements notifications pots dialogs counters"

image_of() {
	case $1 in
	all) echo quipu ;;
	counts) echo count-processing-service ;;
	*) echo "quipu-$1" ;;
	esac
}

find_engine() {
	for engine in docker podman buildah; do
		if command -v "$engine" >/dev/null; then
			echo "$engine"
			return
		fi
	done
	echo "docker, podman or buildah is needed to build images" >&2
	exit 1
}

engine=${ENGINE:-$(find_engine)}
options=${OPTIONS:-}
case "$engine $options" in
*docker*) ;;
*--format*) ;;
*) options="--format docker --layers $options" ;; # the OCI format has no health checks
esac

for role in $roles; do
	image=$(image_of "$role")
	case " ${IMAGES:-$image} " in
	*" $image "*) ;;
	*) continue ;;
	esac
	echo "building $image:${TAG:-latest}"
	# shellcheck disable=SC2086 # lists of words
	$engine build $options -f deploy/Containerfile --build-arg "ROLE=$role" -t "$image:${TAG:-latest}" .
done
