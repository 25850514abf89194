/* SPDX-License-Identifier: Apache-2.0 */
/* Sends signed requests by libcurl, repeats them until they are answered, and describes failures in words. */
#include "bucket_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/library.h"
#include "lib/text.h"

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

/* libcurl is loaded when a bucket is opened, and not linked: it brings thirty libraries, whose start takes
 * longer than most verbs. */
#define FUNCTIONS(F)                                                                                         \
	F(easy_cleanup)                                                                                      \
	F(easy_getinfo)                                                                                      \
	F(easy_init)                                                                                         \
	F(easy_perform)                                                                                      \
	F(easy_reset)                                                                                        \
	F(easy_setopt) F(easy_strerror) F(getdate) F(global_init) F(slist_append) F(slist_free_all)

static struct {
#define MEMBER(name) __typeof__(curl_##name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
} libcurl;

#define ROW(name) {"curl_" #name, &libcurl.name, true},
static const struct library_function functions[] = {FUNCTIONS(ROW)};

static struct error failure;

static void load(void)
{
	if (library_load("libcurl.so.4", "libcurl4", functions, sizeof(functions) / sizeof(functions[0]),
			 &failure) == 0 &&
	    libcurl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		error_set(&failure, -EIO, "libcurl.so.4 does not start");
}

int http_load(struct error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (failure.code < 0 && err)
		*err = failure;
	return failure.code;
}

void http_close(struct bucket *b)
{
	while (b->n_idle)
		libcurl.easy_cleanup(b->idle[--b->n_idle]);
}

static void slistp_free(struct curl_slist **p)
{
	libcurl.slist_free_all(*p);
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

	libcurl.easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
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
		a->date = libcurl.getdate(value, NULL) > 0 ? libcurl.getdate(value, NULL) : 0;
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
		libcurl.easy_reset(curl); /* keeps the connection open */
	return curl ? curl : libcurl.easy_init();
}

static void return_handle(struct bucket *b, CURL *curl)
{
	pthread_mutex_lock(&b->lock);
	bool kept = b->n_idle < MAX_IDLE_HANDLES;

	if (kept)
		b->idle[b->n_idle++] = curl;
	pthread_mutex_unlock(&b->lock);
	if (!kept)
		libcurl.easy_cleanup(curl);
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
	struct curl_slist *longer = libcurl.slist_append(*list, line);

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
	case METHOD_GET: libcurl.easy_setopt(curl, CURLOPT_HTTPGET, 1L); return;
	case METHOD_HEAD: libcurl.easy_setopt(curl, CURLOPT_NOBODY, 1L); return;
	case METHOD_DELETE: libcurl.easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "DELETE"); return;
	case METHOD_POST:
		libcurl.easy_setopt(curl, CURLOPT_POST, 1L);
		libcurl.easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_bytes(r));
		break;
	case METHOD_PUT:
		libcurl.easy_setopt(curl, CURLOPT_UPLOAD, 1L);
		libcurl.easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)body_bytes(r));
		break;
	}
	libcurl.easy_setopt(curl, CURLOPT_READFUNCTION, send_body);
	libcurl.easy_setopt(curl, CURLOPT_READDATA, x);
	libcurl.easy_setopt(curl, CURLOPT_SEEKFUNCTION, seek_body);
	libcurl.easy_setopt(curl, CURLOPT_SEEKDATA, x);
}

static void set_options(const struct bucket *b, struct exchange *x, const char *url,
			const struct curl_slist *headers)
{
	CURL *curl = x->curl;
	const struct s3_request *r = x->request;
	uint64_t bytes = body_bytes(r) + (r->buffer ? r->buffer_bytes : MAX_TEXT_BYTES / 8);
	const char *ca = getenv("AWS_CA_BUNDLE");

	libcurl.easy_setopt(curl, CURLOPT_URL, url);
	libcurl.easy_setopt(curl, CURLOPT_PATH_AS_IS,
			    1L); /* libcurl must not change the path, which is signed */
	libcurl.easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	libcurl.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	libcurl.easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
	libcurl.easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	libcurl.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	libcurl.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
	libcurl.easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1024L);
	libcurl.easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)b->config.timeout_s);
	libcurl.easy_setopt(curl, CURLOPT_TIMEOUT, (long)(b->config.timeout_s + bytes / MIN_BYTES_S));
	libcurl.easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
	libcurl.easy_setopt(curl, CURLOPT_WRITEDATA, x);
	libcurl.easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
	libcurl.easy_setopt(curl, CURLOPT_HEADERDATA, x);
	if (ca && *ca)
		libcurl.easy_setopt(curl, CURLOPT_CAINFO, ca);
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
				 name, b->config.endpoint, libcurl.easy_strerror(code));
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_URL_MALFORMAT:
		return error_set(err, -EIO,
				 "%s: host %s was not found: check AWS_ENDPOINT_URL_S3 and AWS_REGION", name,
				 b->config.authority);
	default:
		return error_set(err, -EIO, "%s: %s cannot be reached: %s", name, b->config.endpoint,
				 libcurl.easy_strerror(code));
	}
}

