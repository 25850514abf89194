/* SPDX-License-Identifier: Apache-2.0 */
/* Writes, reads and deletes single objects. */
#include "bucket_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"

/* Longer objects are sent in parts of this size, so that a failure costs one part. Amazon's limit is 10,000
 * parts. */
#define PART_BYTES ((uint64_t)64 << 20)
#define MAX_PARTS  10000

struct upload {
	struct bucket *bucket;
	const char *key;
	char id[2048];
	FILE *done; /* XML document that completes the upload */
	bool replace;
	char token[2 * TOKEN_BYTES + 1];
};

static int exists(struct bucket *b, const char *key, struct error *err)
{
	char name[OBJECT_NAME_MAX];

	return error_errno(err, -EEXIST, "cannot write %s", object_name(b, key, name));
}

static int missing(struct bucket *b, const char *key, struct error *err)
{
	char name[OBJECT_NAME_MAX];

	return error_errno(err, -ENOENT, "cannot find %s", object_name(b, key, name));
}

/* Runs a request for an object. Sets an error if the object is missing, or exists and may not be replaced. */
static int run(struct bucket *b, const struct s3_request *r, struct answer *ret, struct error *err)
{
	int result = request_run(b, r, ret, err);

	if (result == REQUEST_MISSING)
		return missing(b, r->key, err);
	if (result == REQUEST_EXISTS)
		return exists(b, r->key, err);
	if (result == REQUEST_PAST_END)
		return error_set(err, -EPROTO, "%s/%s: the server answered 416", b->url, r->key);
	return result;
}

static int put_once(struct bucket *b, const char *key, const struct iovec *parts, int n_parts, bool replace,
		    struct error *err)
{
	char token[2 * TOKEN_BYTES + 1];
	struct s3_request r = {.method = METHOD_PUT,
			       .key = key,
			       .if_none_match = !replace,
			       .token = token,
			       .parts = parts,
			       .n_parts = n_parts};
	struct answer a;

	random_token(token);
	int result = run(b, &r, &a, err);

	if (result == 0)
		answer_free(&a);
	return result;
}

/* Finds the id of a new upload. rclone leaves out "Result" in the name of the root. */
static bool find_upload(const struct answer *a, char *id, size_t size)
{
	return a->text &&
	       (xml_find(a->text, a->body_bytes, "InitiateMultipartUploadResult", "UploadId", id, size) ||
		xml_find(a->text, a->body_bytes, "InitiateMultipartUpload", "UploadId", id, size)) &&
	       id[0] && strlen(id) + 1 < size;
}

static int upload_begin(struct upload *u, struct error *err)
{
	struct s3_request r = {
	    .method = METHOD_POST, .key = u->key, .query = {{"uploads", ""}}, .n_query = 1};
	char name[OBJECT_NAME_MAX];
	struct answer a;

	random_token(u->token);
	r.token = u->token;
	int result = run(u->bucket, &r, &a, err);

	if (result < 0)
		return result;
	if (!find_upload(&a, u->id, sizeof(u->id)))
		result = error_set(err, -EPROTO, "%s: the server did not start the upload",
				   object_name(u->bucket, u->key, name));
	answer_free(&a);
	return result;
}

static void upload_abort(struct upload *u)
{
	const struct s3_request r = {
	    .method = METHOD_DELETE, .key = u->key, .query = {{"uploadId", u->id}}, .n_query = 1};
	struct answer a;

	if (request_run(u->bucket, &r, &a, NULL) == 0)
		answer_free(&a);
}

static int upload_part(struct upload *u, int number, const struct iovec *parts, int n_parts,
		       struct error *err)
{
	char text[16], name[OBJECT_NAME_MAX];
	const struct s3_request r = {
	    .method = METHOD_PUT,
	    .key = u->key,
	    .query = {{"partNumber", text}, {"uploadId", u->id}},
	    .n_query = 2,
	    .parts = parts,
	    .n_parts = n_parts,
	};
	struct answer a;

	snprintf(text, sizeof(text), "%d", number);
	int result = run(u->bucket, &r, &a, err);

