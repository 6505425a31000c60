/* store.c: see store.h. */
#include "scheduler/cost/store.h"
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#define FORMAT 3 /* of the tables; a database in another one is made anew */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define BUSY_MS 10000 /* waiting for another process, which may be measuring */

struct Store {
    sqlite3 *db;
    char *path;
    bool damaged; /* found out while using it */
};

static const char *const schema =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS device(key TEXT, name TEXT, value REAL, PRIMARY KEY(key, name)) "
    "WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS measured(device TEXT, units INTEGER, key INTEGER, transform TEXT,"
    " value INTEGER, ns REAL, other INTEGER, other_ns REAL, time INTEGER, PRIMARY KEY(device, "
    "units, key)) WITHOUT ROWID;"
    "PRAGMA user_version = " TEXT(FORMAT) ";"
                                          "COMMIT;";

static bool is_damage(int code) { return code == SQLITE_CORRUPT || code == SQLITE_NOTADB; }

/* ---- opening --------------------------------------------------------------------------------- */
static int format_of(sqlite3 *db, int *format) {
    sqlite3_stmt *q = NULL;
    int code = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &q, NULL);
    if (code == SQLITE_OK && (code = sqlite3_step(q)) == SQLITE_ROW) {
        *format = sqlite3_column_int(q, 0);
        code = SQLITE_OK;
    }
    sqlite3_finalize(q);
    return code;
}

/* A code of SQLite; SQLITE_NOTADB also for a database in another format. */
static int open_once(const char *path, bool write, sqlite3 **db) {
    int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY,
        format = 0;
    int code = sqlite3_open_v2(path, db, flags, NULL);
    if (code == SQLITE_OK) {
        sqlite3_busy_timeout(*db, BUSY_MS);
        code = format_of(*db, &format);
    }
    if (code == SQLITE_OK && format == 0 && write) {
        code = sqlite3_exec(*db, schema, NULL, NULL, NULL);
        format = FORMAT;
    }
    if (code == SQLITE_OK && format != FORMAT) code = SQLITE_NOTADB;
    if (code != SQLITE_OK) {
        sqlite3_close(*db);
        *db = NULL;
    }
    return code & 0xff;
}

/* A database that other processes have open lives on for them until they close it. */
static void remove_files(const char *path) {
    char journal[4200];
    unlink(path);
    if (snprintf(journal, sizeof journal, "%s-journal", path) < (int)sizeof journal)
        unlink(journal);
}

static Store *open_store(const char *path, bool write) {
    Store *s = path ? calloc(1, sizeof *s) : NULL;
    if (!s) return NULL;
    int code = open_once(path, write, &s->db);
    if (write && is_damage(code)) {
        remove_files(path);
        code = open_once(path, write, &s->db);
    }
    s->path = write && code == SQLITE_OK ? strdup(path) : NULL;
    if (code == SQLITE_OK) return s;
    free(s);
    return NULL;
}

Store *store_open(const char *path) { return open_store(path, true); }
Store *store_open_to_read(const char *path) { return open_store(path, false); }

void store_close(Store *s) {
    if (!s) return;
    sqlite3_close(s->db);
    if (s->damaged && s->path) remove_files(s->path);
    free(s->path);
    free(s);
}

/* ---- statements ------------------------------------------------------------------------------ */
/* A statement whose first parameter is the device. */
static sqlite3_stmt *prepare(Store *s, const char *key, const char *sql) {
    sqlite3_stmt *q = NULL;
    if (s && sqlite3_prepare_v2(s->db, sql, -1, &q, NULL) != SQLITE_OK) {
        s->damaged |= is_damage(sqlite3_errcode(s->db));
        return NULL;
    }
    if (q) sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
    return q;
}

static int step(Store *s, sqlite3_stmt *q) {
    int code = sqlite3_step(q);
    s->damaged |= is_damage(code);
    return code;
}

static bool finish(Store *s, sqlite3_stmt *q) {
    bool good = step(s, q) == SQLITE_DONE;
    sqlite3_finalize(q);
    return good;
}

bool store_begin(Store *s) {
    return s && sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK;
}

