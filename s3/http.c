/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one signed request and receives its answer, by libcurl. */
#include "bucket_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

#define CONNECT_TIMEOUT_S 10
#define MIN_BYTES_S       65536 /* minimum mean speed, in bytes per second: a slower request times out */
#define MAX_TEXT_BYTES    (8u << 20)
#define MAX_HEADER_BYTES  (64u << 10)
#define MAX_SIGNED        8

static const char *const method_names[] = {
    [METHOD_GET] = "GET",   [METHOD_HEAD] = "HEAD",     [METHOD_PUT] = "PUT",
    [METHOD_POST] = "POST", [METHOD_DELETE] = "DELETE",
};

struct exchange {
	const struct s3_request *request;
	struct answer *answer;
	CURL *curl;
	int part; /* index of the part of the body that is being sent */
	size_t part_offset;
	size_t text_allocated;
	size_t header_bytes;
	bool too_much; /* the server has sent more than allowed */
	bool no_memory;
};

static void slistp_free(struct curl_slist **p)
{
	curl_slist_free_all(*p);
}

static size_t send_body(char *to, size_t size, size_t n, void *user)
{
	struct exchange *x = user;
	size_t space = size * n, done = 0;

	while (done < space && x->part < x->request->n_parts) {
		const struct iovec *part = &x->request->parts[x->part];
		size_t bytes = part->iov_len - x->part_offset;

		if (bytes > space - done)
			bytes = space - done;
		if (bytes)
			memcpy(to + done, (const char *)part->iov_base + x->part_offset, bytes);
		done += bytes;
		x->part_offset += bytes;
		if (x->part_offset == part->iov_len) {
			x->part++;
			x->part_offset = 0;
		}
	}
	return done;
}

/* Returns to the start of the body: libcurl sends a request again if a kept connection turns out to be
 * closed. */
static int seek_body(void *user, curl_off_t offset, int origin)
{
	struct exchange *x = user;

	if (origin != SEEK_SET || offset != 0)
		return CURL_SEEKFUNC_CANTSEEK;
	x->part = 0;
	x->part_offset = 0;
	return CURL_SEEKFUNC_OK;
}

static bool has_buffer(const struct exchange *x)
{
	long status = 0;

	curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
	return x->request->buffer && status >= 200 && status < 300;
}

static size_t take_body(char *data, size_t size, size_t n, void *user)
{
	struct exchange *x = user;
	struct answer *a = x->answer;
	size_t bytes = size * n;

	if (has_buffer(x)) {
		if (bytes > x->request->buffer_bytes - a->body_bytes) {
			x->too_much = true;
			return 0;
		}
		memcpy((char *)x->request->buffer + a->body_bytes, data, bytes);
		a->body_bytes += bytes;
		return bytes;
	}
	if (bytes > MAX_TEXT_BYTES - a->body_bytes) {
		x->too_much = true;
		return 0;
	}
	if (a->body_bytes + bytes + 1 > x->text_allocated) {
		size_t wanted = 2 * (a->body_bytes + bytes + 1);
		char *grown = realloc(a->text, wanted);

		if (!grown) {
			x->no_memory = true;
			return 0;
		}
		a->text = grown;
		x->text_allocated = wanted;
	}
	memcpy(a->text + a->body_bytes, data, bytes);
	a->body_bytes += bytes;
	a->text[a->body_bytes] = '\0';
	return bytes;
}

/* Returns the value if the line is this header. */
static const char *header_value(const char *line, const char *name)
{
	size_t n = strlen(name);

	if (strncasecmp(line, name, n) != 0 || line[n] != ':')
		return NULL;
	for (line += n + 1; *line == ' ' || *line == '\t';)
		line++;
	return line;
}

static void copy_value(const char *line, const char *name, char *to)
{
	const char *value = header_value(line, name);

	if (value)
		snprintf(to, TEXT_MAX, "%s", value);
}

