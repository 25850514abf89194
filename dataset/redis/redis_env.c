/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/units.h"

#define WAIT_MAX_S 86400

/* Reads a small file as text, without the newline at its end. */
static int redis_env_read_file(const char *path, char *text, size_t size)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (n < 0)
		return -errno;
	while (n && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	return 0;
}

int redis_env_url(char url[REDIS_ENV_URL], struct error *err)
{
	const char *given = getenv("DIESEL_REDIS"), *file = getenv("DIESEL_REDIS_FILE");
	int r;

	if (given && strlen(given) >= REDIS_ENV_URL)
		return error_set(err, -EINVAL, "DIESEL_REDIS: the URL is too long");
	if (given) {
		strcpy(url, given);
		return 0;
	}
	if (!file)
		return error_set(err, -ENOKEY, "neither DIESEL_REDIS nor DIESEL_REDIS_FILE is set");
	r = redis_env_read_file(file, url, REDIS_ENV_URL);
	return r < 0 ? error_errno(err, r, "DIESEL_REDIS_FILE: %s", file) : 0;
}

int redis_env_credentials(struct redis_url *url, struct error *err)
{
	char text[REDIS_ENV_URL] = "";
	struct error why = ERROR_INIT;
	struct redis_url found;
	int r;

	if (url->password[0])
		return 0;
	r = redis_env_url(text, &why);
	if (r < 0)
		return r == -ENOKEY ? 0 : error_set(err, r, "%s", why.text);
	if (redis_url_parse(text, false, &found, err) < 0) {
		error_prefix(err, "DIESEL_REDIS");
		return -EINVAL;
	}
	/* A dataset's folder must not choose which server gets a password, nor whether it is sent
	 * unencrypted. */
	if (found.tls == url->tls && !strcmp(found.host, url->host) && !strcmp(found.port, url->port)) {
		memcpy(url->user, found.user, sizeof(url->user));
		memcpy(url->password, found.password, sizeof(url->password));
	}
	explicit_bzero(text, sizeof(text));
	explicit_bzero(&found, sizeof(found));
	return 0;
}

int redis_env_settings(struct redis_settings *settings, unsigned wait_s, struct error *err)
{
	const char *wait = getenv("DIESEL_REDIS_WAIT");
	int64_t seconds = wait_s;

	if (wait && units_parse_integer(wait, 1, WAIT_MAX_S, &seconds) < 0)
		return error_set(err, -EINVAL, "DIESEL_REDIS_WAIT must be a number of seconds from 1 to %d",
				 WAIT_MAX_S);
	settings->patience_ns = (uint64_t)seconds * NS_PER_S;
	settings->tls = (struct redis_tls_files){
	    .ca = getenv("DIESEL_REDIS_CA"),
	    .cert = getenv("DIESEL_REDIS_CERT"),
	    .key = getenv("DIESEL_REDIS_KEY"),
	};
	return 0;
}
