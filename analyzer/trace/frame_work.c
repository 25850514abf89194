/* SPDX-License-Identifier: Apache-2.0 */
#include "frame_work.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Work by file (last component, as in the samples) and function; NULL: any function of the file. */
static const struct {
	const char *file, *function;
	enum stack_work work;
} functions[] = {
    {"serialization.py", "save", STACK_SAVE},         /* torch.save */
    {"state_dict_saver.py", NULL, STACK_SAVE},        /* torch.distributed.checkpoint */
    {"_state_dict_stager.py", NULL, STACK_SAVE},      /* copies the state for a checkpoint */
    {"_async_thread_executor.py", NULL, STACK_SAVE},  /* async_save() in a thread */
    {"_async_process_executor.py", NULL, STACK_SAVE}, /* async_save() in a process */
    {"convert_frame.py", NULL, STACK_COMPILE},        /* torch.compile: Dynamo */
    {"symbolic_convert.py", NULL, STACK_COMPILE},
    {"output_graph.py", NULL, STACK_COMPILE},
    {"compile_fx.py", NULL, STACK_COMPILE}, /* torch.compile: Inductor */
    {"async_compile.py", NULL, STACK_COMPILE},
    {"cpp_builder.py", NULL, STACK_COMPILE},
    {"cpu_vec_isa.py", NULL, STACK_COMPILE},
    {"graph_compile.py", NULL, STACK_COMPILE}, /* AOTAutograd */
    {"autograd_cache.py", NULL, STACK_COMPILE},
    {"compiler.py", "compile_or_get_cached", STACK_COMPILE},            /* JAX */
    {"torch.py", "save_file", STACK_SAVE},                              /* safetensors */
    {"async_checkpointer.py", "AsyncCheckpointer.restore", STACK_LOAD}, /* orbax */
    {"async_checkpointer.py", "restore", STACK_LOAD},
    {"async_checkpointer.py", NULL, STACK_SAVE},
    {"checkpointer.py", "Checkpointer.save", STACK_SAVE},
    {"checkpointer.py", "Checkpointer.restore", STACK_LOAD},
    {"future.py", "_SignalingThread.run", STACK_SAVE},
    {"checkpointer.py", "Checkpointer._save", STACK_SAVE}, /* diesel_loader.checkpoint */
    {"checkpointer.py", "_save", STACK_SAVE},              /* Python before 3.11 */
    {"checkpointer.py", "Checkpointer._prepare", STACK_SAVE},
    {"checkpointer.py", "_prepare", STACK_SAVE},
    {"checkpointer.py", "Checkpointer._poll", STACK_SAVE},
    {"checkpointer.py", "_poll", STACK_SAVE},
    {"snapshot.py", "Saver.updated", STACK_SAVE},
    {"snapshot.py", "updated", STACK_SAVE},
    {"memory.py", "Memory.populate", STACK_SAVE},
    {"memory.py", "populate", STACK_SAVE},
    {"memory.py", "_move", STACK_SAVE},
    {"persist.py", NULL, STACK_SAVE},
    {"persister.py", NULL, STACK_SAVE},
    {"serialization.py", "load", STACK_LOAD},   /* torch.load */
    {"state_dict_loader.py", NULL, STACK_LOAD}, /* torch.distributed.checkpoint */
    {"torch.py", "load_file", STACK_LOAD},      /* safetensors */
    {"<frozen importlib._bootstrap>", NULL, STACK_IMPORT},
    {"_tensor.py", "Tensor.backward", STACK_STEP},
    {"_tensor.py", "backward", STACK_STEP},
    {"graph.py", "_engine_run_backward", STACK_STEP},
    {"optimizer.py", NULL, STACK_STEP},
    {"module.py", "Module._call_impl", STACK_MODEL},
    {"module.py", "_call_impl", STACK_MODEL},
    {"functional.py", "cross_entropy", STACK_MODEL},
    {"functional.py", "mse_loss", STACK_MODEL},
    {"pjit.py", "cache_miss", STACK_MODEL}, /* JAX */
    {"pjit.py", "_pjit.<locals>.cache_miss", STACK_MODEL},
    {"array.py", "ArrayImpl.block_until_ready", STACK_MODEL},
    {"api.py", "block_until_ready", STACK_MODEL},
    {"polymorphic_function.py", NULL, STACK_MODEL}, /* TensorFlow */
};

/* Returns true for functions of a compiler's file that do not compile: the file's import, and generated
 * code, which older versions call from the file. Python before 3.11 has no qualified names. */
static bool is_none(const char *function)
{
	static const char run[] = "<locals>.run";
	size_t length = strlen(function), end = sizeof(run) - 1;

	return !strcmp(function, "<module>") || !strcmp(function, "run") ||
	       (length >= end && !strcmp(function + length - end, run));
}

/* Returns true for generators that iterate over a model. Gradient clipping and weight averaging use them
 * in each step. */
static bool goes_through_model(const char *file, const char *function)
{
	static const char *const names[] = {"parameters",    "buffers",          "modules",
					    "children",      "named_parameters", "named_buffers",
					    "named_modules", "named_children",   "_named_members"};
	const char *dot = strrchr(function, '.');

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !strcmp(file, "module.py"); i++)
		if (!strcmp(dot ? dot + 1 : function, names[i]))
			return true;
	return false;
}

/* Returns true for next() of iterators that are classes, and get() of queues that a thread or a process
 * fills. */
static bool takes_next(const char *file, const char *function)
{
	static const char next[] = "__next__", get[] = "get";
	size_t length = strlen(function), end = sizeof(next) - 1;
	const char *dot = strrchr(function, '.');

	if (length >= end && !strcmp(function + length - end, next))
		return true;
	return (!strcmp(file, "queue.py") || !strcmp(file, "queues.py")) &&
	       !strcmp(dot ? dot + 1 : function, get);
}

enum stack_work frame_work_of(const char *file, const char *function)
{
	if (is_none(function))
		return STACK_OTHER;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(file, functions[i].file) &&
		    (!functions[i].function || !strcmp(function, functions[i].function)))
			return functions[i].work;
	if (goes_through_model(file, function))
		return STACK_MODEL;
	return takes_next(file, function) ? STACK_NEXT : STACK_OTHER;
}
