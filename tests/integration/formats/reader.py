# SPDX-License-Identifier: Apache-2.0
"""Reads a dataset by docs/formats.md alone: nothing of this project has a part in it. Both functions give {path: bytes}, paths as
bytes, and raise ValueError for what is damaged."""
import pathlib
import struct

import xxhash


def expect(true, what):
    if not true:
        raise ValueError(what)


def checked(data, xxh3, what):
    expect(xxhash.xxh3_64_intdigest(data) == xxh3, what)
    return data


def from_chunks(dataset):
    samples = {}
    for path in sorted(pathlib.Path(dataset, "chunks").glob("*.chunk")):  # in id order: a later record replaces
        data = path.read_bytes()
        expect(len(data) >= 128, path)
        magic, version, flags, number, n, names, payload, size, _, _, xxh3 = struct.unpack("<8sII16sIII4xQQQQ48x", data[:128])
        expect((magic, version, flags & ~1, number.hex(), size) == (b"DSLCHNK\0", 1, 0, path.stem, len(data)), path)
        checked(data[:72] + bytes(8) + data[80:payload], xxh3, path)
        for at in range(128, 128 + 64 * n, 64):
            offset, n_bytes, n_stored, xxh3, name, length, encoding = struct.unpack_from("<QIIQ12xIHH", data, at)
            name = data[names + name:names + name + length]
            expect(encoding == 0 and n_stored == n_bytes, (path, name))
            samples.pop(name, None)
            if not flags & 1:  # else a tombstone
                samples[name] = checked(data[offset:offset + n_stored], xxh3, (path, name))
    return samples


def from_snapshot(dataset):
    data = pathlib.Path(dataset, "snapshot").read_bytes()
    magic, form, _, size, _, n_samples, n_chunks = struct.unpack_from("<8sIIQQQQ", data)
    expect((magic, form in (1, 2), size) == (b"DSLSNAP\0", True, len(data)), "snapshot")
    checked(data[:88] + bytes(8) + data[96:256], struct.unpack_from("<Q", data, 88)[0], "header")
    chunks, records, slots, _, paths, _ = [checked(data[at:at + length], xxh3, f"section at {at}")
                                           for at, length, xxh3 in struct.iter_unpack("<QQQ", data[96:240])]
    ids, samples = [entry[0].hex() for entry in struct.iter_unpack("<16s48x", chunks)], {}
    expect((len(ids), len(records)) == (n_chunks, 64 * n_samples), "snapshot")
    for number, record in enumerate(struct.iter_unpack("<QQ8xQI4xII8xHH4x", records)):
        offset, xxh3, path, chunk, n_bytes, n_stored, length, encoding = record
        path, hashed = paths[path:path + length], xxhash.xxh3_64_intdigest(paths[path:path + length])
        slot = hashed % (len(slots) // 8)  # of the hash index: the search has to come to this sample
        while (found := struct.unpack_from("<II", slots, 8 * slot)) != (number + 1, hashed >> 32):
            expect(found[0], path)
            slot = (slot + 1) % (len(slots) // 8)
        with open(pathlib.Path(dataset, "chunks", ids[chunk] + ".chunk"), "rb") as file:
            file.seek(offset)
            samples[path] = checked(file.read(n_stored), xxh3, (ids[chunk], path))
        expect(encoding == 0 and n_stored == n_bytes, path)
    return samples
