# SPDX-License-Identifier: Apache-2.0
"""start.py DATASET: opens the dataset, takes one batch, looks up one sample, and prints how long each took."""
import json
import os
import sys
import time

import diesel_loader
import diesel_loader.numpy

begin = time.perf_counter()
dataset = diesel_loader.Dataset(sys.argv[1])
opened = time.perf_counter()
batches = iter(diesel_loader.numpy.DataLoader(dataset, batch_size=256, shuffle=True, seed=1, num_workers=0, batches=diesel_loader.numpy.Batches(return_ids=True)))
data, labels, ids = next(batches)
first = time.perf_counter()
if data[:, :8].copy().view("<u8").ravel().tolist() != ids.tolist():
    sys.exit("a sample does not match its number")
checked = time.perf_counter()
label = dataset.label(int(ids[0]))
looked_up = time.perf_counter()
if label != labels[0]:
    sys.exit("a label does not match the batch")
print(json.dumps({"open_s": opened - begin, "batch_s": first - opened, "first_batch_s": first - begin,
                  "look_up_s": looked_up - checked}), flush=True)
os._exit(0)
