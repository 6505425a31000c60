/* cleanup.h: child processes and temporary files, to be ended and removed when a signal ends us.
 *
 * Code that starts a child or makes a temporary file registers it here, and drops it when it is
 * done. Registration does nothing unless the process has called cleanup_arm: the braid command
 * does, a program that uses the library does not.
 */
#ifndef BRAID_CLEANUP_H
#define BRAID_CLEANUP_H

#include <spawn.h>
#include <stdbool.h>
#include <sys/types.h>

void cleanup_arm(void);
/* Registers a temporary file, or folder of files; cleanup_drop takes the same path. */
void cleanup_add(const char *path);
void cleanup_drop(const char *path);
/* Starts argv in the environment `env` with no signal blocked and SIGXFSZ at its default. When
 * armed, or if `apart`, the child gets a process group of its own, so that cleanup_now and
 * cleanup_kill also end what it starts. Returns 0 or an error number. */
int cleanup_spawn(pid_t *pid, const posix_spawn_file_actions_t *fa, char *const *argv,
                  char *const *env, bool apart);
/* Waits for the child; returns its wait status, or -1. */
int cleanup_wait(pid_t pid);
/* Kills a child that was started apart, and all that it has started. */
void cleanup_kill(pid_t pid);
/* Kills the children and removes the registered files. The process must end after it. */
void cleanup_now(void);
/* Removes a folder and the files in it. */
void cleanup_folder(const char *folder);

#endif
