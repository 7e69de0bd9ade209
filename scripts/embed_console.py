#!/usr/bin/env python3
"""Embeds the files of the console into one C file: a table of names, types and contents."""
import pathlib
import sys

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


def main(output, *files):
    parts = ['#include "admin/console_files.h"\n']
    rows = []
    for number, name in enumerate(files):
        path = pathlib.Path(name)
        data = path.read_bytes()
        parts.append(f"static const unsigned char file_{number}[] = {{{','.join(map(str, data))}}};\n")
        rows.append(f'\t{{"{path.name}", "{TYPES[path.suffix]}", file_{number}, {len(data)}}},\n')
    parts.append("const struct console_file console_files[] = {\n" + "".join(rows) + "};\n")
    parts.append(f"const size_t console_file_count = {len(rows)};\n")
    pathlib.Path(output).write_text("".join(parts), encoding="utf-8")


main(*sys.argv[1:])
