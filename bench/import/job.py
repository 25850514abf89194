# SPDX-License-Identifier: Apache-2.0
"""job.py WAY DATA N SECONDS: reads rows of an image, an embedding and a caption in a shuffled order, 16 at a time, and prints {"per_s",
"per_cpu_s"} as JSON.

streaming, map: Hugging Face's datasets, IterableDataset with its shuffle buffer and Dataset with random numbers (from Arrow files, as it
reads Parquet), formatted as NumPy. pyarrow: row groups in a random order, rows shuffled within them. diesel: the NumPy loader, after
`dieselctl pack parquet:`. Images stay encoded in all. The first pass is not measured."""
import itertools
import json
import random
import sys
import time

BATCH = 16


def batched(rows):
    while batch := list(itertools.islice(rows, BATCH)):
        yield batch


def streaming(data):
    import datasets
    table = datasets.load_dataset("parquet", data_files=f"{data}/*.parquet", split="train", streaming=True)
    table = table.cast_column("image", datasets.Image(decode=False)).with_format("numpy").shuffle(seed=1, buffer_size=256)
    for epoch in itertools.count():
        table.set_epoch(epoch)
        yield from (len(batch) for batch in batched(iter(table)))


def by_number(data):
    import datasets
    table = datasets.load_dataset("parquet", data_files=f"{data}/*.parquet", split="train", cache_dir=f"{data}.cache")
    table = table.cast_column("image", datasets.Image(decode=False)).with_format("numpy")
    for seed in itertools.count():
        numbers = list(range(len(table)))
        random.Random(seed).shuffle(numbers)
        for k in range(0, len(numbers), BATCH):
            yield len(table[numbers[k:k + BATCH]]["caption"])


def through_pyarrow(data):
    import pathlib

    from pyarrow import parquet
    files = [parquet.ParquetFile(path) for path in sorted(pathlib.Path(data).glob("*.parquet"))]
    groups = [(file, group) for file in files for group in range(file.num_row_groups)]

    def rows(rng):
        for file, group in rng.sample(groups, len(groups)):
            table = file.read_row_group(group, use_threads=False)
            images, embeddings, captions = (table.column(name).combine_chunks() for name in ("image", "embedding", "caption"))
            images = images.field("bytes")
            for i in rng.sample(range(len(table)), len(table)):
                yield images[i].as_py(), embeddings[i].values.to_numpy(), captions[i].as_py()
    for seed in itertools.count():
        yield from (len(batch) for batch in batched(rows(random.Random(seed))))


def diesel(data):
    import diesel_loader.numpy
    loader = diesel_loader.numpy.DataLoader(data, BATCH, shuffle=True, seed=1)
    while True:
        yield from (len(batch["caption"]) for batch in loader)


WAYS = {"streaming": streaming, "map": by_number, "pyarrow": through_pyarrow, "diesel": diesel}


def write(folder, n):
    """Writes rows with images of 100 to 700 KB, as MLPerf Storage's Flux has, in four files with row groups of 16."""
    import pathlib

    import numpy
    import pyarrow as pa
    from pyarrow import parquet
    rng = numpy.random.default_rng(1)
    features = {"image": {"_type": "Image"}, "embedding": {"_type": "List", "feature": {"_type": "Value", "dtype": "float32"}},
                "caption": {"_type": "Value", "dtype": "string"}}
    schema = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("embedding", pa.list_(pa.float32())), ("caption", pa.string())],
                       metadata={"huggingface": json.dumps({"info": {"features": features}})})
    for part in range(4):
        with parquet.ParquetWriter(pathlib.Path(folder, f"train-{part}.parquet"), schema, compression="snappy") as writer:
            for _ in range(n // 4 // 16):
                rows = [{"image": {"bytes": b"\xff\xd8\xff" + rng.bytes(int(rng.integers(100_000, 700_000))), "path": None},
                         "embedding": rng.standard_normal(4096, dtype="float32"), "caption": "a photo of a cat " * 8} for _ in range(16)]
                writer.write_table(pa.Table.from_pylist(rows, schema))


def main():
    way, data, n, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    counts, seen = WAYS[way](data), 0
    while seen < 2 * n:
        seen += next(counts)
    seen, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        seen += next(counts)
    elapsed, used = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps({"per_s": seen / elapsed, "per_cpu_s": seen / used}), flush=True)


if __name__ == "__main__":
    main()
