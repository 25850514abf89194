# SPDX-License-Identifier: Apache-2.0
"""The job of jobs/feed.py with TensorFlow's tf.data and its AUTOTUNE: the same files, the same arithmetic per sample in
TensorFlow's own operations (as its users write transforms), the same device and trace. Runs in an environment of its own.

tfdata.py JSON, as feed.py's jobs, with ram_budget (bytes) and cpu_budget (cores). With "python" the transform is the same Python code
as in the PyTorch jobs, called by tf.numpy_function: exactly the same work per sample, as for transforms that TensorFlow lacks.
"""
import json
import mmap
import os
import pathlib
import struct
import sys
import time

import numpy
import tensorflow as tf

RECORD = struct.Struct("<ddd")
DIAL = struct.Struct("<ddd")
USED = 64 * 64 * 3


def in_python(data, passes):
    values = data[:USED].astype(numpy.float32) / 255
    for _ in range(int(passes)):
        values = 1 - numpy.abs(1 - 1.999 * numpy.sqrt(values * values))
    return values.astype(numpy.float32)


def pipeline(job, passes):
    def load(path):
        data = tf.io.decode_raw(tf.io.read_file(path), tf.uint8)
        if not job["transform"]:
            return data
        if job["python"]:
            values = tf.numpy_function(in_python, (data, passes), tf.float32)
            return tf.reshape(values, (3, 64, 64))
        values = tf.cast(data[:USED], tf.float32) / 255.0
        _, values = tf.while_loop(lambda i, _: i < passes, lambda i, v: (i + 1, 1 - tf.abs(1 - 1.999 * tf.sqrt(v * v))),
                                  (0, values))
        return tf.reshape(values, (3, 64, 64))

    paths = sorted(os.path.join(root, name) for root, _, names in os.walk(job["data"]) for name in names)
    dataset = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), reshuffle_each_iteration=True).repeat()
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(job["batch"], drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.autotune.enabled = True
    options.autotune.ram_budget = job["ram_budget"]
    options.autotune.cpu_budget = job["cpu_budget"]
    return dataset.with_options(options)


def main():
    job = json.loads(sys.argv[1])
    passes = tf.Variable(0, dtype=tf.int32)
    dataset = pipeline(job, passes)
    with open(job["dial"], "r+b") as file:
        dial = mmap.mmap(file.fileno(), DIAL.size)
    tf.constant(0.0) + 1.0  # starts the runtime now, not in the first step
    for group in job["groups"]:
        pathlib.Path(group, "cgroup.procs").write_text(str(os.getpid()))
    passes.assign(int(DIAL.unpack(dial)[0]))
    with open(job["trace"], "ab", buffering=0) as trace:
        before = time.monotonic()
        trace.write(RECORD.pack(before, 0, 0))
        for batch in dataset:
            got = time.monotonic()
            wanted, milliseconds, stop = DIAL.unpack(dial)
            if stop:
                return
            if int(wanted) != int(passes.numpy()):
                passes.assign(int(wanted))
            time.sleep(milliseconds / 1000)
            now = time.monotonic()
            trace.write(RECORD.pack(now, got - before, int(batch.shape[0])))
            before = now


if __name__ == "__main__":
    main()
