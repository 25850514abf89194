/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Classifies Python functions of PyTorch, safetensors and JAX by the work that they do, by their names. */

enum stack_work {
	STACK_OTHER,
	STACK_SAVE,    /* makes or writes a checkpoint */
	STACK_COMPILE, /* torch.compile, jax.jit */
	STACK_STEP,    /* the backward pass, the optimizer */
	STACK_MODEL,   /* the model's forward pass */
	STACK_NEXT,    /* makes or awaits the next item of an iterator */
	STACK_IMPORT,  /* imports modules */
	STACK_LOAD,    /* loads a checkpoint, or other objects of torch.save */
	STACK_CUT,     /* stack truncated because it is too deep; no known function in the recorded part */
};

/* Returns the work of a Python function, never STACK_CUT. file: last component of its path. A generator's
 * frames are STACK_NEXT, too, but the caller must find that out: the name does not show it. */
enum stack_work frame_work_of(const char *file, const char *function);