bool store_commit(Store *s) {
    if (!s) return false;
    if (sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK) return true;
    sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return false;
}

/* ---- devices --------------------------------------------------------------------------------- */
bool store_device(Store *s, const char *key, Device *d) {
    Device got = *d;
    bool good = true;
    sqlite3_stmt *q = prepare(s, key, "SELECT value FROM device WHERE key = ? AND name = ?");
    if (!q) return false;
    const DeviceNumber *n;
    for (int i = 0; good && (n = device_number(i)); i++) {
        if (device_get(d, n) == 0) continue; /* the device has none */
        sqlite3_bind_text(q, 2, n->name, -1, SQLITE_STATIC);
        good = step(s, q) == SQLITE_ROW && sqlite3_column_double(q, 0) > 0;
        if (good) device_set(&got, n, sqlite3_column_double(q, 0));
        sqlite3_reset(q);
    }
    sqlite3_finalize(q);
    if (!good) return false;
    *d = got;
    d->measured = true;
    return true;
}

bool store_keep_device(Store *s, const char *key, const Device *d) {
    if (!s || sqlite3_exec(s->db, "SAVEPOINT keep", NULL, NULL, NULL) != SQLITE_OK) return false;
    bool good = true;
    const DeviceNumber *n;
    for (int i = 0; good && (n = device_number(i)); i++) {
        sqlite3_stmt *q = prepare(s, key, "INSERT OR REPLACE INTO device VALUES(?, ?, ?)");
        if (!q) break;
        sqlite3_bind_text(q, 2, n->name, -1, SQLITE_STATIC);
        sqlite3_bind_double(q, 3, device_get(d, n));
        good = finish(s, q);
    }
    good = good && !n;
    if (!good) sqlite3_exec(s->db, "ROLLBACK TO keep", NULL, NULL, NULL);
    return sqlite3_exec(s->db, "RELEASE keep", NULL, NULL, NULL) == SQLITE_OK && good;
}

/* ---- measured choices ------------------------------------------------------------------------ */
Measured *store_measured(Store *s, const char *key, int units, int *n) {
    Measured *m = NULL;
    int cap = 0, code = SQLITE_DONE;
    *n = 0;
    /* Keys are unsigned, SQLite's integers are not. */
    sqlite3_stmt *q = prepare(
        s, key,
        "SELECT key, value, ns, other, other_ns FROM measured WHERE device = ? AND units = ?"
        " ORDER BY key < 0, key");
    if (!q) return NULL;
    sqlite3_bind_int(q, 2, units);
    while ((code = step(s, q)) == SQLITE_ROW) {
        if (*n == cap) {
            Measured *more = realloc(m, sizeof *m * (size_t)(cap = 2 * cap + 16));
            if (!more) break;
            m = more;
        }
        m[(*n)++] = (Measured){.key = (uint64_t)sqlite3_column_int64(q, 0),
                               .value = sqlite3_column_int(q, 1),
                               .ns = sqlite3_column_double(q, 2),
                               .other = sqlite3_column_int(q, 3),
                               .other_ns = sqlite3_column_double(q, 4)};
    }
    sqlite3_finalize(q);
    if (code == SQLITE_DONE && *n) return m;
    free(m);
    *n = 0;
    return NULL;
}

bool store_keep_measured(Store *s, const char *key, int units, Transform x, const Measured *m) {
    sqlite3_stmt *q = prepare(
        s, key,
        "INSERT OR REPLACE INTO measured VALUES(?, ?, ?, ?, ?, ?, ?, ?, strftime('%s', 'now'))");
    if (!q) return false;
    sqlite3_bind_int(q, 2, units);
    sqlite3_bind_int64(q, 3, (sqlite3_int64)m->key);
    sqlite3_bind_text(q, 4, transform_name(x), -1, SQLITE_STATIC);
    sqlite3_bind_int(q, 5, m->value);
    sqlite3_bind_double(q, 6, m->ns);
    sqlite3_bind_int(q, 7, m->other);
    sqlite3_bind_double(q, 8, m->other_ns);
    return finish(s, q);
}
