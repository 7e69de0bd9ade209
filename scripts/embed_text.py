#!/usr/bin/env python3
"""Embeds text files into one C file, each as `const char embedded_<name>[]`."""
import pathlib
import sys


def main(output, *files):
    parts = []
    for name in files:
        path = pathlib.Path(name)
        symbol = "embedded_" + path.stem.replace("-", "_")
        data = ", ".join(str(b - 256 if b > 127 else b) for b in path.read_bytes())
        parts.append(f"extern const char {symbol}[];\nconst char {symbol}[] = {{{data}, 0}};\n")
    pathlib.Path(output).write_text("".join(parts), encoding="utf-8")


main(*sys.argv[1:])