/* Makes one attempt. 0, whatever the status; -ETIMEDOUT, -EIO: it may be repeated; -EPROTO; -ENOMEM. */
static int http_perform(struct bucket *b, const struct s3_request *r, struct answer *ret, struct error *err)
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
	CURLcode code = libcurl.easy_perform(x.curl);

	libcurl.easy_getinfo(x.curl, CURLINFO_RESPONSE_CODE, &status);
	libcurl.easy_setopt(x.curl, CURLOPT_HTTPHEADER, NULL);
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

#define MAX_ATTEMPTS  6
#define FIRST_WAIT_MS 100
#define MAX_WAIT_MS   5000

const char *object_name(const struct bucket *b, const char *key, char text[OBJECT_NAME_MAX])
{
	snprintf(text, OBJECT_NAME_MAX, "%s%s%s", b->url, key ? "/" : "", key ? key : "");
	return text;
}

/* Waits before an attempt. Half of the time is random, so that clients that failed together do not retry
 * together. */
static void wait_before(struct bucket *b, unsigned attempt)
{
	uint64_t wait_ms = FIRST_WAIT_MS << attempt;

	if (wait_ms > MAX_WAIT_MS)
		wait_ms = MAX_WAIT_MS;
	pthread_mutex_lock(&b->lock);
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	wait_ms = wait_ms / 2 + b->random % (wait_ms / 2 + 1);
	pthread_mutex_unlock(&b->lock);
	struct timespec t = {.tv_sec = (time_t)(wait_ms / 1000),
			     .tv_nsec = (long)(wait_ms % 1000 * NS_PER_MS)};

	nanosleep(&t, NULL);
}

/* Adopts the server's clock for signatures. Returns false if it is unknown or not new. */
static bool learn_clock(struct bucket *b, const struct answer *a)
{
	int64_t offset_s = (int64_t)a->date - (int64_t)(clock_realtime_ns() / NS_PER_S);

	if (!a->date)
		return false;
	pthread_mutex_lock(&b->lock);
	bool is_new = llabs(offset_s - b->clock_offset_s) > 60;

	if (is_new)
		b->clock_offset_s = offset_s;
	pthread_mutex_unlock(&b->lock);
	return is_new;
}

/* Reads the credentials file again, because those of a role are renewed every few hours. Returns true if they
 * changed. */
static bool renew_credentials(struct bucket *b)
{
	struct credentials c;

	if (!b->config.credentials.from_file || credentials_load(&c, NULL) < 0)
		return false;
	pthread_mutex_lock(&b->lock);
	struct credentials *old = &b->config.credentials;
	bool is_new =
	    c.from_file && (strcmp(c.key_id, old->key_id) != 0 || strcmp(c.secret, old->secret) != 0 ||
			    strcmp(c.token ? c.token : "", old->token ? old->token : "") != 0);

	if (is_new) {
		struct credentials swapped = *old;

		*old = c;
		c = swapped;
	}
	pthread_mutex_unlock(&b->lock);
	credentials_free(&c);
	return is_new;
}

static bool has_code(const struct answer *a, const char *code)
{
	return !strcmp(a->code, code);
}

static bool is_expired(const struct answer *a)
{
	return has_code(a, "ExpiredToken") || has_code(a, "ExpiredTokenException") ||
	       has_code(a, "TokenRefreshRequired");
}

