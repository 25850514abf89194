/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the server's address and the credentials from the variables and files that Amazon's own tools use. */
#include "bucket_private.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "lib/cleanup.h"
#include "lib/units.h"

#define DEFAULT_REGION    "us-east-1"
#define DEFAULT_TIMEOUT_S 30
#define MAX_FILE_LINE     16384

static const char *variable(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

/* The file that a variable names, or the usual one in the home. NULL: no memory, or no home. */
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

/* One setting of the profile. NULL: it is not there. Lines of a nested section (s3 =) count as its own. */
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
		return error_set(err, -EINVAL, "the key id or the token for S3 has characters that none has");
	}
	*ret = c;
	return 0;
}

/* A variable, or else a line of the configuration. NULL: neither. */
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
		return error_set(
		    err, -EINVAL,
		    "the endpoint of S3 has to be http://HOST[:PORT] or https://HOST[:PORT]: look at "
		    "AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL");
	host += 3;
	if (style && strcmp(style, "path") != 0 && strcmp(style, "virtual") != 0 &&
	    strcmp(style, "auto") != 0)
		return error_set(err, -EINVAL, "DIESEL_S3_STYLE has to be path or virtual");
	/* As Amazon's tools: a name with dots fits no certificate, and other servers seldom have names for
	 * each bucket. */
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

int config_load(const char *bucket, struct config *ret, struct error *err)
{
	_cleanup_(freep) char *path = file_path("AWS_CONFIG_FILE", "config");
	const char *timeout = variable("DIESEL_S3_TIMEOUT");
	struct config c = {.timeout_s = DEFAULT_TIMEOUT_S};
	int64_t seconds;
	int r = credentials_load(&c.credentials, err);

	if (r == 0 && timeout) {
		if (units_parse_integer(timeout, 1, 3600, &seconds) < 0)
			r = error_set(err, -EINVAL,
				      "DIESEL_S3_TIMEOUT has to be a number of seconds, 1 to 3600");
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
			r = error_set(err, -EINVAL, "the region of S3 is no name: look at AWS_REGION");
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

void config_free(struct config *c)
{
	credentials_free(&c->credentials);
	free(c->region);
	free(c->endpoint);
	free(c->authority);
	*c = (struct config){0};
}