static void take_line(struct answer *a, const char *line)
{
	const char *value;
	unsigned long long first, last, total;

	if (!strncmp(line, "HTTP/",
		     5)) { /* another answer begins, after an interim one such as 100 Continue */
		a->has_length = a->has_range = false;
		return;
	}
	copy_value(line, "ETag", a->etag);
	copy_value(line, "x-amz-meta-diesel-upload", a->token);
	copy_value(line, "x-amz-bucket-region", a->region);
	copy_value(line, "Location", a->location);
	if ((value = header_value(line, "Date")))
		a->date = curl_getdate(value, NULL) > 0 ? curl_getdate(value, NULL) : 0;
	if ((value = header_value(line, "Content-Length")) && sscanf(value, "%llu", &total) == 1) {
		a->content_length = total;
		a->has_length = true;
	}
	if ((value = header_value(line, "Content-Range")) &&
	    sscanf(value, "bytes %llu-%llu/%llu", &first, &last, &total) == 3) {
		a->range_first = first;
		a->range_last = last;
		a->range_total = total;
		a->has_range = true;
	}
}

static size_t take_header(char *data, size_t size, size_t n, void *user)
{
	struct exchange *x = user;
	char line[1024];
	size_t bytes = size * n, kept = bytes < sizeof(line) ? bytes : sizeof(line) - 1;

	x->header_bytes += bytes;
	if (x->header_bytes > MAX_HEADER_BYTES) {
		x->too_much = true;
		return 0;
	}
	memcpy(line, data, kept);
	line[kept] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	take_line(x->answer, line);
	return bytes;
}

static CURL *take_handle(struct bucket *b)
{
	CURL *curl = NULL;

	pthread_mutex_lock(&b->lock);
	if (b->n_idle)
		curl = b->idle[--b->n_idle];
	pthread_mutex_unlock(&b->lock);
	if (curl)
		curl_easy_reset(curl); /* keeps the connection open */
	return curl ? curl : curl_easy_init();
}

static void return_handle(struct bucket *b, CURL *curl)
{
	pthread_mutex_lock(&b->lock);
	bool kept = b->n_idle < MAX_IDLE_HANDLES;

	if (kept)
		b->idle[b->n_idle++] = curl;
	pthread_mutex_unlock(&b->lock);
	if (!kept)
		curl_easy_cleanup(curl);
}

static int make_path(const struct bucket *b, const struct s3_request *r, char **ret)
{
	_cleanup_(freep) char *raw = NULL;

	if (asprintf(&raw, "/%s%s%s%s", b->config.path_style ? b->name : "",
		     b->config.path_style && r->key ? "/" : "", r->key ? b->prefix : "",
		     r->key ? r->key : "") < 0) {
		raw = NULL;
		return -ENOMEM;
	}
	char *path = uri_encode(raw, true);

	if (!path)
		return -ENOMEM;
	*ret = path;
	return 0;
}

static int make_query(const struct s3_request *r, char **ret)
{
	size_t bytes;
	FILE *out = open_memstream(ret, &bytes);

	if (!out)
		return -ENOMEM;
	for (int i = 0; i < r->n_query; i++) {
		_cleanup_(freep) char *value = uri_encode(r->query[i].value, false);

		fprintf(out, "%s%s=%s", i ? "&" : "", r->query[i].name, value ? value : "");
	}
	return fclose(out) == 0 ? 0 : -ENOMEM;
}

static int add_line(struct curl_slist **list, const char *line)
{
	struct curl_slist *longer = curl_slist_append(*list, line);

	if (!longer)
		return -ENOMEM;
	*list = longer;
	return 0;
}

static void copy_credentials(struct bucket *b, struct credentials *ret, int64_t *ret_offset_s)
{
	const struct credentials *c = &b->config.credentials;

	pthread_mutex_lock(&b->lock);
	*ret = (struct credentials){
	    .key_id = strdup(c->key_id),
	    .secret = strdup(c->secret),
	    .token = c->token ? strdup(c->token) : NULL,
	};
	*ret_offset_s = b->clock_offset_s;
	bool whole = ret->key_id && ret->secret && (ret->token || !c->token);

	pthread_mutex_unlock(&b->lock);
	if (!whole)
		credentials_free(ret);
}

