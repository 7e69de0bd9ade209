#!/usr/bin/env python3
"""Prints a bill of materials (CycloneDX 1.5, JSON) of a program: the Debian packages that it is linked with, and those
whose sources are compiled into it.

    sbom.py VERSION PROGRAM

Times and ids come from SOURCE_DATE_EPOCH and the content, so that the same program has the same bill.
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

HERE = pathlib.Path(__file__).resolve().parent
COMPILED_IN = {"node-llhttp": "HTTP/1.1 parser", "libjs-dygraphs": "plots of the console"}


def output(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def distribution():
    """E.g. debian and debian-12, as package URLs name them."""
    fields = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', pathlib.Path("/etc/os-release").read_text(), re.MULTILINE))
    return fields["ID"], f"{fields['ID']}-{fields['VERSION_ID']}"


def licenses(package):
    """The licences that a package's copyright file names, if it is one for machines."""
    path = pathlib.Path(f"/usr/share/doc/{package}/copyright")
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    names = re.findall(r"^License: *(\S.*?) *$", text, re.MULTILINE) if text.startswith("Format:") else []
    return [{"license": {"name": name}} for name in sorted(set(names))]


def component(package, how):
    version, arch = output("dpkg-query", "-W", "-f", "${Version} ${Architecture}", package).split()
    vendor, distro = distribution()
    purl = f"pkg:deb/{vendor}/{package}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={arch}&distro={distro}"
    entry = {"type": "library", "bom-ref": purl, "name": package, "version": version, "purl": purl,
             "properties": [{"name": "quipu:use", "value": how}]}
    found = licenses(package)
    return {**entry, "licenses": found} if found else entry


def bill(version, program):
    linked = output(HERE / "runtime_packages.sh", program).split()
    components = [component(name, "linked") for name in linked]
    components += [component(name, f"compiled in: {use}") for name, use in COMPILED_IN.items()]
    components.sort(key=lambda one: one["name"])
    subject = {"type": "application", "bom-ref": f"quipu@{version}", "name": "quipu", "version": version,
               "licenses": [{"license": {"id": "MIT"}}],
               "hashes": [{"alg": "SHA-256", "content": output("sha256sum", program).split()[0]}]}
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    content = json.dumps([subject, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": subject},
        "components": components,
        "dependencies": [{"ref": subject["bom-ref"], "dependsOn": [one["bom-ref"] for one in components]}],
    }


print(json.dumps(bill(*sys.argv[1:]), indent=2))
