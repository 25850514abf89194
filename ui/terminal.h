/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The terminal, and the only file that knows ncurses. It gets back as it was however the program ends: by
 * terminal_close(), by a signal that the program takes itself, by SIGTSTP and SIGCONT, and by one that kills
 * it (SIGSEGV, SIGABRT, ...). Only SIGKILL leaves it as it is. There is one terminal: the process has one.
 */

#include <stdbool.h>
#include <stddef.h>

#include "screen.h"

struct error;

struct terminal_options {
	bool no_colour; /* as if it had none */
	bool ascii;
};

/* Takes the terminal over. -ENOTTY: there is none; -ENODEV: its TERM is not known. */
int terminal_open(const struct terminal_options *options, struct error *err);
void terminal_close(void);

/* What it can do; within the options. */
struct charset terminal_charset(void);

/* After SIGWINCH, and at the start. */
void terminal_size(int *ret_rows, int *ret_cols);

/* Brings the picture there: only cells that changed since the last one. How many these were. */
size_t terminal_show(const struct screen *screen);

/* The next show draws everything. */
void terminal_redraw(void);

/* A key as model_key() takes it; 0: none is waiting. */
unsigned int terminal_key(void);

/* Gives the terminal back and stops the process, as SIGTSTP does; returns when it goes on. */
void terminal_suspend(void);
