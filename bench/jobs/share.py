# SPDX-License-Identifier: Apache-2.0
"""One of several jobs that iterate over the same images at the same time, with the transform and batches of decode.py.

    share.py diesel DATASET SEED         a job that dieseld serves
    share.py paced DATASET STEPS SECONDS the same, on a device that takes SECONDS per batch
    share.py tensorsocket PORT           a consumer of TensorSocket
    share.py producer DATASET PORT       TensorSocket's producer: torchvision's ImageFolder, PyTorch's DataLoader, a worker per core

After two epochs (a consumer: one, which takes minutes) a job prints "ready". A line on standard input with a number of seconds starts the
counted part, after which the job prints, as JSON, samples and seconds. A paced job is ready at once, begins with a line, and prints the
seconds of its steps. The producer prints "ready" when it accepts connections, and ends with standard input."""
import importlib.util
import json
import logging
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import decode

WARM = {"diesel": 2, "tensorsocket": 1}  # epochs


def ports(first):
    first = int(first)
    return {"port": first, "ack_port": first + 1, "heart_ports": (first + 2, first + 3)}


def diesel(dataset, seed):
    from diesel_loader.torch import DataLoader, Decode
    steps = decode.transform(v1=True) if importlib.util.find_spec("torchvision") else decode.declared()
    return DataLoader(dataset, decode.BATCH, shuffle=True, seed=int(seed), transform=steps, decode=Decode(native="require"), drop_last=True)


def paced(dataset, steps, step_s):
    loader, begin, seen = diesel(dataset, 1), None, 0
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    while True:
        for batch in loader:
            decode.look(batch)
            del batch  # frees its slot for the next batch
            seen += 1
            if seen == int(steps):
                return {"samples": seen * decode.BATCH, "seconds": time.perf_counter() - begin}
            time.sleep(float(step_s))


def tensorsocket(port):
    import tensorsocket as peer
    return peer.TensorConsumer(batch_size=decode.BATCH, **ports(port))


def produce(dataset, port):
    import tensorsocket as peer
    import torch.utils.data
    from torchvision import datasets
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(dataset, decode.transform(v1=True)), decode.BATCH, shuffle=True,
                                         num_workers=decode.CORES, persistent_workers=True, drop_last=True)
    # Without a GPU, version 0.0.5 pickles the memory of a whole group of batches with each of its batches and for each consumer. With the
    # default groups of 8, that is 154 MB per batch of 19 MB, and consumers do not get two epochs in minutes. With groups of one batch it
    # ends with an IndexError.
    producer = peer.TensorProducer(loader, producer_batch_size=2, **ports(port))
    print("ready", flush=True)
    while True:
        for _ in producer:
            pass


def end_with_input():
    while os.read(0, 1):  # not sys.stdin, whose lock forked workers would wait for
        pass
    os._exit(0)


def go_on(epochs, begun, warm):
    """Returns samples and seconds, counted from the line on standard input."""
    n, begin = 0, None
    while True:
        for batch in epochs:
            size = decode.look(batch)
            if begin:
                n += size
                if time.perf_counter() - begin >= begun.seconds:
                    return {"samples": n, "seconds": time.perf_counter() - begin}
            elif begun.is_set():
                begin = time.perf_counter()
        begun.epochs += 1
        if begun.epochs == warm:
            print("ready", flush=True)


class Begun(threading.Event):
    epochs, seconds = 0, None

    def listen(self):
        self.seconds = float(sys.stdin.readline() or "nan")
        self.set()


def main():
    way, *arguments = sys.argv[1:]
    logging.disable(logging.INFO)  # TensorSocket logs to standard output
    if way == "producer":
        threading.Thread(target=end_with_input, daemon=True).start()
        produce(*arguments)
    import torch
    torch.set_num_threads(1)
    if way == "paced":
        print(json.dumps(paced(*arguments)), flush=True)
        sys.stdin.read()
        return
    begun = Begun()
    threading.Thread(target=begun.listen, daemon=True).start()
    print(json.dumps(go_on({"diesel": diesel, "tensorsocket": tensorsocket}[way](*arguments), begun, WARM[way])), flush=True)
    sys.stdin.read()  # the others are still measured


if __name__ == "__main__":
    main()
