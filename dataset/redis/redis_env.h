/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Connection settings that neither a URL nor a dataset's folder contains: secrets, certificates, time limits.
 */

#include "redis_link.h"

/* Takes user and password from DIESEL_REDIS, or from the file DIESEL_REDIS_FILE, if they are for this server.
 */
int redis_env_credentials(struct redis_url *url, struct error *err);
/* Returns the URL in DIESEL_REDIS, or in the file DIESEL_REDIS_FILE. -ENOKEY: there is none. */
#define REDIS_ENV_URL (4 * REDIS_URL_PART)
int redis_env_url(char url[REDIS_ENV_URL], struct error *err);
/* Reads all settings except the URL from DIESEL_REDIS_CA, _CERT, _KEY and _WAIT. wait_s: default for _WAIT.
 * -EINVAL */
int redis_env_settings(struct redis_settings *settings, unsigned wait_s, struct error *err);
