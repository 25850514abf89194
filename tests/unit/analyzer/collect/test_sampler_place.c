/* SPDX-License-Identifier: Apache-2.0 */
/* Finds from outside where a real Python process is. */
#include "tests/support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "analyzer/collect/sampler_place.h"

#define PYTHON "/usr/bin/python3"

static const char *root;

static int setup(void **state)
{
	if (make_folder(state) < 0)
		return -1;
	root = *state;
	/* Each line that the program reads tells it where to go, into a next() or elsewhere. There it waits
	 * for another line. */
	write_text(root, "torch/utils/data/dataloader.py",
		   "class Iterator:\n"
		   "    def __next__(self):\n"
		   "        return deep(20)\n"
		   "def deep(n):\n"
		   "    if n: return deep(n - 1)\n"
		   "    print('there', flush=True)\n"
		   "    return input()\n");
	write_text(root, "torch/utils/data/_tensor.py",
		   "import dataloader\n"
		   "def backward():\n"
		   "    return dataloader.deep(2)\n");
	write_text(root, "torch/utils/data/training.py",
		   "import dataloader\n"
		   "word = next(dataloader.Iterator())\n");
	write_text(root, "job.py",
		   "import sys, threading\n"
		   "sys.path.insert(0, sys.argv[1] + '/torch/utils/data')\n"
		   "import dataloader, _tensor\n"
		   "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
		   "def elsewhere():\n"
		   "    return dataloader.deep(30)\n"
		   "def items():\n"
		   "    yield dataloader.deep(5)\n"
		   "def losses():\n"
		   "    yield _tensor.backward()\n"
		   "word = 'elsewhere'\n"
		   "while True:\n"
		   "    if word == 'next': word = next(dataloader.Iterator())\n"
		   "    elif word == 'generator': word = next(items())\n"
		   "    elif word == 'trains': word = next(losses())\n"
		   "    elif word == 'import':\n"
		   "        import training\n"
		   "        word = sys.modules.pop('training').word\n"
		   "    else: word = elsewhere()\n");
	return 0;
}

/* A Python program, with one pipe to it and one from it. */
struct program {
	pid_t pid;
	FILE *to, *from;
};

static void await_there(struct program *program)
{
	char line[64];

	assert_non_null(fgets(line, sizeof(line), program->from));
	assert_string_equal(line, "there\n");
}

static void program_start(struct program *program)
{
	int to[2], from[2];
	char path[256];

	assert_int_equal(pipe(to) | pipe(from), 0);
	snprintf(path, sizeof(path), "%s/job.py", root);
	program->pid = fork();
	if (program->pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[1]);
		close(from[0]);
		execl(PYTHON, PYTHON, "-B", path, root, (char *)NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	program->to = fdopen(to[1], "w");
	program->from = fdopen(from[0], "r");
	await_there(program);
}

static void program_go(struct program *program, const char *where)
{
	fprintf(program->to, "%s\n", where);
	fflush(program->to);
	await_there(program);
}

static void program_end(struct program *program)
{
	kill(program->pid, SIGKILL);
	waitpid(program->pid, NULL, 0);
	fclose(program->to);
	fclose(program->from);
}

TEST(a_real_process)
{
	struct sampler_place *place;
	struct program program;

	if (access(PYTHON, X_OK))
		skip();
	program_start(&program);
	assert_int_equal(sampler_place_open("/proc", program.pid, &place), 0);
	for (uint64_t i = 0; i < 3; i++) {
		/* The sampler forgets its knowledge of code objects now and then. */
		assert_int_equal(sampler_place_sample(place, i * NS_PER_S * 60), SAMPLE_PLACE_OUTSIDE);
		program_go(&program, "next");
		assert_int_equal(sampler_place_sample(place, i * NS_PER_S * 60), SAMPLE_PLACE_NEXT);
		assert_int_equal(sampler_place_sample(place, i * NS_PER_S * 60), SAMPLE_PLACE_NEXT);
		program_go(&program, "generator");
		assert_int_equal(sampler_place_sample(place, i * NS_PER_S * 60), SAMPLE_PLACE_ITERATOR);
		/* A generator that contains the training loop is not a loader. */
		program_go(&program, "trains");
		assert_int_equal(sampler_place_sample(place, i * NS_PER_S * 60), SAMPLE_PLACE_COMPUTING);
		/* A module that trains during its import does more than importing. */
		program_go(&program, "import");
		assert_int_equal(sampler_place_sample(place, i * NS_PER_S * 60), SAMPLE_PLACE_NEXT);
		program_go(&program, "elsewhere");
	}
	program_end(&program);
	assert_int_equal(sampler_place_sample(place, 0), SAMPLE_PLACE_UNKNOWN);
	sampler_place_close(place);
}

TEST(a_process_without_python_has_no_place)
{
	struct sampler_place *place;
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	assert_int_equal(sampler_place_open("/proc", pid, &place), -ENOENT);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(sampler_place_open("/proc", pid, &place), -ENOENT);
	sampler_place_close(NULL);
}

TEST(files_and_functions_name_places)
{
	static const char site[] = "/usr/lib/python3/dist-packages/";
	static const struct {
		const char *path, *function;
		enum sample_place place;
	} cases[] = {
	    {"torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", SAMPLE_PLACE_NEXT},
	    {"torch/utils/data/dataloader.py", "__next__", SAMPLE_PLACE_NEXT}, /* name until Python 3.10 */
	    {"torch/utils/data/dataloader.py", "DataLoader.__iter__", SAMPLE_PLACE_OUTSIDE},
	    {"torchdata/stateful_dataloader/stateful_dataloader.py", "_Iter.__next__", SAMPLE_PLACE_NEXT},
	    {"diesel_loader/loader.py", "_Iterator.__next__", SAMPLE_PLACE_DIESEL},
	    {"diesel_loader/torch.py", "DataLoader.__len__", SAMPLE_PLACE_OUTSIDE},
	    {"a_lab/loader.py", "Augmenter.__next__", SAMPLE_PLACE_ITERATOR},
	    {"python3.11/queue.py", "Queue.get", SAMPLE_PLACE_ITERATOR},
	    {"python3.11/multiprocessing/queues.py", "Queue.get", SAMPLE_PLACE_ITERATOR},
	    {"python3.11/multiprocessing/queues.py", "Queue.put", SAMPLE_PLACE_OUTSIDE},
	    {"torch/nn/modules/module.py", "Module._call_impl", SAMPLE_PLACE_COMPUTING},
	    {"torch/nn/modules/module.py", "Module.parameters", SAMPLE_PLACE_COMPUTING},
	    {"torch/nn/modules/module.py", "Module._named_members", SAMPLE_PLACE_COMPUTING},
	    {"torch/nn/modules/module.py", "Module.__init__", SAMPLE_PLACE_OUTSIDE},
	    {"torch/_tensor.py", "Tensor.backward", SAMPLE_PLACE_COMPUTING},
	    {"torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper",
	     SAMPLE_PLACE_COMPUTING},
	    {"", "", SAMPLE_PLACE_OUTSIDE},
	};
	char path[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", site, cases[i].path);
		assert_int_equal(sampler_place_of(path, cases[i].function, false), cases[i].place);
	}
}

int main(void)
{
	return run_unit_tests(setup, remove_folder);
}
