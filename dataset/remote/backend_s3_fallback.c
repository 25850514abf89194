/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "dataset/backend.h"
#include "dataset/remote.h"

static int not_here(const char *name, enum backend_mode mode, uint64_t version, struct place **ret,
		    struct error *err)
{
	(void)mode;
	(void)version;
	(void)ret;
	return error_set(
	    err, -EPROTONOSUPPORT,
	    "%s: this dieselctl was built without S3 (DIESEL_S3=OFF), like the one from pip: use the "
	    "dieselctl of the package diesel. For jobs, set DIESEL_DIESELCTL to its path.",
	    name);
}

static const struct backend_ops fallback_ops = {.scheme = "s3://", .open = not_here};

void backend_s3_register(void)
{
	backend_register(&fallback_ops);
}
