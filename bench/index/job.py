# SPDX-License-Identifier: Apache-2.0
"""job.py WAY DATA [SEED]: reads two epochs in random order, in batches of 64 as stored. Prints {"n", "cold_s", "warm_s", "major_faults",
"switches"} as JSON, which are samples, seconds of each epoch, and the major page faults and context switches of both.

diesel: diesel_loader over the shards. webdataset-N: WebDataset's pipeline with shuffled shards and a shuffle buffer of 1000 samples, in a
DataLoader with N workers. images-diesel: diesel_loader over shards of JPEG images, which dieseld crops to 224 x 224 float32. images-pil-N,
images-torch-N: WebDataset decodes them to Pillow's images or torch's tensors, and torchvision transforms them so. lmdb-diesel:
diesel_loader over the database. lmdb-torch: PyTorch's DataLoader over python-lmdb as its users write it, opened for reading without lock
and read-ahead, keys in random order, 2 workers. mds-diesel, litdata-diesel: diesel_loader over MDS shards or LitData chunks, DATA being the
dataset, and their folder next to it. mds-N, litdata-N: StreamingDataset of MosaicML Streaming, in a DataLoader with N workers, and that of
LitData in its own loader."""
import glob
import io
import json
import os
import pathlib
import random
import resource
import sys
import tarfile
import time

BATCH = 64


