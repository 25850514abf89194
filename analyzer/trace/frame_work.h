/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a function of Python works on, as PyTorch, safetensors and JAX name them. */

enum stack_work {
	STACK_OTHER,
	STACK_SAVE,    /* makes or writes a checkpoint */
	STACK_COMPILE, /* torch.compile, jax.jit */
	STACK_STEP,    /* the backward pass, the optimizer */
	STACK_MODEL,   /* the model's forward pass */
	STACK_NEXT,    /* makes or awaits the next item of an iterator */
	STACK_IMPORT,  /* imports modules */
	STACK_CUT,     /* too deep to be seen whole, and nothing known in what was */
};

/* Returns the work of a Python function, by the last name of its file: any but STACK_CUT. A generator's
 * frames are STACK_NEXT, too, which its name does not tell. */
enum stack_work frame_work_of(const char *file, const char *function);
