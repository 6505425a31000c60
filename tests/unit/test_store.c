/* What is kept from one compilation to the next (scheduler/cost/store.c), and this machine's row in
 * the table of devices (codegen/build/calibrate.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "codegen/build/calibrate.h"

static char folder[64], path[128];

static int begin(void **state) {
    (void)state;
    strcpy(folder, "/tmp/braid-store.XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/tuning.db", folder);
    return 0;
}
static int end(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder); /* nothing else is left there */
}

static Device some_device(double x) {
    Device d = *device_find("cpu");
    d.gflops = x;
    d.level[LEVEL_CORE].bytes = 12345;
    d.level[LEVEL_TEAM].barrier_ns = x + 1;
    return d;
}

static void test_devices(void **state) {
    (void)state;
    Store *s = store_open(path);
    assert_non_null(s);
    Device d = *device_find("cpu"), kept = some_device(77);
    assert_false(store_device(s, "a", &d));
    assert_true(store_keep_device(s, "a", &kept));
    assert_true(store_keep_device(s, "a", &kept));
    kept.gflops = 78;
    assert_true(store_keep_device(s, "a", &kept)); /* in place of the first one */
    store_close(s);
    assert_null(store_open_to_read("/nonexistent/tuning.db"));
    s = store_open_to_read(path);
    assert_true(store_device(s, "a", &d));
    assert_true(d.measured && d.gflops == 78 && d.level[LEVEL_CORE].bytes == 12345);
    assert_true(d.level[LEVEL_TEAM].barrier_ns == 78);
    assert_string_equal(d.level[LEVEL_TEAM].name, "team");
    assert_false(store_device(s, "b", &d));
    assert_false(store_keep_device(s, "b", &kept));
    store_close(s);
    /* What a row has not is not missed. */
    s = store_open(path);
    Device gpu = *device_find("cuda:sm_90"), other = *device_find("cuda:sm_80");
    gpu.level[LEVEL_CLUSTER].barrier_ns = 321;
    assert_true(store_keep_device(s, gpu.name, &gpu) && store_keep_device(s, other.name, &other));
    store_close(s);
    s = store_open_to_read(path);
    CompileOptions o = {.target = gpu.name}, none = {.target = "hip:gfx90a"};
    assert_true(device_calibrated(&o, s, true, &d));
    assert_true(d.measured && d.level[LEVEL_CLUSTER].barrier_ns == 321 && d.units == gpu.units);
    assert_true(store_device(s, other.name, &other));
    assert_true(device_calibrated(&none, s, true, &d));
    assert_false(d.measured);
    store_close(s);
}

static void test_choices(void **state) {
    (void)state;
    int n = 7;
    Store *s = store_open(path);
    assert_null(store_measured(s, "a", 2, &n));
    assert_int_equal(n, 0);
    static const uint64_t keys[] = {UINT64_MAX, 5, (uint64_t)1 << 63, 0, INT64_MAX, 6};
    assert_true(store_begin(s));
    for (int i = 0; i < (int)COUNT(keys); i++)
        assert_true(
            store_keep_measured(s, "a", 2, X_HOIST, &(Measured){keys[i], i, i + 1, i, i + 0.5}));
    assert_true(store_commit(s));
    assert_true(store_keep_measured(s, "a", 2, X_HOIST, &(Measured){5, 3, 4, 100, 200}));
    assert_true(store_keep_measured(s, "a", 1, X_HOIST, &(Measured){5, 0, 1, 1, 2}));
    assert_true(store_keep_measured(s, "b", 2, X_UNROLL, &(Measured){9, 0, 1, 1, 2}));
    Measured *m = store_measured(s, "a", 2, &n);
    assert_int_equal(n, COUNT(keys));
    for (int i = 1; i < n; i++) assert_true(m[i - 1].key < m[i].key);
    assert_true(m[1].key == 5 && m[1].value == 3 && m[1].other == 4 && m[1].ns == 100 &&
                m[1].other_ns == 200);
    assert_true(m[n - 1].key == UINT64_MAX && m[n - 1].other_ns == 0.5);
    free(m);
    store_close(s);
}

/* No store, no folder, no right to write, a file that is something else, a damaged database. */
static void write_file(const char *text, size_t n, long at) {
    FILE *f = fopen(path, at < 0 ? "w" : "r+");
    assert_non_null(f);
    if (at > 0) fseek(f, at, SEEK_SET);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}
