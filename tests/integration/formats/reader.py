# SPDX-License-Identifier: Apache-2.0
"""Reads a dataset only by docs/reference/formats.md, without code of this project. Both functions return {path: bytes}, paths as bytes, and
raise ValueError for damaged data."""
import pathlib
import struct

import xxhash


def expect(true, what):
    if not true:
        raise ValueError(what)


def checked(data, xxh3, what):
    expect(xxhash.xxh3_64_intdigest(data) == xxh3, what)
    return data


def decompress(frames, n_bytes):
    raise ValueError(f"compressed by zstd, to {len(frames)} from {n_bytes} bytes")  # readers with zstd replace this function


def plain(data, payload, size):
    stored_size, at, block = struct.unpack_from("<QII", data, 80)
    expect(stored_size == len(data) < size and 1 << 16 <= block <= 1 << 20, "its length")
    parts, at_block = [data[:payload]], payload
    for begin, length in zip(range(payload, size, block), struct.unpack_from(f"<{-(-(size - payload) // block)}I", data, at)):
        part, n_bytes = data[at_block:at_block + length], min(block, size - begin)
        parts.append(part if length == n_bytes else decompress(part, n_bytes))
        expect(len(parts[-1]) == n_bytes, "a block")
        at_block += length
    return b"".join(parts)


def from_chunks(dataset):
    samples = {}
    for path in sorted(pathlib.Path(dataset, "chunks").glob("*.chunk")):  # in id order: a later record replaces an earlier one
        data = path.read_bytes()
        expect(len(data) >= 128, path)
        magic, version, flags, number, n, names, payload, size, _, _, xxh3 = struct.unpack("<8sII16sIII4xQQQQ48x", data[:128])
        expect((magic, version, flags & ~0xf03, number.hex()) == (b"DSLCHNK\0", 1, 0, path.stem), path)
        checked(data[:72] + bytes(8) + data[80:payload], xxh3, path)
        data = plain(data, payload, size) if flags & 2 else data
        expect(size == len(data), path)
        for at in range(128, 128 + 64 * n, 64):
            offset, n_bytes, n_stored, xxh3, name, length, encoding = struct.unpack_from("<QIIQ12xIHH", data, at)
            name = data[names + name:names + name + length]
            expect(encoding == 0 and n_stored == n_bytes, (path, name))
            samples.pop(name, None)
            if not flags & 1:  # otherwise a tombstone
                samples[name] = checked(data[offset:offset + n_stored], xxh3, (path, name))
    return samples


def from_snapshot(dataset):
    data, samples = pathlib.Path(dataset, "snapshot").read_bytes(), {}
    expect(struct.unpack_from("<8sIIQ", data) == (b"DSLSNAP\0", data[8], 8, len(data)) and data[8] == 5, "snapshot")
    checked(data[:88] + bytes(8) + data[96:312], struct.unpack_from("<Q", data, 88)[0], "header")
    chunks, records, buckets, _, paths, *_ = [checked(data[at:at + length], xxh3, f"section at {at}")
                                              for at, length, xxh3 in struct.iter_unpack("<QQQ", data[96:288])]
    for number, size, first, n, payload, compressed in struct.iter_unpack("<16sQQII15xB8x", chunks):
        chunk = pathlib.Path(dataset, "chunks", number.hex() + ".chunk").read_bytes()
        chunk = plain(chunk, payload, size) if compressed else chunk
        for sample, record in enumerate(struct.iter_unpack("<QQQ", records[24 * first:24 * (first + n)]), first):
            xxh3, stored, path = record
            path = paths[path % (1 << 40):][:path >> 40 & 4095]
            hashed = xxhash.xxh3_64_intdigest(path)
            bucket = hashed * struct.unpack_from("<Q", data, 288)[0] >> 64  # the search must reach this sample
            while (found := struct.unpack_from("<12BI12I", buckets, 64 * bucket)):
                if (hashed & 255, sample) in list(zip(found[:12], found[13:]))[:found[12]]:
                    break
                expect(found[12] == 12, path)
                bucket += 1
            at = stored >> 31 & (1 << 29) - 1
            samples[path] = checked(chunk[at:at + stored % (1 << 31)], xxh3, (number, path))
    expect(len(samples) == struct.unpack_from("<Q", data, 32)[0], "snapshot")
    return samples