	if (result < 0)
		return result;
	/* The ETag is sent back unchanged, so it must not contain characters that end an element. */
	if (!a.etag[0] || strpbrk(a.etag, "<>&"))
		result = error_set(err, -EPROTO, "%s: the server sent no ETag for a part",
				   object_name(u->bucket, u->key, name));
	else
		fprintf(u->done, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", number, a.etag);
	answer_free(&a);
	return result;
}

/* Completes the upload. The answer may have status 200 and an error in the body. */
static int upload_complete(struct upload *u, char **document, size_t *document_bytes, struct error *err)
{
	fputs("</CompleteMultipartUpload>", u->done);
	if (fclose(steal_pointer(u->done)) != 0)
		return error_errno(err, -ENOMEM, "%s", u->key);
	struct iovec body = {*document, *document_bytes};
	const struct s3_request r = {
	    .method = METHOD_POST,
	    .key = u->key,
	    .query = {{"uploadId", u->id}},
	    .n_query = 1,
	    .if_none_match = !u->replace,
	    .parts = &body,
	    .n_parts = 1,
	};
	char name[OBJECT_NAME_MAX], etag[TEXT_MAX];
	struct answer a;
	int result = request_run(u->bucket, &r, &a, err);

	if (result == 0 && (!a.text || !xml_find(a.text, a.body_bytes, "CompleteMultipartUploadResult",
						 "ETag", etag, sizeof(etag))))
		result = error_set(err, -EIO, "%s: the server did not complete the upload; try again",
				   object_name(u->bucket, u->key, name));
	if (result >= 0 && result != REQUEST_MISSING && result != REQUEST_EXISTS)
		answer_free(&a);
	if (result == 0)
		return 0;
	/* The answer may have been lost although the upload is complete. */
	const struct s3_request look = {.method = METHOD_HEAD, .key = u->key};
	int found = request_run(u->bucket, &look, &a, NULL);
	bool ours = found == 0 && !strcmp(a.token, u->token);

	if (found == 0)
		answer_free(&a);
	if (ours)
		return 0;
	if (result == REQUEST_EXISTS || (result > 0 && found == 0))
		return exists(u->bucket, u->key, err);
	return result > 0 ? error_set(err, -EIO, "%s: the server lost the upload; try again",
				      object_name(u->bucket, u->key, name))
			  : result;
}

/* The source of an upload's bytes: memory or a file. */
struct origin {
	const struct iovec *parts;
	int n_parts;
	int fd;
	void *buffer; /* for a file: one part of the upload */
	bool replace; /* replace an existing object */
};

static int part_of(const struct origin *o, uint64_t offset, uint64_t bytes, struct iovec *out, int *ret_n,
		   const char *key, struct error *err)
{
	size_t done;
	int n = 0;

	if (o->buffer) {
		int r = fd_read_at(o->fd, o->buffer, bytes, offset, &done);

		if (r == 0 && done < bytes)
			r = -EIO;
		if (r < 0)
			return error_errno(err, r, "cannot read the data for %s", key);
		out[0] = (struct iovec){o->buffer, bytes};
		*ret_n = 1;
		return 0;
	}
	for (int i = 0; i < o->n_parts && bytes; i++) {
		size_t length = o->parts[i].iov_len;

		if (offset >= length) {
			offset -= length;
			continue;
		}
		size_t take = length - offset < bytes ? length - offset : bytes;

		out[n++] = (struct iovec){(char *)o->parts[i].iov_base + offset, take};
		bytes -= take;
		offset = 0;
	}
	*ret_n = n;
	return 0;
}

#define MAX_IOVECS 8

static int put_parts(struct bucket *b, const char *key, const struct origin *o, uint64_t bytes,
		     struct error *err)
{
	_cleanup_(freep) char *document = NULL;
	size_t document_bytes = 0;
	struct upload u = {.bucket = b, .key = key, .replace = o->replace};
	struct iovec parts[MAX_IOVECS];
	int n_parts, r = upload_begin(&u, err);

	if (r < 0)
		return r;
	u.done = open_memstream(&document, &document_bytes);
	if (!u.done)
		r = error_errno(err, -ENOMEM, "%s", key);
	else
		fputs("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", u.done);
	for (uint64_t offset = 0; offset < bytes && r == 0; offset += PART_BYTES) {
		uint64_t n = bytes - offset < PART_BYTES ? bytes - offset : PART_BYTES;

		r = part_of(o, offset, n, parts, &n_parts, key, err);
		if (r == 0)
			r = upload_part(&u, (int)(offset / PART_BYTES) + 1, parts, n_parts, err);
	}
	if (r == 0)
		r = upload_complete(&u, &document, &document_bytes, err);
	if (u.done)
		fclose(u.done);
	if (r < 0)
		upload_abort(&u);
	return r;
}

static int put(struct bucket *b, const char *key, const struct iovec *parts, int n_parts, bool replace,
	       struct error *err)
{
	const struct origin origin = {.parts = parts, .n_parts = n_parts, .replace = replace};
	uint64_t bytes = 0;

