/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Definitions that the files of this folder share: configuration, signature, one HTTP request, answers in
 * XML. */

#include "lib/error.h"
#include "s3/bucket.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#define HASH_TEXT   65 /* 64 hexadecimal digits and a terminator */
#define TOKEN_BYTES 16 /* length of a token that identifies an upload */

struct credentials {
	char *key_id, *secret, *token; /* token: NULL if there is none */
	bool from_file;
};

struct config {
	struct credentials credentials;
	char *region;
	char *endpoint;  /* scheme://host[:port], without a slash at the end */
	char *authority; /* host of every URL: the endpoint's, with the bucket in front unless path_style is
			    set */
	bool path_style;
	unsigned timeout_s;
};

int credentials_load(struct credentials *ret, struct error *err);
void credentials_free(struct credentials *c); /* wipes them */

#define MAX_IDLE_HANDLES 64

struct bucket {
	char *url, *name, *prefix; /* prefix: "" or ends in a slash */
	struct config config;
	pthread_mutex_t lock;         /* protects the fields below and config.credentials */
	void *idle[MAX_IDLE_HANDLES]; /* CURL handles, each with its connection */
	unsigned n_idle;
	int64_t clock_offset_s; /* the server's clock minus ours; 0 until the server has refused our time */
	uint64_t random;
};

struct query {
	const char *name, *value; /* sorted by name; value: "" for none */
};

enum method { METHOD_GET, METHOD_HEAD, METHOD_PUT, METHOD_POST, METHOD_DELETE };

struct s3_request {
	enum method method;
	const char *key; /* key without the prefix; NULL: the bucket itself */
	struct query query[6];
	int n_query;
	bool if_none_match;
	const char *token; /* identifies an upload; sent as x-amz-meta-diesel-upload */
	bool has_range;
	uint64_t first, last;
	const struct iovec *parts; /* the body */
	int n_parts;

	void *buffer; /* receives the body of a 2xx answer, up to buffer_bytes */
	size_t buffer_bytes;
};

#define TEXT_MAX BUCKET_TAG_MAX
struct answer {
	int status;
	size_t body_bytes; /* length of the body, in the buffer or in text */
	char *text; /* the body if there is no buffer, or of an error; NUL-terminated, freed by the caller */
	uint64_t content_length;
	bool has_length;
	uint64_t range_first, range_last, range_total;
	bool has_range;
	char etag[TEXT_MAX], token[TEXT_MAX], region[TEXT_MAX], location[TEXT_MAX];
	char code[64]; /* <Code> of an error */
	time_t date;   /* the server's time; 0: not in the answer */
};

void answer_free(struct answer *a);

/* sign.c */
struct signing {
	const char *method, *host, *path, *query; /* exactly as sent */
	const char *payload_hash;
	const char *date; /* 20261124T042150Z */
	const char *region;
	const struct credentials *credentials;
	const char *const *headers; /* headers to sign: "name:value", names in lower case, sorted */
	int n_headers;
};
/* Computes the value of the Authorization header. -ENOMEM, -ENOTSUP. */
int sign_request(const struct signing *s, char **ret, struct error *err);
int hash_parts(const struct iovec *parts, int n_parts, char text[HASH_TEXT]);
void random_token(char text[2 * TOKEN_BYTES + 1]);
/* Percent-encodes all but letters, digits, "-._~" and, if wanted, slashes. NULL: no memory. */
char *uri_encode(const char *text, bool keep_slash);

/* http.c: Repeats a request until the answer is 2xx, or until repeating cannot change the answer. */
enum request_result {
	REQUEST_MISSING = 1, /* 404 */
	REQUEST_EXISTS,      /* 412 for a conditional request */
	REQUEST_PAST_END,    /* 416 */
};
/* Loads what requests need. -ELIBACC: not installed; -EIO. */
int http_load(struct error *err);
void http_close(struct bucket *b);
int request_run(struct bucket *b, const struct s3_request *r, struct answer *ret, struct error *err);
/* Writes the object's name for an error text. Returns text. */
#define OBJECT_NAME_MAX 400
const char *object_name(const struct bucket *b, const char *key, char text[OBJECT_NAME_MAX]);

/* xml.c: One page of a list of objects. Parsing returns -EBADMSG for any other text. */
struct xml_list {
	struct xml_object {
		char *key;
		uint64_t bytes;
	} * objects;
	size_t n, n_allocated;
	bool truncated, url_encoded;
	char *next; /* token for the next page; NULL: none */
};
int xml_parse_list(const char *text, size_t bytes, struct xml_list *ret);
void xml_list_free(struct xml_list *l);
/* Finds the text of the first element of this name below the root; false: there is none. */
bool xml_find(const char *text, size_t bytes, const char *root, const char *name, char *ret, size_t size);
