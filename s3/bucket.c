/* SPDX-License-Identifier: Apache-2.0 */
/* A bucket and the place in it, from a URL. */
#include "bucket_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void init_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* Names that are both a bucket's and a part of a host's. */
static bool is_bucket_name(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	return name[n] == '\0' && n >= 1 && n <= 255 && name[0] != '.' && name[0] != '-' &&
	       !strstr(name, "..");
}

/* No "." or ".." among the components, which proxies and servers take for something else. */
static bool is_prefix(const char *prefix)
{
	for (const char *at = prefix; *at; at++) {
		size_t n = strcspn(at, "/");

		if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
			return false;
		at += n;
		if (!*at)
			break;
	}
	for (const char *at = prefix; *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			return false;
	return strlen(prefix) <= BUCKET_KEY_MAX / 2;
}

static int split_url(struct bucket *b, const char *url, struct error *err)
{
	char text[200];
	size_t n;

	text_printable(text, sizeof(text), url, strlen(url));
	b->url = strdup(url);
	if (!b->url)
		return error_errno(err, -ENOMEM, "%s", text);
	for (n = strlen(b->url); n > strlen(BUCKET_SCHEME) && b->url[n - 1] == '/';)
		b->url[--n] = '\0';
	const char *name = b->url + strlen(BUCKET_SCHEME), *slash = strchr(name, '/');

	b->name = slash ? strndup(name, (size_t)(slash - name)) : strdup(name);
	if (!b->name || asprintf(&b->prefix, "%s%s", slash ? slash + 1 : "", slash ? "/" : "") < 0) {
		b->prefix = NULL;
		return error_errno(err, -ENOMEM, "%s", text);
	}
	if (!is_bucket_name(b->name) || (slash && !is_prefix(slash + 1)))
		return error_set(err, -EINVAL, "'%s' is no dataset's name: it has to be s3://BUCKET/PREFIX",
				 text);
	return 0;
}

int bucket_open(const char *url, struct bucket **ret, struct error *err)
{
	struct bucket *b = calloc(1, sizeof(*b));

	if (!b)
		return error_errno(err, -ENOMEM, "S3");
	pthread_once(&curl_once, init_curl);
	pthread_mutex_init(&b->lock, NULL);
	b->random = clock_realtime_ns() | 1;
	int r = split_url(b, url, err);

	if (r == 0)
		r = config_load(b->name, &b->config, err);
	if (r < 0) {
		bucket_close(b);
		return r;
	}
	*ret = b;
	return 0;
}

void bucket_close(struct bucket *b)
{
	if (!b)
		return;
	for (unsigned i = 0; i < b->n_idle; i++)
		curl_easy_cleanup(b->idle[i]);
	config_free(&b->config);
	pthread_mutex_destroy(&b->lock);
	free(b->url);
	free(b->name);
	free(b->prefix);
	free(b);
}

const char *bucket_url(const struct bucket *b)
{
	return b->url;
}
