# SPDX-License-Identifier: Apache-2.0
"""Code as a user of diesel_loader writes it: type checkers find the annotations, and these are true. It is checked,
never run."""
from __future__ import annotations

import ctypes
import pathlib
from typing import Any

import PIL.Image  # pyright: ignore[reportMissingTypeStubs]
import torch
from typing_extensions import assert_type

import diesel_loader
import diesel_loader.numpy
from diesel_loader import transforms
from diesel_loader.torch import pil_loader

assert_type(diesel_loader.__version__, str)


def look(path: pathlib.Path) -> None:
    try:
        dataset = diesel_loader.Dataset(path, socket="/run/diesel/dieseld.sock", daemon="auto", version=3)
    except diesel_loader.DamagedData as error:
        assert_type(error.errno, "int | None")
        return
    assert_type(len(dataset), int)
    assert_type(dataset.path, str)
    assert_type(dataset.socket, "str | None")
    assert_type(dataset.version, int)
    assert_type(dataset.n_bytes, int)
    assert_type(dataset.equal_bytes, "int | None")
    assert_type(dataset.classes, "list[str]")
    assert_type(dataset.class_to_idx, "dict[str, int]")
    assert_type(dataset.sample_path(0), str)
    assert_type(dataset.read(0), bytearray)
    assert_type(dataset.label(0), int)
    assert_type(dataset.find("cat/1.jpg"), int)
    assert_type("cat/1.jpg" in dataset, bool)
    assert_type(dataset.listdir("cat"), "list[str]")
    assert_type(dataset.stat("cat/1.jpg"), diesel_loader.SampleStat)
    assert_type(dataset.stat("cat/1.jpg").mtime_ns, int)
    assert_type(list(dataset.walk()), "list[tuple[str, list[str], list[str]]]")
    assert_type(diesel_loader.open(path), diesel_loader.Dataset)
    assert_type(dataset.targets, "list[int]")
    assert_type(dataset.samples[0][0], Any)
    assert_type(dataset.filter(classes=["cat", 3], paths="val/*").select([3, 4]), diesel_loader.Dataset)
    assert_type(dataset.random_split([0.9, 0.1], seed=1, by_class=True), "list[diesel_loader.Dataset]")
    assert_type(dataset.train_test_split(100), "tuple[diesel_loader.Dataset, diesel_loader.Dataset]")
    assert_type(dataset.handle, ctypes.c_void_p)
    assert_type(diesel_loader.status(), "dict[str, Any]")
    assert_type(diesel_loader.status(dataset.socket), "dict[str, Any]")
    assert_type(str(diesel_loader.codec("wav", options="length=16000")), str)
    assert_type(pil_loader(torch.zeros(9, dtype=torch.uint8)), PIL.Image.Image)


def write(path: pathlib.Path) -> None:
    with diesel_loader.create(path, append=True, chunk_bytes=4 << 20, digest="sha256", meta=None) as writer:
        assert_type(writer, diesel_loader.Writer)
        writer.put("cat/1.jpg", b"bytes", mode=0o600, mtime=1.5)
        writer.put(pathlib.PurePosixPath("cat/2.jpg"), memoryview(b"bytes"))
        assert_type(writer.commit(), int)
    assert_type(writer.version, "int | None")


def train(path: pathlib.Path) -> None:
    loader = diesel_loader.numpy.DataLoader(diesel_loader.Dataset(path, version=3), 64, shuffle=True, seed=1, transform=lambda data: data[:10], num_workers=2)
    augmented = transforms.Compose([transforms.RandomResizedCrop((224, 160), ratio=[0.5, 2]), transforms.RandomHorizontalFlip(),
                                    transforms.ToTensor("float32", layout="HWC"), transforms.Normalize([0, 0, 0], (1, 1, 1)),
                                    transforms.ToDtype(torch.float16), lambda array: array[::2]])
    decoded = diesel_loader.numpy.DataLoader(path, transform=augmented, decode=diesel_loader.numpy.Decode(native=None, damaged="skip"), job=diesel_loader.numpy.Job(group="search"), order=diesel_loader.numpy.Order(lanes=4, drift=16))
    assert_type(decoded.n_damaged, int)
    transforms.Compose([transforms.FromNumpy(layout="HWC"), transforms.RandomCrop(32), transforms.ToTensor()])
    transforms.FromBytes("int16", (16000,))
    transforms.Compose([transforms.Resize((8, 8)), transforms.RandomApply([transforms.ColorJitter(0.4, hue=(-0.1, 0.1))], 0.8),
                        transforms.Grayscale(3)])
    assert_type(str(decoded.plan()), str)
    assert_type(len(loader), int)
    assert_type(loader.seed, int)
    loader.set_epoch(1)
    for data, labels in loader:
        assert_type(data, Any)
        assert_type(labels, Any)
    state = loader.state_dict()
    assert_type(state, "dict[str, Any]")
    loader.load_state_dict(state)
    assert_type(diesel_loader.numpy.DataLoader(loader.dataset).dataset, diesel_loader.Dataset)
    mixed = diesel_loader.numpy.Mixture([loader], weights=[0.5], stop="never")
    mixed.set_weights([1])
    mixed.set_epoch(2)
    assert_type(mixed.source, "int | None")
    assert_type(next(iter(mixed)), Any)
    mixed.load_state_dict(mixed.state_dict())
    mixed.close()


diesel_loader.Dataset(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
