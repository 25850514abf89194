/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats a request until it is answered, and describes failures in words. */
#include "bucket_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"

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
