/* SPDX-License-Identifier: Apache-2.0 */
/* The socket in the file system. A lock beside it, which the kernel frees, tells whether its owner lives. */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/cleanup.h"

static int take_lock(const char *path, int *ret_fd, struct error *err)
{
	char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8], pid[24] = "";
	_cleanup_(closep) int fd = -EBADF;
	ssize_t n;

	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 && errno == ENOENT)
		return error_set(err, -ENOENT,
				 "cannot listen on %s: its directory does not exist; make it, or "
				 "choose another path",
				 path);
	if (fd < 0)
		return error_errno(err, -errno, "cannot open the lock file %s", lock_path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		n = pread(fd, pid, sizeof(pid) - 1, 0);
		pid[n > 0 ? n : 0] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		return error_set(
		    err, -EADDRINUSE,
		    "another dieseld (pid %s) already serves %s: use that one, stop it, or choose "
		    "another path",
		    pid[0] ? pid : "unknown", path);
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
		return error_errno(err, -errno, "cannot write the lock file %s", lock_path);
	*ret_fd = steal_fd(&fd);
	return 0;
}

int listen_open(const char *path, mode_t mode, int *ret_listen_fd, int *ret_lock_fd,
		struct listen_place *ret_place, struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_(closep) int fd = -EBADF, lock = -EBADF;
	struct stat st;
	int r;

	if (strlen(path) >= sizeof(address.sun_path))
		return error_set(err, -ENAMETOOLONG, "socket path is longer than %zu bytes: %s",
				 sizeof(address.sun_path) - 1, path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	r = take_lock(path, &lock, err);
	if (r < 0)
		return r;
	if (lstat(path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return error_set(err, -EEXIST,
					 "%s exists and is no socket: remove it, or choose another "
					 "path",
					 path);
		unlink(path); /* we hold the lock, so whoever made the socket is dead */
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return error_errno(err, -errno, "cannot make a socket");
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return error_errno(err, -errno, "cannot listen on %s", path);
	/* Before it listens: until then nobody can connect. */
	if (chmod(path, mode) < 0 || lstat(path, &st) < 0 || listen(fd, 128) < 0)
		return error_errno(err, -errno, "cannot listen on %s", path);
	*ret_place = (struct listen_place){.device = st.st_dev, .inode = st.st_ino};
	*ret_listen_fd = steal_fd(&fd);
	*ret_lock_fd = steal_fd(&lock);
	return 0;
}

static bool is_there(const char *path, const struct listen_place *place)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == place->device && st.st_ino == place->inode;
}

void listen_remove(const char *path, const struct listen_place *place)
{
	if (is_there(path, place))
		unlink(path);
}

int server_check_ready(const struct server *s, struct error *err)
{
	if (s->stopping)
		return error_set(err, -ESHUTDOWN, "dieseld is stopping");
	if (!is_there(s->socket_path, &s->place))
		return error_set(
		    err, -ENOENT,
		    "%s is not dieseld's socket any more: systemctl restart dieseld, and find out who "
		    "removed it",
		    s->socket_path);
	if (!uv_is_active((const uv_handle_t *)&s->listen_poll))
		return error_set(err, -EMFILE,
				 "dieseld has no descriptor for another client: raise LimitNOFILE=");
	return 0;
}
