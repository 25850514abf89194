# SPDX-License-Identifier: Apache-2.0
"""Reads one epoch of samples as they are stored, shuffled, from a bucket, in batches of 2 MiB.

    bucket_job.py WAY URL SAMPLE_BYTES

Ways (-0: no workers, -2: two workers):

    diesel                    diesel_loader's batches of NumPy arrays, torch not imported
    s3torchconnector-0, -2    S3MapDataset under PyTorch's DataLoader, an object per sample
    chunks-0, -2              the same over objects that hold many samples, which are not extracted
    litdata-0, -2             LitData's StreamingDataset

Credentials, region and endpoint are in the environment. Modules are loaded before. The job reads every byte. It prints, as JSON, seconds
from the construction of the loader to the last batch, the time to the first, samples, bytes, and the sum over all 64-bit words. CPU
seconds are those of this process and of all processes that it started meanwhile. SAMPLE_BYTES 0: samples of any length."""
import ctypes
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import numpy
from jobs import usage

PR_SET_CHILD_SUBREAPER = 36
BATCH_BYTES = 2 << 20


def join(samples):
    return numpy.frombuffer(bytearray(b"".join(samples)), numpy.uint8)


def content(reader):
    return reader.read()


def diesel(url, size, _):
    from diesel_loader.numpy import DataLoader
    return (data for data, _ in DataLoader(url, BATCH_BYTES // size, shuffle=True, seed=1))


def s3torchconnector(url, size, workers):
    import torch.utils.data
    from s3torchconnector import S3ClientConfig, S3MapDataset
    dataset = S3MapDataset.from_prefix(url, region=os.environ["AWS_REGION"], endpoint=os.environ["AWS_ENDPOINT_URL"], transform=content,
                                       s3client_config=S3ClientConfig(force_path_style=True))
    return torch.utils.data.DataLoader(dataset, BATCH_BYTES // size if size else 1, shuffle=True, collate_fn=join, num_workers=workers)


def litdata(url, size, workers):
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader
    # LitData's faster way of reading has no public option for servers without TLS; its options are a dictionary.
    getattr(downloader, "_OBSTORE_CLIENT_OPTIONS", {})["allow_http"] = True
    dataset = StreamingDataset(url, cache_dir=os.environ["DIESEL_BENCH_CACHE"], shuffle=True, seed=1,
                               storage_options={"endpoint_url": os.environ["AWS_ENDPOINT_URL"]})
    return StreamingDataLoader(dataset, batch_size=BATCH_BYTES // size, collate_fn=join, num_workers=workers)


WAYS = {"diesel": (diesel, "diesel_loader.numpy"), "s3torchconnector": (s3torchconnector, "s3torchconnector"),
        "chunks": (s3torchconnector, "s3torchconnector"), "litdata": (litdata, "litdata")}


def main():
    (way, _, workers), url, size = sys.argv[1].partition("-"), sys.argv[2], int(sys.argv[3])
    make, module = WAYS[way]
    __import__(module)
    # The process that reads a bucket for dieseld leaves its parent; as subreaper, this process keeps it among its descendants.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    begin, cpu, first_s, n_bytes, total = time.perf_counter(), usage.cpu_of([os.getpid()]), None, 0, 0
    for batch in make(url, size, int(workers or 0)):
        first_s = first_s or time.perf_counter() - begin
        data = numpy.asarray(batch).reshape(-1)
        n_bytes += data.nbytes
        whole = data.nbytes // 8 * 8
        total += int(data[:whole].view(numpy.uint64).sum()) + int(data[whole:].sum())
    seconds, cpu = time.perf_counter() - begin, usage.cpu_of([os.getpid()]) - cpu
    print(json.dumps({"s": seconds, "cpu_s": cpu, "first_s": first_s, "bytes": n_bytes, "sum": total % (1 << 64)}), flush=True)
    os._exit(0)  # some peers do not exit cleanly


if __name__ == "__main__":
    main()
