/* store.h: what was measured on this machine, kept from one compilation to the next in an SQLite
 * database.
 *
 * A cache and nothing more: a database that cannot be opened, read or written is as good as an
 * empty one, and a damaged one is made anew. Processes may share it. */
#ifndef BRAID_STORE_H
#define BRAID_STORE_H

#include "scheduler/cost/decide.h"
#include "scheduler/cost/device.h"

typedef struct Store Store;

/* The database at `path`, made when it is not there; its folder must be. NULL: there is no store,
 * which is what all functions below take as an empty one that keeps nothing. `path` NULL gives
 * that. */
Store *store_open(const char *path);
/* The same without making or changing anything. */
Store *store_open_to_read(const char *path);
void store_close(Store *s);

/* Puts the numbers kept under `key` into *d, whose names and structure stay; false: there are none.
 */
bool store_device(Store *s, const char *key, Device *d);
/* Keeps them, in place of earlier ones. */
bool store_keep_device(Store *s, const char *key, const Device *d);

/* The choices measured on device `key` for teams of `units`: a malloc'd array, sorted by key. *n =
 * 0 and NULL when there are none. */
Measured *store_measured(Store *s, const char *key, int units, int *n);
/* Keeps a choice about `x`, in place of an earlier one. */
bool store_keep_measured(Store *s, const char *key, int units, Transform x, const Measured *m);

/* Several changes that are kept together, at the price of one; other processes wait with theirs.
 * False: one of them has been at it for too long, or there is nothing to write to. */
bool store_begin(Store *s);
bool store_commit(Store *s);

#endif
