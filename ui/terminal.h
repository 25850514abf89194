/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Drives the terminal; no other file uses ncurses. The terminal is restored however the program ends or
 * stops: by terminal_close(), a signal that the program handles, SIGTSTP, or a signal that kills it (SIGSEGV,
 * SIGABRT,
 * ...). Only SIGKILL prevents this. A process has one terminal, so there is no object.
 */

#include <stdbool.h>
#include <stddef.h>

#include "ui/view/screen.h"

struct error;

struct terminal_options {
	bool no_colour; /* do not use colours */
	bool ascii;
};

/* Takes over the terminal. -ENOTTY: no terminal; -ENODEV: its TERM is unknown. */
int terminal_open(const struct terminal_options *options, struct error *err);
void terminal_close(void);

/* Returns what the terminal supports and the options permit. */
struct charset terminal_charset(void);

/* Returns the current size. Call it at the start and after SIGWINCH. */
void terminal_size(int *ret_rows, int *ret_cols);

/* Draws the cells that changed since the last call. Returns their number. */
size_t terminal_show(const struct screen *screen);

/* Makes the next terminal_show() draw everything. */
void terminal_redraw(void);

/* Returns the next key, in the form that model_key() takes; 0: none is pending. */
unsigned int terminal_key(void);

/* Restores the terminal and stops the process, as SIGTSTP does. Returns when the process continues. */
void terminal_suspend(void);
