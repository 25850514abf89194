/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a bucket, and a prefix in it, by a URL. */
#include "bucket_private.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"
#include "lib/units.h"

/* Reads the server's address and the credentials from the variables and files that Amazon's own tools use. */

#define DEFAULT_REGION    "us-east-1"
#define DEFAULT_TIMEOUT_S 30
#define MAX_FILE_LINE     16384

static const char *variable(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

/* Returns the path in a variable, or else of the usual file in the home directory. NULL: no memory, or no
 * home. */
static char *file_path(const char *name, const char *usual)
{
	const char *value = variable(name), *home = variable("HOME");
	char *path = NULL;

	if (value)
		return strdup(value);
	if (!home || asprintf(&path, "%s/.aws/%s", home, usual) < 0)
		return NULL;
	return path;
}

static char *trim(char *text)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text;
}

static bool is_profile(char *line, const char *profile)
{
	char *end = strchr(line, ']'), *name;

	if (!end)
		return false;
	*end = '\0';
	name = trim(line + 1);
	if (!strncmp(name, "profile ", 8))
		name = trim(name + 8);
	return !strcmp(name, profile);
}

/* Returns a setting of the profile; NULL: none. Lines of a nested section (s3 =) count as the profile's own.
 */
static char *file_value(const char *path, const char *key)
{
	const char *profile = variable("AWS_PROFILE");
	FILE *file = path ? fopen(path, "re") : NULL;
	char *line = file ? malloc(MAX_FILE_LINE) : NULL, *value = NULL;
	bool inside = false;

	while (line && !value && fgets(line, MAX_FILE_LINE, file)) {
		char *text = trim(line), *equals;

		if (*text == '#' || *text == ';')
			continue;
		if (*text == '[') {
			inside = is_profile(text, profile ? profile : "default");
			continue;
		}
		equals = strchr(text, '=');
		if (!inside || !equals)
			continue;
		*equals = '\0';
		if (!strcmp(trim(text), key))
			value = strdup(trim(equals + 1));
	}
	if (line)
		OPENSSL_cleanse(line, MAX_FILE_LINE);
	free(line);
	if (file)
		fclose(file);
	return value;
}

static void wipe(char *text)
{
	if (text)
		OPENSSL_cleanse(text, strlen(text));
	free(text);
}

void credentials_free(struct credentials *c)
{
	wipe(c->secret);
	wipe(c->token);
	free(c->key_id);
	*c = (struct credentials){0};
}

static char *copy_of(const char *text)
{
	return text ? strdup(text) : NULL;
}

/* Credentials become lines of a request, so they may contain only printable characters. */
static bool is_header_text(const char *text)
{
	for (; *text; text++)
		if (*text < 0x21 || *text > 0x7e)
			return false;
	return true;
}

int credentials_load(struct credentials *ret, struct error *err)
{
	struct credentials c = {0};
	_cleanup_(freep) char *path = NULL;

	if (variable("AWS_ACCESS_KEY_ID") && variable("AWS_SECRET_ACCESS_KEY")) {
		c.key_id = copy_of(variable("AWS_ACCESS_KEY_ID"));
		c.secret = copy_of(variable("AWS_SECRET_ACCESS_KEY"));
		c.token = copy_of(variable("AWS_SESSION_TOKEN"));
	} else {
		path = file_path("AWS_SHARED_CREDENTIALS_FILE", "credentials");
		c.key_id = file_value(path, "aws_access_key_id");
		c.secret = file_value(path, "aws_secret_access_key");
		c.token = file_value(path, "aws_session_token");
		c.from_file = true;
	}
	if (!c.key_id || !c.secret) {
		credentials_free(&c);
		return error_set(err, -EACCES,
				 "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
				 "write them to %s (profile %s)",
				 path ? path : "~/.aws/credentials",
				 variable("AWS_PROFILE") ? variable("AWS_PROFILE") : "default");
	}
	if (!is_header_text(c.key_id) || (c.token && !is_header_text(c.token))) {
		credentials_free(&c);
		return error_set(err, -EINVAL,
				 "the AWS access key ID or session token contains invalid characters");
	}
	*ret = c;
	return 0;
}

/* Returns the value of a variable, or else of a line in the configuration file. NULL: neither exists. */
static char *setting(const char *const *variables, const char *path, const char *key)
{
	for (; *variables; variables++)
		if (variable(*variables))
			return strdup(variable(*variables));
	return file_value(path, key);
}

