# SPDX-License-Identifier: Apache-2.0
"""job.py WAY DATA N_SAMPLES SECONDS: reads samples in random order, 64 at a time, and prints {"per_s", "per_cpu_s"} as JSON.

order: batches of diesel_loader in its own order. order-list: the same, each sample copied by itself. packed: Dataset.read_packed() into one
array. items: Dataset.__getitems__(). one: Dataset[i]. grain, grain-packed: Grain shuffles numbers and asks the Dataset for each batch of
them, by __getitems__() and by read_packed(). grain-source, grain-records: Grain over the Dataset as its source, and over its own ArrayRecord
source. The first pass is not measured."""
import itertools
import json
import os
import random
import sys
import time

BATCH = 64


def order(data):
    import diesel_loader.numpy
    loader = diesel_loader.numpy.DataLoader(data, BATCH, shuffle=True, seed=1)
    while True:
        yield from (len(labels) for _, labels in loader)


def order_list(data):
    import diesel_loader.numpy
    loader = diesel_loader.numpy.DataLoader(data, BATCH, shuffle=True, seed=1)
    while True:
        for samples, labels in loader:
            yield len([(bytearray(sample), int(label)) for sample, label in zip(samples, labels)])


def shuffled(n):
    numbers = list(range(n))
    for seed in itertools.count():
        random.Random(seed).shuffle(numbers)
        yield from (numbers[k:k + BATCH] for k in range(0, n, BATCH))


def packed(data):
    import diesel_loader
    dataset, out = diesel_loader.Dataset(data), None
    for numbers in shuffled(len(dataset)):
        out = dataset.read_packed(numbers, out if out is not None and len(out) >= len(numbers) else None)
        yield len(numbers)


def items(data):
    import diesel_loader
    dataset = diesel_loader.Dataset(data)
    for numbers in shuffled(len(dataset)):
        yield len(dataset.__getitems__(numbers))


def one(data):
    import diesel_loader
    dataset = diesel_loader.Dataset(data)
    for numbers in shuffled(len(dataset)):
        yield len([dataset[number] for number in numbers])


def iterated(batches):
    """Grain's iterator: GRAIN_AHEAD batches are prepared ahead, by default Grain's own 500, which are gigabytes of new memory."""
    import grain
    ahead = int(os.environ.get("GRAIN_AHEAD", 16))
    return batches.to_iter_dataset(grain.ReadOptions(num_threads=min(ahead, 16), prefetch_buffer_size=ahead))


def through_grain(source):
    import grain
    batches = iterated(grain.MapDataset.source(source).shuffle(seed=1).repeat().batch(BATCH, batch_fn=list))
    yield from (len(batch) for batch in batches)


def grain_numbers(data, read="__getitems__"):
    import diesel_loader
    import grain
    dataset = diesel_loader.Dataset(data)
    batches = iterated(grain.MapDataset.range(len(dataset)).shuffle(seed=1).repeat().batch(BATCH).map(getattr(dataset, read)))
    yield from (len(batch) for batch in batches)


def grain_packed(data):
    return grain_numbers(data, "read_packed")


def grain_over_dataset(data):
    import diesel_loader
    return through_grain(diesel_loader.Dataset(data))


def grain_over_records(data):
    import grain
    return through_grain(grain.sources.ArrayRecordDataSource([data]))


WAYS = {"order": order, "order-list": order_list, "packed": packed, "items": items, "one": one, "grain": grain_numbers,
        "grain-packed": grain_packed, "grain-source": grain_over_dataset, "grain-records": grain_over_records}


def write_records(source, path):
    from array_record.python.array_record_module import ArrayRecordWriter
    writer = ArrayRecordWriter(path, "group_size:1,uncompressed")
    for file in sorted(source.rglob("*.bin")):
        writer.write(file.read_bytes())
    writer.close()


def main():
    way, data, n_samples, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    counts, n = WAYS[way](data), 0
    while n < 2 * n_samples:  # the second sample of a chunk brings the rest of it
        n += next(counts)
    n, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        n += next(counts)
    elapsed, used = time.perf_counter() - begin, time.process_time() - cpu
    print(json.dumps({"per_s": n / elapsed, "per_cpu_s": n / used}), flush=True)


if __name__ == "__main__":
    main()
