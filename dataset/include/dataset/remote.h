/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/error.h"

/* Registers s3:// names as places of datasets. For programs that link diesel_dataset_remote; call it once,
 * before threads start. */
void backend_s3_register(void);

/* Copies a snapshot into a folder of the caller's own, as those of buckets are kept: the daemon serves chunks
 * that a user's process reads only to the owner of the snapshot. name: the dataset; fd: its snapshot. The
 * folder, whose path the caller frees, stays as long as *ret_fd is open. */
int snapshot_private_copy(const char *name, int fd, char **ret_folder, int *ret_fd, struct error *err);
