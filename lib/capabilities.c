/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/capabilities.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int get(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capget, &header, data) < 0 ? -errno : 0;
}

static int set(uint64_t effective, uint64_t permitted)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
	    {.effective = (uint32_t)effective, .permitted = (uint32_t)permitted},
	    {.effective = (uint32_t)(effective >> 32), .permitted = (uint32_t)(permitted >> 32)}};

	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int permitted_get(uint64_t *ret)
{
	struct __user_cap_data_struct data[2] = {0};
	int r = get(data);

	if (r == 0)
		*ret = data[0].permitted | (uint64_t)data[1].permitted << 32;
	return r;
}

int capabilities_get(uint64_t *ret_effective)
{
	struct __user_cap_data_struct data[2] = {0};
	int r = get(data);

	if (r == 0)
		*ret_effective = data[0].effective | (uint64_t)data[1].effective << 32;
	return r;
}

int capabilities_keep(uint64_t keep)
{
	uint64_t permitted = 0;
	int r;

	/* An exec would restore ambient capabilities. A kernel without them returns EINVAL. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL))
		return -errno;
	r = permitted_get(&permitted);
	return r < 0 ? r : set(permitted & keep, permitted & keep);
}

int capabilities_keep_as(uint64_t keep, uint32_t uid, uint32_t gid)
{
	/* Changing from root to another user clears the effective set and, without this, the permitted one
	 * too. */
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
	    setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return -errno;
	(void)prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
	return capabilities_keep(keep);
}
