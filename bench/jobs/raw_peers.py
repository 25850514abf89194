# SPDX-License-Identifier: Apache-2.0
"""The loaders of jobs/raw.py: each follows its documentation for samples of bytes, in its own format, shuffled, and none decodes, converts
or copies more than it must. Each is an object whose iteration is an epoch of uint8 arrays [batch, sample's bytes].

diesel: diesel_loader; torch-0, torch-2: PyTorch's DataLoader over single files, without and with two workers, and with one per core;
litdata-0, -2, streaming-0, -2 (MosaicML), webdataset-0, -2, grain-0, -2 likewise; spdl: threads over single files; ffcv: its loader.
write() makes the data that a way reads."""
import os
import pathlib
import random
import sys
import tarfile

CORES = len(os.sched_getaffinity(0))
CHUNK_BYTES = 16 << 20  # size of a chunk, shard or file of records, in formats that have these; a dataset has at least 25
BATCH_BYTES, BATCH_MOST = 2 << 20, 256


def batch_of(size):
    return min(BATCH_MOST, BATCH_BYTES // size)


def files(folder):
    return sorted(os.path.join(root, name) for root, _, names in os.walk(folder) for name in names)


def read(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 30)
    finally:
        os.close(fd)


def join(samples):
    """Copies samples of bytes to an array. This is the only copy."""
    import numpy
    return numpy.frombuffer(bytearray(b"".join(samples)), numpy.uint8).reshape(len(samples), -1)


def diesel(data, size, _):
    from diesel_loader.torch import DataLoader
    return _First(DataLoader(data, batch_of(size), shuffle=True, seed=1))


class _First:
    """Yields batches without their labels."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return (batch[0] for batch in self.loader)


class _Files:
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return read(self.paths[i])


def _torch_loader(dataset, size, workers, loader=None, **options):
    import torch.utils.data
    loader = loader or torch.utils.data.DataLoader
    return loader(dataset, batch_size=batch_of(size), collate_fn=join, num_workers=workers, persistent_workers=workers > 0, **options)


def torch_files(data, size, workers):
    return _torch_loader(_Files(files(data)), size, workers, shuffle=True)


def litdata(data, size, workers):
    from litdata import StreamingDataLoader, StreamingDataset
    return _torch_loader(StreamingDataset(str(data), shuffle=True, seed=1), size, workers, StreamingDataLoader)


def litdata_write(source, data):
    import litdata as library
    library.optimize(read, files(source), str(data), chunk_bytes=CHUNK_BYTES, num_workers=1)


def streaming(data, size, workers):
    from streaming import StreamingDataset
    dataset = StreamingDataset(local=str(data), shuffle=True, batch_size=batch_of(size))
    return _torch_loader(_Column(dataset), size, workers)


def _Column(dataset):
    """Returns a dataset whose samples are dictionaries of columns."""
    import torch.utils.data

    class Column(torch.utils.data.IterableDataset):
        def __len__(self):
            return len(dataset)

        def __iter__(self):
            return (sample["data"] for sample in dataset)

    return Column()


def streaming_write(source, data):
    from streaming import MDSWriter
    with MDSWriter(out=str(data), columns={"data": "bytes"}, size_limit=CHUNK_BYTES) as writer:
        for path in files(source):
            writer.write({"data": read(path)})


def webdataset(data, size, workers):
    import webdataset as library
    shards = files(data)
    dataset = (library.WebDataset(shards, shardshuffle=len(shards), workersplitter=library.split_by_worker, empty_check=False)
               .shuffle(1000).to_tuple("bin").map(lambda sample: sample[0])
               .batched(batch_of(size), collation_fn=join))
    return library.WebLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)


def webdataset_write(source, data):
    pathlib.Path(data).mkdir()
    paths = files(source)
    a_shard = max(1, CHUNK_BYTES // os.path.getsize(paths[0]))
    for k in range(0, len(paths), a_shard):
        with tarfile.open(os.path.join(data, f"{k // a_shard:06d}.tar"), "w") as tar:
            for path in paths[k:k + a_shard]:
                tar.add(path, os.path.basename(path))


def grain(data, size, workers):
    import grain as library
    source = library.sources.ArrayRecordDataSource(files(data))
    dataset = library.MapDataset.source(source).shuffle(seed=1).batch(batch_of(size), batch_fn=join).to_iter_dataset()
    if workers:
        dataset = dataset.mp_prefetch(library.multiprocessing.MultiprocessingOptions(num_workers=workers))
    return dataset


def grain_write(source, data):
    from array_record.python.array_record_module import ArrayRecordWriter
    pathlib.Path(data).mkdir()
    writer = ArrayRecordWriter(os.path.join(data, "samples.array_record"), "group_size:1,uncompressed")
    for path in files(source):
        writer.write(read(path))
    writer.close()


class Spdl:
    def __init__(self, data, size, _):
        self.paths, self.batch = files(data), batch_of(size)

    def __iter__(self):
        from spdl.pipeline import PipelineBuilder
        paths = random.sample(self.paths, len(self.paths))
        groups = (paths[k:k + self.batch] for k in range(0, len(paths), self.batch))
        pipeline = (PipelineBuilder().add_source(groups).pipe(lambda group: join(list(map(read, group))), concurrency=CORES)
                    .add_sink(4).build(num_threads=CORES))
        with pipeline.auto_stop():
            yield from pipeline


class Ffcv:
    def __init__(self, data, size, _):
        from ffcv.fields.decoders import NDArrayDecoder
        from ffcv.loader import Loader, OrderOption
        self.loader = Loader(str(data), batch_of(size), num_workers=CORES, order=OrderOption.RANDOM, os_cache=True, drop_last=False,
                             pipelines={"data": [NDArrayDecoder()]})

    def __iter__(self):
        return (batch[0] for batch in self.loader)


def ffcv_write(source, data):
    import numpy
    from ffcv.fields import NDArrayField
    from ffcv.writer import DatasetWriter
    paths = files(source)

    class Arrays(_Files):
        def __getitem__(self, i):
            return (numpy.frombuffer(read(self.paths[i]), numpy.uint8),)

    field = NDArrayField(numpy.dtype(numpy.uint8), (os.path.getsize(paths[0]),))
    DatasetWriter(str(data), {"data": field}, num_workers=1).from_indexed_dataset(Arrays(paths))


# way: maker of the loader, writer of its format from a folder of files (None: it has none), module, workers
WAYS = {"diesel": (diesel, None, "diesel_loader.torch", 0), "spdl": (Spdl, None, "spdl.pipeline", 0),
        "ffcv": (Ffcv, ffcv_write, "ffcv.loader", 0)}
for _n in sorted({0, 2, CORES}):
    WAYS |= {f"torch-{_n}": (torch_files, None, "torch", _n), f"litdata-{_n}": (litdata, litdata_write, "litdata", _n),
             f"streaming-{_n}": (streaming, streaming_write, "streaming", _n),
             f"webdataset-{_n}": (webdataset, webdataset_write, "webdataset", _n), f"grain-{_n}": (grain, grain_write, "grain", _n)}


def imports(way):
    import importlib

    import numpy
    numpy.zeros(1).sum()
    importlib.import_module(WAYS[way][2])


def make(way, data, size):
    constructor, _, _, workers = WAYS[way]
    return constructor(data, size, workers)


if __name__ == "__main__":  # raw_peers.py WAY FOLDER_OF_FILES DATA
    WAYS[sys.argv[1]][1](sys.argv[2], sys.argv[3])
    print("{}")