def noise(n, size):
    """Yields n images of this mean size that cannot be decoded."""
    rng = random.Random(1)
    for _ in range(n):
        yield rng.randbytes(rng.randrange(size // 2, 3 * size // 2))


def write_shards(folder, n_shards, n_samples, images):
    """images: yields the bytes of n_shards * n_samples images."""
    folder.mkdir()
    for shard in range(n_shards):
        with tarfile.open(folder / f"train-{shard:04d}.tar", "w") as archive:
            for i in range(n_samples):
                key = f"{shard * n_samples + i:08d}"
                fields = {"jpg": next(images), "txt": b"a caption " * 8, "cls": b"%d" % (i % 100)}
                for name, data in fields.items():
                    info = tarfile.TarInfo(f"{key}.{name}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))


def write_lmdb(path, n, size):
    import lmdb
    rng = random.Random(2)
    with lmdb.open(path, map_size=4 * n * (size + 4096)) as env:
        for first in range(0, n, 1000):
            with env.begin(write=True) as transaction:
                for i in range(first, min(first + 1000, n)):
                    transaction.put(b"%08d" % i, rng.randbytes(size))


def diesel(data, seed):
    import diesel_loader.torch
    loader = diesel_loader.torch.DataLoader(data, BATCH, shuffle=True, seed=seed, collate_fn=list)
    return lambda: sum(len(batch) for batch in loader)


def lmdb_diesel(data, seed):
    import diesel_loader.torch
    loader = diesel_loader.torch.DataLoader(data, BATCH, shuffle=True, seed=seed)
    return lambda: sum(len(labels) for _, labels in loader)


def webdataset(data, seed, workers):
    import torch
    import webdataset as wds
    urls = sorted(glob.glob(f"{data}/*.tar"))

    def epoch():
        dataset = wds.WebDataset(urls, shardshuffle=len(urls), seed=seed).shuffle(1000)
        return sum(len(batch) for batch in torch.utils.data.DataLoader(dataset, BATCH, num_workers=workers, collate_fn=list))
    return epoch


def steps(of_tensors):
    """Torchvision's usual transform, of Pillow's images or of tensors."""
    from torchvision import transforms
    return transforms.Compose([transforms.RandomResizedCrop(224, antialias=True), transforms.RandomHorizontalFlip(),
                               *([] if of_tensors else [transforms.ToTensor()]), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


def images_diesel(data, seed):
    import diesel_loader.torch
    dataset = diesel_loader.Dataset(data, fields=("jpg", "cls"))
    loader = diesel_loader.torch.DataLoader(dataset, BATCH, shuffle=True, seed=seed, transform={"jpg": steps(of_tensors=False)})
    return lambda: sum(len(batch["jpg"]) for batch in loader)


def images_webdataset(data, seed, decoded, workers):
    import torch
    import webdataset as wds
    torch.set_num_threads(1)
    urls = sorted(glob.glob(f"{data}/*.tar"))

    def epoch():
        dataset = wds.WebDataset(urls, shardshuffle=len(urls), seed=seed).shuffle(1000).decode(decoded).to_tuple("jpg", "cls")
        dataset = dataset.map_tuple(steps(of_tensors=decoded == "torchrgb"), int)
        return sum(len(images) for images, _ in torch.utils.data.DataLoader(dataset, BATCH, num_workers=workers))
    return epoch


class Records:
    """A map-style dataset; each process opens the database for itself."""

    def __init__(self, path):
        import lmdb
        self.path, self.env, self.pid = path, None, None
        with lmdb.open(path, readonly=True, lock=False) as env:
            self.n = env.stat()["entries"]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        import lmdb
        if self.pid != os.getpid():
            self.env, self.pid = lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False), os.getpid()
        with self.env.begin() as transaction:
            return transaction.get(b"%08d" % i)


def lmdb_torch(data, seed):
    import torch
    torch.manual_seed(seed)
    loader = torch.utils.data.DataLoader(Records(data), BATCH, shuffle=True, num_workers=2, collate_fn=list)
    return lambda: sum(len(batch) for batch in loader)


def columns(data, seed):
    import diesel_loader.torch
    loader = diesel_loader.torch.DataLoader(data, BATCH, shuffle=True, seed=seed)
    return lambda: sum(len(batch["label"]) for batch in loader)


def rows(n, size):
    rng = random.Random(3)
    for i in range(n):
        yield {"image": rng.randbytes(rng.randrange(size // 2, 3 * size // 2)), "caption": "a caption " * 8, "label": i % 100}


def write_mds(folder, n, size):
    from streaming import MDSWriter
    with MDSWriter(out=folder, columns={"image": "bytes", "caption": "str", "label": "int"}) as writer:
        for row in rows(n, size):
            writer.write(row)


def write_litdata(folder, n, size):
    from litdata.streaming.writer import BinaryWriter
    writer = BinaryWriter(folder, chunk_bytes=1 << 26)
    for i, row in enumerate(rows(n, size)):
        writer[i] = row
    writer.done()
    writer.merge()


def streaming(data, seed, workers):
    import streaming as mosaic
    import torch
    dataset = mosaic.StreamingDataset(local=data, shuffle=True, shuffle_seed=seed, batch_size=BATCH)
    loader = torch.utils.data.DataLoader(dataset, BATCH, num_workers=workers, collate_fn=list)
    return lambda: sum(len(batch) for batch in loader)


def picklable(batch):
    """LitData returns views of its chunks, which a worker cannot send."""
    return [{name: bytes(value) if isinstance(value, memoryview) else value for name, value in sample.items()} for sample in batch]


def lightning(data, seed, workers):
    import litdata
    dataset = litdata.StreamingDataset(data, shuffle=True, seed=seed)
    loader = litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers, collate_fn=picklable if workers else list)
    return lambda: sum(len(batch) for batch in loader)


COLUMN_WAYS = {"mds": {"mds-diesel": columns, "mds-0": lambda data, seed: streaming(data, seed, 0), "mds-2": lambda data, seed: streaming(data, seed, 2)},
               "litdata": {"litdata-diesel": columns, "litdata-0": lambda data, seed: lightning(data, seed, 0),
                           "litdata-2": lambda data, seed: lightning(data, seed, 2)}}
TAR_WAYS = {"diesel": diesel, "webdataset-0": lambda data, seed: webdataset(data, seed, 0),
            "webdataset-2": lambda data, seed: webdataset(data, seed, 2)}
IMAGE_WAYS = {"images-diesel": images_diesel, "images-pil-2": lambda data, seed: images_webdataset(data, seed, "pil", 2),
              "images-torch-2": lambda data, seed: images_webdataset(data, seed, "torchrgb", 2)}
LMDB_WAYS = {"lmdb-diesel": lmdb_diesel, "lmdb-torch": lmdb_torch}


def used():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_majflt for u in both), sum(u.ru_nvcsw + u.ru_nivcsw for u in both)


def main():
    way, data, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
    epoch = {**TAR_WAYS, **IMAGE_WAYS, **LMDB_WAYS, **COLUMN_WAYS["mds"], **COLUMN_WAYS["litdata"]}[way](str(pathlib.Path(data)), seed)
    told = {}
    faults, switches = used()
    for kind in ("cold", "warm"):
        begin = time.perf_counter()
        told["n"] = epoch()
        told[f"{kind}_s"] = time.perf_counter() - begin
    told["major_faults"], told["switches"] = used()[0] - faults, used()[1] - switches
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
