/* cleanup.h: what a signal that ends the process leaves to be done: child processes and temporary
 * files.
 *
 * Whoever begins something announces it here, and takes it back when it is over. Nothing happens
 * with it unless the process has called cleanup_arm, as the command does and a program that uses
 * the library does not.
 */
#ifndef BRAID_CLEANUP_H
#define BRAID_CLEANUP_H

#include <spawn.h>
#include <stdbool.h>
#include <sys/types.h>

void cleanup_arm(void);
/* A file, or a folder of files, that is temporary; it is taken back by the same path. */
void cleanup_add(const char *path);
void cleanup_drop(const char *path);
/* Starts argv with no signal blocked or ignored; when armed in a process group of its own, to be
 * ended with all that it starts. 0, or an error number. */
int cleanup_spawn(pid_t *pid, const posix_spawn_file_actions_t *fa, char *const *argv);
/* Waits for it; its wait status, or -1. */
int cleanup_wait(pid_t pid);
/* Ends the children and removes what is announced; the process must end then. */
void cleanup_now(void);
/* Removes a folder and the files in it. */
void cleanup_folder(const char *folder);

/* What the process does at the moment, for people who wait: a constant string, NULL: nothing. */
void stage_set(const char *what);
const char *stage_get(void);

#endif
