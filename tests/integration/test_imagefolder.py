#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that classes, labels and the order of samples are those of torchvision's ImageFolder over the same files."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    from torchvision.datasets import ImageFolder
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DIESELCTL = pathlib.Path(os.environ["DIESEL_BIN"]) / "dieselctl"
# Names that sort differently as whole paths: '-', ' ' and '.' come before '/'.
CLASSES = ["dog", "dog-big", "dog big", "dogs", "Dog", "a.b", "a", "cat", "Ünicode", "zz", "10", "9"]


def main():
    generator = random.Random(4)
    with tempfile.TemporaryDirectory(prefix="diesel-imagefolder-") as root:
        source, dataset = pathlib.Path(root) / "src", pathlib.Path(root) / "ds"
        for name in CLASSES:
            for folder in ("", "nested", "nested/deep"):
                for i in generator.sample(range(200), 7):
                    path = source / name / folder / f"{i}.jpg"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(generator.randbytes(10))
        (source / "linked").symlink_to("dog")
        expected = ImageFolder(str(source), is_valid_file=lambda _: True)
        (source / "README").write_text("no sample of a class")
        subprocess.run([DIESELCTL, "pack", source, dataset], check=True)
        listed = json.loads(subprocess.run([DIESELCTL, "ls", "-R", "--json", dataset], check=True,
                                           capture_output=True).stdout)
        stat = json.loads(subprocess.run([DIESELCTL, "stat", "--json", dataset], check=True,
                                         capture_output=True).stdout)
        (source / "dog" / "notes.txt").write_text("no sample at all")
        (source / "dog" / "1.jfif").write_text("not by its name")
        (source / "10" / "Upper.JPEG").write_text("by its name")
        subprocess.run([DIESELCTL, "pack", "--images", source, f"{dataset}.images"], check=True)
        images = json.loads(subprocess.run([DIESELCTL, "ls", "-R", "--json", f"{dataset}.images"], check=True, capture_output=True).stdout)
        as_they_are = ImageFolder(str(source)).samples
    assert [(str(source / entry["path"]), entry["class"]) for entry in images] == as_they_are
    readme = listed.pop(0)
    assert (readme["path"], readme["class"]) == ("README", -1), readme
    assert stat["classes"] == expected.classes, (stat["classes"], expected.classes)
    got = [(str(source / entry["path"]), entry["class"]) for entry in listed]
    assert got == expected.samples
    print(f"{len(got)} samples in {len(expected.classes)} classes agree")


main()
