/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The columns of every table. */

#include "table.h"

extern const struct table_columns columns_jobs, columns_fleet, columns_workers, columns_devices,
    columns_places, columns_datasets, columns_decisions, columns_hops, columns_gpus, columns_gpu_jobs;
