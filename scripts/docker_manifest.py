#!/usr/bin/env python3
"""Writes manifest.json into an OCI layout, from which docker load reads the image where Docker has no store of containerd.

    docker_manifest.py FOLDER NAME:TAG
"""

import json
import pathlib
import sys


def place(entry):
    """Where the layout has what a descriptor names."""
    return f"blobs/{entry['digest'].replace(':', '/')}"


def main(folder, name):
    layout = pathlib.Path(folder)
    (index,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads((layout / place(index)).read_text())
    image = {"Config": place(manifest["config"]), "RepoTags": [name], "Layers": [place(one) for one in manifest["layers"]]}
    (layout / "manifest.json").write_text(json.dumps([image]))


main(*sys.argv[1:])
