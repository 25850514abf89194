/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* DATASET/meta.redis: where a dataset's metadata is, if that is on a Redis server. No password is in it. */

#include "dataset/redis/redis_link.h"

struct redis_backend {
	struct redis_url url;
	char dataset[33]; /* a random number, which the server has, too: hexadecimal */
	bool is_copied;   /* the file was written for another folder: the metadata is not of this one */
};

/* -ENOENT: the dataset has none. With the user and password that DIESEL_REDIS has for this server. */
int redis_backend_read(int dir_fd, const char *dataset_path, struct redis_backend *ret, struct error *err);
int redis_backend_write(int dir_fd, const char *dataset_path, const struct redis_backend *place,
			struct error *err);
/* Says in err what to do with a copy. Returns -EXDEV. */
int redis_backend_copied(const char *dataset_path, struct error *err);
int redis_random_hex(char *ret, size_t digits);