/* Returns true if the same request may get another answer now. */
static bool may_pass(struct bucket *b, const struct answer *a)
{
	if (a->status >= 500 || a->status == 429 || a->status == 408 || has_code(a, "SlowDown") ||
	    has_code(a, "RequestTimeout") || has_code(a, "OperationAborted") ||
	    has_code(a, "ConditionalRequestConflict"))
		return a->status != 501;
	if (has_code(a, "RequestTimeTooSkewed"))
		return learn_clock(b, a);
	return is_expired(a) && renew_credentials(b);
}

static const char *what_to_do(const struct answer *a)
{
	if (has_code(a, "NoSuchBucket"))
		return "create the bucket first, or check its name";
	if (has_code(a, "InvalidAccessKeyId") || has_code(a, "SignatureDoesNotMatch") ||
	    has_code(a, "InvalidToken"))
		return "check the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
		       "~/.aws/credentials and AWS_PROFILE";
	if (is_expired(a))
		return "the credentials have expired: renew them, and run the same command again";
	if (has_code(a, "RequestTimeTooSkewed"))
		return "set the clock of this machine";
	if (a->status == 401 || a->status == 403)
		return "these credentials do not permit this: reading needs s3:GetObject and s3:ListBucket, "
		       "writing also s3:PutObject and s3:DeleteObject";
	if (a->status >= 300 && a->status < 400)
		return "the bucket is in another region or on another server: check AWS_REGION and "
		       "AWS_ENDPOINT_URL_S3";
	if (a->status >= 500 || a->status == 429)
		return "try again later";
	return "is AWS_ENDPOINT_URL_S3 an S3 server?";
}

static int refused(const struct bucket *b, const struct s3_request *r, const struct answer *a,
		   struct error *err)
{
	char name[OBJECT_NAME_MAX], code[80] = "", region[80] = "", shown[64];
	int result = a->status == 401 || a->status == 403 || is_expired(a) ? -EACCES
		     : a->status == 404                                    ? -ENOENT
		     : a->status >= 500 || a->status == 429                ? -EIO
									   : -EPROTO;

	if (a->code[0])
		snprintf(code, sizeof(code), " (%s)",
			 text_printable(shown, sizeof(shown), a->code, strlen(a->code)));
	if (a->region[0])
		snprintf(region, sizeof(region), " [region %s]",
			 text_printable(shown, sizeof(shown), a->region, strlen(a->region)));
	return error_set(err, result, "%s: %s answered %d%s%s: %s", object_name(b, r->key, name),
			 b->config.endpoint, a->status, code, region, what_to_do(a));
}

/* Finds out whether an existing object is this very upload, whose answer was lost. That happens even in one
 * attempt: libcurl sends a request again if a kept connection turns out to be closed. */
static int judge_existing(struct bucket *b, const struct s3_request *r, struct error *err)
{
	const struct s3_request look = {.method = METHOD_HEAD, .key = r->key};
	struct answer a;

	if (!r->token)
		return REQUEST_EXISTS;
	int result = request_run(b, &look, &a, err);

	if (result < 0)
		return result;
	bool ours = result == 0 && !strcmp(a.token, r->token);

	if (result == 0)
		answer_free(&a);
	return ours ? 0 : REQUEST_EXISTS;
}

static int judge(struct bucket *b, const struct s3_request *r, struct answer *a, struct error *err)
{
	if (a->status >= 200 && a->status < 300)
		return 0;
	if (a->status == 404 && r->key && !has_code(a, "NoSuchBucket"))
		return REQUEST_MISSING;
	if (a->status == 416)
		return REQUEST_PAST_END;
	if (r->if_none_match && a->status == 412)
		return judge_existing(b, r, err);
	return refused(b, r, a, err);
}

int request_run(struct bucket *b, const struct s3_request *r, struct answer *ret, struct error *err)
{
	for (unsigned attempt = 0;; attempt++) {
		struct answer a;
		int result = http_perform(b, r, &a, err);
		bool again = result == -EIO || result == -ETIMEDOUT;

		if (result == 0) {
			again = may_pass(b, &a);
			if (!again || attempt + 1 == MAX_ATTEMPTS) {
				result = judge(b, r, &a, err);
				if (result == 0)
					*ret = a;
				else
					answer_free(&a);
				return result;
			}
			answer_free(&a);
		}
		if (!again || attempt + 1 == MAX_ATTEMPTS)
			return result;
		wait_before(b, attempt);
	}
}