	for (int i = 0; i < n_parts; i++)
		bytes += parts[i].iov_len;
	if (n_parts > MAX_IOVECS)
		return error_errno(err, -EINVAL, "%s", key);
	return bytes <= PART_BYTES ? put_once(b, key, parts, n_parts, replace, err)
				   : put_parts(b, key, &origin, bytes, err);
}

int bucket_put_new(struct bucket *b, const char *key, const struct iovec *parts, int n_parts,
		   struct error *err)
{
	return put(b, key, parts, n_parts, false, err);
}

int bucket_replace(struct bucket *b, const char *key, const struct iovec *parts, int n_parts,
		   struct error *err)
{
	return put(b, key, parts, n_parts, true, err);
}

int bucket_put_file(struct bucket *b, const char *key, int fd, uint64_t bytes, struct error *err)
{
	uint64_t part = bytes < PART_BYTES ? bytes : PART_BYTES;
	_cleanup_(freep) void *buffer = malloc(part ? part : 1);
	const struct origin origin = {.fd = fd, .buffer = buffer};
	struct iovec whole;
	int n;

	if (!buffer)
		return error_errno(err, -ENOMEM, "%s", key);
	if (bytes / PART_BYTES >= MAX_PARTS)
		return error_errno(err, -EFBIG, "cannot write %s/%s", b->url, key);
	if (bytes > PART_BYTES)
		return put_parts(b, key, &origin, bytes, err);
	int r = part_of(&origin, 0, bytes, &whole, &n, key, err);

	return r < 0 ? r : put_once(b, key, &whole, 1, false, err);
}

int bucket_size(struct bucket *b, const char *key, uint64_t *ret_bytes, struct error *err)
{
	return bucket_stat(b, key, ret_bytes, NULL, err);
}

static void take_tag(const struct answer *a, char tag[BUCKET_TAG_MAX])
{
	if (tag)
		snprintf(tag, BUCKET_TAG_MAX, "%s", a->etag);
}

int bucket_stat(struct bucket *b, const char *key, uint64_t *ret_bytes, char ret_tag[BUCKET_TAG_MAX],
		struct error *err)
{
	const struct s3_request r = {.method = METHOD_HEAD, .key = key};
	char name[OBJECT_NAME_MAX];
	struct answer a;
	int result = run(b, &r, &a, err);

	if (result < 0)
		return result;
	answer_free(&a);
	if (!a.has_length)
		return error_set(err, -EPROTO, "%s: the server did not report the object's length",
				 object_name(b, key, name));
	*ret_bytes = a.content_length;
	take_tag(&a, ret_tag);
	return 0;
}

/* Checks the received range: a shorter one means a truncated object, any other is an invalid answer. */
static int check_range(struct bucket *b, const struct s3_request *r, const struct answer *a,
		       struct error *err)
{
	char name[OBJECT_NAME_MAX];

	object_name(b, r->key, name);
	/* Content-Range decides, not the status: some servers answer 200 to a range. */
	if (a->has_range && a->range_first == r->first && a->range_last == r->last &&
	    a->body_bytes == r->buffer_bytes)
		return 0;
	if (a->has_range && a->range_total <= r->last)
		return error_set(err, -EBADMSG,
				 "%s is truncated: it ends at byte %llu, but must have %llu bytes", name,
				 (unsigned long long)a->range_total, (unsigned long long)r->last + 1);
	return error_set(err, -EPROTO, "%s: the server did not send the requested bytes %llu to %llu", name,
			 (unsigned long long)r->first, (unsigned long long)r->last);
}

int bucket_read(struct bucket *b, const char *key, uint64_t offset, void *buffer, size_t bytes,
		struct error *err)
{
	return bucket_read_tagged(b, key, offset, buffer, bytes, NULL, err);
}

int bucket_read_tagged(struct bucket *b, const char *key, uint64_t offset, void *buffer, size_t bytes,
		       char ret_tag[BUCKET_TAG_MAX], struct error *err)
{
	struct s3_request r = {.method = METHOD_GET,
			       .key = key,
			       .has_range = true,
			       .first = offset,
			       .buffer = buffer,
			       .buffer_bytes = bytes};
	char name[OBJECT_NAME_MAX];
	struct answer a;

	if (offset > INT64_MAX - bytes)
		return error_errno(err, -EINVAL, "cannot read %s", object_name(b, key, name));
	if (bytes == 0)
		return 0;
	r.last = offset + bytes - 1;
	int result = request_run(b, &r, &a, err);

	if (result == REQUEST_MISSING)
		return missing(b, key, err);
	if (result == REQUEST_PAST_END)
		return error_set(err, -EBADMSG, "%s is truncated: it ends before byte %llu",
				 object_name(b, key, name), (unsigned long long)offset + 1);
	if (result != 0)
		return result;
	answer_free(&a);
	result = check_range(b, &r, &a, err);
	if (result == 0)
		take_tag(&a, ret_tag);
	return result;
}

int bucket_delete(struct bucket *b, const char *key, struct error *err)
{
	const struct s3_request r = {.method = METHOD_DELETE, .key = key};
	struct answer a;
	int result = request_run(b, &r, &a, err);

	if (result == REQUEST_MISSING)
		return 0;
	if (result == 0)
		answer_free(&a);
	return result > 0 ? error_errno(err, -EIO, "cannot remove %s/%s", b->url, key) : result;
}
