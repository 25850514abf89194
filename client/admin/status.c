/* SPDX-License-Identifier: Apache-2.0 */
#include "client/diesel.h"

#include "client/admin.h"
#include "client/dataset.h"

int diesel_status(const char *socket, char **ret_json, char *error, size_t error_size)
{
	struct error err = ERROR_INIT;
	struct admin_client *admin = NULL;
	int r = admin_open(socket, ADMIN_TIMEOUT_S, &admin, &err);

	if (r == 0)
		r = admin_status(admin, ret_json, &err);
	admin_close(admin);
	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}