static int load_endpoint(struct config *c, const char *bucket, const char *path, struct error *err)
{
	_cleanup_(freep) char *given =
	    setting((const char *[]){"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL}, path, "endpoint_url");
	_cleanup_(freep) char *style =
	    setting((const char *[]){"DIESEL_S3_STYLE", NULL}, path, "addressing_style");
	const char *host;

	if (!given && asprintf(&given, "https://s3.%s.amazonaws.com", c->region) < 0)
		return error_errno(err, -ENOMEM, "S3");
	for (size_t n = strlen(given); n && given[n - 1] == '/';)
		given[--n] = '\0';
	host = strstr(given, "://");
	if (!host || (strncmp(given, "http://", 7) != 0 && strncmp(given, "https://", 8) != 0) || !host[3] ||
	    strpbrk(host + 3, "/?#@ \t\r\n") || !is_header_text(given))
		return error_set(err, -EINVAL,
				 "the S3 endpoint must be http://HOST[:PORT] or https://HOST[:PORT]: "
				 "check AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL");
	host += 3;
	if (style && strcmp(style, "path") != 0 && strcmp(style, "virtual") != 0 &&
	    strcmp(style, "auto") != 0)
		return error_set(err, -EINVAL, "DIESEL_S3_STYLE must be path, virtual or auto");
	/* Decides as Amazon's tools do: no certificate covers a bucket name with dots, and other servers
	 * seldom have a host name for each bucket. */
	c->path_style = style && strcmp(style, "auto") != 0
			    ? !strcmp(style, "path")
			    : !strstr(host, ".amazonaws.com") || strchr(bucket, '.') != NULL;
	if (asprintf(&c->authority, "%s%s%s", c->path_style ? "" : bucket, c->path_style ? "" : ".", host) <
	    0) {
		c->authority = NULL;
		return error_errno(err, -ENOMEM, "S3");
	}
	c->endpoint = steal_pointer(given);
	return 0;
}

static void config_free(struct config *c)
{
	credentials_free(&c->credentials);
	free(c->region);
	free(c->endpoint);
	free(c->authority);
	*c = (struct config){0};
}

static int config_load(const char *bucket, struct config *ret, struct error *err)
{
	_cleanup_(freep) char *path = file_path("AWS_CONFIG_FILE", "config");
	const char *timeout = variable("DIESEL_S3_TIMEOUT");
	struct config c = {.timeout_s = DEFAULT_TIMEOUT_S};
	int64_t seconds;
	int r = credentials_load(&c.credentials, err);

	if (r == 0 && timeout) {
		if (units_parse_integer(timeout, 1, 3600, &seconds) < 0)
			r = error_set(err, -EINVAL,
				      "DIESEL_S3_TIMEOUT must be a number of seconds, 1 to 3600");
		else
			c.timeout_s = (unsigned)seconds;
	}
	if (r == 0) {
		c.region =
		    setting((const char *[]){"AWS_REGION", "AWS_DEFAULT_REGION", NULL}, path, "region");
		if (!c.region)
			c.region = strdup(DEFAULT_REGION);
		if (!c.region)
			r = error_errno(err, -ENOMEM, "S3");
		else if (!is_header_text(c.region) || strpbrk(c.region, "/,"))
			r = error_set(err, -EINVAL, "the S3 region is not a valid name: check AWS_REGION");
	}
	if (r == 0)
		r = load_endpoint(&c, bucket, path, err);
	if (r < 0) {
		config_free(&c);
		return r;
	}
	*ret = c;
	return 0;
}

/* Returns true for a name that is valid for a bucket and as a part of a host name. */
static bool is_bucket_name(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_ABCDEFGHIJKLMNOPQRSTUVWXYZ");

	return name[n] == '\0' && n >= 1 && n <= 255 && name[0] != '.' && name[0] != '-' &&
	       !strstr(name, "..");
}

/* Returns true for a valid prefix. Refuses the components "." and "..", which proxies and servers interpret.
 */
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
	if (strncmp(url, BUCKET_SCHEME, strlen(BUCKET_SCHEME)) != 0)
		return error_set(err, -EINVAL, "invalid URL '%s': must be s3://BUCKET/PREFIX", text);
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
		return error_set(err, -EINVAL, "invalid dataset URL '%s': must be s3://BUCKET/PREFIX", text);
	return 0;
}

int bucket_open(const char *url, struct bucket **ret, struct error *err)
{
	struct bucket *b = calloc(1, sizeof(*b));

	if (!b)
		return error_errno(err, -ENOMEM, "S3");
	pthread_mutex_init(&b->lock, NULL);
	b->random = clock_realtime_ns() | 1;
	int r = split_url(b, url, err);

	if (r == 0)
		r = config_load(b->name, &b->config, err);
	if (r == 0)
		r = http_load(err);
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
	http_close(b);
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
