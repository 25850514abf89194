/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads, writes, lists and deletes objects of a bucket by Amazon's S3 protocol. Reads are ranges; writes are
 * whole objects, and can refuse to replace one. Requests are signed (version 4), have deadlines, and are
 * repeated after temporary failures.
 *
 * The server is not trusted: the length of answers is limited, and redirects are not followed. The caller
 * checks the content of the objects that it reads.
 *
 * Server and credentials come from the usual variables and files: AWS_ACCESS_KEY_ID and the like,
 * ~/.aws/credentials, ~/.aws/config, AWS_ENDPOINT_URL_S3, AWS_REGION (docs/man/dieselctl.1). Error texts
 * contain no secrets. Thread-safe. Errors name the object and say what to do.
 */

#include "lib/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define BUCKET_SCHEME  "s3://"
#define BUCKET_KEY_MAX 1024

struct bucket;

/* Opens a bucket, without a request. url: s3://BUCKET[/PREFIX]. -EINVAL: invalid URL; -EACCES: no
 * credentials; -ELIBACC: libcurl is not installed; -EIO. */
int bucket_open(const char *url, struct bucket **ret, struct error *err);
void bucket_close(struct bucket *b); /* accepts NULL */

/* Returns the URL without trailing slashes. Keys below are relative to this URL and a slash. */
const char *bucket_url(const struct bucket *b);

/* Errors of all functions below: -EACCES: the server refuses; -ETIMEDOUT, -EIO: several attempts failed;
 * -EPROTO: the answer is not that of an S3 server; -ENOMEM. */

/* Writes an object that is not visible before it is complete. -EEXIST: an object of that name exists. A
 * server that does not support If-None-Match replaces it. */
int bucket_put_new(struct bucket *b, const char *key, const struct iovec *parts, int n_parts,
		   struct error *err);
/* As bucket_put_new(), but replaces an existing object. The old object stays visible until the new one is
 * complete. */
int bucket_replace(struct bucket *b, const char *key, const struct iovec *parts, int n_parts,
		   struct error *err);
/* As bucket_put_new(), from a file. Uses the memory of one part of an upload, whatever the file's length. */
int bucket_put_file(struct bucket *b, const char *key, int fd, uint64_t bytes, struct error *err);

/* -ENOENT. */
int bucket_size(struct bucket *b, const char *key, uint64_t *ret_bytes, struct error *err);

/* Reads all of [offset, offset + bytes). -ENOENT; -EBADMSG: the object ends before that. */
int bucket_read(struct bucket *b, const char *key, uint64_t offset, void *buffer, size_t bytes,
		struct error *err);

/* As bucket_size() and bucket_read(), with the ETag of the object that answered: equal ones mean that it has
 * not changed. "": the server sends none. ret_tag may be NULL. */
#define BUCKET_TAG_MAX 256
int bucket_stat(struct bucket *b, const char *key, uint64_t *ret_bytes, char ret_tag[BUCKET_TAG_MAX],
		struct error *err);
int bucket_read_tagged(struct bucket *b, const char *key, uint64_t offset, void *buffer, size_t bytes,
		       char ret_tag[BUCKET_TAG_MAX], struct error *err);

/* Returns 0 also if the object does not exist. */
int bucket_delete(struct bucket *b, const char *key, struct error *err);

/* Calls back for each object whose key begins with `prefix` and sorts behind `after` (NULL: all), in
 * ascending order, until the callback returns a value other than 0, which is returned. max: maximum number of
 * keys per request. */
typedef int bucket_list_callback(const char *key, uint64_t bytes, void *context);
int bucket_list(struct bucket *b, const char *prefix, const char *after, unsigned max,
		bucket_list_callback *callback, void *context, struct error *err);