static void test_absent(void **state) {
    (void)state;
    int n;
    Device d = *device_find("cpu");
    assert_null(store_open(NULL));
    assert_null(store_open("/nonexistent/folder/tuning.db"));
    assert_null(store_open(folder));
    assert_false(store_device(NULL, "a", &d));
    assert_false(store_keep_device(NULL, "a", &d));
    assert_null(store_measured(NULL, "a", 1, &n));
    assert_int_equal(n, 0);
    assert_false(store_keep_measured(NULL, "a", 1, X_HOIST, &(Measured){1, 0, 1, 2, 3}));
    assert_false(store_begin(NULL));
    assert_false(store_commit(NULL));
    store_close(NULL);
    if (geteuid() != 0) { /* root may write anywhere */
        chmod(folder, 0500);
        assert_null(store_open(path));
        chmod(folder, 0700);
    }
}
static void test_damaged(void **state) {
    (void)state;
    Device d = some_device(3);
    for (int way = 0; way < 4; way++) {
        Store *s = store_open(path);
        assert_true(store_keep_device(s, "a", &d));
        store_close(s);
        char junk[5000];
        memset(junk, 0x5a, sizeof junk);
        if (way == 0) write_file(junk, sizeof junk, -1);
        if (way == 1) write_file("", 0, -1);
        if (way == 2) write_file("\0\0\0\x63", 4, 60);     /* made by a later version */
        if (way == 3) write_file(junk, sizeof junk, 3000); /* its tables */
        s = store_open_to_read(path);
        if (way == 0 || way == 2)
            assert_null(s);
        else
            assert_false(store_device(s, "a", &d));
        store_close(s);
        for (int i = 0; i < 2; i++) { /* found out at once, or the first time it is used */
            s = store_open(path);
            store_device(s, "a", &d);
            store_close(s);
        }
        s = store_open(path);
        assert_non_null(s);
        assert_false(store_device(s, "a", &d));
        assert_true(store_keep_device(s, "a", &d));
        assert_true(store_device(s, "a", &d));
        store_close(s);
        unlink(path);
    }
}

/* Processes that write at the same time: nothing is lost. */
static void test_processes(void **state) {
    (void)state;
    enum { PROCESSES = 3, CHOICES = 20 };
    for (int p = 0; p < PROCESSES; p++)
        if (fork() == 0) {
            bool good = true;
            for (int i = 0; i < CHOICES; i++) {
                Store *s = store_open(path);
                good = good &&
                       store_keep_measured(s, "a", 2, X_CORE,
                                           &(Measured){(uint64_t)(p * CHOICES + i), 0, 1, 1, 2});
                store_close(s);
            }
            _exit(good ? 0 : 1);
        }
    for (int p = 0; p < PROCESSES; p++) {
        int status = 1;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    int n;
    Store *s = store_open_to_read(path);
    free(store_measured(s, "a", 2, &n));
    assert_int_equal(n, PROCESSES * CHOICES);
    store_close(s);
}

static void test_calibration(void **state) {
    (void)state;
    CompileOptions o = {.target = "cpu"}, other = {.target = "cpu", .cpu = "x86-64"},
                   none = {.target = "toaster"};
    const Device *row = device_find("cpu");
    Device d, again;
    assert_false(device_calibrated(&none, NULL, true, &d));
    assert_true(device_calibrated(&o, NULL, true, &d)); /* nowhere to keep it: not measured */
    assert_false(d.measured);
    Store *s = store_open(path);
    assert_true(device_calibrated(&other, s, true, &d));
    assert_false(d.measured);
    assert_true(device_calibrated(&o, s, false, &d));
    assert_false(d.measured);
    assert_true(d.gflops == row->gflops);
    assert_true(device_calibrated(&o, s, true, &d));
    assert_true(d.measured);
    const double number[][2] = {{d.gflops, row->gflops},         {d.dram_gbps, row->dram_gbps},
                                {d.element_ns, row->element_ns}, {d.function_ns, row->function_ns},
                                {d.scalar_ns, row->scalar_ns},   {d.group_ns, row->group_ns}};
    for (size_t i = 0; i < COUNT(number); i++)
        assert_true(number[i][0] * 20.001 >= number[i][1] && number[i][0] <= number[i][1] * 20.001);
    for (int l = LEVEL_LANE; l <= LEVEL_TEAM; l++) {
        if (!d.level[l].name) continue;
        assert_true(d.level[l].bytes > 0 && d.level[l].read_gbps > 0);
    }
    assert_true(d.level[LEVEL_TEAM].barrier_ns > 0);
    assert_true(d.element_ns < d.function_ns);
    assert_true(d.level[LEVEL_LANE].bytes <= d.level[LEVEL_CORE].bytes);
    assert_true(d.level[LEVEL_CORE].bytes <= d.level[LEVEL_TEAM].bytes);
    store_close(s);
    /* Kept: a second look needs no compiler. */
    setenv("CC", "/nonexistent/cc", 1);
    s = store_open_to_read(path);
    assert_true(device_calibrated(&o, s, true, &again));
    store_close(s);
    assert_true(again.measured && again.gflops == d.gflops && again.group_ns == d.group_ns);
    /* Without one, the table's row is as good. */
    unlink(path);
    s = store_open(path);
    assert_true(device_calibrated(&o, s, true, &again));
    store_close(s);
    unsetenv("CC");
    assert_false(again.measured);
    assert_true(again.gflops == row->gflops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_devices, begin, end),
        cmocka_unit_test_setup_teardown(test_choices, begin, end),
        cmocka_unit_test_setup_teardown(test_absent, begin, end),
        cmocka_unit_test_setup_teardown(test_damaged, begin, end),
        cmocka_unit_test_setup_teardown(test_processes, begin, end),
        cmocka_unit_test_setup_teardown(test_calibration, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
