/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a function of Python works on, as PyTorch, safetensors and JAX name them. */

enum stack_work {
	STACK_OTHER,
	STACK_SAVE,    /* makes or writes a checkpoint */
	STACK_COMPILE, /* torch.compile, jax.jit */
	STACK_CUT,     /* too deep to be seen whole, and nothing known in what was */
};

/* What a Python function works on, by the last name of its file: STACK_OTHER, _SAVE or _COMPILE. */
enum stack_work frame_work_of(const char *file, const char *function);
