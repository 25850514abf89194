/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Completes commands of our programs in texts, such as `dieselctl verify ...`, so that users can run them as
 * they are. PATH may lack the programs, for example those of a virtual environment that is not activated. */

/* Returns the text with its commands as a user can run them. A program that is not in PATH is replaced by
 * its path next to this program, also after sudo, whose PATH differs. The dataset, if not NULL, is added to
 * commands of dieselctl that lack only a dataset, in quotes if a shell would split the name. NULL: no memory.
 */
char *commands_runnable_new(const char *text, const char *dataset);

/* Returns a word for use in a command: in quotes if a shell would interpret it. NULL: no memory. */
char *commands_word_new(const char *word);
