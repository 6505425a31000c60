/* cleanup.h: what a signal that ends the process leaves to be done: child processes and temporary
 * files.
 *
 * Whoever begins something announces it here, and takes it back when it is over. Nothing happens
 * with it unless the process has called cleanup_arm, as the command does and a program that uses
 * the library does not.
 */
#ifndef BRAID_CLEANUP_H
#define BRAID_CLEANUP_H

#include <stdbool.h>
#include <sys/types.h>

void cleanup_arm(void);
/* Children are then in process groups of their own, to be ended with all that they started. */
bool cleanup_armed(void);
/* A file, or a folder of files, that is temporary; it is taken back by the same path. */
void cleanup_add(const char *path);
void cleanup_drop(const char *path);
/* Waits for a child that leads its process group when armed; its wait status, or -1. */
int cleanup_wait(pid_t pid);
/* Ends the children and removes what is announced. */
void cleanup_now(void);
/* Removes a folder and the files in it. */
void cleanup_folder(const char *folder);

/* What the process does at the moment, for people who wait: a constant string, NULL: nothing. */
void stage_set(const char *what);
const char *stage_get(void);

#endif
