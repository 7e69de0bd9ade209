#!/usr/bin/env python3
"""Embeds sql/<engine>/<component>/NNNN_name.sql into one C file (see src/ports/migration.h)."""
import pathlib
import sys


def c_string(text):
    lines = text.replace("\\", "\\\\").replace('"', '\\"').splitlines()
    return "\n".join(f'\t\t"{line}\\n"' for line in lines)


def main(output, *files):
    rows = []
    for name in sorted(files):
        path = pathlib.Path(name)
        engine, component = path.parts[-3], path.parts[-2]
        version, _, title = path.stem.partition("_")
        sql = c_string(path.read_text(encoding="utf-8"))
        rows.append(
            f'\t{{"{engine}", "{component}", {int(version)}, "{title}",\n{sql}}},\n'
        )
    pathlib.Path(output).write_text(
        '#include "ports/migration.h"\n\nconst struct migration migrations[] = {\n'
        + "".join(rows)
        + "};\nconst size_t migration_count = sizeof(migrations) / sizeof(migrations[0]);\n",
        encoding="utf-8",
    )


main(*sys.argv[1:])
