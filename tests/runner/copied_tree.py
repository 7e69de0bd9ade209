"""A copy of the working tree in which faults are planted, so that the checkout is never changed."""

import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


class DoesNotApply(Exception):
    """A patch does not fit the sources any more."""


class CopiedTree:
    def __init__(self, folder):
        """`folder` lies below ROOT and is ignored by git."""
        self.folder = folder

    def synchronize(self):
        """Makes the copy equal to the working tree, which also takes out a planted fault. Writes only files that differ,
        so that ninja rebuilds only those; these get a new time, or what was built of their old content would look newer."""
        wanted = self._source_files()
        for name in set(self._copied_files()) - wanted:
            (self.folder / name).unlink()
        for name in wanted:
            copy = self.folder / name
            if not copy.exists() or copy.read_bytes() != (ROOT / name).read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy)

    def plant(self, patch):
        done = subprocess.run(["git", "apply", f"--directory={self.folder.relative_to(ROOT)}", str(patch)],
                              cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DoesNotApply(f"the patch does not apply: {done.stderr.strip()}")

    @staticmethod
    def _source_files():
        """Everything of the working tree that git does not ignore."""
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                check=True, capture_output=True, text=True).stdout
        return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}

    def _copied_files(self):
        for folder, folders, files in os.walk(self.folder):
            if pathlib.Path(folder) == self.folder:
                folders[:] = [name for name in folders if not name.startswith("build")]
                files = [name for name in files if not name.startswith("build")]
            for file in files:
                yield str((pathlib.Path(folder) / file).relative_to(self.folder))


def read_header(patch):
    """The lines before the diff, `Name: value`, as a dictionary."""
    header = patch.read_text().partition("\ndiff --git")[0]
    return dict(line.split(": ", 1) for line in header.splitlines() if ": " in line)
