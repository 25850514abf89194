/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target once over each file of a corpus directory. So the ordinary suite covers the corpora also
 * where libFuzzer is not available. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		perror(name);
		return -1;
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return 0;
	}
	/* The allocation has exactly the file's size, so that sanitizers notice a read past the end. */
	uint8_t *data = malloc(st.st_size ? st.st_size : 1);
	ssize_t n = data ? read(fd, data, st.st_size) : -1;

	close(fd);
	if (n != st.st_size) {
		perror(name);
		free(data);
		return -1;
	}
	LLVMFuzzerTestOneInput(data, n);
	free(data);
	return 1;
}

int main(int argc, char **argv)
{
	int n_files = 0;

	for (int i = 1; i < argc; i++) {
		DIR *dir = opendir(argv[i]);

		if (!dir) {
			perror(argv[i]);
			return 1;
		}
		for (struct dirent *e; (e = readdir(dir));) {
			int r = run_file(dirfd(dir), e->d_name);

			if (r < 0)
				return 1;
			n_files += r;
		}
		closedir(dir);
	}
	printf("%d inputs\n", n_files);
	return n_files ? 0 : 1;
}