/* Makes the headers that are signed, sorted by name, and the signature. */
static int make_headers(struct bucket *b, const struct s3_request *r, const char *path, const char *query,
			struct curl_slist **ret, struct error *err)
{
	char lines[MAX_SIGNED][256], hash[HASH_TEXT], date[32], range[64];
	_cleanup_(freep) char *token_line = NULL, *authorization = NULL;
	_cleanup_(credentials_free) struct credentials credentials = {0};
	const char *headers[MAX_SIGNED];
	int n = 0, result = hash_parts(r->parts, r->n_parts, hash);
	int64_t offset_s;
	time_t now;
	struct tm tm;

	if (result < 0)
		return error_set(err, result, "libcrypto is configured without SHA-256");
	copy_credentials(b, &credentials, &offset_s);
	if (!credentials.key_id)
		return error_errno(err, -ENOMEM, "request");
	now = (time_t)((int64_t)(clock_realtime_ns() / NS_PER_S) + offset_s);
	gmtime_r(&now, &tm);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", &tm);
#define LINE(...) (snprintf(lines[n], sizeof(lines[n]), __VA_ARGS__), headers[n] = lines[n], n++)
	LINE("host:%s", b->config.authority);
	if (r->if_none_match)
		LINE("if-none-match:*");
	if (r->has_range) {
		snprintf(range, sizeof(range), "bytes=%llu-%llu", (unsigned long long)r->first,
			 (unsigned long long)r->last);
		LINE("range:%s", range);
	}
	LINE("x-amz-content-sha256:%s", hash);
	LINE("x-amz-date:%s", date);
	if (r->token)
		LINE("x-amz-meta-diesel-upload:%s", r->token);
#undef LINE
	if (credentials.token) {
		if (asprintf(&token_line, "x-amz-security-token:%s", credentials.token) < 0) {
			token_line = NULL;
			return error_errno(err, -ENOMEM, "request");
		}
		headers[n++] = token_line;
	}
	const struct signing s = {
	    .method = method_names[r->method],
	    .host = b->config.authority,
	    .path = path,
	    .query = query,
	    .payload_hash = hash,
	    .date = date,
	    .region = b->config.region,
	    .credentials = &credentials,
	    .headers = headers,
	    .n_headers = n,
	};

	result = sign_request(&s, &authorization, err);
	if (result < 0)
		return result;
	for (int i = 0; i < n && result == 0; i++)
		result = add_line(ret, headers[i]);
	if (result == 0)
		result = add_line(ret, authorization);
	if (result == 0)
		result = add_line(ret, "Expect:"); /* bodies are short enough to be sent at once */
	if (result == 0)
		result = add_line(ret, "Content-Type:");
	return result < 0 ? error_errno(err, result, "request") : 0;
}

static uint64_t body_bytes(const struct s3_request *r)
{
	uint64_t bytes = 0;

	for (int i = 0; i < r->n_parts; i++)
		bytes += r->parts[i].iov_len;
	return bytes;
}

static void set_method(CURL *curl, const struct s3_request *r, struct exchange *x)
{
	switch (r->method) {
	case METHOD_GET: curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L); return;
	case METHOD_HEAD: curl_easy_setopt(curl, CURLOPT_NOBODY, 1L); return;
	case METHOD_DELETE: curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "DELETE"); return;
	case METHOD_POST:
		curl_easy_setopt(curl, CURLOPT_POST, 1L);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_bytes(r));
		break;
	case METHOD_PUT:
		curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)body_bytes(r));
		break;
	}
	curl_easy_setopt(curl, CURLOPT_READFUNCTION, send_body);
	curl_easy_setopt(curl, CURLOPT_READDATA, x);
	curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, seek_body);
	curl_easy_setopt(curl, CURLOPT_SEEKDATA, x);
}

