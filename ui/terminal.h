/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The terminal; no other file uses ncurses. The terminal is restored however the program ends or stops: by
 * terminal_close(), a signal that the program handles, SIGTSTP, or a signal that kills it (SIGSEGV, SIGABRT,
 * ...). Only SIGKILL leaves it as it is. A process has one terminal, so there is no object.
 */

#include <stdbool.h>
#include <stddef.h>

#include "ui/view/screen.h"

struct error;

struct terminal_options {
	bool no_colour; /* treat it as a terminal without colours */
	bool ascii;
};

/* Takes over the terminal. -ENOTTY: there is none; -ENODEV: its TERM is not known. */
int terminal_open(const struct terminal_options *options, struct error *err);
void terminal_close(void);

/* What the terminal can do and the options permit. */
struct charset terminal_charset(void);

/* The size now. Ask at the start and after SIGWINCH. */
void terminal_size(int *ret_rows, int *ret_cols);

/* Shows the picture by writing the cells that changed since the last one. Returns how many these were. */
size_t terminal_show(const struct screen *screen);

/* Makes the next terminal_show() draw everything. */
void terminal_redraw(void);

/* A key as model_key() takes it; 0: none is waiting. */
unsigned int terminal_key(void);

/* Gives the terminal back and stops the process, as SIGTSTP does; returns when it goes on. */
void terminal_suspend(void);