static void set_options(const struct bucket *b, struct exchange *x, const char *url,
			const struct curl_slist *headers)
{
	CURL *curl = x->curl;
	const struct s3_request *r = x->request;
	uint64_t bytes = body_bytes(r) + (r->buffer ? r->buffer_bytes : MAX_TEXT_BYTES / 8);
	const char *ca = getenv("AWS_CA_BUNDLE");

	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PATH_AS_IS,
			 1L); /* libcurl must not change the path, which is signed */
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
	curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1024L);
	curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)b->config.timeout_s);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)(b->config.timeout_s + bytes / MIN_BYTES_S));
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, x);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, x);
	if (ca && *ca)
		curl_easy_setopt(curl, CURLOPT_CAINFO, ca);
	set_method(curl, r, x);
}

static int result_of(const struct bucket *b, const struct exchange *x, CURLcode code, struct error *err)
{
	char name[OBJECT_NAME_MAX];

	object_name(b, x->request->key, name);
	if (x->no_memory || code == CURLE_OUT_OF_MEMORY)
		return error_errno(err, -ENOMEM, "%s", name);
	if (x->too_much)
		return error_set(err, -EPROTO, "%s: %s sent more data than requested; is it an S3 server?",
				 name, b->config.endpoint);
	switch (code) {
	case CURLE_OK: return 0;
	case CURLE_OPERATION_TIMEDOUT:
		return error_set(err, -ETIMEDOUT, "%s: %s did not answer within DIESEL_S3_TIMEOUT", name,
				 b->config.endpoint);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		return error_set(err, -EACCES,
				 "%s: the certificate of %s is not trusted (%s): set AWS_CA_BUNDLE to a file "
				 "with the certificate of its authority",
				 name, b->config.endpoint, curl_easy_strerror(code));
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_URL_MALFORMAT:
		return error_set(err, -EIO,
				 "%s: host %s was not found: check AWS_ENDPOINT_URL_S3 and AWS_REGION", name,
				 b->config.authority);
	default:
		return error_set(err, -EIO, "%s: %s cannot be reached: %s", name, b->config.endpoint,
				 curl_easy_strerror(code));
	}
}

int http_perform(struct bucket *b, const struct s3_request *r, struct answer *ret, struct error *err)
{
	_cleanup_(freep) char *path = NULL, *query = NULL, *url = NULL;
	_cleanup_(slistp_free) struct curl_slist *headers = NULL;
	struct answer answer = {0};
	struct exchange x = {.request = r, .answer = &answer};
	const char *scheme_end = strstr(b->config.endpoint, "://");
	long status = 0;

	if (make_path(b, r, &path) < 0 || make_query(r, &query) < 0 ||
	    asprintf(&url, "%.*s://%s%s%s%s", (int)(scheme_end - b->config.endpoint), b->config.endpoint,
		     b->config.authority, path, *query ? "?" : "", query) < 0) {
		url = NULL;
		return error_errno(err, -ENOMEM, "request");
	}
	int result = make_headers(b, r, path, query, &headers, err);

	if (result < 0)
		return result;
	x.curl = take_handle(b);
	if (!x.curl)
		return error_errno(err, -ENOMEM, "request");
	set_options(b, &x, url, headers);
	CURLcode code = curl_easy_perform(x.curl);

	curl_easy_getinfo(x.curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_setopt(x.curl, CURLOPT_HTTPHEADER, NULL);
	return_handle(b, x.curl);
	result = result_of(b, &x, code, err);
	if (result < 0) {
		answer_free(&answer);
		return result;
	}
	answer.status = (int)status;
	if (status >= 300 && answer.text)
		xml_find(answer.text, answer.body_bytes, "Error", "Code", answer.code, sizeof(answer.code));
	*ret = answer;
	return 0;
}

void answer_free(struct answer *a)
{
	free(a->text);
	a->text = NULL;
}
